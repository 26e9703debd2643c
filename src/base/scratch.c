/* Buffers for threads. */
#include "base/scratch.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE = 64 };

bool tg_scratch_make(tg_scratch *scratch, unsigned count, size_t size)
{
    const size_t whole = (size + LINE - 1) / LINE * LINE;
    *scratch = (tg_scratch){.memory = aligned_alloc(LINE, count * whole),
                            .holder = malloc(count * sizeof *scratch->holder),
                            .size = whole,
                            .count = count};
    if (!scratch->memory || !scratch->holder) {
        tg_scratch_free(scratch);
        return false;
    }
    for (unsigned i = 0; i < count; i++)
        atomic_init(&scratch->holder[i], 0);
    return true;
}

void tg_scratch_free(tg_scratch *scratch)
{
    free(scratch->memory);
    free(scratch->holder);
    *scratch = (tg_scratch){.memory = NULL};
}

/* What another process took is free: this one is its child, and the thread that had it is not here. */
void *tg_scratch_take(tg_scratch *scratch)
{
    const int self = (int)getpid();
    for (;; (void)sched_yield())
        for (unsigned i = 0; i < scratch->count; i++) {
            int before = atomic_load_explicit(&scratch->holder[i], memory_order_relaxed);
            if (before != self && atomic_compare_exchange_strong_explicit(&scratch->holder[i], &before, self,
                                                                          memory_order_acquire, memory_order_relaxed))
                return scratch->memory + i * scratch->size;
        }
}

void tg_scratch_give(tg_scratch *scratch, const void *buffer)
{
    const size_t i = (size_t)((const char *)buffer - scratch->memory) / scratch->size;
    atomic_store_explicit(&scratch->holder[i], 0, memory_order_release);
}
