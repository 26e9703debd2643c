/* Gaps of indices with AVX2, for the coder in src/code. */
#ifndef TG_KERNELS_AVX2_GAPS_H
#define TG_KERNELS_AVX2_GAPS_H

#include "base/gaps_engine.h"

extern const tg_gaps_engine tg_gaps_avx2;

#endif
