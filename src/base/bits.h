/* Bit streams, least significant bit of the first byte first (docs/format.md). The writer relies on its caller for
 * room. The reader never reads past its end: it returns zeros and sets `overrun`. */
#ifndef TG_BASE_BITS_H
#define TG_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_bit_writer {
    uint8_t *out;
    uint64_t pending;       /* bits not yet stored, lowest first */
    unsigned pending_count; /* below 8 between calls */
} tg_bit_writer;

static inline tg_bit_writer tg_bit_writer_at(uint8_t *out)
{
    return (tg_bit_writer){.out = out, .pending = 0, .pending_count = 0};
}

/* Appends the low `count` bits of `bits`; count at most 32, higher bits zero. */
static inline void tg_bits_put(tg_bit_writer *w, uint32_t bits, unsigned count)
{
    w->pending |= (uint64_t)bits << w->pending_count;
    w->pending_count += count;
    while (w->pending_count >= 8) {
        *w->out++ = (uint8_t)w->pending;
        w->pending >>= 8;
        w->pending_count -= 8;
    }
}

/* Pads with zeros to a whole byte; returns the end. */
static inline uint8_t *tg_bits_finish(tg_bit_writer *w)
{
    if (w->pending_count > 0)
        *w->out++ = (uint8_t)w->pending;
    w->pending = 0;
    w->pending_count = 0;
    return w->out;
}

typedef struct tg_bit_reader {
    const uint8_t *in;
    uint64_t position; /* in bits */
    uint64_t size;     /* in bits */
    bool overrun;
} tg_bit_reader;

static inline tg_bit_reader tg_bit_reader_at(const uint8_t *in, size_t bytes)
{
    return (tg_bit_reader){.in = in, .position = 0, .size = (uint64_t)bytes * 8, .overrun = false};
}

static inline uint32_t tg_bit_get(tg_bit_reader *r)
{
    if (r->position >= r->size) {
        r->overrun = true;
        return 0;
    }
    uint32_t bit = (uint32_t)(r->in[r->position >> 3] >> (r->position & 7)) & 1u;
    r->position++;
    return bit;
}

/* The next `count` bits, at most 32, first read in the lowest place. */
static inline uint32_t tg_bits_get(tg_bit_reader *r, unsigned count)
{
    if (count > r->size - r->position) {
        r->position = r->size;
        r->overrun = true;
        return 0;
    }
    uint64_t byte = r->position >> 3;
    unsigned shift = (unsigned)(r->position & 7), have = 0;
    uint64_t bits = 0;
    for (; have < shift + count; have += 8)
        bits |= (uint64_t)r->in[byte++] << have;
    r->position += count;
    return (uint32_t)((bits >> shift) & ((UINT64_C(1) << count) - 1));
}

/* True when the stream was read exactly to its end: no overrun, fewer than 8 bits left, and those zero. */
static inline bool tg_bits_at_end(const tg_bit_reader *r)
{
    if (r->overrun || r->size - r->position >= 8)
        return false;
    tg_bit_reader rest = *r;
    return tg_bits_get(&rest, (unsigned)(r->size - r->position)) == 0;
}

#endif
