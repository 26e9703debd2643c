/* Nanoseconds of a clock that only goes forward. */
#ifndef TRAIN_CLOCK_H
#define TRAIN_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);

#endif
