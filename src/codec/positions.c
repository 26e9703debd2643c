/* Positions, written and read segment by segment. */
#include "codec/positions.h"

enum { HEAD = 8, ENTRY = 8 };            /* bytes of the head and of a directory entry */
#define STREAM_SIZE UINT32_C(0x3fffffff) /* in an entry; the mode lies above */

static uint64_t segments_of(uint64_t count, unsigned log) { return count == 0 ? 0 : ((count - 1) >> log) + 1; }

size_t tg_positions_bound(uint64_t count, uint64_t most)
{
    /* Segments are shortest, and therefore most numerous, when most elements are listed; each has at most one byte of
     * padding. */
    return (size_t)(HEAD + segments_of(count, tg_segment_log(count, most)) * (ENTRY + 1) + count / 8);
}

size_t tg_positions_most(uint64_t count, uint64_t most)
{
    enum { BLOCK = 256, MOST_PARAMETER = 30 };
    /* Rice codes with one parameter p for all gaps: p + 1 bits each, and their sum, below `count`, in units of 2^p. The
     * writer's choice takes no more, but for a byte for the parameter and one of padding in each block. */
    const uint64_t segments = segments_of(count, tg_segment_log(count, most)), bytes = 2 * (most / BLOCK + segments);
    uint64_t best = count / 8;
    for (unsigned p = 0; p <= MOST_PARAMETER; p++) {
        const uint64_t coded = (most * (p + 1) + (count >> p)) / 8 + bytes + 1;
        best = coded < best ? coded : best;
    }
    return (size_t)(HEAD + segments * (ENTRY + 1) + best);
}

tg_positions_writer tg_positions_begin(uint64_t count, uint64_t listed, uint8_t *out, const tg_gaps_engine *engine)
{
    tg_positions_writer w = {
        .engine = engine, .count = count, .log = tg_segment_log(count, listed), .entry = out + HEAD};
    tg_store32(out, (uint32_t)listed);
    tg_store32(out + 4, w.log);
    w.at = w.entry + ENTRY * segments_of(count, w.log);
    return w;
}

uint64_t tg_positions_limit(const tg_positions_writer *w)
{
    const uint64_t length = UINT64_C(1) << w->log;
    return w->count - w->next < length ? w->count : w->next + length;
}

void tg_positions_put(tg_positions_writer *w, const uint32_t *indices, size_t m)
{
    const uint64_t limit = tg_positions_limit(w);
    unsigned mode;
    uint8_t *end = tg_index_write(indices, m, w->origin + (uint32_t)w->next, (uint32_t)(limit - w->next), w->at, &mode,
                                  w->engine);
    tg_store32(w->entry, (uint32_t)m);
    tg_store32(w->entry + 4, mode << 30 | (uint32_t)(end - w->at));
    w->entry += ENTRY;
    w->at = end;
    w->next = limit;
}

tg_positions_writer tg_positions_from(const tg_positions_writer *begun, uint64_t first)
{
    tg_positions_writer w = *begun;
    w.next = first;
    w.entry += ENTRY * (first >> w.log);
    w.at += first / 8; /* at most a bit for each element */
    return w;
}

uint8_t *tg_positions_write(tg_positions_writer *w, const uint32_t *indices, size_t listed)
{
    for (size_t done = 0; w->next < w->count;) {
        const uint64_t limit = tg_positions_limit(w);
        size_t m = 0;
        while (done + m < listed && indices[done + m] < limit)
            m++;
        tg_positions_put(w, indices + done, m);
        done += m;
    }
    return w->at;
}

static bool take_directory(tg_positions_reader *r, tg_cursor *c)
{
    uint64_t segments = r->count == 0 ? 0 : (r->count - 1) / r->segment + 1;
    const uint8_t *directory = tg_cursor_take(c, ENTRY * segments);
    if (!directory)
        return false;
    uint64_t listed = 0, bytes = 0;
    for (uint64_t i = 0; i < segments; i++) {
        uint64_t left = r->count - i * r->segment, length = left < r->segment ? left : r->segment;
        uint32_t m = tg_load32(directory + ENTRY * i), stream = tg_load32(directory + ENTRY * i + 4);
        if (m > length || (m == 0 && stream != 0))
            return false;
        listed += m;
        bytes += stream & STREAM_SIZE;
    }
    r->directory = directory;
    r->stream = tg_cursor_take_last(c, bytes);
    r->bytes = HEAD + ENTRY * segments + bytes;
    return listed == r->listed && r->stream;
}

bool tg_positions_open(tg_positions_reader *r, tg_cursor *c, uint64_t count, const tg_gaps_engine *engine)
{
    const uint64_t listed = tg_cursor_u32(c);
    const uint32_t log = tg_cursor_u32(c); /* in the low byte; the other bytes must be zero */
    if (c->short_read || log < 12 || log > 30 || listed > count)
        return false;
    *r = (tg_positions_reader){.engine = engine, .count = count, .segment = UINT64_C(1) << log, .listed = listed};
    return take_directory(r, c);
}

static bool next_segment(tg_positions_reader *r)
{
    if (r->any_open && !tg_index_done(&r->indices))
        return false;
    uint64_t left = r->count - r->position, length = left < r->segment ? left : r->segment;
    uint32_t m = tg_load32(r->directory), stream = tg_load32(r->directory + 4), size = stream & STREAM_SIZE;
    const uint8_t *bytes = r->stream;
    r->directory += ENTRY;
    r->stream += size;
    r->segment_end = r->position + length;
    r->any_open = true;
    return tg_index_open(&r->indices, stream >> 30, bytes, size, m, (uint32_t)length, r->engine);
}

bool tg_positions_within(tg_positions_reader *r, size_t n, size_t *here, uint32_t *base, uint32_t *limit)
{
    if (r->position == r->segment_end && !next_segment(r))
        return false;
    const uint64_t left = r->segment_end - r->position;
    *here = n < left ? n : (size_t)left;
    *base = (uint32_t)(r->position & (r->segment - 1));
    *limit = *base + (uint32_t)*here;
    return true;
}

bool tg_positions_done(const tg_positions_reader *r)
{
    return r->position == r->segment_end && (!r->any_open || tg_index_done(&r->indices));
}

uint64_t tg_positions_seek(tg_positions_reader *r, uint64_t first)
{
    uint64_t before = 0;
    for (; r->position < first; r->position += r->segment, r->directory += ENTRY) {
        before += tg_load32(r->directory);
        r->stream += tg_load32(r->directory + 4) & STREAM_SIZE;
    }
    r->segment_end = r->position;
    return before;
}
