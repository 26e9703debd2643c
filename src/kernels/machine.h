/* Differences between the processors of AMD and Intel: how far to prefetch and how much to do at a time, never what is
 * computed. */
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

/* How many leaves of a frame to digest at a time while it is written. AMD's processors need some time to detect a
 * stream again after they have read elsewhere: digesting leaves one by one costs them a third of the time of a plain
 * read, while many at a time cost little even from the second-level cache. Intel's are fastest on what is still in the
 * first-level cache. */
static inline size_t tg_digested_at_once(void) { return tg_is_amd() ? 64 : 1; }

/* How many bytes ahead to prefetch a vector that is read from start to end. AMD's processors detect such streams
 * themselves and take up to 40 % longer with explicit prefetches; Intel's take up to 30 % longer without. With 0 the
 * prefetch of the current line has no effect. */
static inline size_t tg_ahead(void) { return tg_is_amd() ? 0 : 4096; }

#endif
