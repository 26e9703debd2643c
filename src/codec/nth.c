/* Repeated histograms: the first covers the expected band, each next one a single bin of the one before. */
#include "codec/nth.h"

#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"

enum { BINS = 2048, LOG_BINS = 11 };

/* Bins of 2^shift keys from `low` on. Larger keys count in the last bin. */
typedef struct window {
    uint32_t low;
    unsigned shift;
} window;

static window window_over(uint32_t low, uint32_t high)
{
    unsigned shift = 0;
    while ((high - low) >> shift >= BINS)
        shift++;
    return (window){low, shift};
}

static inline uint32_t bin_of(window w, uint32_t key)
{
    uint32_t bin = (key - w.low) >> w.shift;
    return bin < BINS - 1 ? bin : BINS - 1;
}

static inline uint32_t key_of(float x) { return tg_float_bits(x) & TG_MAGNITUDE_MASK; }

/* Two tables in alternation, so that runs of equal keys do not wait for the previous increment of the same bin. */
static void histogram(const float *values, size_t n, window w, uint32_t *bins)
{
    uint32_t other[BINS] = {0};
    size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        bins[bin_of(w, key_of(values[i]))]++;
        other[bin_of(w, key_of(values[i + 1]))]++;
    }
    if (i < n)
        bins[bin_of(w, key_of(values[i]))]++;
    for (size_t bin = 0; bin < BINS; bin++)
        bins[bin] += other[bin];
}

/* The same for keys from `low` to `high` only. */
static void histogram_of_some(const float *values, size_t n, uint32_t low, uint32_t high, window w, uint32_t *bins)
{
    for (size_t i = 0; i < n; i++)
        if (key_of(values[i]) - low <= high - low)
            bins[bin_of(w, key_of(values[i]))]++;
}

/* The same for keys instead of values. */
static void histogram_between(const uint32_t *keys, size_t n, uint32_t low, uint32_t high, window w, uint32_t *bins)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] - low <= high - low)
            bins[bin_of(w, keys[i])]++;
}

/* The bin of the rank-th largest key. *rank becomes the rank within this bin. */
static uint32_t find_bin(const uint32_t *bins, uint64_t *rank)
{
    uint32_t bin = BINS - 1;
    while (bin > 0 && bins[bin] < *rank)
        *rank -= bins[bin--];
    return bin;
}

/* Writes the keys of `values` between low and high to `found`, as far as there is room; returns how many there are. */
static size_t keys_between(const float *values, size_t n, uint32_t low, uint32_t high, uint32_t *found, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = key_of(values[i]);
        if (key - low <= high - low) {
            if (count < room)
                found[count] = key;
            count++;
        }
    }
    return count;
}

/* Whether all these keys (or values, read as keys) equal `key`. Where they differ this is found after a few; where they
 * are equal a histogram would be slow, as each increment of the one bin waits for the one before. */
static bool are_all(uint32_t key, const void *keys, size_t n)
{
    enum { AT_ONCE = 256 };
    const char *at = keys;
    uint32_t other = 0;
    for (size_t left = n, here; left > 0 && !other; left -= here, at += here * sizeof key) {
        here = left < AT_ONCE ? left : AT_ONCE;
        for (size_t i = 0; i < here; i++) {
            uint32_t next;
            memcpy(&next, at + i * sizeof next, sizeof next);
            other |= (next & TG_MAGNITUDE_MASK) ^ key;
        }
    }
    return !other;
}

tg_threshold tg_nth_of_array(const float *values, size_t n, uint64_t rank, tg_band band, uint32_t *scratch, size_t room)
{
    const uint64_t selected = rank;
    if (are_all(key_of(values[0]), values, n))
        return (tg_threshold){.above = key_of(values[0]), .ties = rank, .selected = selected};
    uint32_t low = band.low, high = TG_MAGNITUDE_MASK;
    window w = window_over(low, band.high > low ? band.high : high);
    bool whole = true;            /* first histogram: the last bin also counts all larger keys */
    size_t in_scratch = SIZE_MAX; /* how many keys are in scratch, once it holds all from low to high */
    while (high > low) {
        uint32_t bins[BINS] = {0};
        if (in_scratch <= room)
            histogram_between(scratch, in_scratch, low, high, w, bins);
        else if (whole)
            histogram(values, n, w, bins);
        else
            histogram_of_some(values, n, low, high, w, bins);
        const uint32_t bin = find_bin(bins, &rank);
        low = w.low + (bin << w.shift);
        const uint32_t end = low + ((UINT32_C(1) << w.shift) - 1);
        if (end < high && !(whole && bin == BINS - 1))
            high = end;
        if (high > low && in_scratch > room && bins[bin] <= room)
            in_scratch = keys_between(values, n, low, high, scratch, room);
        w = window_over(low, high);
        whole = false;
    }
    return (tg_threshold){.above = low, .ties = rank, .selected = selected};
}

tg_threshold tg_nth_of_keys(const uint32_t *keys, size_t n, uint64_t rank, tg_band band)
{
    const uint64_t selected = rank;
    uint32_t low = band.low, high = band.high;
    while (high > low) {
        const window w = window_over(low, high);
        uint32_t bins[BINS] = {0};
        histogram_between(keys, n, low, high, w, bins);
        const uint32_t bin = find_bin(bins, &rank);
        low = w.low + (bin << w.shift);
        const uint32_t end = low + ((UINT32_C(1) << w.shift) - 1);
        high = end < high ? end : high;
    }
    return (tg_threshold){.above = low, .ties = rank, .selected = selected};
}

/* ---- of several lists ---- */

typedef struct lists_histogram {
    const tg_key_list *lists;
    uint32_t low, high;
    window window;
    atomic_uint *bins;
} lists_histogram;

static void histogram_of_list(void *of, size_t part)
{
    const lists_histogram *h = of;
    const tg_key_list *list = &h->lists[part];
    uint32_t bins[BINS] = {0}, first;
    if (list->n == 0)
        return;
    memcpy(&first, list->keys, sizeof first);
    first &= TG_MAGNITUDE_MASK;
    const size_t equal = are_all(first, list->keys, list->n) ? list->n : 0;
    if (equal > 0 && first - h->low <= h->high - h->low)
        bins[bin_of(h->window, first)] = (uint32_t)equal;
    for (size_t i = equal; i < list->n; i++) {
        uint32_t key;
        memcpy(&key, (const char *)list->keys + i * sizeof key, sizeof key);
        key &= TG_MAGNITUDE_MASK;
        if (key - h->low <= h->high - h->low)
            bins[bin_of(h->window, key)]++;
    }
    for (size_t bin = 0; bin < BINS; bin++)
        if (bins[bin] > 0)
            atomic_fetch_add(&h->bins[bin], bins[bin]);
}

tg_threshold tg_nth_of_lists(tg_pool *pool, const tg_key_list *lists, size_t list_count, uint64_t rank, tg_band band)
{
    const uint64_t selected = rank;
    uint32_t low = band.low, high = band.high;
    while (high > low) {
        const window w = window_over(low, high);
        atomic_uint shared[BINS];
        uint32_t bins[BINS];
        for (size_t bin = 0; bin < BINS; bin++)
            atomic_init(&shared[bin], 0);
        lists_histogram h = {lists, low, high, w, shared};
        tg_parallel(pool, list_count, histogram_of_list, &h);
        for (size_t bin = 0; bin < BINS; bin++)
            bins[bin] = shared[bin];
        const uint32_t bin = find_bin(bins, &rank);
        low = w.low + (bin << w.shift);
        const uint32_t end = low + ((UINT32_C(1) << w.shift) - 1);
        high = end < high ? end : high;
    }
    return (tg_threshold){.above = low, .ties = rank, .selected = selected};
}
