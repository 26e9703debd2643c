/* A list of works, from which sleeping threads are woken to take parts. Whoever brings a work takes parts of it as well, and of no other. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity: what this process may use, not what the machine has */
#include <sched.h>
#endif

#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fpenv.h"

/* Lives on the stack of the thread that brought it. All fields but the first three change under the pool's lock. */
typedef struct work {
    tg_part *run;
    void *context;
    size_t parts;
    size_t next;       /* the first part that nobody has taken */
    size_t unfinished; /* parts, taken or not */
    struct work *following;
} work;

struct tg_pool {
    unsigned threads; /* with the caller's */
    unsigned started;
    pid_t owner;      /* a child after fork has none of the threads */
    pthread_mutex_t lock;
    pthread_cond_t wanted, finished;
    work *first;      /* works of which there are parts to take, the oldest first */
    bool closing;
    pthread_t workers[];
};

static void append(tg_pool *pool, work *w)
{
    work **end = &pool->first;
    while (*end)
        end = &(*end)->following;
    *end = w;
}

static void take_out(tg_pool *pool, const work *w)
{
    work **at = &pool->first;
    while (*at != w)
        at = &(*at)->following;
    *at = w->following;
}

/* Takes parts of a work until there are none to take. The lock is held before and after. */
static void take_parts(tg_pool *pool, work *w)
{
    while (w->next < w->parts) {
        const size_t part = w->next++;
        if (w->next == w->parts)
            take_out(pool, w);
        pthread_mutex_unlock(&pool->lock);
        w->run(w->context, part);
        pthread_mutex_lock(&pool->lock);
        if (--w->unfinished == 0) {
            pthread_cond_broadcast(&pool->finished);
            return; /* w is gone as soon as the lock is */
        }
    }
}

static void *serve(void *of)
{
    tg_pool *pool = of;
    (void)tg_fp_enter(); /* whatever mode the thread that opened the device was in */
    pthread_mutex_lock(&pool->lock);
    while (!pool->closing) {
        if (pool->first)
            take_parts(pool, pool->first);
        else
            pthread_cond_wait(&pool->wanted, &pool->lock);
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
    work w = {.run = run, .context = context, .parts = parts, .unfinished = parts};
    pthread_mutex_lock(&pool->lock);
    append(pool, &w);
    if (parts > pool->started)
        pthread_cond_broadcast(&pool->wanted);
    else
        for (size_t part = 1; part < parts; part++)
            pthread_cond_signal(&pool->wanted);
    take_parts(pool, &w);
    while (w.unfinished > 0)
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
    *pool = (tg_pool){.threads = threads, .owner = getpid()};
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

unsigned tg_processors(void)
{
    long found = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        found = CPU_COUNT(&allowed);
#endif
    return found < 1 ? 1 : found > (long)TG_MAX_THREADS ? TG_MAX_THREADS : (unsigned)found;
}
