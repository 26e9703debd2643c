/* The rANS engine for AVX2. */
#ifndef TG_KERNELS_AVX2_RANS_H
#define TG_KERNELS_AVX2_RANS_H

#include "base/rans_engine.h"

extern const tg_rans_engine tg_rans_avx2;

#endif
