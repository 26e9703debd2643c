/* Compensation, block by block. */
#include "kernels/source.h"

#include <stdatomic.h>
#include <string.h>

#include "base/numeric.h"
#include "kernels/ranges.h"

static const void *element_at(const tg_source *s, uint64_t index)
{
    return (const char *)s->gradient + index * tg_dtype_size(s->dtype);
}

size_t tg_dtype_size(tg_dtype dtype)
{
    switch (dtype) {
    case TG_FLOAT32:
        return 4;
    case TG_FLOAT16:
    case TG_BFLOAT16:
        return 2;
    }
    return 0;
}

/* Sets to zero what is not finite in `values`. */
static size_t drop(const tg_kernels *k, float *values, size_t n)
{
    size_t dropped = 0;
    for (size_t i = k->first_nonfinite(values, n); i < n; i += k->first_nonfinite(values + i, n - i)) {
        values[i] = 0;
        dropped++;
    }
    return dropped;
}

static void compute(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n, tg_source_block *b)
{
    k->compensate(b->push, s->residual + first, s->alpha, s->beta, n, b->u, b->rest);
}

static void push_of(const tg_source *s, uint64_t first, size_t n, float *push)
{
    for (size_t i = 0; s->momentum && i < n; i++)
        push[i] = s->momentum_factor * s->momentum[first + i] + s->clip_factor * push[i];
}

/* Notes the first element, from `first` on, whose residual or momentum is not finite. It is called where one is. */
static void note_damage(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n)
{
    size_t at = k->first_nonfinite(s->residual + first, n);
    if (s->momentum) {
        const size_t in_momentum = k->first_nonfinite(s->momentum + first, n);
        at = in_momentum < at ? in_momentum : at;
    }
    const uint64_t noted = at < n ? ~(first + at) : 0;
    uint64_t before = __atomic_load_n(s->damaged, __ATOMIC_RELAXED);
    while (noted > before &&
           !__atomic_compare_exchange_n(s->damaged, &before, noted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

size_t tg_source_read(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n, tg_source_block *b)
{
    float *gradient = s->residual ? b->push : b->u;
    size_t dropped = 0;
    k->widen(s->dtype, element_at(s, first), n, gradient);
    if (s->drop_nonfinite)
        dropped = drop(k, gradient, n);
    if (!s->residual)
        return dropped;
    push_of(s, first, n, b->push);
    compute(s, k, first, n, b);
    if (s->drop_nonfinite && (k->first_nonfinite(b->u, n) < n || k->first_nonfinite(b->rest, n) < n)) {
        if (s->damaged)
            note_damage(s, k, first, n);
        /* Gradient and residual were finite, their sum is not: the gradient's part is dropped. */
        for (size_t i = 0; i < n; i++) {
            if (k->first_nonfinite(&b->u[i], 1) == 0 || k->first_nonfinite(&b->rest[i], 1) == 0) {
                b->push[i] = 0;
                dropped++;
            }
        }
        compute(s, k, first, n, b);
        /* A residual is finite unless something else has written to its memory: such an element becomes 0, so that
         * codecs, which do not check what they drop from, still get numbers; and the call fails. */
        (void)drop(k, b->u, n);
        (void)drop(k, b->rest, n);
    }
    return dropped;
}

void tg_source_commit(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n, const tg_source_block *b,
                      const float *sent)
{
    if (sent)
        k->subtract(b->rest, sent, n, s->residual + first);
    else
        memcpy(s->residual + first, b->rest, n * sizeof(float));
    if (s->momentum)
        memcpy(s->momentum + first, b->push, n * sizeof(float));
}

void tg_source_save(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n)
{
    if (s->undo)
        k->copy_nontemporal(s->residual + first, n * sizeof(float), s->undo + first);
}

void tg_source_restore(const tg_source *s, uint64_t first, uint64_t end)
{
    memcpy(s->residual + first, s->undo + first, (size_t)(end - first) * sizeof(float));
}

void tg_source_recompute(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n, const float *sent,
                         tg_source_block *b)
{
    uint64_t limited = 0; /* only by rounding, so it is not reported */
    k->widen(s->dtype, element_at(s, first), n, b->push);
    for (size_t i = 0; i < n; i++) {
        const float rest = s->residual[first + i] + sent[i];
        s->residual[first + i] = tg_limited(rest - b->push[i], &limited);
    }
}

typedef struct finite_search {
    tg_source source;
    const tg_kernels *kernels;
    tg_ranges ranges;
    atomic_uint_fast64_t found; /* the lowest index so far of an element that is not finite */
} finite_search;

static size_t first_bad(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n)
{
    tg_source_block block;
    if (k->all_finite && s->dtype == TG_FLOAT32 && !s->momentum &&
        k->all_finite(element_at(s, first), s->residual ? s->residual + first : NULL, s->alpha, s->beta, n))
        return n;
    (void)tg_source_read(s, k, first, n, &block);
    size_t bad = k->first_nonfinite(block.u, n);
    if (s->residual) {
        size_t bad_rest = k->first_nonfinite(block.rest, n);
        bad = bad_rest < bad ? bad_rest : bad;
    }
    return bad;
}

static void search_range(void *of, size_t part)
{
    finite_search *l = of;
    const uint64_t end = tg_range_end(&l->ranges, part);
    for (uint64_t first = tg_range_first(&l->ranges, part); first < end && first < atomic_load(&l->found);
         first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first), bad = first_bad(&l->source, l->kernels, first, n);
        uint_fast64_t lowest = atomic_load(&l->found);
        while (bad < n && first + bad < lowest && !atomic_compare_exchange_weak(&l->found, &lowest, first + bad))
            continue;
    }
}

uint64_t tg_source_first_nonfinite(const tg_source *s, const tg_kernels *k, tg_pool *pool)
{
    finite_search l = {.source = *s, .kernels = k, .ranges = tg_ranges_of(pool, s->count, TG_BLOCK)};
    l.source.drop_nonfinite = false;
    atomic_init(&l.found, s->count);
    tg_parallel(pool, l.ranges.parts, search_range, &l);
    return atomic_load(&l.found);
}
