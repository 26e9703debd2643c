/* Moving the lanes of a mask to the front of a vector. */
#ifndef TG_KERNELS_NEON_LEFT_PACK_H
#define TG_KERNELS_NEON_LEFT_PACK_H

#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

/* For each mask of 4 bits: the bytes of its lanes in order, then those of lane 0. */
extern const uint8_t tg_neon_lane_bytes[16][16];

/* A bit for each lane of a comparison. */
TG_INLINE unsigned v_mask(v_ints x)
{
    static const uint32_t bits[V_LANES] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(x, vld1q_u32(bits)));
}

TG_INLINE unsigned v_greater(v_ints a, v_ints b) { return v_mask(vcgtq_u32(a, b)); }
TG_INLINE unsigned v_equal(v_ints a, v_ints b) { return v_mask(vceqq_u32(a, b)); }

TG_INLINE v_ints v_left_pack(v_ints x, unsigned mask)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(x), vld1q_u8(tg_neon_lane_bytes[mask])));
}

TG_INLINE v_floats v_left_pack_floats(v_floats x, unsigned mask) { return v_floats_of(v_left_pack(v_bits(x), mask)); }

#endif
#endif
