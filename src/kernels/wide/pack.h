/* The packed layout for any width: 16 lanes of 32 rows, where each lane is a bit stream of its own. */
#ifndef TG_KERNELS_WIDE_PACK_H
#define TG_KERNELS_WIDE_PACK_H

#include "kernels/scalar.h"

TG_INLINE void pack_group(const uint32_t *codes, unsigned width, uint8_t *packed)
{
    for (unsigned lane = 0; lane < TG_LANES; lane += V_LANES) {
        const uint32_t *from = codes + lane;
        uint8_t *to = packed + 4 * lane;
        v_ints word = v_int(0);
        unsigned used = 0;
        for (unsigned row = 0; row < 32; row++, from += TG_LANES) {
            v_ints code = v_load_bits(from);
            word = v_or(word, v_shift_left(code, used));
            used += width;
            if (used >= 32) {
                v_store_bits(to, word);
                to += 4 * TG_LANES;
                used -= 32;
                word = v_shift_right(code, width - used);
            }
        }
    }
}

TG_INLINE void unpack_group(const uint8_t *packed, unsigned width, uint32_t *codes)
{
    const v_ints mask = v_int((int)((UINT32_C(1) << width) - 1));
    for (unsigned lane = 0; lane < TG_LANES; lane += V_LANES) {
        uint32_t *to = codes + lane;
        const uint8_t *from = packed + 4 * lane;
        v_ints word = v_load_bits(from);
        unsigned used = 0;
        for (unsigned row = 0; row < 32; row++, to += TG_LANES) {
            v_ints code = v_shift_right(word, used);
            used += width;
            if (used >= 32 && row < 31) {
                used -= 32;
                from += 4 * TG_LANES;
                word = v_load_bits(from);
                if (used > 0)
                    code = v_or(code, v_shift_left(word, width - used));
            }
            v_store_bits(to, v_and(code, mask));
        }
    }
}

TG_INLINE void pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed)
{
    uint32_t group[TG_GROUP];
    size_t done = 0;
    for (; done + TG_GROUP <= n; done += TG_GROUP) {
        for (unsigned i = 0; i < TG_GROUP; i += V_LANES)
            v_store_bits(group + i, v_load_codes(codes + done + i));
        pack_group(group, width, packed + done / 8 * width);
    }
    if (done < n)
        tg_scalar_pack(codes + done, n - done, width, packed + done / 8 * width);
}

TG_INLINE void unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes)
{
    uint32_t group[TG_GROUP];
    size_t done = 0;
    for (; done + TG_GROUP <= n; done += TG_GROUP) {
        unpack_group(packed + done / 8 * width, width, group);
        for (unsigned i = 0; i < TG_GROUP; i += 2 * V_LANES)
            v_store_codes(codes + done + i, v_load_bits(group + i), v_load_bits(group + i + V_LANES));
    }
    if (done < n)
        tg_scalar_unpack(packed + done / 8 * width, n - done, width, codes + done);
}

TG_INLINE void pack_signs(const float *values, size_t n, uint8_t *packed)
{
    const v_ints sign = v_int(INT32_MIN), ones = v_int(-1);
    for (size_t done = 0; done < n; done += TG_GROUP, values += TG_GROUP, packed += TG_GROUP / 8) {
        v_ints word[TG_LANES / V_LANES];
        TG_UNROLL
        for (unsigned part = 0; part < TG_LANES / V_LANES; part++)
            word[part] = v_int(0);
        for (unsigned row = 0; row < 32; row++) {
            TG_UNROLL
            for (unsigned part = 0; part < TG_LANES / V_LANES; part++) {
                v_ints x = v_load_bits(values + row * TG_LANES + part * V_LANES);
                word[part] = v_or(v_shift_right(word[part], 1), v_and(x, sign));
            }
        }
        TG_UNROLL
        for (unsigned part = 0; part < TG_LANES / V_LANES; part++)
            v_store_bits(packed + 4 * V_LANES * part, v_xor(word[part], ones));
    }
}

#endif
