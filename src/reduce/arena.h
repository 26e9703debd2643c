/* The memory of a reducer: everything is taken when it is made, and given back together. */
#ifndef TG_REDUCE_ARENA_H
#define TG_REDUCE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct tg_arena {
    void *last;  /* each piece starts with the address of the one before */
    bool failed; /* something could not be had */
    uint64_t bytes;
} tg_arena;

/* `count` things of `size` bytes, all zero; NULL, and `failed` set, where there is no memory. Pages that are not
 * touched cost nothing. */
static inline void *tg_arena_take(tg_arena *arena, uint64_t count, size_t size)
{
    enum { HEAD = 64 };
    const bool fits = size == 0 || count <= (SIZE_MAX - HEAD) / size;
    void **piece = fits ? calloc(1, HEAD + (size_t)count * size) : NULL;
    if (!piece) {
        arena->failed = true;
        return NULL;
    }
    *piece = arena->last;
    arena->last = piece;
    arena->bytes += count * size;
    return (char *)piece + HEAD;
}

static inline void tg_arena_free(tg_arena *arena)
{
    while (arena->last) {
        void *piece = arena->last;
        arena->last = *(void **)piece;
        free(piece);
    }
}

#endif
