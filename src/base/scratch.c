/* Buffers for threads. */
#include "base/scratch.h"

#include <sched.h>
#include <stdlib.h>

enum { LINE = 64 };

bool tg_scratch_make(tg_scratch *scratch, unsigned count, size_t size)
{
    const size_t whole = (size + LINE - 1) / LINE * LINE;
    *scratch = (tg_scratch){.memory = aligned_alloc(LINE, count * whole),
                            .taken = malloc(count * sizeof *scratch->taken),
                            .size = whole,
                            .count = count};
    if (!scratch->memory || !scratch->taken) {
        tg_scratch_free(scratch);
        return false;
    }
    for (unsigned i = 0; i < count; i++)
        atomic_init(&scratch->taken[i], false);
    return true;
}

void tg_scratch_free(tg_scratch *scratch)
{
    free(scratch->memory);
    free(scratch->taken);
    *scratch = (tg_scratch){.memory = NULL};
}

void *tg_scratch_take(tg_scratch *scratch)
{
    for (;; (void)sched_yield())
        for (unsigned i = 0; i < scratch->count; i++)
            if (!atomic_exchange_explicit(&scratch->taken[i], true, memory_order_acquire))
                return scratch->memory + i * scratch->size;
}

void tg_scratch_give(tg_scratch *scratch, const void *buffer)
{
    const size_t i = (size_t)((const char *)buffer - scratch->memory) / scratch->size;
    atomic_store_explicit(&scratch->taken[i], false, memory_order_release);
}
