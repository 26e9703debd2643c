/* The reductions that scales are computed from, and selection keys. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include <string.h>

#include "base/bytes.h"
#include "kernels/wide/sum.h"
#include "kernels/wide/variants.h"

/* The largest keys of 16 values. */
TG_INLINE v_ints keys_of_row(const float *values)
{
    const v_ints a = v_keys(v_load(values)), b = v_keys(v_load(values + 4));
    const v_ints c = v_keys(v_load(values + 8)), d = v_keys(v_load(values + 12));
    return vmaxq_u32(vmaxq_u32(a, b), vmaxq_u32(c, d));
}

size_t tg_neon_first_nonfinite(const float *values, size_t n)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        if (vmaxvq_u32(vmaxq_u32(keys_of_row(values + i), keys_of_row(values + i + 16))) >= TG_INFINITY_BITS)
            break;
    return i + tg_scalar_first_nonfinite(values + i, n - i);
}

uint32_t tg_neon_max_magnitude(const float *values, size_t n)
{
    v_ints a = v_int(0), b = a;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = vmaxq_u32(a, keys_of_row(values + i));
        b = vmaxq_u32(b, keys_of_row(values + i + 16));
    }
    const uint32_t most = vmaxvq_u32(vmaxq_u32(a, b)), left = tg_scalar_max_magnitude(values + i, n - i);
    return left > most ? left : most;
}

bool tg_neon_all_finite(const float *gradient, const float *residual, float alpha, float beta, size_t n)
{
    const v_floats a = v_float(alpha), b = v_float(beta);
    v_ints largest = v_int(0);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        v_floats u = v_load(gradient + i);
        if (residual) {
            const v_floats h = v_load(residual + i), rest = v_plus(u, v_mul(b, h));
            u = v_plus(u, v_mul(a, h));
            largest = vmaxq_u32(largest, v_keys(rest));
        }
        largest = vmaxq_u32(largest, v_keys(u));
    }
    bool finite = vmaxvq_u32(largest) < TG_INFINITY_BITS;
    for (; i < n; i++) {
        const float h = residual ? residual[i] : 0, u = gradient[i] + alpha * h, rest = gradient[i] + beta * h;
        finite = finite && u - u == 0 && rest - rest == 0;
    }
    return finite;
}

/* Finite floats in order as signed integers, -0 below +0; its own inverse. */
TG_INLINE int32x4_t order_of(v_ints bits)
{
    const v_ints sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(bits), 31));
    return vreinterpretq_s32_u32(veorq_u32(bits, vshrq_n_u32(sign, 1)));
}

TG_INLINE float from_order(int32_t order)
{
    return vgetq_lane_f32(v_floats_of(vreinterpretq_u32_s32(order_of(v_int(order)))), 0);
}

void tg_neon_extremes(const float *values, size_t n, float *least, float *largest)
{
    if (n < V_LANES) {
        tg_scalar_extremes(values, n, least, largest);
        return;
    }
    int32x4_t low = order_of(v_load_bits(values)), high = low;
    /* the last four may overlap those before, which does not change extremes */
    for (size_t i = V_LANES; i < n; i += V_LANES) {
        const int32x4_t x = order_of(v_load_bits(values + (i + V_LANES <= n ? i : n - V_LANES)));
        low = vminq_s32(low, x);
        high = vmaxq_s32(high, x);
    }
    *least = from_order(vminvq_s32(low));
    *largest = from_order(vmaxvq_s32(high));
}

TG_BLOCK_SUM(tg_neon_block_sum)

/* ---- selection ---- */

void tg_neon_magnitude_keys(const float *values, size_t n, uint32_t *keys)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store_bits(keys + i, v_keys(v_load(values + i)));
    tg_scalar_magnitude_keys(values + i, n - i, keys + i);
}

void tg_neon_random_keys(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys)
{
    const v_ints high = vdupq_n_u32(key.high);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const v_ints x = v_hash_before_last(v_count_from(first + (uint32_t)i + key.low), high);
        v_store_bits(keys + i, vshrq_n_u32(veorq_u32(x, vshrq_n_u32(x, 16)), 1));
    }
    tg_scalar_random_keys(key, first + (uint32_t)i, n - i, keys + i);
}

uint64_t tg_neon_count_at_least(const uint32_t *keys, size_t n, uint32_t least)
{
    const v_ints bound = vdupq_n_u32(least);
    uint64_t count = 0;
    size_t i = 0;
    while (i + V_LANES <= n) { /* the lanes are added up before they reach 2^30 */
        v_ints lanes = v_int(0);
        for (size_t end = n - i > TG_BLOCK ? i + TG_BLOCK : n; i + V_LANES <= end; i += V_LANES)
            lanes = vsubq_u32(lanes, vcgeq_u32(vld1q_u32(keys + i), bound));
        count += vaddlvq_u32(lanes);
    }
    return count + tg_scalar_count_at_least(keys + i, n - i, least);
}

#endif
