/* The threads of a device, and the only way to use them. */
#ifndef TG_BASE_POOL_H
#define TG_BASE_POOL_H

#include <stddef.h>

#define TG_MAX_THREADS 256u

typedef struct tg_pool tg_pool;

/* A pool of `threads` threads, the caller's own included: threads - 1 are started, and sleep until there is work. NULL
 * if the system has no memory or no threads left. */
tg_pool *tg_pool_open(unsigned threads);
/* Ends its threads. No thread may be using it. */
void tg_pool_close(tg_pool *pool);

/* The number of threads; 1 for NULL, which stands for the caller alone. */
unsigned tg_pool_threads(const tg_pool *pool);

/* Runs part 0, 1, … parts - 1 of some work, in any order and several at once, and returns when all are done. The caller
 * runs parts too, so the work makes progress even if no other thread gets a processor. May be called by several threads
 * at once, and in a child after fork, where the caller does everything; but not from within a part. */
typedef void tg_part(void *context, size_t part);
void tg_parallel(tg_pool *pool, size_t parts, tg_part *run, void *context);

#endif
