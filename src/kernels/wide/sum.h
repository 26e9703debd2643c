/* The sum of a block in the defined order, with vectors of any size. */
#ifndef TG_KERNELS_WIDE_SUM_H
#define TG_KERNELS_WIDE_SUM_H

#include <float.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/wide/inline.h"

enum { SUM_PARTS = TG_SUM_LANES / V_LANES, ROW_PARTS = TG_LANES / V_LANES };

TG_INLINE void clear_lanes(v_floats lanes[SUM_PARTS])
{
    TG_UNROLL
    for (unsigned part = 0; part < SUM_PARTS; part++)
        lanes[part] = v_float(0);
}

/* The tree over all lanes: l and l + 32, then 16, and the rest within a row. */
TG_INLINE float total_of(v_floats lanes[SUM_PARTS])
{
    TG_UNROLL
    for (unsigned half = SUM_PARTS / 2; half >= ROW_PARTS; half /= 2)
        TG_UNROLL
    for (unsigned part = 0; part < half; part++)
        lanes[part] = v_plus(lanes[part], lanes[part + half]);
    return v_sum_of_row(lanes);
}

/* The norm of values whose squares have this sum; 0 where that is a special case. It is not less than any of the
 * values: sums of squares only grow, and the rounded root of a rounded square is the number that was squared. */
TG_INLINE float norm_of(float sum) { return sum >= 0x1p-80f && sum <= FLT_MAX ? __builtin_sqrtf(sum) : 0; }

/* One vector's part of a sum. */
TG_INLINE v_floats term(tg_sum_of what, bool scaled, const float *values, v_floats scale1, v_floats scale2)
{
    v_floats x = v_load(values);
    if (scaled)
        x = v_mul(v_mul(x, scale1), scale2);
    return what == TG_SUM_OF_VALUES ? x : what == TG_SUM_OF_MAGNITUDES ? v_magnitude(x) : v_mul(x, x);
}

TG_INLINE float sum_of(tg_sum_of what, bool scaled, const float *values, size_t n, float scale1, float scale2)
{
    const v_floats s1 = v_float(scale1), s2 = v_float(scale2);
    v_floats lanes[SUM_PARTS];
    float last[TG_SUM_LANES] = {0};
    clear_lanes(lanes);
    for (size_t i = 0; i < n; i += TG_SUM_LANES) {
        const float *from = values + i;
        if (n - i < TG_SUM_LANES) { /* lanes start from +0 and so are never -0: adding zeros changes nothing */
            memcpy(last, from, (n - i) * sizeof(float));
            from = last;
        }
        TG_UNROLL
        for (unsigned part = 0; part < SUM_PARTS; part++)
            lanes[part] = v_plus(lanes[part], term(what, scaled, from + part * V_LANES, s1, s2));
    }
    return total_of(lanes);
}

#endif
