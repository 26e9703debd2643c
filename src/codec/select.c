/* Exact selection by radix, threshold selection by bracketing. */
#include "codec/select.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/dense.h"

/* Keys of the block at `first`; notes magnitudes that are not finite. */
static void keys_of(tg_selection *s, uint64_t first, size_t n)
{
    const tg_kernels *k = s->job->kernels;
    if (s->by_random_key) {
        k->random_keys(tg_key_of(&s->job->draw, TG_FOR_SELECTION), (uint32_t)first, n, s->keys);
        return;
    }
    (void)tg_source_read(&s->job->source, k, first, n, s->block);
    k->magnitude_keys(s->block->u, n, s->keys);
    s->nonfinite |= k->count_at_least(s->keys, n, TG_INFINITY_BITS) > 0;
}

/* The 31 bits of a key in three digits, most significant first. */
typedef struct digit {
    unsigned shift, bits;
} digit;
static const digit digits[] = {{20, 11}, {10, 10}, {0, 10}};

static void histogram_of_vector(tg_selection *s, unsigned prefix_shift, uint32_t prefix, digit d, uint64_t *bins)
{
    const uint64_t count = s->job->source.count;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        size_t n = tg_block_size(count, first);
        keys_of(s, first, n);
        s->job->kernels->key_histogram(s->keys, n, prefix_shift, prefix, d.shift, (1u << d.bits) - 1, bins);
    }
    s->seen_all = !s->by_random_key;
}

/* Finds the key of the rank-th largest, and how many of that key are among the first `rank`. */
static tg_cut radix_select(tg_selection *s, uint64_t rank)
{
    uint32_t prefix = 0;
    unsigned prefix_shift = 31;
    uint64_t left = rank;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t bins[1u << 11] = {0};
        histogram_of_vector(s, prefix_shift, prefix, digits[i], bins);
        uint32_t bin = (1u << digits[i].bits) - 1;
        while (bin > 0 && bins[bin] < left)
            left -= bins[bin--];
        prefix = prefix << digits[i].bits | bin;
        prefix_shift = digits[i].shift;
    }
    return (tg_cut){.above = prefix, .ties = left};
}

static tg_cut select_exact(void *data)
{
    tg_selection *s = data;
    return radix_select(s, s->wanted);
}

static uint64_t count_vector(void *data, uint32_t key)
{
    tg_selection *s = data;
    const uint64_t count = s->job->source.count;
    uint64_t passing = 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        size_t n = tg_block_size(count, first);
        keys_of(s, first, n);
        passing += s->job->kernels->count_at_least(s->keys, n, key);
    }
    s->seen_all = !s->by_random_key;
    return s->nonfinite ? TG_NOT_KNOWN : passing;
}

bool tg_search_threshold(const tg_inquiry *q, const tg_guesses *guesses, tg_cut *cut)
{
    const uint64_t fewest = tg_fewest(q->wanted), most = tg_most(q->wanted);
    *cut = (tg_cut){.above = 0, .ties = UINT64_MAX};
    if (q->total <= most)
        return true;
    /* Keys from `low` let too many pass, keys from `high` too few. */
    uint32_t low = 0, high = TG_INFINITY_BITS;
    uint64_t passing_high = 0;
    for (size_t i = 0; high - low > 1; i++) {
        uint32_t key = low + (high - low) / 2;
        if (i < guesses->count) {
            key = tg_float_bits(guesses->values[i]);
            if (key <= low || key >= high) /* also NaN, infinity and negative numbers */
                continue;
        }
        uint64_t passing = q->count(q->data, key);
        if (passing == TG_NOT_KNOWN)
            return false;
        if (passing >= fewest && passing <= most) {
            *cut = (tg_cut){.above = key - 1, .ties = 0};
            return true;
        }
        if (passing > most) {
            if (i < guesses->count && guesses->exact_if_many) {
                *cut = q->exact(q->data);
                return true;
            }
            low = key;
        } else {
            high = key;
            passing_high = passing;
        }
    }
    *cut = (tg_cut){.above = low, .ties = q->wanted - passing_high};
    return true;
}

tg_cut tg_select(tg_selection *s, const tg_guesses *guesses)
{
    if (guesses->count == 0)
        return select_exact(s);
    const tg_inquiry inquiry = {s, s->wanted, s->job->source.count, count_vector, select_exact};
    tg_cut cut;
    (void)tg_search_threshold(&inquiry, guesses, &cut); /* false where a value is not finite: the caller looks at that */
    return cut;
}

static size_t read_run(tg_selection *s, uint64_t start, size_t filled)
{
    uint64_t left = s->job->source.count - start;
    size_t n = left < TG_SAMPLE_RUN ? (size_t)left : TG_SAMPLE_RUN;
    (void)tg_source_read(&s->job->source, s->job->kernels, start, n, s->block);
    memcpy(s->sample + filled, s->block->u, n * sizeof(float));
    return filled + n;
}

static size_t sample_all(tg_selection *s)
{
    const uint64_t count = s->job->source.count;
    size_t filled = 0;
    for (uint64_t start = 0; start < count; start += TG_SAMPLE_RUN)
        filled = read_run(s, start, filled);
    return filled;
}

size_t tg_sample_fixed(tg_selection *s)
{
    const uint64_t count = s->job->source.count;
    if (count <= TG_SAMPLE)
        return sample_all(s);
    size_t filled = 0;
    for (uint64_t run = 0; run < TG_SAMPLE_RUNS; run++)
        filled = read_run(s, run * count / TG_SAMPLE_RUNS / TG_SAMPLE_RUN * TG_SAMPLE_RUN, filled);
    return filled;
}

size_t tg_sample_random(tg_selection *s, uint64_t size)
{
    const uint64_t count = s->job->source.count, runs = (size + TG_SAMPLE_RUN - 1) / TG_SAMPLE_RUN;
    const tg_key key = tg_key_of(&s->job->draw, TG_FOR_SAMPLING);
    if (runs * TG_SAMPLE_RUN >= count)
        return sample_all(s);
    size_t filled = 0;
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t start = run * count / runs, end = (run + 1) * count / runs;
        uint64_t places = end - start >= TG_SAMPLE_RUN ? end - start - TG_SAMPLE_RUN + 1 : 1;
        filled = read_run(s, start + tg_hash(key, (uint32_t)run) % places, filled);
    }
    return filled;
}
