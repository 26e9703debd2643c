/* See random.h. Normal numbers come from the inverse of the distribution (Acklam's rational approximation, relative
 * error 1.2e-9 in exact arithmetic, 1e-6 in float32): no state, no rejection, and a loop that the compiler turns into
 * vectors. */
#include "random.h"

#include <math.h>

#define CENTRE 0.47575f /* beyond it the tails have an approximation of their own */

static uint32_t hash_counter(uint64_t key, uint32_t counter)
{
    uint32_t x = counter + (uint32_t)key;
    x ^= x >> 16;
    x *= UINT32_C(0x7feb352d);
    x ^= (uint32_t)(key >> 32);
    x ^= x >> 15;
    x *= UINT32_C(0x846ca68b);
    return x ^ x >> 16;
}

/* The bits as an odd multiple of 2^-33 between -1/2 and 1/2. */
static double centred(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32 - 0.5; }

static float normal_centre(float q)
{
    const float r = q * q;
    const float above =
        ((((-39.69683028665376f * r + 220.9460984245205f) * r - 275.9285104469687f) * r + 138.3577518672690f) * r -
         30.66479806614716f) *
            r +
        2.506628277459239f;
    const float below =
        ((((-54.47609879822406f * r + 161.5858368580409f) * r - 155.6989798598866f) * r + 66.80131188771972f) * r -
         13.28068155288572f) *
            r +
        1;
    return q * above / below;
}

static float normal_tail(double q)
{
    const double t = sqrt(-2 * log(0.5 - fabs(q)));
    const double above =
        ((((-7.784894002430293e-3 * t - 0.3223964580411365) * t - 2.400758277161838) * t - 2.549732539343734) * t +
         4.374664141464968) *
            t +
        2.938163982698783;
    const double below =
        (((7.784695709041462e-3 * t + 0.3224671290700398) * t + 2.445134137142996) * t + 3.754408661907416) * t + 1;
    const double magnitude = -above / below;
    return (float)(q < 0 ? -magnitude : magnitude);
}

/* In pieces that stay in the cache: two loops that the compiler vectorises, and one that corrects the tails, one
 * element in twenty.
 */
void fill_normal(uint64_t key, float *out, size_t count)
{
    enum { PIECE = 512 };
    float q[PIECE];
    for (size_t start = 0; start < count; start += PIECE) {
        size_t size = count - start < PIECE ? count - start : PIECE;
        for (size_t i = 0; i < size; i++)
            q[i] = (float)(int32_t)(hash_counter(key, (uint32_t)(start + i)) ^ UINT32_C(0x80000000)) * 0x1p-32f;
        for (size_t i = 0; i < size; i++)
            out[start + i] = normal_centre(q[i]);
        for (size_t i = 0; i < size; i++)
            if (fabsf(q[i]) > CENTRE)
                out[start + i] = normal_tail(centred(hash_counter(key, (uint32_t)(start + i))));
    }
}

/* A Feistel network over the next even power of two; a place that falls outside goes through it again. */
uint64_t permuted(uint64_t key, uint64_t size, uint64_t at)
{
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << 2 * half) < size)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (unsigned round = 0; round < 4; round++) {
            uint64_t next = (left ^ mix_bits(key + (uint64_t)round * UINT64_C(0x9e3779b97f4a7c15) + right)) & mask;
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= size);
    return at;
}
