/* Compensation, block by block. */
#include "kernels/source.h"

#include <string.h>

static const void *element_at(const tg_source *s, uint64_t index)
{
    return (const char *)s->gradient + index * tg_dtype_size(s->dtype);
}

size_t tg_dtype_size(tg_dtype dtype)
{
    switch (dtype) {
    case TG_FLOAT32: return 4;
    case TG_FLOAT16:
    case TG_BFLOAT16: return 2;
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
        /* Gradient and residual were finite, their sum is not: what the gradient brings is dropped. */
        for (size_t i = 0; i < n; i++) {
            if (k->first_nonfinite(&b->u[i], 1) == 0 || k->first_nonfinite(&b->rest[i], 1) == 0) {
                b->push[i] = 0;
                dropped++;
            }
        }
        compute(s, k, first, n, b);
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

void tg_source_undo(const tg_source *s, const tg_kernels *k, uint64_t first, size_t n, const float *sent,
                    tg_source_block *b)
{
    k->widen(s->dtype, element_at(s, first), n, b->push);
    for (size_t i = 0; i < n; i++) {
        float rest = s->residual[first + i] + sent[i];
        s->residual[first + i] = (rest - b->push[i]) / s->beta;
    }
}

uint64_t tg_source_first_nonfinite(const tg_source *s, const tg_kernels *k, tg_source_block *b)
{
    tg_source as_is = *s;
    as_is.drop_nonfinite = false;
    for (uint64_t first = 0; first < s->count; first += TG_BLOCK) {
        size_t n = tg_block_size(s->count, first);
        if (k->all_finite && s->dtype == TG_FLOAT32 && !s->momentum &&
            k->all_finite(element_at(s, first), s->residual ? s->residual + first : NULL, s->alpha, s->beta, n))
            continue;
        (void)tg_source_read(&as_is, k, first, n, b);
        size_t bad = k->first_nonfinite(b->u, n);
        if (s->residual) {
            size_t bad_rest = k->first_nonfinite(b->rest, n);
            bad = bad_rest < bad ? bad_rest : bad;
        }
        if (bad < n)
            return first + bad;
    }
    return s->count;
}
