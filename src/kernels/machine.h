/* What is done differently on processors of different makers: how far to ask ahead and how much to do at a time, never
 * what is computed. */
#ifndef TG_KERNELS_MACHINE_H
#define TG_KERNELS_MACHINE_H

#include <stddef.h>

static inline int tg_is_amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

/* How many chunks of a frame to digest at a time while it is written. AMD's processors take a while to see a stream
 * again once they have looked elsewhere: one by one costs them a third of a bare read, many cost little even from the
 * second-level cache. Intel's digest best what is still in the first. */
static inline size_t tg_digested_at_once(void) { return tg_is_amd() ? 64 : 1; }

/* How far ahead to ask for what is read from one end to the other, in bytes. AMD's processors see by themselves what
 * comes, and take up to 40 % longer when they are asked; Intel's take up to 30 % longer when they are not. To ask for
 * the line at hand changes nothing. */
static inline size_t tg_ahead(void) { return tg_is_amd() ? 0 : 4096; }

#endif
