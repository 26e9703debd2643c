/* The index streams of one segment of a sparse vector: choosing the smallest mode, writing it, and a checked reader
 * that decodes a block of positions at a time so that a caller can stop anywhere. */
#include "code/indices.h"

#include "code/bit_tools.h"
#include "code/elias.h"

#include <string.h>

unsigned tg_segment_log(uint64_t count, uint64_t selected)
{
    unsigned g = 12;
    while (g < 30 && (selected == 0 || selected << g < count << 11))
        g++;
    return g;
}

size_t tg_index_bound(size_t length) { return length / 8 + (length % 8 != 0); }

static size_t count_blocks(size_t m) { return m / TG_RICE_BLOCK + (m % TG_RICE_BLOCK != 0); }

/* The gaps of a segment, block by block. They are needed twice, to choose the mode and to write, and cached for that
 * unless the segment has unusually many. */
enum { MOST_CACHED = 40 * TG_RICE_BLOCK };

typedef struct segment_gaps {
    const tg_gaps_engine *engine;
    const uint32_t *indices;
    size_t m;
    uint32_t base;
    bool cached;
    uint32_t of[MOST_CACHED];
} segment_gaps;

static void gaps_open(segment_gaps *s, const uint32_t *indices, size_t m, uint32_t base, const tg_gaps_engine *engine)
{
    s->engine = engine;
    s->indices = indices;
    s->m = m;
    s->base = base;
    s->cached = m <= MOST_CACHED;
}

/* How many gaps the block at place j has, the index before it, and where its gaps are stored. */
static unsigned size_at(const segment_gaps *s, size_t j)
{
    return s->m - j < TG_RICE_BLOCK ? (unsigned)(s->m - j) : TG_RICE_BLOCK;
}

static uint32_t before(const segment_gaps *s, size_t j) { return j == 0 ? s->base - 1 : s->indices[j - 1]; }

static uint32_t *place_of(segment_gaps *s, size_t j) { return s->cached ? s->of + j : s->of; }

static const uint32_t *gaps_again(segment_gaps *s, size_t j)
{
    uint32_t *gaps = place_of(s, j);
    if (!s->cached)
        tg_gaps_take(s->indices + j, size_at(s, j), before(s, j), gaps);
    return gaps;
}

static uint64_t bytes_of(uint64_t bits) { return (bits + 7) / 8; }

/* Entries of the table before Elias coded gaps, and its bytes. */
enum { ELIAS_RUN = 1024, ELIAS_ENTRY = 4 };
static size_t elias_entries(size_t m) { return m == 0 ? 0 : (m - 1) / ELIAS_RUN; }
static size_t elias_table(size_t m) { return ELIAS_ENTRY * elias_entries(m); }

static uint64_t elias_bytes(segment_gaps *s)
{
    uint64_t bits = 0;
    for (size_t j = 0; j < s->m; j += TG_RICE_BLOCK)
        bits += tg_gaps_omega_bits(gaps_again(s, j), size_at(s, j));
    return elias_table(s->m) + bytes_of(bits);
}

/* The size of each mode in bytes, and where the quotients of the Rice mode would start. An Elias size above the Rice
 * size is only a lower bound. */
typedef struct index_costs {
    uint64_t rice, elias, quotients_at;
} index_costs;

/* Writes the Rice parameters, one for each block, to `parameters`, where the Rice mode has them. */
static index_costs weigh_modes(segment_gaps *s, uint8_t *parameters)
{
    uint64_t low_bytes = 0, quotient_bits = 0, elias_least = 0;
    for (size_t j = 0; j < s->m; j += TG_RICE_BLOCK) {
        const unsigned r = size_at(s, j);
        const tg_gaps_costs costs = tg_gaps_weigh(s->engine, s->indices + j, r, before(s, j), place_of(s, j));
        parameters[j / TG_RICE_BLOCK] = (uint8_t)costs.parameter;
        low_bytes += tg_rice_low_size(r, costs.parameter);
        quotient_bits += costs.quotient_bits;
        elias_least += costs.omega_least;
    }
    const uint64_t quotients_at = count_blocks(s->m) + low_bytes, rice = quotients_at + bytes_of(quotient_bits);
    const uint64_t least = elias_table(s->m) + bytes_of(elias_least);
    return (index_costs){.rice = rice, .elias = least >= rice ? least : elias_bytes(s), .quotients_at = quotients_at};
}

static uint8_t *write_rice(segment_gaps *s, size_t quotients_at, uint8_t *out)
{
    uint8_t *low = out + count_blocks(s->m);
    tg_bit_writer quotients = tg_bit_writer_at(out + quotients_at);
    for (size_t j = 0; j < s->m; j += TG_RICE_BLOCK) {
        const bool may_spill = s->m - j >= TG_RICE_BLOCK + TG_GAPS_SPILL;
        low = tg_rice_write(may_spill ? s->engine : NULL, gaps_again(s, j), size_at(s, j), out[j / TG_RICE_BLOCK], low,
                            &quotients);
    }
    return tg_bits_finish(&quotients);
}

static uint8_t *write_elias(const uint32_t *indices, size_t m, uint32_t base, uint8_t *out)
{
    uint8_t *entry = out, *const start = out + elias_table(m);
    tg_bit_writer w = tg_bit_writer_at(start);
    uint64_t following = base;
    for (size_t j = 0, end; j < m;) {
        if (j > 0) {
            tg_store32(entry, (uint32_t)(8 * (w.out - start)) + w.pending_count);
            entry += ELIAS_ENTRY;
        }
        for (end = m - j < ELIAS_RUN ? m : j + ELIAS_RUN; j < end;) {
            /* omega(1) is a single 0 bit, and where this mode is the smallest, most gaps are coded so. */
            unsigned run = 0;
            while (run < 32 && j + run < end && indices[j + run] == following + run)
                run++;
            tg_bits_put(&w, 0, run);
            j += run;
            following += run;
            if (run < 32 && j < end) {
                tg_omega_write(&w, indices[j] - following + 1);
                following = (uint64_t)indices[j++] + 1;
            }
        }
    }
    return tg_bits_finish(&w);
}

static uint8_t *write_bitmap(const uint32_t *indices, size_t m, uint32_t base, uint32_t length, uint8_t *out)
{
    memset(out, 0, tg_index_bound(length));
    for (size_t j = 0; j < m; j++) {
        const uint32_t position = indices[j] - base;
        out[position >> 3] = (uint8_t)(out[position >> 3] | 1u << (position & 7));
    }
    return out + tg_index_bound(length);
}

uint8_t *tg_index_write(const uint32_t *indices, size_t m, uint32_t base, uint32_t length, uint8_t *out, unsigned *mode,
                        const tg_gaps_engine *engine)
{
    *mode = TG_INDEX_RICE;
    if (m == 0)
        return out;
    segment_gaps gaps;
    gaps_open(&gaps, indices, m, base, engine);
    /* The parameters fit in the space of any mode: they take no more bytes than a bitmap. */
    const index_costs costs = weigh_modes(&gaps, out);
    const uint64_t bitmap = tg_index_bound(length);
    if (costs.rice <= costs.elias && costs.rice <= bitmap)
        return write_rice(&gaps, (size_t)costs.quotients_at, out);
    *mode = costs.elias <= bitmap ? TG_INDEX_ELIAS : TG_INDEX_BITMAP;
    return *mode == TG_INDEX_ELIAS ? write_elias(indices, m, base, out) : write_bitmap(indices, m, base, length, out);
}

/* Checks the parameters and finds the low bits and the quotients. */
static bool open_rice(tg_index_reader *reader, const uint8_t *in, size_t size)
{
    const size_t blocks = count_blocks(reader->count);
    if (blocks > size)
        return false;
    size_t left = size - blocks;
    for (size_t i = 0; i < blocks; i++) {
        const size_t before = i * TG_RICE_BLOCK;
        const unsigned r = reader->count - before < TG_RICE_BLOCK ? (unsigned)(reader->count - before) : TG_RICE_BLOCK;
        if (in[i] > TG_RICE_PARAMETER_MAX || tg_rice_low_size(r, in[i]) > left)
            return false;
        left -= tg_rice_low_size(r, in[i]);
    }
    reader->parameters = in;
    reader->low_bits = in + blocks;
    reader->bits = tg_bit_reader_at(in + (size - left), left);
    return reader->count <= reader->bits.size; /* a quotient takes at least one bit */
}

/* A bitmap is checked as a whole, so that reading it cannot fail. */
static bool open_bitmap(tg_index_reader *reader, const uint8_t *in, size_t size)
{
    if (size != tg_index_bound(reader->length))
        return false;
    const unsigned used = reader->length % 8;
    if (used != 0 && in[size - 1] >> used != 0)
        return false;
    size_t listed = 0;
    for (size_t i = 0; i < size; i++)
        for (unsigned byte = in[i]; byte != 0; byte &= byte - 1)
            listed++;
    reader->bits = tg_bit_reader_at(in, size);
    return listed == reader->count;
}

bool tg_index_open(tg_index_reader *reader, unsigned mode, const uint8_t *in, size_t size, size_t m, uint32_t length,
                   const tg_gaps_engine *engine)
{
    memset(reader, 0, offsetof(tg_index_reader, block));
    reader->engine = engine;
    reader->mode = mode;
    reader->count = m;
    reader->length = length;
    bool sound = false;
    if (m == 0)
        sound = mode == TG_INDEX_RICE && size == 0;
    else if (m > length)
        sound = false;
    else if (mode == TG_INDEX_RICE)
        sound = open_rice(reader, in, size);
    else if (mode == TG_INDEX_BITMAP)
        sound = open_bitmap(reader, in, size);
    else if (mode == TG_INDEX_ELIAS && elias_table(m) <= size) {
        reader->offsets = in;
        reader->bits = tg_bit_reader_at(in + elias_table(m), size - elias_table(m));
        sound = m <= reader->bits.size;
    }
    reader->broken = !sound;
    return sound;
}

/* Turns the gaps in reader->block into positions. */
static bool place_block(tg_index_reader *reader)
{
    uint64_t following = reader->following; /* at most length, so no sum wraps */
    for (unsigned i = 0; i < reader->block_size; i++) {
        const uint64_t position = following + reader->block[i];
        if (position >= reader->length)
            return false;
        reader->block[i] = (uint32_t)position;
        following = position + 1;
    }
    reader->following = following;
    return true;
}

static bool read_rice_block(tg_index_reader *reader)
{
    const unsigned parameter = reader->parameters[reader->decoded / TG_RICE_BLOCK];
    const uint8_t *low = reader->low_bits;
    reader->low_bits += tg_rice_low_size(reader->block_size, parameter);
    return tg_rice_read(reader->engine, low, reader->block_size, parameter, &reader->bits, reader->length,
                        &reader->following, reader->block);
}

/* How many of the next bits are zeros, each of which is a gap of 0; up to `most`. */
static unsigned zeros_ahead(const tg_bit_reader *r, unsigned most)
{
    const uint64_t bits = tg_bits_peek(r), left = r->size - r->position;
    unsigned zeros = bits == 0 ? 57 : tg_trailing_zeros(bits);
    zeros = zeros < 57 ? zeros : 57;
    zeros = zeros < most ? zeros : most;
    return zeros < left ? zeros : (unsigned)left;
}

static bool read_elias_block(tg_index_reader *reader)
{
    const size_t run = reader->decoded / ELIAS_RUN;
    if (reader->decoded % ELIAS_RUN == 0 && run > 0 &&
        reader->bits.position != tg_load32(reader->offsets + ELIAS_ENTRY * (run - 1)))
        return false;
    for (unsigned i = 0; i < reader->block_size; i++) {
        uint64_t gap_plus_one;
        const unsigned zeros = zeros_ahead(&reader->bits, reader->block_size - i);
        memset(reader->block + i, 0, zeros * sizeof *reader->block);
        tg_bits_skip(&reader->bits, zeros);
        i += zeros;
        if (i == reader->block_size)
            break;
        if (!tg_omega_read(&reader->bits, &gap_plus_one) || gap_plus_one > reader->length)
            return false;
        reader->block[i] = (uint32_t)(gap_plus_one - 1);
    }
    return place_block(reader);
}

static bool read_bitmap_block(tg_index_reader *reader)
{
    for (unsigned i = 0; i < reader->block_size; i++) {
        uint64_t bits;
        while ((bits = tg_bits_peek(&reader->bits)) == 0)
            if (!tg_bits_skip(&reader->bits, 57))
                return false;
        const unsigned zeros = tg_trailing_zeros(bits);
        reader->block[i] = (uint32_t)(reader->bits.position + zeros);
        tg_bits_skip(&reader->bits, zeros + 1);
    }
    return true;
}

/* Decodes up to 256 more positions. */
static bool read_block(tg_index_reader *reader)
{
    const size_t left = reader->count - reader->decoded;
    reader->block_size = left < TG_RICE_BLOCK ? (unsigned)left : TG_RICE_BLOCK;
    bool sound = reader->mode == TG_INDEX_RICE    ? read_rice_block(reader)
                 : reader->mode == TG_INDEX_ELIAS ? read_elias_block(reader)
                                                  : read_bitmap_block(reader);
    reader->decoded += reader->block_size;
    return sound;
}

/* How many of n increasing positions are below a limit. */
static size_t count_below(const uint32_t *positions, size_t n, uint32_t limit)
{
    if (n > 0 && positions[n - 1] < limit)
        return n;
    size_t below = 0;
    while (below < n && positions[below] < limit)
        below++;
    return below;
}

bool tg_index_peek(tg_index_reader *reader, const uint32_t **positions, size_t *n)
{
    if (!reader->broken && reader->delivered == reader->decoded && reader->decoded < reader->count)
        reader->broken = !read_block(reader);
    *positions = reader->block + reader->delivered % TG_RICE_BLOCK;
    *n = reader->decoded - reader->delivered;
    return !reader->broken;
}

bool tg_index_next(tg_index_reader *reader, uint32_t limit, size_t room, uint32_t *positions, size_t *got)
{
    *got = 0;
    while (*got < room) {
        const uint32_t *next;
        size_t waiting;
        if (!tg_index_peek(reader, &next, &waiting))
            return false;
        const size_t fits = waiting < room - *got ? waiting : room - *got, here = count_below(next, fits, limit);
        memcpy(positions + *got, next, here * sizeof *next);
        reader->delivered += here;
        *got += here;
        if (here < fits || waiting == 0)
            break;
    }
    return !reader->broken;
}

bool tg_index_done(const tg_index_reader *reader)
{
    if (reader->broken || reader->delivered != reader->count)
        return false;
    return reader->count == 0 || reader->mode == TG_INDEX_BITMAP || tg_bits_at_end(&reader->bits);
}
