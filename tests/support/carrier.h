/* A transport that takes device memory, made of two that do not: one carries what lies in host memory, the other, by
 * way of copies, what lies in the memory of a device, guarded or not. It is as strict as it may be: what comes must be
 * as long as the receiver said. */
#ifndef TESTS_CARRIER_H
#define TESTS_CARRIER_H

#include "tersegrad.h"

/* Both transports are freed with it. */
tg_transport *carry(tg_transport *hosts, tg_transport *devices, tg_device *device);

#endif
