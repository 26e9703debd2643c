/* Scales, stochastic rounding, packing and the residual of a bucket while it sits in the first-level cache. What scale.c, scalar.c and
 * source.c define together, in one go.
 *
 * A group of 512 codes is 32 rows of 16 lanes; here a lane's stream of codes stays in its own 32-bit lane, so packing needs no shuffle.
 * One vector of hashes draws for two rows: low halves for the even one, high halves for the odd one. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "base/numeric.h"
#include "kernels/avx2/avx2.h"
#include "kernels/quantiser.h"

/* Elements whose scales are found before they are quantised: enough to hide latencies, few enough for the first-level cache together
 * with what is prefetched meanwhile, which is as much again. */
enum { PAIRS = 16, UNIT = 2048, UNIT_WITH_FEEDBACK = 1024 };

/* What the rows of one group need. */
typedef struct group {
    const float *u;
    const float *rest;       /* with feedback */
    float *residual;
    const float *ahead[2];   /* gradient and residual, to be prefetched this many bytes further on */
    size_t reach;
    const float *gain, *unit, *radius; /* of the bucket that the group starts in, and those that follow */
    unsigned bucket_shift;             /* pair >> bucket_shift: the bucket of a pair of rows */
    __m256i counter, key_high;
    uint32_t levels;
} group;

/* Which variant: constants wherever it is used. */
typedef struct variant {
    unsigned width; /* 0: any */
    bool limit;     /* positions may exceed the last level by more than rounding */
    bool feedback;
} variant;

/* ---- eight lanes of two rows ---- */

/* x * gain, rounded: a level in units of 2^-16. */
TG_INLINE __m256i position_of(const group *g, variant v, size_t at, __m256 gain)
{
    __m256 position = _mm256_mul_ps(_mm256_loadu_ps(g->u + at), gain);
    if (v.limit) {
        __m256 limit = _mm256_set1_ps((float)g->levels * 0x1p16f);
        position = _mm256_max_ps(position, _mm256_sub_ps(_mm256_setzero_ps(), limit));
        position = _mm256_min_ps(position, limit);
    }
    return _mm256_cvtps_epi32(position);
}

/* residual = rest - sent, the level being in the upper half of `drawn`. */
TG_INLINE void keep_rest(const group *g, size_t at, size_t bucket, __m256i drawn)
{
    __m256 unit = _mm256_broadcast_ss(g->unit + bucket), radius = _mm256_broadcast_ss(g->radius + bucket);
    __m256 sent = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(drawn, 16)), unit);
    sent = _mm256_min_ps(radius, sent);
    sent = _mm256_max_ps(_mm256_xor_ps(radius, _mm256_set1_ps(-0.0f)), sent);
    _mm256_storeu_ps(g->residual + at, _mm256_sub_ps(_mm256_loadu_ps(g->rest + at), sent));
}

/* Levels of rows 2 * pair and 2 * pair + 1, lanes 8 * half to 8 * half + 7: signed, in the upper halves; what is below is noise. */
TG_INLINE void draw_pair(const group *g, variant v, unsigned pair, unsigned half, __m256i *even, __m256i *odd)
{
    const size_t at = pair * 32 + half * 8, bucket = pair >> g->bucket_shift;
    __m256 gain = _mm256_broadcast_ss(g->gain + bucket);
    __m256i x = _mm256_add_epi32(g->counter, tg_load_bits(tg_counting + 16 * pair + 8 * half));
    x = tg_hash_before_last(x, g->key_high);
    __m256i high = _mm256_srli_epi32(x, 16), low = _mm256_and_si256(_mm256_xor_si256(x, high), _mm256_set1_epi32(0xffff));
    *even = _mm256_add_epi32(position_of(g, v, at, gain), low);
    *odd = _mm256_add_epi32(position_of(g, v, at + 16, gain), high);
    if (v.feedback) {
        keep_rest(g, at, bucket, *even);
        keep_rest(g, at + 16, bucket, *odd);
    }
    if (v.feedback) {
        tg_prefetch(g->ahead[half] + pair * 32, g->reach);
        tg_prefetch(g->ahead[half] + pair * 32 + 16, g->reach);
    } else {
        tg_prefetch(g->ahead[0] + pair * 32 + 16 * half, g->reach);
    }
}

/* ---- packing ---- */

/* Two rows' levels as 16-bit numbers: `first` in the lower halves. */
TG_INLINE __m256i side_by_side(__m256i first, __m256i second)
{
    return _mm256_blend_epi16(_mm256_srai_epi32(first, 16), second, 0xaa);
}

/* Widths 2, 4, 8: a word holds 32 / width rows, and each half of it 16 / width. Both halves are added up at once in 16-bit arithmetic; levels
 * are signed, and `levels` itself is added to all of them at the end. */
TG_INLINE __m256i pack_word(const group *g, variant v, unsigned pair, unsigned half)
{
    const unsigned half_rows = 16 / v.width;
    int offset = 0;
    __m256i word = _mm256_setzero_si256();
    TG_UNROLL
    for (unsigned row = 0; row < half_rows; row += 2) {
        __m256i a, b, c, d;
        draw_pair(g, v, pair + row / 2, half, &a, &b);
        draw_pair(g, v, pair + (row + half_rows) / 2, half, &c, &d);
        __m256i even = side_by_side(a, c), odd = side_by_side(b, d);
        if (row > 0)
            even = _mm256_slli_epi16(even, (int)(row * v.width));
        odd = _mm256_slli_epi16(odd, (int)((row + 1) * v.width));
        word = _mm256_add_epi16(word, _mm256_add_epi16(even, odd));
        offset += (int)(g->levels << row * v.width) + (int)(g->levels << (row + 1) * v.width);
    }
    return _mm256_add_epi16(word, _mm256_set1_epi16((short)offset));
}

TG_INLINE void encode_group(const group *g, variant v, unsigned width, uint8_t *packed)
{
    if (v.width) {
        const unsigned pairs = 16 / v.width; /* of rows in a word */
        for (unsigned word = 0; word < v.width; word++) {
            tg_store_bits(packed + 64 * word, pack_word(g, v, word * pairs, 0));
            tg_store_bits(packed + 64 * word + 32, pack_word(g, v, word * pairs, 1));
        }
        return;
    }
    uint32_t codes[TG_GROUP];
    __m256i levels = _mm256_set1_epi32((int)g->levels);
    for (unsigned pair = 0; pair < PAIRS; pair++)
        TG_UNROLL
        for (unsigned half = 0; half < 2; half++) {
            __m256i even, odd;
            draw_pair(g, v, pair, half, &even, &odd);
            tg_store_bits(codes + pair * 32 + half * 8, _mm256_add_epi32(_mm256_srai_epi32(even, 16), levels));
            tg_store_bits(codes + pair * 32 + half * 8 + 16, _mm256_add_epi32(_mm256_srai_epi32(odd, 16), levels));
        }
    tg_avx2_pack_group(codes, width, packed);
}

/* ---- one unit: whole buckets that are whole groups ---- */

enum { MOST = UNIT / TG_FUSED_BUCKET }; /* buckets */

typedef struct unit {
    const tg_levels_encoding *encoding;
    size_t at, n;
    const float *u, *rest;
    uint8_t *scales, *packed;
    float gain[MOST], value[MOST], radius[MOST];
} unit;

TG_INLINE void encode_unit(const unit *t, variant v)
{
    const tg_levels_encoding *e = t->encoding;
    group g = {.reach = (v.feedback ? UNIT_WITH_FEEDBACK : UNIT) * sizeof(float),
               .key_high = _mm256_set1_epi32((int)e->key.high),
               .levels = e->levels};
    while (e->bucket >> g.bucket_shift > 32 && g.bucket_shift < 4)
        g.bucket_shift++;
    for (size_t done = 0; done < t->n; done += TG_GROUP) {
        const size_t at = t->at + done, bucket = e->bucket < t->n ? done / e->bucket : 0;
        g.u = t->u + done;
        g.ahead[0] = e->gradient + at;
        g.counter = _mm256_set1_epi32((int)((e->first + (uint32_t)at) / 2 + e->key.low));
        g.gain = t->gain + bucket;
        if (v.feedback) {
            g.rest = t->rest + done;
            g.residual = e->residual + at;
            g.ahead[1] = e->residual + at;
            g.unit = t->value + bucket;
            g.radius = t->radius + bucket;
        }
        encode_group(&g, v, e->width, t->packed + done / 8 * e->width);
    }
}

#define VARIANTS(NAME, WIDTH)                                                                                          \
    static void NAME##_near(const unit *t) { encode_unit(t, (variant){WIDTH, false, false}); }                         \
    static void NAME##_far(const unit *t) { encode_unit(t, (variant){WIDTH, true, false}); }                           \
    static void NAME##_near_feedback(const unit *t) { encode_unit(t, (variant){WIDTH, false, true}); }                 \
    static void NAME##_far_feedback(const unit *t) { encode_unit(t, (variant){WIDTH, true, true}); }

VARIANTS(two, 2)
VARIANTS(four, 4)
VARIANTS(eight, 8)
VARIANTS(any, 0)

#define ROW(NAME) {{NAME##_near, NAME##_near_feedback}, {NAME##_far, NAME##_far_feedback}}
static void (*const encoders[4][2][2])(const unit *) = {ROW(two), ROW(four), ROW(eight), ROW(any)};

/* ---- scales ---- */

/* False where the value needs care. */
TG_INLINE bool radius_of(tg_norm norm, const float *x, size_t n, const uint8_t *stored, float *radius)
{
    if (norm == TG_NORM_MAX) {
        uint32_t bits = tg_avx2_max_magnitude(x, n);
        *radius = tg_bits_float(bits);
        return bits < TG_INFINITY_BITS;
    }
    if (norm == TG_NORM_L2) {
        float sum = tg_avx2_block_sum(TG_SUM_OF_SQUARES, x, n, 1, 1);
        *radius = (float)tg_sqrt((double)sum);
        return sum >= 0x1p-80f && tg_float_bits(sum) < TG_INFINITY_BITS;
    }
    *radius = tg_load_float(stored);
    return true;
}

/* Scales of the unit's buckets, up to the first that needs care; returns the elements of those found. */
TG_INLINE size_t find_scales(unit *t, tg_norm norm)
{
    const tg_levels_encoding *e = t->encoding;
    size_t done = 0;
    for (size_t b = 0; done < t->n; b++, done += e->bucket) {
        float radius;
        if (!radius_of(norm, t->u + done, e->bucket, t->scales + 4 * b, &radius))
            break;
        if (!(radius >= TG_LIFT_BELOW) && radius != 0)
            break;
        t->radius[b] = radius;
        t->gain[b] = radius > 0 ? tg_level_gain(e->levels, radius) : 0;
        if (e->residual)
            t->value[b] = radius > 0 ? tg_level_unit(e->levels, radius) : 0;
        tg_store_float(t->scales + 4 * b, radius);
    }
    return done < t->n ? done / TG_GROUP * TG_GROUP : t->n;
}

/* u = gradient + alpha * residual, and the same for rest with beta. */
static void add_residual(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (size_t i = 0; i < n; i += 8) {
        __m256 h = _mm256_mul_ps(f, _mm256_loadu_ps(residual + i));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(gradient + i), h));
    }
}

static size_t find_scales_of(unit *t)
{
    switch (t->encoding->norm) {
    case TG_NORM_MAX: return find_scales(t, TG_NORM_MAX);
    case TG_NORM_L2: return find_scales(t, TG_NORM_L2);
    default: return find_scales(t, TG_NORM_GIVEN);
    }
}

size_t tg_avx2_encode_levels(const tg_levels_encoding *e, size_t n)
{
    const size_t least = e->residual ? UNIT_WITH_FEEDBACK : UNIT;
    const size_t step = e->norm != TG_NORM_GIVEN && e->bucket > least ? e->bucket : least;
    const unsigned row = e->width == 2 ? 0 : e->width == 4 ? 1 : e->width == 8 ? 2 : 3;
    /* A largest magnitude, or a norm computed from it, is off by so little that a position rounds to the last level all the same: by
     * 2^-24 of 2^23 at most for 127 levels and the maximum, by 3 * 2^-24 of 2^21 for 31 levels and the L2 norm. */
    const bool limit = e->exceeds || e->levels > (e->norm == TG_NORM_MAX ? 127 : 31);
    float u[TG_BLOCK], rest[TG_BLOCK];
    unit t = {.encoding = e};
    for (t.at = 0; t.at < n; t.at += t.n) {
        const size_t here = n - t.at < step ? n - t.at : step;
        t.u = e->gradient + t.at;
        t.scales = e->scales + t.at / e->bucket * 4;
        t.packed = e->packed + t.at / 8 * e->width;
        if (e->residual) {
            add_residual(e->gradient + t.at, e->residual + t.at, e->alpha, here, u);
            t.u = t.rest = u;
            if (e->beta != e->alpha) {
                add_residual(e->gradient + t.at, e->residual + t.at, e->beta, here, rest);
                t.rest = rest;
                if (tg_avx2_max_magnitude(rest, here) >= TG_INFINITY_BITS)
                    break;
            }
        }
        t.n = here;
        t.n = find_scales_of(&t);
        encoders[row][limit][e->residual != NULL](&t);
        if (t.n < here)
            return t.at + t.n;
    }
    return t.at;
}

#endif
