/* Scratch memory that does not lie on the stack: buffers that a thread takes for as long as it works, and gives back.
 * Whole threads of some systems have a stack of 128 KiB. */
#ifndef TG_BASE_SCRATCH_H
#define TG_BASE_SCRATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tg_scratch {
    char *memory;
    atomic_int *holder; /* of each buffer: the process that has it, or 0 */
    size_t size;
    unsigned count;
} tg_scratch;

/* `count` buffers of `size` bytes, aligned to cache lines. False if there is no memory; what is not used takes none. */
bool tg_scratch_make(tg_scratch *scratch, unsigned count, size_t size);
void tg_scratch_free(tg_scratch *scratch);

/* The first buffer that is free, so that one thread alone always gets the same. Waits where all are taken: whoever has
 * one must not wait for another of the same kind. */
void *tg_scratch_take(tg_scratch *scratch);
void tg_scratch_give(tg_scratch *scratch, const void *buffer);

#endif
