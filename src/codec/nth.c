/* Histograms that close in on the key: the first over the expected band, the others over one bin of the last. */
#include "codec/nth.h"

#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"

enum { BINS = 2048, LOG_BINS = 11 };

/* Keys from `low` on, in bins of 2^shift; what lies beyond the last bin is counted there. */
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

/* Two tables by turns, so that a run of equal bins does not wait for itself. */
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

/* The same, of those from `low` to `high` alone. */
static void histogram_of_some(const float *values, size_t n, uint32_t low, uint32_t high, window w, uint32_t *bins)
{
    for (size_t i = 0; i < n; i++)
        if (key_of(values[i]) - low <= high - low)
            bins[bin_of(w, key_of(values[i]))]++;
}

/* The same over keys. */
static void histogram_between(const uint32_t *keys, size_t n, uint32_t low, uint32_t high, window w, uint32_t *bins)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] - low <= high - low)
            bins[bin_of(w, keys[i])]++;
}

/* The bin of the rank-th largest; what lies above it is taken off the rank. */
static uint32_t find_bin(const uint32_t *bins, uint64_t *rank)
{
    uint32_t bin = BINS - 1;
    while (bin > 0 && bins[bin] < *rank)
        *rank -= bins[bin--];
    return bin;
}

/* Keys of `values` between low and high, to `found`, as far as there is room; returns how many there are. */
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

/* Whether these keys, or values as keys, are all this one. Of others it looks at few; of equal ones a histogram would
 * count the same bin over and over, each time waiting for the last. */
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

tg_cut tg_nth_of_array(const float *values, size_t n, uint64_t rank, tg_band band, uint32_t *scratch, size_t room)
{
    const uint64_t taken = rank;
    if (are_all(key_of(values[0]), values, n))
        return (tg_cut){.above = key_of(values[0]), .ties = rank, .taken = taken};
    uint32_t low = band.low, high = TG_MAGNITUDE_MASK;
    window w = window_over(low, band.high > low ? band.high : high);
    bool whole = true;      /* nothing is known yet, and the last bin goes on to the largest key */
    size_t kept = SIZE_MAX; /* in scratch, once all keys from low to high are there */
    while (high > low) {
        uint32_t bins[BINS] = {0};
        if (kept <= room)
            histogram_between(scratch, kept, low, high, w, bins);
        else if (whole)
            histogram(values, n, w, bins);
        else
            histogram_of_some(values, n, low, high, w, bins);
        const uint32_t bin = find_bin(bins, &rank);
        low = w.low + (bin << w.shift);
        const uint32_t end = low + ((UINT32_C(1) << w.shift) - 1);
        if (end < high && !(whole && bin == BINS - 1))
            high = end;
        if (high > low && kept > room && bins[bin] <= room)
            kept = keys_between(values, n, low, high, scratch, room);
        w = window_over(low, high);
        whole = false;
    }
    return (tg_cut){.above = low, .ties = rank, .taken = taken};
}

tg_cut tg_nth_of_keys(const uint32_t *keys, size_t n, uint64_t rank, tg_band band)
{
    const uint64_t taken = rank;
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
    return (tg_cut){.above = low, .ties = rank, .taken = taken};
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

tg_cut tg_nth_of_lists(tg_pool *pool, const tg_key_list *lists, size_t list_count, uint64_t rank, tg_band band)
{
    const uint64_t taken = rank;
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
    return (tg_cut){.above = low, .ties = rank, .taken = taken};
}
