/* Exact selection by a radix search over the bits of the keys, threshold selection by bisection. */
#include "codec/select.h"

#include <string.h>

#include "base/bytes.h"
#include "kernels/ranges.h"

size_t tg_keys_of(const tg_selection *s, uint64_t first, size_t n, tg_select_scratch *scratch)
{
    const tg_kernels *k = s->job->kernels;
    if (s->by_random_key) {
        k->random_keys(tg_hash_key_of(&s->job->draw, TG_FOR_SELECTION), (uint32_t)first, n, scratch->keys);
        return 0;
    }
    const size_t dropped = tg_source_read(&s->job->source, k, first, n, &scratch->block);
    k->magnitude_keys(scratch->block.u, n, scratch->keys);
    return dropped;
}

/* The 31 bits of a key in three digits, most significant first. */
typedef struct digit {
    unsigned shift, bits;
} digit;
static const digit digits[] = {{20, 11}, {10, 10}, {0, 10}};

/* One pass over all keys: counts those that are at least `least`, or makes a histogram of those that have a given
 * prefix. */
typedef struct pass {
    const tg_selection *selection;
    tg_ranges ranges;
    uint32_t least;        /* counted: keys of at least this value */
    unsigned prefix_shift; /* for a histogram: keys whose bits from prefix_shift on equal `prefix` */
    uint32_t prefix;
    digit digit;
    atomic_uint_fast64_t passing, *bins; /* bins: NULL when only counting */
    atomic_bool nonfinite;               /* a magnitude is not finite */
} pass;

static void pass_range(void *of, size_t part)
{
    pass *p = of;
    const tg_kernels *k = p->selection->job->kernels;
    tg_select_scratch scratch;
    uint64_t passing = 0, bins[TG_DIGIT_BINS] = {0}, nonfinite = 0;
    const uint64_t end = tg_range_end(&p->ranges, part);
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first);
        (void)tg_keys_of(p->selection, first, n, &scratch);
        if (!p->selection->by_random_key)
            nonfinite |= k->count_at_least(scratch.keys, n, TG_INFINITY_BITS);
        if (p->bins)
            k->key_histogram(scratch.keys, n, p->prefix_shift, p->prefix, p->digit.shift, (1u << p->digit.bits) - 1,
                             bins);
        else
            passing += k->count_at_least(scratch.keys, n, p->least);
    }
    for (size_t bin = 0; p->bins && bin < TG_DIGIT_BINS; bin++)
        if (bins[bin] > 0)
            atomic_fetch_add(&p->bins[bin], bins[bin]);
    atomic_fetch_add(&p->passing, passing);
    if (nonfinite > 0)
        atomic_store(&p->nonfinite, true);
}

static void run_pass(tg_selection *s, pass *p)
{
    p->selection = s;
    p->ranges = tg_ranges_of(s->job->pool, s->job->source.count, TG_BLOCK);
    tg_parallel(s->job->pool, p->ranges.parts, pass_range, p);
    s->seen_all = !s->by_random_key;
    s->nonfinite |= p->nonfinite;
}

/* Finds the rank-th largest key, and how many elements with this very key belong to the `rank` largest. */
static tg_threshold radix_select(tg_selection *s, uint64_t rank)
{
    uint32_t prefix = 0;
    unsigned prefix_shift = 31;
    uint64_t left = rank;
    for (unsigned i = 0; i < 3; i++) {
        atomic_uint_fast64_t *bins = s->bins;
        for (size_t bin = 0; bin < TG_DIGIT_BINS; bin++)
            atomic_init(&bins[bin], 0);
        pass p = {.prefix_shift = prefix_shift, .prefix = prefix, .digit = digits[i], .bins = bins};
        run_pass(s, &p);
        uint32_t bin = (1u << digits[i].bits) - 1;
        while (bin > 0 && bins[bin] < left)
            left -= bins[bin--];
        prefix = prefix << digits[i].bits | bin;
        prefix_shift = digits[i].shift;
    }
    return (tg_threshold){.above = prefix, .ties = left, .selected = rank};
}

static tg_threshold select_exact(void *data)
{
    tg_selection *s = data;
    return radix_select(s, s->target);
}

static uint64_t count_vector(void *data, uint32_t key)
{
    tg_selection *s = data;
    pass p = {.least = key};
    run_pass(s, &p);
    return s->nonfinite ? TG_COUNT_UNKNOWN : p.passing;
}

bool tg_search_threshold(const tg_threshold_search *q, const tg_guesses *guesses, tg_threshold *threshold)
{
    const uint64_t fewest = tg_min_selected(q->target), most = tg_max_selected(q->target);
    *threshold = (tg_threshold){.above = 0, .ties = UINT64_MAX, .selected = q->total};
    if (q->total <= most)
        return true;
    /* A threshold of `low` selects too many elements, a threshold of `high` too few. */
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
        if (passing == TG_COUNT_UNKNOWN)
            return false;
        if (passing >= fewest && passing <= most) {
            *threshold = (tg_threshold){.above = key - 1, .ties = 0, .selected = passing};
            return true;
        }
        if (passing > most) {
            if (i < guesses->count && guesses->exact_if_many) {
                *threshold = q->exact(q->data);
                return true;
            }
            low = key;
        } else {
            high = key;
            passing_high = passing;
        }
    }
    *threshold = (tg_threshold){.above = low, .ties = q->target - passing_high, .selected = q->target};
    return true;
}

tg_threshold tg_select(tg_selection *s, const tg_guesses *guesses)
{
    if (guesses->count == 0)
        return select_exact(s);
    const tg_threshold_search search = {s, s->target, s->job->source.count, count_vector, select_exact};
    tg_threshold threshold;
    (void)tg_search_threshold(&search, guesses,
                              &threshold); /* false where a value is not finite, which the caller checks */
    return threshold;
}

/* ---- samples ---- */

/* Copies u of the n elements from `start` on to `place` in the sample. */
static void sample_block(tg_selection *s, uint64_t start, size_t n, size_t place, tg_source_block *block)
{
    (void)tg_source_read(&s->job->source, s->job->kernels, start, n, block);
    memcpy(s->sample + place, block->u, n * sizeof(float));
}

/* Not inlined, so that its block is not on the stack where only runs are read. */
__attribute__((noinline)) static size_t sample_all(tg_selection *s)
{
    const uint64_t count = s->job->source.count;
    tg_source_block block;
    for (uint64_t start = 0; start < count; start += TG_BLOCK)
        sample_block(s, start, tg_block_size(count, start), (size_t)start, &block);
    return (size_t)count;
}

/* Where run j of `runs` starts. A whole run fits there. */
typedef uint64_t run_start(const tg_selection *s, uint64_t run, uint64_t runs);

typedef struct sampling {
    tg_selection *selection;
    uint64_t runs;
    run_start *start_of;
    tg_ranges ranges;
} sampling;

/* Reads runs. Prefetches a batch of them before it uses the first, because each lies in another page. */
static void sample_range(void *of, size_t part)
{
    enum { BATCH = 32 };
    const sampling *p = of;
    tg_selection *s = p->selection;
    tg_source_block block;
    const uint64_t end = tg_range_end(&p->ranges, part) / TG_SAMPLE_RUN;
    for (uint64_t run = tg_range_first(&p->ranges, part) / TG_SAMPLE_RUN; run < end; run += BATCH) {
        uint64_t starts[BATCH];
        const size_t here = end - run < BATCH ? (size_t)(end - run) : BATCH;
        for (size_t i = 0; i < here; i++) {
            starts[i] = p->start_of(s, run + i, p->runs);
            tg_source_prefetch(&s->job->source, starts[i]);
        }
        for (size_t i = 0; i < here; i++)
            sample_block(s, starts[i], TG_SAMPLE_RUN, (size_t)(run + i) * TG_SAMPLE_RUN, &block);
    }
}

static size_t sample_runs(tg_selection *s, uint64_t runs, run_start *start_of)
{
    sampling p = {s, runs, start_of, tg_ranges_of(s->job->pool, runs * TG_SAMPLE_RUN, TG_BLOCK)};
    tg_parallel(s->job->pool, p.ranges.parts, sample_range, &p);
    return (size_t)runs * TG_SAMPLE_RUN;
}

static uint64_t fixed_start(const tg_selection *s, uint64_t run, uint64_t runs)
{
    return run * s->job->source.count / runs / TG_SAMPLE_RUN * TG_SAMPLE_RUN;
}

size_t tg_sample_fixed(tg_selection *s)
{
    return s->job->source.count <= TG_SAMPLE ? sample_all(s) : sample_runs(s, TG_SAMPLE_RUNS, fixed_start);
}

static uint64_t random_start(const tg_selection *s, uint64_t run, uint64_t runs)
{
    const uint64_t count = s->job->source.count, start = run * count / runs, end = (run + 1) * count / runs;
    const uint64_t places = end - start >= TG_SAMPLE_RUN ? end - start - TG_SAMPLE_RUN + 1 : 1;
    return start + tg_hash(tg_hash_key_of(&s->job->draw, TG_FOR_SAMPLING), (uint32_t)run) % places;
}

size_t tg_sample_random(tg_selection *s, uint64_t size)
{
    const uint64_t runs = (size + TG_SAMPLE_RUN - 1) / TG_SAMPLE_RUN;
    return runs * TG_SAMPLE_RUN >= s->job->source.count ? sample_all(s) : sample_runs(s, runs, random_start);
}
