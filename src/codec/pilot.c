/* A small sample of the vector, from which the key for collecting candidates is estimated. It does not influence what
 * is selected, so its places and its arithmetic need no definition: one run of 16 elements at a pseudo-random place in
 * each equal part of the vector. */
#include <string.h>

#include "base/bytes.h"
#include "base/numeric.h"
#include "codec/nth.h"
#include "codec/onepass.h"

enum { RUN = 16, RUNS = 2048, SHARE = 16, RUNS_AT_ONCE = 32, LEAST_RUNS = 128 /* worth waking a thread for */ };
/* By how many standard deviations the key is lowered: about one step in a thousand has to repeat the pass. */
static const double caution = 3.2;

size_t tg_pilot_size(uint64_t count)
{
    uint64_t runs = count / (SHARE * RUN);
    return RUN * (size_t)(runs < RUNS ? runs : RUNS);
}

typedef struct filling {
    const tg_onepass *onepass;
    float *sample;
    size_t runs, runs_each;
} filling;

static void fill_part(void *of, size_t which)
{
    const filling *f = of;
    const tg_source *source = &f->onepass->source;
    const size_t end = (which + 1) * f->runs_each < f->runs ? (which + 1) * f->runs_each : f->runs;
    const uint64_t part = source->count / f->runs, places = (part - RUN) / RUN + 1;
    tg_source_block block;
    for (size_t run = which * f->runs_each; run < end; run += RUNS_AT_ONCE) {
        uint64_t starts[RUNS_AT_ONCE];
        const size_t here = end - run < RUNS_AT_ONCE ? end - run : RUNS_AT_ONCE;
        for (size_t i = 0; i < here; i++) {
            /* A hash and not a fixed stride, because vectors may be periodic. */
            const uint64_t draw = (run + i) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
            starts[i] = (run + i) * part + (draw * places >> 32) * RUN;
            tg_source_prefetch(source, starts[i]);
        }
        for (size_t i = 0; i < here; i++) {
            (void)tg_source_read(source, f->onepass->selection->job->kernels, starts[i], RUN, &block);
            memcpy(f->sample + (run + i) * RUN, block.u, RUN * sizeof(float));
        }
    }
}

/* Most of the time is spent waiting for memory, so all threads issue reads. */
static void fill(const tg_onepass *o, float *sample, size_t runs)
{
    const filling f = {o, sample, runs, o->ranges.parts > 1 ? LEAST_RUNS : runs};
    tg_parallel(o->selection->job->pool, (runs + f.runs_each - 1) / f.runs_each, fill_part, (void *)&f);
}

/* How many elements of the sample have at least a key, and the standard deviation of this number. It is estimated from
 * how much the runs differ, because neighbouring elements are often similar. */
typedef struct estimate {
    double count, deviation;
} estimate;

static uint32_t count_in_run(const float *run, uint32_t key)
{
    uint32_t here = 0;
    for (size_t i = 0; i < RUN; i++)
        here += (tg_float_bits(run[i]) & TG_MAGNITUDE_MASK) >= key;
    return here;
}

static estimate count_from(const float *sample, size_t runs, uint32_t key)
{
    uint64_t sum = 0, squares = 0;
    for (size_t run = 0; run < runs; run++) {
        const uint32_t here = count_in_run(sample + run * RUN, key);
        sum += here;
        squares += here * here;
    }
    const double variance = (double)squares - (double)sum * (double)sum / (double)runs;
    return (estimate){(double)sum, tg_sqrt(variance > 0 ? variance : 0)};
}

static uint32_t key_at(const float *sample, size_t n, double rank, tg_selection *s)
{
    if (rank > (double)n)
        return 0;
    return tg_nth_of_array(sample, n, rank < 1 ? 1 : (uint64_t)rank, (tg_band){0, TG_INFINITY_BITS}, s->keys, TG_BLOCK)
        .above;
}

/* How many of the first runs it takes until `target` elements have at least the key. */
static size_t runs_with(const float *sample, size_t runs, uint32_t key, double target)
{
    uint64_t here = 0;
    size_t run = 0;
    for (; run < runs && (double)here < target; run++)
        here += count_in_run(sample + run * RUN, key);
    return run;
}

uint32_t tg_pilot_key(tg_onepass *o, const tg_guesses *guesses, bool wider)
{
    tg_selection *s = o->selection;
    const size_t n = tg_pilot_size(o->source.count), runs = n / RUN;
    const double share = (double)n / (double)o->source.count;
    float *sample = (float *)o->pilot;
    o->high = TG_INFINITY_BITS;
    o->clear_from = 1;
    if (o->needed >= o->source.count)
        return 0;
    fill(o, sample, runs);
    /* A guess that will be accepted needs no candidates below it. */
    for (size_t i = 0; i < guesses->count && !wider; i++) {
        const uint32_t key = tg_float_bits(guesses->values[i]);
        if (key == 0 || key >= TG_INFINITY_BITS)
            continue;
        const estimate e = count_from(sample, runs, key);
        if (e.count - caution * e.deviation - 1 > share * (double)tg_min_selected(s->target) &&
            e.count < share * (double)tg_max_selected(s->target)) {
            o->clear_from = key;
            return key;
        }
    }
    const double rank = share * (double)o->needed;
    double margin = caution * tg_sqrt(rank) + 4;
    uint32_t key = key_at(sample, n, rank + margin, s);
    const double clustered = caution * count_from(sample, runs, key).deviation + 4;
    if (clustered > margin * 1.25 || wider) {
        margin = wider ? 2 * clustered + rank / 8 : clustered;
        key = key_at(sample, n, rank + margin, s);
    }
    /* If the first three quarters of the sample already have enough such elements, many keys are equal, and of equal
     * keys those with the lowest index are selected. */
    const size_t enough = runs_with(sample, runs, key, rank + 2 * margin);
    if (!wider && enough < runs / 4 * 3)
        o->limit = (enough * (o->source.count / runs) / TG_BLOCK + 1) * TG_BLOCK;
    uint32_t middle = key;
    if (rank > margin + 1) {
        o->high = key_at(sample, n, rank - margin, s) + 1;
        middle += (o->high - key) / 2;
    }
    o->clear_from = middle > 0 ? middle : 1;
    return key;
}
