/* Prefix codes of bytes: the encoder's lengths, round trips, refusals, and damaged streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "code/prefix.h"
#include "draws.h"

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

static void assert_complete(const tg_prefix_code *code, const uint64_t *histogram)
{
    unsigned used = 0;
    for (unsigned s = 0; s < 256; s++) {
        assert_int_equal(code->length[s] > 0, histogram[s] > 0);
        assert_in_range(code->length[s], 0, TG_PREFIX_LONGEST);
        used += code->length[s] > 0 ? TG_PREFIX_SLOTS >> code->length[s] : 0;
    }
    assert_int_equal(used, TG_PREFIX_SLOTS);
    uint8_t table[TG_PREFIX_TABLE];
    tg_prefix_code back;
    tg_prefix_table_write(code, table);
    assert_true(tg_prefix_table_read(&back, table));
    assert_memory_equal(&back, code, sizeof back);
}

static void test_lengths(void **state)
{
    (void)state;
    tg_prefix_code code;
    tg_byte_histogram h = {[7] = 1, [200] = 1};
    tg_prefix_make(&code, h);
    assert_int_equal(code.length[7], 1);
    assert_int_equal(code.length[200], 1);
    assert_complete(&code, h);

    /* Huffman's own kind of example: 15 7 6 6 5 take 1 3 3 3 3 bits, 87 in all. */
    memcpy(h, (tg_byte_histogram){[1] = 15, [2] = 7, [3] = 6, [4] = 6, [5] = 5}, sizeof h);
    tg_prefix_make(&code, h);
    assert_memory_equal(code.length + 1, "\1\3\3\3\3", 5);
    assert_int_equal(tg_prefix_bits(&code, h), 87);
    assert_complete(&code, h);

    /* All alike: eight bits each. */
    for (unsigned s = 0; s < 256; s++)
        h[s] = 1000;
    tg_prefix_make(&code, h);
    for (unsigned s = 0; s < 256; s++)
        assert_int_equal(code.length[s], 8);
    assert_int_equal(tg_bytes_entropy(h), UINT64_C(256000) * 8 << 16);

    /* Fibonacci's numbers, whose tree is as deep as there are bytes: what is limited is still a code, and the more
     * frequent of two bytes never has the longer one. */
    for (unsigned kinds = 2; kinds <= 80; kinds++) {
        memset(h, 0, sizeof h);
        uint64_t a = 1, b = 1;
        for (unsigned s = 0; s < kinds; s++) {
            h[s] = a;
            b += a;
            a = b - a;
        }
        tg_prefix_make(&code, h);
        assert_complete(&code, h);
        for (unsigned s = 1; s < kinds; s++)
            assert_true(code.length[s] <= code.length[s - 1] || h[s] == h[s - 1]);
        if (kinds <= 13)
            assert_int_equal(code.length[kinds - 1], 1);
    }
}

/* Never below the entropy; without a limit that matters, never more than a bit a byte above it. */
static void test_random_histograms(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (unsigned round = 0; round < 2000; round++) {
        tg_byte_histogram h = {0};
        tg_prefix_code code;
        uint64_t total = 0;
        const unsigned kinds = 2 + (unsigned)draw_below(&seed, 255), skew = 1 + (unsigned)draw_below(&seed, 30);
        for (unsigned k = 0; k < kinds; k++) {
            const size_t most = (size_t)1 << draw_below(&seed, skew);
            h[draw_below(&seed, 256)] += 1 + draw_below(&seed, most);
        }
        h[3] += h[3] == 0;
        h[250] += h[250] == 0;
        for (unsigned s = 0; s < 256; s++)
            total += h[s];
        tg_prefix_make(&code, h);
        assert_complete(&code, h);
        const uint64_t bits = tg_prefix_bits(&code, h), entropy = tg_bytes_entropy(h);
        assert_true((bits << 16) + total >= entropy); /* logarithms are rounded down by a unit at most */
        assert_true((bits << 16) <= entropy + (total << 16) + (total << 1));
    }
}

static void test_refused_tables(void **state)
{
    (void)state;
    tg_byte_histogram h = {[1] = 15, [2] = 7, [3] = 6, [4] = 6, [5] = 5};
    tg_prefix_code code, back;
    uint8_t table[TG_PREFIX_TABLE], zeros[TG_PREFIX_TABLE] = {0};
    assert_false(tg_prefix_table_read(&back, zeros));
    tg_prefix_make(&code, h);
    tg_prefix_table_write(&code, table);
    for (unsigned s = 0; s < 256; s++) {
        for (unsigned length = 0; length < 16; length++) {
            uint8_t changed[TG_PREFIX_TABLE];
            memcpy(changed, table, sizeof changed);
            changed[s / 2] = (uint8_t)((changed[s / 2] & (s % 2 ? 0x0f : 0xf0)) | length << s % 2 * 4);
            assert_int_equal(tg_prefix_table_read(&back, changed), length == code.length[s]);
        }
    }
}

static void test_counting(void **state)
{
    (void)state;
    const size_t n = 10 * TG_PREFIX_PART + 77;
    uint8_t *bytes = malloc(n);
    uint64_t seed = 2;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)draw(&seed);
    for (unsigned every = 1; every <= 4; every += 3) {
        tg_byte_histogram h = {0}, expected = {0};
        size_t counted = 0;
        for (size_t i = 0; i < n; i++)
            if (i / TG_PREFIX_PART % every == 0) {
                expected[bytes[i]]++;
                counted++;
            }
        assert_int_equal(tg_bytes_count(bytes, n, every, h), counted);
        assert_memory_equal(h, expected, sizeof h);
    }
    free(bytes);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

typedef struct chunk {
    tg_prefix_code code;
    uint8_t entry[TG_PREFIX_ENTRY];
    uint8_t *streams;
    size_t size, n;
} chunk;

/* Chunks here are the shortest that hold their bytes. */
enum { LONGEST_CHUNK = 1 << TG_PREFIX_CHUNK_MOST };
static unsigned chunk_log_of(size_t n)
{
    unsigned log = TG_PREFIX_CHUNK_LEAST;
    while ((size_t)1 << log < n)
        log++;
    return log;
}

static chunk write_chunk(const tg_prefix_code *code, const uint8_t *bytes, size_t n)
{
    const unsigned log = chunk_log_of(n);
    uint8_t *room = malloc(TG_PREFIX_ROOM(log));
    chunk c = {.code = *code, .n = n, .streams = malloc(TG_PREFIX_STREAMS_MAX(log))};
    tg_prefix_encoder encoder;
    tg_prefix_encoder_make(&encoder, code);
    uint8_t *end = tg_prefix_write(&encoder, bytes, n, log, room, c.entry, c.streams);
    free(room);
    c.size = (size_t)(end - c.streams);
    assert_int_equal(tg_prefix_size(c.entry), c.size);
    return c;
}

/* Whether the streams are a chunk of n bytes, read in pieces. */
static bool reads(const chunk *c, const uint8_t *streams, size_t readable, size_t piece, uint8_t *out)
{
    static tg_prefix_slots slots;
    tg_prefix_reader reader;
    tg_prefix_slots_make(&slots, &c->code);
    tg_prefix_open(&reader, c->entry, streams, readable, c->n);
    for (size_t done = 0; done < c->n; done += piece) {
        assert_false(tg_prefix_done(&reader));
        assert_true(tg_prefix_next(&reader, &slots, c->n - done < piece ? c->n - done : piece, out + done));
    }
    assert_false(tg_prefix_next(&reader, &slots, 1, out)); /* there is no more */
    return tg_prefix_done(&reader);
}

/* The same for the last chunk, whose streams nothing follows, and for others: nothing before or behind is touched, and
 * what follows makes no difference. */
static bool accepts(const chunk *c, const uint8_t *streams, size_t size, size_t piece, uint8_t *out)
{
    enum { BEHIND = 4096 };
    uint8_t *alone = exact_copy(streams, size), *followed = malloc(size + BEHIND), *other = malloc(c->n + 1);
    memcpy(followed, streams, size);
    memset(followed + size, 0x5a, BEHIND);
    const bool sound = reads(c, alone, size, piece, out);
    assert_int_equal(reads(c, followed, size + BEHIND, piece, other), sound);
    if (sound)
        assert_memory_equal(out, other, c->n);
    free(alone);
    free(followed);
    free(other);
    return sound;
}

static void draw_bytes(uint8_t *bytes, size_t n, unsigned kinds, unsigned skew, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        size_t most = kinds;
        for (unsigned k = 0; k < skew; k++)
            most = 1 + draw_below(seed, most);
        bytes[i] = (uint8_t)(37 * draw_below(seed, most));
    }
}

static tg_prefix_code code_of(const uint8_t *bytes, size_t n)
{
    tg_byte_histogram h = {[0] = 1, [37] = 1};
    tg_prefix_code code;
    tg_bytes_count(bytes, n, 1, h);
    tg_prefix_make(&code, h);
    return code;
}

static void test_round_trips(void **state)
{
    (void)state;
    static const size_t lengths[] = {
        0, 1, 2, 7, 8, 9, 31, 32, 33, 64, 255, 256, 4095, 4096, 4097, 8192, 16384, LONGEST_CHUNK - 1, LONGEST_CHUNK};
    uint8_t *bytes = malloc(LONGEST_CHUNK), *back = malloc(LONGEST_CHUNK);
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (unsigned kinds = 2; kinds <= 256; kinds = 2 * kinds + (kinds > 8))
            for (unsigned skew = 0; skew < 4; skew++) {
                const size_t n = lengths[i];
                draw_bytes(bytes, n, kinds > 256 ? 256 : kinds, skew, &seed);
                const tg_prefix_code code = code_of(bytes, n);
                chunk c = write_chunk(&code, bytes, n);
                assert_true(accepts(&c, c.streams, c.size, 8 * (1 + draw_below(&seed, 600)), back));
                assert_memory_equal(back, bytes, n);
                free(c.streams);
            }
    free(bytes);
    free(back);
}

/* The longest codes all over: every stream as long as there is room for. */
static void test_longest_streams(void **state)
{
    (void)state;
    tg_byte_histogram h = {0};
    uint64_t a = 1, b = 1;
    for (unsigned s = 0; s < 14; s++, b += a, a = b - a)
        h[s] = a;
    tg_prefix_code code;
    tg_prefix_make(&code, h);
    assert_int_equal(code.length[0], TG_PREFIX_LONGEST);
    uint8_t *bytes = calloc(LONGEST_CHUNK, 1), *back = malloc(LONGEST_CHUNK);
    for (unsigned log = TG_PREFIX_CHUNK_LEAST; log <= TG_PREFIX_CHUNK_MOST; log++) {
        chunk c = write_chunk(&code, bytes, (size_t)1 << log);
        assert_int_equal(c.size, TG_PREFIX_STREAMS_MAX(log));
        assert_true(accepts(&c, c.streams, c.size, 4096, back));
        assert_memory_equal(back, bytes, (size_t)1 << log);
        free(c.streams);
    }
    free(bytes);
    free(back);
}

static void test_bytes_never_change(void **state)
{
    (void)state;
    static const struct {
        unsigned kinds, skew;
        uint64_t streams;
    } golden[] = {
        {2, 0, UINT64_C(0xc89e56f843b8945c)},
        {15, 1, UINT64_C(0x1be9fc079a742415)},
        {225, 2, UINT64_C(0xd6afd78971bb09cc)},
        {256, 0, UINT64_C(0x7fb839752d883ace)},
    };
    uint8_t bytes[5003];
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint64_t seed = 5 + i;
        draw_bytes(bytes, sizeof bytes, golden[i].kinds, golden[i].skew, &seed);
        const tg_prefix_code code = code_of(bytes, sizeof bytes);
        chunk c = write_chunk(&code, bytes, sizeof bytes);
        const uint64_t print = fingerprint(c.streams, c.size) ^ fingerprint((const uint8_t *)&code, sizeof code);
        assert_true(print == golden[i].streams);
        free(c.streams);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void test_refused_streams(void **state)
{
    (void)state;
    uint64_t seed = 6;
    uint8_t bytes[400], back[400];
    for (unsigned round = 0; round < 200; round++) {
        const size_t n = 1 + draw_below(&seed, sizeof bytes);
        draw_bytes(bytes, n, 2 + (unsigned)draw_below(&seed, 200), round % 3, &seed);
        const tg_prefix_code code = code_of(bytes, n);
        const chunk c = write_chunk(&code, bytes, n);
        size_t start = 0;
        for (unsigned s = 0; s < TG_PREFIX_STREAMS; s++) {
            const size_t size = c.entry[2 * s] | (size_t)c.entry[2 * s + 1] << 8;
            chunk other = c;
            other.entry[2 * s] = (uint8_t)(size + 1); /* sizes here are below 255 */
            uint8_t *longer = calloc(c.size + 1, 1);
            memcpy(longer, c.streams, start + size);
            memcpy(longer + start + size + 1, c.streams + start + size, c.size - start - size);
            assert_false(accepts(&other, longer, c.size + 1, 400, back));
            if (size > 0) {
                other.entry[2 * s] = (uint8_t)(size - 1);
                uint8_t *shorter = longer;
                memcpy(shorter, c.streams, start + size - 1);
                memcpy(shorter + start + size - 1, c.streams + start + size, c.size - start - size);
                assert_false(accepts(&other, shorter, c.size - 1, 400, back));
            }
            free(longer);
            start += size;
        }
        free(c.streams);
    }
}

/* A code has one way to write bytes, so what is accepted after damage is the only way to write what it says. */
static void test_damaged_streams(void **state)
{
    (void)state;
    uint64_t seed = 7;
    uint8_t bytes[700], back[700];
    unsigned accepted = 0;
    for (unsigned source = 0; source < 300; source++) {
        const size_t n = 1 + draw_below(&seed, sizeof bytes);
        draw_bytes(bytes, n, 2 + (unsigned)draw_below(&seed, 200), source % 3, &seed);
        const tg_prefix_code code = code_of(bytes, n);
        const chunk c = write_chunk(&code, bytes, n);
        for (unsigned times = 0; times < 100; times++) {
            size_t size = c.size;
            uint8_t *damaged = damaged_copy(c.streams, &size, &seed);
            if (size >= c.size && accepts(&c, damaged, c.size, 8 * (1 + draw_below(&seed, 100)), back)) {
                accepted++;
                chunk again = write_chunk(&code, back, n);
                assert_int_equal(again.size, c.size);
                assert_memory_equal(again.entry, c.entry, sizeof c.entry);
                assert_memory_equal(again.streams, damaged, c.size);
                free(again.streams);
            }
            free(damaged);
        }
        free(c.streams);
    }
    assert_in_range(accepted, 1, 29999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_random_histograms),
        cmocka_unit_test(test_refused_tables),
        cmocka_unit_test(test_counting),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_longest_streams),
        cmocka_unit_test(test_bytes_never_change),
        cmocka_unit_test(test_refused_streams),
        cmocka_unit_test(test_damaged_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
