/* rANS on vectors. */
#ifndef TG_KERNELS_AVX2_RANS_H
#define TG_KERNELS_AVX2_RANS_H

#include "base/rans.h"

extern const tg_rans_engine tg_rans_avx2;

#endif
