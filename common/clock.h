/* Nanoseconds of a clock that only goes forward. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);

#endif
