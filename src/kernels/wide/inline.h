/* What code for vectors asks of the compiler.
 *
 * This folder holds what is written once for vectors of any size. Its headers are included by the files of an instruction set, behind
 * that set's lanes.h, which gives V_LANES, v_floats, v_ints and the v_ functions. */
#ifndef TG_KERNELS_WIDE_INLINE_H
#define TG_KERNELS_WIDE_INLINE_H

#include <stddef.h>
#include <stdint.h>

#define TG_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define TG_UNROLL _Pragma("unroll")
#define TG_NO_UNROLL _Pragma("nounroll")
#else
#define TG_UNROLL _Pragma("GCC unroll 32")
#define TG_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Brings the cache line that lies `bytes` further on. It may lie past the end of the array: prefetching does not fault. */
TG_INLINE void tg_prefetch(const void *p, size_t bytes) { __builtin_prefetch((const char *)((uintptr_t)p + bytes)); }

TG_INLINE int tg_is_amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

/* How many chunks of a frame to digest at a time while it is written. AMD's processors take a while to see a stream again once they have looked
 * elsewhere: one by one costs them a third of a bare read, many cost little even from the second-level cache. Intel's digest best what is
 * still in the first. */
TG_INLINE size_t tg_digested_at_once(void) { return tg_is_amd() ? 64 : 1; }

/* How far ahead to ask for what is read from one end to the other, in bytes. AMD's processors see by themselves what comes, and take up to
 * 40 % longer when they are asked; Intel's take up to 30 % longer when they are not. To ask for the line at hand changes nothing. */
TG_INLINE size_t tg_ahead(void) { return tg_is_amd() ? 0 : 4096; }

#endif
