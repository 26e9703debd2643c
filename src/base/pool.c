/* A list of works, from which threads take parts. Whoever brings a work takes parts of it as well, and of no other.
 *
 * An encode is a dozen works with next to nothing between them, and to wake a thread takes longer than some of them: so
 * threads look out for the next work for some microseconds before they sleep, unless there are more of them than
 * processors. */
#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fpenv.h"
#include "base/processors.h"

/* Lives on the stack of the thread that brought it, until no helper is left. */
typedef struct work {
    tg_part *run;
    void *context;
    size_t parts;
    atomic_size_t next; /* the first part that nobody has taken, or beyond the last */
    atomic_size_t
        helpers;    /* threads at work on it, other than the one that brought it; grows under the pool's lock only */
    bool is_listed; /* under the lock, as the following */
    struct work *following;
} work;

struct tg_pool {
    unsigned threads; /* with the caller's */
    unsigned started;
    bool looks_out; /* before it sleeps */
    pid_t owner;    /* a child after fork has none of the threads */
    pthread_mutex_t lock;
    pthread_cond_t wanted, finished;
    work *first; /* works of which there may be parts to take, the oldest first */
    unsigned sleeping;
    atomic_uint brought; /* works so far */
    bool closing;
    pthread_t workers[];
};

/* ---- waiting ---- */

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Looks at a condition for about 20 to 50 microseconds. */
#define LOOK_OUT_UNTIL(pool, condition)                                                     \
    for (unsigned looks = (pool)->looks_out ? 1000 : 0; looks > 0 && !(condition); looks--) \
    pause_a_little()

/* ---- works ---- */

static void append(tg_pool *pool, work *w)
{
    work **end = &pool->first;
    while (*end)
        end = &(*end)->following;
    *end = w;
    w->is_listed = true;
}

static void take_out(tg_pool *pool, work *w)
{
    work **at = &pool->first;
    while (*at != w)
        at = &(*at)->following;
    *at = w->following;
    w->is_listed = false;
}

static void take_parts(work *w)
{
    for (size_t part; (part = atomic_fetch_add(&w->next, 1)) < w->parts;)
        w->run(w->context, part);
}

/* Takes parts of a work until there are none to take. The lock is held before and after. */
static void help(tg_pool *pool, work *w)
{
    atomic_fetch_add(&w->helpers, 1);
    pthread_mutex_unlock(&pool->lock);
    take_parts(w);
    pthread_mutex_lock(&pool->lock);
    if (w->is_listed)
        take_out(pool, w);
    if (atomic_fetch_sub(&w->helpers, 1) == 1)
        pthread_cond_broadcast(&pool->finished); /* w is gone as soon as the lock is */
}

/* For the next work. The lock is held before and after. */
static void await(tg_pool *pool)
{
    const unsigned seen = atomic_load(&pool->brought);
    if (pool->looks_out) {
        pthread_mutex_unlock(&pool->lock);
        LOOK_OUT_UNTIL(pool, atomic_load_explicit(&pool->brought, memory_order_relaxed) != seen);
        pthread_mutex_lock(&pool->lock);
    }
    if (!pool->first && !pool->closing) {
        pool->sleeping++;
        pthread_cond_wait(&pool->wanted, &pool->lock);
        pool->sleeping--;
    }
}

static void *serve(void *of)
{
    tg_pool *pool = of;
    (void)tg_fp_enter(); /* whatever mode the thread that opened the device was in */
    pthread_mutex_lock(&pool->lock);
    while (!pool->closing) {
        if (pool->first)
            help(pool, pool->first);
        else
            await(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

void tg_parallel(tg_pool *pool, size_t parts, tg_part *run, void *context)
{
    if (parts <= 1 || !pool || pool->owner != getpid()) {
        for (size_t part = 0; part < parts; part++)
            run(context, part);
        return;
    }
    work w = {.run = run, .context = context, .parts = parts};
    pthread_mutex_lock(&pool->lock);
    append(pool, &w);
    atomic_fetch_add(&pool->brought, 1);
    for (size_t wake = parts - 1 < pool->sleeping ? parts - 1 : pool->sleeping; wake > 0; wake--)
        pthread_cond_signal(&pool->wanted);
    pthread_mutex_unlock(&pool->lock);
    take_parts(&w);
    LOOK_OUT_UNTIL(pool, atomic_load_explicit(&w.helpers, memory_order_relaxed) == 0);
    pthread_mutex_lock(&pool->lock);
    if (w.is_listed)
        take_out(pool, &w);
    while (atomic_load(&w.helpers) > 0)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* Threads of ours take no signals: those are for the program's own. */
static bool start_workers(tg_pool *pool)
{
    enum { STACK = 1 << 20 };
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < pool->threads - 1 &&
           pthread_create(&pool->workers[pool->started], &attributes, serve, pool) == 0)
        pool->started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return pool->started == pool->threads - 1;
}

tg_pool *tg_pool_open(unsigned threads)
{
    tg_pool *pool = malloc(sizeof *pool + (threads - 1) * sizeof pool->workers[0]);
    if (!pool)
        return NULL;
    *pool = (tg_pool){.threads = threads, .looks_out = threads <= tg_processors(), .owner = getpid()};
    (void)pthread_mutex_init(&pool->lock, NULL); /* neither can fail without attributes */
    (void)pthread_cond_init(&pool->wanted, NULL);
    (void)pthread_cond_init(&pool->finished, NULL);
    if (start_workers(pool))
        return pool;
    tg_pool_close(pool);
    return NULL;
}

void tg_pool_close(tg_pool *pool)
{
    if (pool && pool->owner == getpid()) {
        pthread_mutex_lock(&pool->lock);
        pool->closing = true;
        pthread_cond_broadcast(&pool->wanted);
        pthread_mutex_unlock(&pool->lock);
        for (unsigned i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i], NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->wanted);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool);
}

unsigned tg_pool_threads(const tg_pool *pool) { return pool ? pool->threads : 1; }
