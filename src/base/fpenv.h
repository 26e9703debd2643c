/* The floating-point mode that equal bytes need: round to nearest, subnormals not flushed. A host program may run with
 * flush-to-zero set (PyTorch offers it), so every entry point that computes sets this mode and restores the
 * caller's. */
#ifndef TG_BASE_FPENV_H
#define TG_BASE_FPENV_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
typedef unsigned tg_fp_mode;
static inline tg_fp_mode tg_fp_enter(void)
{
    tg_fp_mode before = _mm_getcsr();
    _mm_setcsr((before & ~0xe040u) | 0x1f80u); /* nearest, no FTZ, no DAZ, exceptions masked */
    return before;
}
static inline void tg_fp_leave(tg_fp_mode before) { _mm_setcsr(before); }

#elif defined(__aarch64__)
typedef uint64_t tg_fp_mode;
static inline tg_fp_mode tg_fp_enter(void)
{
    tg_fp_mode before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    /* All zero: nearest, no flushing, IEEE half precision, NaN as IEEE propagates them, no traps, and none of the later
     * extensions. */
    __asm__ volatile("msr fpcr, xzr");
    return before;
}
static inline void tg_fp_leave(tg_fp_mode before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }

#elif defined(__s390x__)
typedef uint32_t tg_fp_mode;
static inline tg_fp_mode tg_fp_enter(void)
{
    tg_fp_mode before;
    __asm__ volatile("efpc %0" : "=r"(before));
    __asm__ volatile("sfpc %0"
                     :
                     : "r"(before & ~UINT32_C(0xf8000007))); /* traps, rounding mode; subnormals are always kept */
    return before;
}
static inline void tg_fp_leave(tg_fp_mode before) { __asm__ volatile("sfpc %0" : : "r"(before)); }

#else
/* Unknown processor: the caller must not have changed the mode. (fesetround would set it, but is not in libc.) */
typedef int tg_fp_mode;
static inline tg_fp_mode tg_fp_enter(void) { return 0; }
static inline void tg_fp_leave(tg_fp_mode before) { (void)before; }
#endif

#endif
