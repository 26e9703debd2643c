/* The streams of a prefix code. There are eight, interleaved, so that a processor can work on eight independent chains
 * of table lookups; in plain C this is as fast as vector instructions would be. */
#include "code/prefix.h"

#include <string.h>

#include "base/bytes.h"
#include "code/bit_tools.h"

enum { STREAMS = TG_PREFIX_STREAMS, TOGETHER = 4 }; /* codes that fit one load of 57 bits, or a store */
enum { LENGTH_BITS = 8 };                           /* of an encoder's entry, below the code */

/* The bits of each code, the first of them lowest; zero for bytes that have none. */
static void assign_codes(const tg_prefix_code *code, uint32_t *bits)
{
    uint32_t of_length[TG_PREFIX_LONGEST + 1] = {0}, next[TG_PREFIX_LONGEST + 1] = {0};
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        of_length[code->length[s]]++;
    for (unsigned length = 2; length <= TG_PREFIX_LONGEST; length++)
        next[length] = (next[length - 1] + of_length[length - 1]) << 1;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        bits[s] = code->length[s] > 0 ? tg_bits_mirror(next[code->length[s]]++, code->length[s]) : 0;
}

void tg_prefix_encoder_make(tg_prefix_encoder *encoder, const tg_prefix_code *code)
{
    assign_codes(code, encoder->entry);
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        encoder->entry[s] = encoder->entry[s] << LENGTH_BITS | code->length[s];
}

/* The code of a table entry. A shift by the whole entry uses its low six bits only, which are the length; the sum of
 * four lengths is also below 64. */
static inline uint64_t bits_of(uint32_t entry) { return entry >> LENGTH_BITS; }
static inline unsigned length_of(uint32_t entry) { return entry & 63; }

/* A stream that is being written. */
typedef struct stream {
    uint8_t *out;
    uint64_t pending; /* bits to come, the first lowest */
    unsigned count;   /* of them, below 8 between rounds */
} stream;

/* Appends four codes. They are combined first, because the update of `pending` is the chain of dependencies that limits
 * the speed. */
static inline void put_four(stream *w, const tg_prefix_encoder *encoder, const uint8_t *bytes)
{
    const uint32_t a = encoder->entry[bytes[0]], b = encoder->entry[bytes[STREAMS]];
    const uint32_t c = encoder->entry[bytes[2 * STREAMS]], d = encoder->entry[bytes[3 * STREAMS]];
    const uint64_t first = bits_of(a) | bits_of(b) << length_of(a), second = bits_of(c) | bits_of(d) << length_of(c);
    w->pending |= (first | second << length_of(a + b)) << w->count;
    w->count += length_of(a + b + c + d);
    tg_store64(w->out, w->pending);
    w->out += w->count / 8;
    w->pending >>= w->count & 56;
    w->count %= 8;
}

/* Writes whole rounds of two neighbouring streams. */
static void put_rounds(stream *pair, const tg_prefix_encoder *encoder, const uint8_t *bytes, size_t rounds)
{
    stream a = pair[0], b = pair[1];
    for (; rounds > 0; rounds--, bytes += TOGETHER * STREAMS) {
        put_four(&a, encoder, bytes);
        put_four(&b, encoder, bytes + 1);
    }
    pair[0] = a;
    pair[1] = b;
}

uint8_t *tg_prefix_write(const tg_prefix_encoder *encoder, const uint8_t *bytes, size_t n, unsigned chunk_log,
                         uint8_t *room, uint8_t *entry, uint8_t *out)
{
    const size_t room_each = TG_PREFIX_ROOM(chunk_log) / STREAMS;
    enum { PART = 4096 }; /* bytes that stay in the first-level cache while all streams are written from them */
    const size_t whole = n / (TOGETHER * STREAMS) * (TOGETHER * STREAMS);
    stream streams[STREAMS];
    for (unsigned s = 0; s < STREAMS; s++)
        streams[s] = (stream){.out = room + s * room_each};
    for (size_t at = 0; at < whole; at += PART)
        for (unsigned s = 0; s < STREAMS; s += 2)
            put_rounds(streams + s, encoder, bytes + at + s,
                       (whole - at < PART ? whole - at : PART) / (TOGETHER * STREAMS));
    for (size_t y = whole; y < n; y++) { /* up to three more codes in each */
        stream *w = &streams[y % STREAMS];
        w->pending |= bits_of(encoder->entry[bytes[y]]) << w->count;
        w->count += length_of(encoder->entry[bytes[y]]);
    }
    for (unsigned s = 0; s < STREAMS; s++) {
        const uint8_t *start = room + s * room_each;
        tg_store64(streams[s].out, streams[s].pending);
        const size_t size = (size_t)(streams[s].out - start) + (streams[s].count + 7) / 8;
        tg_store16(entry + 2 * s, (uint16_t)size);
        memcpy(out, start, size);
        out += size;
    }
    return out;
}

void tg_prefix_slots_make(tg_prefix_slots *slots, const tg_prefix_code *code)
{
    uint32_t bits[TG_PREFIX_SYMBOLS];
    uint8_t ranked[TG_PREFIX_SYMBOLS];           /* by length, those without a code first */
    unsigned place[TG_PREFIX_LONGEST + 2] = {0}; /* where bytes of each length start, and in the end where they end */
    assign_codes(code, bits);
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        place[code->length[s] + 1]++;
    for (unsigned length = 1; length <= TG_PREFIX_LONGEST; length++)
        place[length + 1] += place[length];
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        ranked[place[code->length[s]]++] = (uint8_t)s;
    /* A table for codes of up to `length` bits is two copies of that for shorter ones, with those codes put in. */
    unsigned at = place[0];
    slots->slot[0] = 0;
    for (unsigned length = 1; length <= TG_PREFIX_LONGEST; length++) {
        const size_t half = (size_t)1 << (length - 1);
        memcpy(slots->slot + half, slots->slot, half * sizeof *slots->slot);
        for (; at < place[length]; at++)
            slots->slot[bits[ranked[at]]] = (uint16_t)((unsigned)ranked[at] << 8 | length);
    }
}

size_t tg_prefix_size(const uint8_t *entry)
{
    size_t size = 0;
    for (unsigned s = 0; s < STREAMS; s++)
        size += tg_load16(entry + 2 * s);
    return size;
}

void tg_prefix_open(tg_prefix_reader *reader, const uint8_t *entry, const uint8_t *in, size_t readable, size_t n)
{
    size_t at = 0;
    reader->in = in;
    reader->readable = readable;
    reader->left = n;
    for (unsigned s = 0; s < STREAMS; s++) {
        reader->position[s] = 8 * (uint64_t)at;
        at += tg_load16(entry + 2 * s);
        reader->end[s] = at;
    }
}

/* Decodes four rounds of all streams at a time, as long as that cannot read over the end of all; returns how many
 * bytes. */
static size_t read_rounds(tg_prefix_reader *reader, const tg_prefix_slots *slots, size_t count, uint8_t *out)
{
    const uint8_t *in = reader->in;
    uint64_t position[STREAMS], last = 0;
    for (unsigned s = 0; s < STREAMS; s++) {
        position[s] = reader->position[s];
        last = position[s] > last ? position[s] : last;
    }
    const uint64_t readable = 8 * (uint64_t)reader->readable,
                   safe = readable < last + 64 ? 0 : (readable - last - 64) / (TOGETHER * TG_PREFIX_LONGEST);
    const size_t wanted = count / (TOGETHER * STREAMS), rounds = wanted < safe ? wanted : (size_t)safe;
    for (size_t round = 0; round < rounds; round++, out += TOGETHER * STREAMS) {
#pragma GCC unroll 8
        for (unsigned s = 0; s < STREAMS; s++) {
            uint64_t bits = tg_load64(in + (position[s] >> 3)) >> (position[s] & 7);
            unsigned used = 0;
#pragma GCC unroll 4
            for (unsigned i = 0; i < TOGETHER; i++) {
                const unsigned slot = slots->slot[bits & (TG_PREFIX_SLOTS - 1)];
                out[i * STREAMS + s] = (uint8_t)(slot >> 8);
                bits >>= slot & 63;
                used += slot;
            }
            position[s] += used & 0xff;
        }
    }
    memcpy(reader->position, position, sizeof position);
    return rounds * TOGETHER * STREAMS;
}

/* Decodes one byte of a stream; bits that do not exist are zeros. */
static uint8_t read_byte(tg_prefix_reader *reader, const tg_prefix_slots *slots, unsigned stream)
{
    tg_bit_reader r = tg_bit_reader_at(reader->in, reader->readable);
    r.position = reader->position[stream] < r.size ? reader->position[stream] : r.size;
    const unsigned slot = slots->slot[tg_bits_peek(&r) & (TG_PREFIX_SLOTS - 1)];
    reader->position[stream] += slot & 0xff;
    return (uint8_t)(slot >> 8);
}

bool tg_prefix_next(tg_prefix_reader *reader, const tg_prefix_slots *slots, size_t count, uint8_t *out)
{
    if (count > reader->left || (count % STREAMS != 0 && count != reader->left))
        return false;
    size_t done = 0;
    for (size_t got = 1; got > 0;
         done += got) /* the number of safe rounds assumes the longest codes, so there may be more */
        got = read_rounds(reader, slots, count - done, out + done);
    for (; done < count; done++)
        out[done] = read_byte(reader, slots, (unsigned)(done % STREAMS));
    reader->left -= count;
    return true;
}

bool tg_prefix_done(const tg_prefix_reader *reader)
{
    bool sound = reader->left == 0;
    for (unsigned s = 0; s < STREAMS && sound; s++) {
        const uint64_t position = reader->position[s], end = 8 * (uint64_t)reader->end[s];
        sound = position <= end && end - position < 8 &&
                (position % 8 == 0 || reader->in[position / 8] >> position % 8 == 0);
    }
    return sound;
}
