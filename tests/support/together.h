/* Reducers of one process that are driven by hand, without transports. */
#ifndef TESTS_TOGETHER_H
#define TESTS_TOGETHER_H

#include "tersegrad.h"

/* Lets the ranks of a host read each other's memory, all of them at once; whether they do now. */
bool share_together(tg_reducer *const *reducers, uint32_t world);

#endif
