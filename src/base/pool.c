/* A list of works, from which threads take parts. The thread that submits a work takes parts of it too, and of no
 * other.
 *
 * An encode call submits a dozen works with almost nothing between them, and waking a thread takes longer than some
 * of them. So idle threads spin for some microseconds before they sleep, unless there are more threads than
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

/* Lives on the stack of the thread that submitted it, until no helper is left. */
typedef struct work {
    tg_part *run;
    void *context;
    size_t parts;
    atomic_size_t next; /* the next part to run; at least `parts` when none is left */
    /* threads that run parts of it, without the one that submitted it; increases only under the pool's lock */
    atomic_size_t helpers;
    bool is_listed; /* protected by the lock, like the following field */
    struct work *following;
} work;

struct tg_pool {
    unsigned threads; /* including the caller's */
    unsigned started;
    bool spins;  /* whether idle threads spin before they sleep */
    pid_t owner; /* a child after fork has none of the threads */
    pthread_mutex_t lock;
    pthread_cond_t work_added, finished;
    work *first; /* works that may have parts left, the oldest first */
    unsigned sleeping;
    atomic_uint submitted; /* how many works have been submitted so far */
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

/* Polls a condition for about 20 to 50 microseconds. */
#define SPIN_UNTIL(pool, condition)                                                     \
    for (unsigned tries = (pool)->spins ? 1000 : 0; tries > 0 && !(condition); tries--) \
    pause_a_little()

/* ---- works ---- */

static void append_work(tg_pool *pool, work *w)
{
    work **end = &pool->first;
    while (*end)
        end = &(*end)->following;
    *end = w;
    w->is_listed = true;
}

static void remove_work(tg_pool *pool, work *w)
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

/* Runs parts of a work until none is left. The lock is held before and after. */
static void help(tg_pool *pool, work *w)
{
    atomic_fetch_add(&w->helpers, 1);
    pthread_mutex_unlock(&pool->lock);
    take_parts(w);
    pthread_mutex_lock(&pool->lock);
    if (w->is_listed)
        remove_work(pool, w);
    if (atomic_fetch_sub(&w->helpers, 1) == 1)
        pthread_cond_broadcast(&pool->finished); /* w may be gone as soon as the lock is released */
}

/* Waits for the next work. The lock is held before and after. */
static void wait_for_work(tg_pool *pool)
{
    const unsigned seen = atomic_load(&pool->submitted);
    if (pool->spins) {
        pthread_mutex_unlock(&pool->lock);
        SPIN_UNTIL(pool, atomic_load_explicit(&pool->submitted, memory_order_relaxed) != seen);
        pthread_mutex_lock(&pool->lock);
    }
    if (!pool->first && !pool->closing) {
        pool->sleeping++;
        pthread_cond_wait(&pool->work_added, &pool->lock);
        pool->sleeping--;
    }
}

static void *serve(void *of)
{
    tg_pool *pool = of;
    (void)tg_fp_enter(); /* the thread that opened the device may have set another mode */
    pthread_mutex_lock(&pool->lock);
    while (!pool->closing) {
        if (pool->first)
            help(pool, pool->first);
        else
            wait_for_work(pool);
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
    append_work(pool, &w);
    atomic_fetch_add(&pool->submitted, 1);
    for (size_t wake = parts - 1 < pool->sleeping ? parts - 1 : pool->sleeping; wake > 0; wake--)
        pthread_cond_signal(&pool->work_added);
    pthread_mutex_unlock(&pool->lock);
    take_parts(&w);
    SPIN_UNTIL(pool, atomic_load_explicit(&w.helpers, memory_order_relaxed) == 0);
    pthread_mutex_lock(&pool->lock);
    if (w.is_listed)
        remove_work(pool, &w);
    while (atomic_load(&w.helpers) > 0)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* Our threads block all signals: these are for the program's own threads. */
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
    *pool = (tg_pool){.threads = threads, .spins = threads <= tg_processors(), .owner = getpid()};
    (void)pthread_mutex_init(&pool->lock, NULL); /* neither can fail without attributes */
    (void)pthread_cond_init(&pool->work_added, NULL);
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
        pthread_cond_broadcast(&pool->work_added);
        pthread_mutex_unlock(&pool->lock);
        for (unsigned i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i], NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->work_added);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool);
}

unsigned tg_pool_threads(const tg_pool *pool) { return pool ? pool->threads : 1; }
