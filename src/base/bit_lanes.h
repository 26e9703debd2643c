/* Vertical bit packing: a group is `lanes` lanes of 32 values; each lane is a stream of 32 * width bits, and word k of
 * lane l is the u32 at offset 4 * (lanes * k + l). So a vector register that holds one row of values packs it with one
 * shift and one or. The rest of a run that is shorter than a group is a plain bit stream. docs/format.md, 4.1 and 6. */
#ifndef TG_BASE_BIT_LANES_H
#define TG_BASE_BIT_LANES_H

#include "base/bits.h"
#include "base/bytes.h"

#define TG_GROUP_ROWS 32u

/* One whole group: 32 * lanes values of `width` bits (0 to 31) to 4 * lanes * width bytes. */
static inline void tg_lanes_pack(const uint32_t *values, unsigned lanes, unsigned width, uint8_t *out)
{
    for (unsigned lane = 0; lane < lanes; lane++) {
        uint64_t pending = 0;
        unsigned pending_count = 0, word = 0;
        for (unsigned row = 0; row < TG_GROUP_ROWS; row++) {
            pending |= (uint64_t)values[row * lanes + lane] << pending_count;
            pending_count += width;
            if (pending_count >= 32) {
                tg_store32(out + 4 * (size_t)(lanes * word++ + lane), (uint32_t)pending);
                pending >>= 32;
                pending_count -= 32;
            }
        }
    }
}

static inline void tg_lanes_unpack(const uint8_t *in, unsigned lanes, unsigned width, uint32_t *values)
{
    const uint32_t mask = (uint32_t)((UINT64_C(1) << width) - 1);
    for (unsigned lane = 0; lane < lanes; lane++) {
        uint64_t pending = 0;
        unsigned pending_count = 0, word = 0;
        for (unsigned row = 0; row < TG_GROUP_ROWS; row++) {
            if (pending_count < width) {
                pending |= (uint64_t)tg_load32(in + 4 * (size_t)(lanes * word++ + lane)) << pending_count;
                pending_count += 32;
            }
            values[row * lanes + lane] = (uint32_t)pending & mask;
            pending >>= width;
            pending_count -= width;
        }
    }
}

/* The bit stream of the values after the last whole group. */
static inline uint8_t *tg_tail_pack(const uint32_t *values, size_t n, unsigned width, uint8_t *out)
{
    tg_bit_writer w = tg_bit_writer_at(out);
    for (size_t i = 0; i < n; i++)
        tg_bits_put(&w, values[i], width);
    return tg_bits_finish(&w);
}

static inline void tg_tail_unpack(const uint8_t *in, size_t n, unsigned width, uint32_t *values)
{
    tg_bit_reader r = tg_bit_reader_at(in, (n * width + 7) / 8);
    for (size_t i = 0; i < n; i++)
        values[i] = tg_bits_get(&r, width);
}

#endif
