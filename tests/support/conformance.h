/* What every transport must do, tried from inside each of its ranks at once. */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "tersegrad.h"

/* Seconds for what must not fail because the machine is busy: only a hang takes longer. */
enum { PATIENCE = 3600 };

/* Runs the whole suite on this rank. Returns how many things were tried; `problem` says what went wrong first, or is
 * empty. */
unsigned conform(tg_transport *transport, tg_error *problem);

/* Reduces gradients for some steps over the transport, each way and codec, with frames that stay on the device where it
 * takes them, and returns a digest of all that came out:
 * the same for any transport of that world. */
uint64_t reduce_over(tg_transport *transport, const char *device, tg_error *problem);

/* The same in two levels, on hosts of two ranks: within them by messages, and through shared memory,
 * which must be there and must not make a difference. */
uint64_t reduce_levels_over(tg_transport *transport, const char *device, tg_error *problem);

#endif
