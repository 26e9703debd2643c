/* The definition of every kernel, in plain C, one element at a time. Nothing here may be contracted, reassociated or
 * computed in another precision: the build passes -ffp-contract=off, and the checks below reject other settings. */
#include "kernels/scalar.h"

#include <float.h>

#include "base/float16.h"
#include "base/bit_lanes.h"
#include "kernels/quantiser.h"
#include "kernels/scales.h"

#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "float arithmetic must be done in float: build for SSE2 or another FPU without excess precision"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math changes the bytes on the wire"
#endif

/* ---- element types ---- */

void tg_scalar_widen(tg_dtype dtype, const void *elements, size_t n, float *values)
{
    const uint16_t *halves = elements;
    if (dtype == TG_FLOAT32)
        memcpy(values, elements, n * sizeof(float));
    else
        for (size_t i = 0; i < n; i++)
            values[i] = dtype == TG_FLOAT16 ? tg_widen_float16(halves[i]) : tg_widen_bfloat16(halves[i]);
}

static uint16_t narrow_one(tg_dtype dtype, float value, uint64_t *limited)
{
    bool saturated = false;
    uint16_t bits = dtype == TG_FLOAT16 ? tg_narrow_float16(value, &saturated) : tg_narrow_bfloat16(value, &saturated);
    *limited += saturated || value != value;
    return bits;
}

uint64_t tg_scalar_narrow(tg_dtype dtype, const float *values, size_t n, void *elements)
{
    uint16_t *halves = elements;
    uint64_t limited = 0;
    if (dtype == TG_FLOAT32)
        memmove(elements, values, n * sizeof(float));
    else
        for (size_t i = 0; i < n; i++)
            halves[i] = narrow_one(dtype, values[i], &limited);
    return limited;
}

void tg_scalar_load(tg_dtype dtype, const uint8_t *wire, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = dtype == TG_FLOAT32   ? tg_load_float(wire + 4 * i)
                    : dtype == TG_FLOAT16 ? tg_widen_float16(tg_load16(wire + 2 * i))
                                          : tg_widen_bfloat16(tg_load16(wire + 2 * i));
}

uint64_t tg_scalar_store(tg_dtype dtype, const float *values, size_t n, uint8_t *wire)
{
    uint64_t limited = 0;
    for (size_t i = 0; i < n; i++) {
        if (dtype == TG_FLOAT32)
            tg_store_float(wire + 4 * i, values[i]);
        else
            tg_store16(wire + 2 * i, narrow_one(dtype, values[i], &limited));
    }
    return limited;
}

size_t tg_scalar_first_nonfinite(const float *values, size_t n)
{
    size_t i = 0;
    while (i < n && (tg_float_bits(values[i]) & TG_MAGNITUDE_MASK) < TG_INFINITY_BITS)
        i++;
    return i;
}

/* ---- sums and feedback ---- */

void tg_scalar_compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                          float *rest)
{
    for (size_t i = 0; i < n; i++) {
        float h = residual[i];
        u[i] = push[i] + alpha * h;
        rest[i] = push[i] + beta * h;
    }
}

void tg_scalar_subtract(const float *rest, const float *sent, size_t n, float *residual)
{
    for (size_t i = 0; i < n; i++)
        residual[i] = rest[i] - sent[i];
}

void tg_scalar_add_scaled(const float *values, float weight, size_t n, float *sum)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = sum[i] + weight * values[i];
}

void tg_scalar_set_scaled(const float *values, float weight, size_t n, float *result)
{
    for (size_t i = 0; i < n; i++)
        result[i] = weight * values[i];
}

/* ---- what scales are made of ---- */

uint32_t tg_scalar_max_magnitude(const float *values, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

void tg_scalar_extremes(const float *values, size_t n, float *least, float *largest)
{
    *least = *largest = values[0];
    for (size_t i = 1; i < n; i++) {
        if (tg_order_of(values[i]) < tg_order_of(*least))
            *least = values[i];
        if (tg_order_of(values[i]) > tg_order_of(*largest))
            *largest = values[i];
    }
}

float tg_scalar_block_sum(tg_sum_of what, const float *values, size_t n, float scale1, float scale2)
{
    float lanes[TG_SUM_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        float x = values[i] * scale1 * scale2;
        if (what == TG_SUM_OF_MAGNITUDES)
            x = tg_bits_float(tg_float_bits(x) & TG_MAGNITUDE_MASK);
        else if (what == TG_SUM_OF_SQUARES)
            x = x * x;
        lanes[i % TG_SUM_LANES] += x;
    }
    for (unsigned half = TG_SUM_LANES / 2; half > 0; half /= 2)
        for (unsigned lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

/* ---- quantisation ---- */

void tg_scalar_quantise(const tg_quantiser *q, const float *values, size_t n, uint32_t first, tg_hash_key key,
                        uint16_t *codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)tg_code_of(q, values[i], tg_random16(key, first + (uint32_t)i));
}

void tg_scalar_dequantise(const tg_quantiser *q, const uint16_t *codes, size_t n, float *values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = tg_value_of(q, codes[i]);
}

void tg_scalar_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed)
{
    uint32_t group[TG_GROUP];
    for (size_t done = 0; done < n; done += TG_GROUP) {
        size_t here = n - done < TG_GROUP ? n - done : TG_GROUP;
        for (size_t i = 0; i < here; i++)
            group[i] = codes[done + i];
        if (here == TG_GROUP)
            tg_lanes_pack(group, TG_LANES, width, packed + done / 8 * width);
        else
            (void)tg_tail_pack(group, here, width, packed + done / 8 * width);
    }
}

void tg_scalar_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes)
{
    uint32_t group[TG_GROUP];
    for (size_t done = 0; done < n; done += TG_GROUP) {
        size_t here = n - done < TG_GROUP ? n - done : TG_GROUP;
        if (here == TG_GROUP)
            tg_lanes_unpack(packed + done / 8 * width, TG_LANES, width, group);
        else
            tg_tail_unpack(packed + done / 8 * width, here, width, group);
        for (size_t i = 0; i < here; i++)
            codes[done + i] = (uint16_t)group[i];
    }
}

/* ---- selection ---- */

void tg_scalar_magnitude_keys(const float *values, size_t n, uint32_t *keys)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
}

void tg_scalar_random_keys(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = tg_hash(key, first + (uint32_t)i) >> 1;
}

void tg_scalar_key_histogram(const uint32_t *keys, size_t n, unsigned prefix_shift, uint32_t prefix, unsigned shift,
                             uint32_t mask, uint64_t *bins)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] >> prefix_shift == prefix)
            bins[keys[i] >> shift & mask]++;
}

uint64_t tg_scalar_count_at_least(const uint32_t *keys, size_t n, uint32_t least)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += keys[i] >= least;
    return count;
}

void tg_scalar_copy_nontemporal(const void *from, size_t size, void *to) { memcpy(to, from, size); }

void tg_scalar_nontemporal_fence(void) {}

const tg_kernels tg_kernels_scalar = {
    .name = "cpu/scalar",
    .widen = tg_scalar_widen,
    .narrow = tg_scalar_narrow,
    .load = tg_scalar_load,
    .store = tg_scalar_store,
    .first_nonfinite = tg_scalar_first_nonfinite,
    .compensate = tg_scalar_compensate,
    .subtract = tg_scalar_subtract,
    .add_scaled = tg_scalar_add_scaled,
    .set_scaled = tg_scalar_set_scaled,
    .max_magnitude = tg_scalar_max_magnitude,
    .extremes = tg_scalar_extremes,
    .block_sum = tg_scalar_block_sum,
    .quantise = tg_scalar_quantise,
    .dequantise = tg_scalar_dequantise,
    .pack = tg_scalar_pack,
    .unpack = tg_scalar_unpack,
    .magnitude_keys = tg_scalar_magnitude_keys,
    .random_keys = tg_scalar_random_keys,
    .key_histogram = tg_scalar_key_histogram,
    .count_at_least = tg_scalar_count_at_least,
    .copy_nontemporal = tg_scalar_copy_nontemporal,
    .nontemporal_fence = tg_scalar_nontemporal_fence,
    .digest = tg_scalar_digest,
};
