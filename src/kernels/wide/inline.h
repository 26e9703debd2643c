/* Compiler attributes for vector code.
 *
 * This folder has what is written once for vectors of any size. Its headers are included by the files of an instruction
 * set, after that set's lanes.h, which defines V_LANES, v_floats, v_ints and the v_ functions. */
#ifndef TG_KERNELS_WIDE_INLINE_H
#define TG_KERNELS_WIDE_INLINE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/machine.h"

#define TG_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define TG_UNROLL _Pragma("unroll")
#define TG_NO_UNROLL _Pragma("nounroll")
#else
#define TG_UNROLL _Pragma("GCC unroll 32")
#define TG_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Prefetches the cache line that lies `bytes` further on. It may lie past the end of the array: prefetching does not
 * fault. */
TG_INLINE void tg_prefetch(const void *p, size_t bytes) { __builtin_prefetch((const char *)((uintptr_t)p + bytes)); }

#endif
