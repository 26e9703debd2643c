/* See gradient_stats.h. Infinities and NaN are counted, and otherwise left out or taken as zeros. */
#include "gradient_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void measure_moments(const float *values, size_t count, struct moments *moments)
{
    struct moments m = {.count = count};
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double x = values[i];
        if (!isfinite(x)) {
            m.nonfinite++;
            continue;
        }
        m.zeros += x == 0;
        sum += x;
        m.energy += x * x;
        m.max_abs = fabs(x) > m.max_abs ? fabs(x) : m.max_abs;
    }
    double finite = (double)(count - m.nonfinite);
    m.mean = finite > 0 ? sum / finite : NAN;
    double second = 0, fourth = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        double square = (values[i] - m.mean) * (values[i] - m.mean);
        second += square;
        fourth += square * square;
    }
    m.std = finite > 0 ? sqrt(second / finite) : NAN;
    m.kurtosis = second > 0 ? fourth * finite / (second * second) : NAN;
    if (!(finite > 0))
        m.max_abs = NAN;
    *moments = m;
}

void measure_histogram(const float *values, size_t count, double max_abs, struct histogram *histogram)
{
    *histogram = (struct histogram){.edges[0] = 0};
    int top = max_abs > 0 ? (int)ceil(2 * log10(max_abs)) : 0; /* in half decades */
    for (int i = 1; i <= HISTOGRAM_BINS; i++)
        histogram->edges[i] = pow(10, (top + i - HISTOGRAM_BINS) * 0.5);
    for (size_t i = 0; i < count; i++) {
        double magnitude = fabs((double)values[i]);
        if (!isfinite(magnitude))
            continue;
        int bin = HISTOGRAM_BINS - 1;
        while (bin > 0 && magnitude < histogram->edges[bin])
            bin--;
        histogram->counts[bin]++;
    }
}

/* The bits of a finite float's magnitude, which order as the magnitude itself does; 0 for what is not finite. */
static uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffffu;
    return bits < 0x7f800000u ? bits : 0;
}

/* The place where, counting from the top, the k-th element lies; *above is how many lie in higher places. */
static uint32_t place_of_kth(const uint64_t *counts, uint32_t places, uint64_t k, uint64_t *above)
{
    *above = 0;
    for (uint32_t place = places; place-- > 0;) {
        if (*above + counts[place] >= k)
            return place;
        *above += counts[place];
    }
    return 0;
}

/* The k-th largest magnitude's bits, exactly: by their upper half first, then by the lower half among equals. */
static uint32_t select_kth(const float *values, size_t count, uint64_t k, uint64_t *counts, uint64_t *greater)
{
    enum { HALF = 16, PLACES = 1 << HALF };
    memset(counts, 0, PLACES * sizeof *counts);
    for (size_t i = 0; i < count; i++)
        counts[magnitude_bits(values[i]) >> HALF]++;
    uint64_t above_upper, above_lower;
    uint32_t upper = place_of_kth(counts, PLACES, k, &above_upper);
    memset(counts, 0, PLACES * sizeof *counts);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_bits(values[i]);
        if (bits >> HALF == upper)
            counts[bits & (PLACES - 1)]++;
    }
    uint32_t lower = place_of_kth(counts, PLACES, k - above_upper, &above_lower);
    *greater = above_upper + above_lower;
    return upper << HALF | lower;
}

bool measure_topk(const float *values, size_t count, double density, struct topk_share *share)
{
    *share = (struct topk_share){.density = NAN, .ratio = NAN, .bound_tight = NAN, .bound_classic = NAN};
    if (count == 0)
        return true;
    /* Parts per billion, as in a spec: so k is the same to the element. A count has 32 bits, so nothing overflows. */
    uint64_t parts = (uint64_t)llround(density * 1e9);
    uint64_t k = parts * count / 1000000000u;
    share->k = k < 1 ? 1 : k > count ? count : k;
    share->density = (double)share->k / (double)count;
    share->bound_classic = 1 - share->density;
    share->bound_tight = share->bound_classic * share->bound_classic;

    uint64_t *counts = malloc(sizeof *counts << 16);
    if (!counts)
        return false;
    uint64_t greater;
    uint32_t threshold = select_kth(values, count, share->k, counts, &greater);
    free(counts);
    double kept = 0, left = 0, square = 0;
    uint64_t equal = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_bits(values[i]);
        double x = bits ? values[i] : 0;
        if (bits > threshold) {
            kept += x * x;
        } else if (bits < threshold) {
            left += x * x;
        } else {
            equal++;
            square = x * x;
        }
    }
    uint64_t equal_kept = share->k - greater;
    kept += (double)equal_kept * square;
    left += (double)(equal - equal_kept) * square;
    if (kept + left > 0)
        share->ratio = left / (kept + left);
    return true;
}
