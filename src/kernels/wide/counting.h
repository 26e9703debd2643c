/* 0, 1, 2, ...: the random counters of a group's rows. */
#ifndef TG_KERNELS_WIDE_COUNTING_H
#define TG_KERNELS_WIDE_COUNTING_H

#include "kernels/kernels.h"

extern const uint32_t tg_counting[TG_GROUP / 2];

#endif
