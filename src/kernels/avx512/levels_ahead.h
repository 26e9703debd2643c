/* The fused encoder for buckets of one group: the next bucket's scale is found while this one is drawn, so that neither a reduction nor a
 * norm's chain of additions is waited for. */
#ifndef TG_KERNELS_AVX512_LEVELS_AHEAD_H
#define TG_KERNELS_AVX512_LEVELS_AHEAD_H

#include "base/numeric.h"
#include "kernels/avx2/levels_rows.h"
#include "kernels/quantiser.h"

TG_INLINE tally tally_of(const tg_levels_encoding *e, variant v, size_t at, float *u)
{
    tally t = {.gradient = e->gradient + at, .residual = v.feedback ? e->residual + at : NULL, .factor = v_float(e->alpha), .u = u,
               .most = v_int(0)};
    for (unsigned part = 0; part < V_PARTS; part++)
        t.lanes[part] = v_float(0);
    return t;
}

/* False where the bucket needs care, or a position exceeds the last level. */
TG_INLINE bool scale_of(const tally *t, variant v, uint32_t levels, float *radius, float *gain)
{
    const uint32_t most = v_largest(t->most);
    *radius = tg_bits_float(most);
    if (most >= TG_INFINITY_BITS)
        return false;
    if (v.ahead == AHEAD_L2) {
        const float sum = v_sum_of_lanes(t->lanes);
        if (!(sum >= 0x1p-80f && tg_float_bits(sum) < TG_INFINITY_BITS))
            return false;
        *radius = (float)tg_sqrt((double)sum);
    }
    if (!(*radius >= TG_LIFT_BELOW))
        return false;
    *gain = tg_level_gain(levels, *radius);
    return v.ahead == AHEAD_MAX || !(tg_bits_float(most) * *gain > (float)levels * 0x1p16f);
}

/* Returns how many elements were done: up to a bucket that is not so plain. */
TG_INLINE size_t encode_ahead(const tg_levels_encoding *e, size_t n, variant v)
{
    float u[2][TG_GROUP];
    tally now = tally_of(e, v, 0, u[0]);
    for (size_t at = 0; at < TG_GROUP; at += TG_LANES)
        TG_UNROLL
        for (unsigned part = 0; part < V_PARTS; part++)
            look_ahead(&now, v, at + part * V_LANES, part);
    group g = {.mixed_key = v_int((int)(e->key.high ^ e->key.high >> 15)), .levels = e->levels, .bucket_shift = 4};
    for (size_t at = 0; at < n; at += TG_GROUP) {
        float radius, gain, unit = 0;
        if (!scale_of(&now, v, e->levels, &radius, &gain))
            return at;
        const size_t bucket = at / TG_GROUP, then = at + TG_GROUP < n ? at + TG_GROUP : at; /* after the last: whatever is there */
        tally next = tally_of(e, v, then, u[(bucket + 1) % 2]);
        tg_store_float(e->scales + 4 * bucket, radius);
        g.u = v.feedback ? u[bucket % 2] : e->gradient + at;
        g.gradient = e->gradient + at;
        g.counter = v_int((int)((e->first + (uint32_t)at) / 2 + e->key.low));
        g.gain = &gain;
        g.next = &next;
        if (v.feedback) {
            unit = tg_level_unit(e->levels, radius);
            g.rest = g.u;
            g.residual = e->residual + at;
            g.kept = e->kept ? e->kept + at : NULL;
            g.unit = &unit;
            g.radius = &radius;
        }
        encode_group(&g, v, e->width, e->packed + at / 8 * e->width);
        now = next;
    }
    return n;
}

#endif
