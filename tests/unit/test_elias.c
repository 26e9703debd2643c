/* Elias omega numbers and the two Elias layouts: lengths, round trips, refusals, and damaged streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "code/elias.h"
#include "draws.h"

#define MAX_LEVEL 32767u

static void test_omega_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, last;
        unsigned bits;
    } table[] = {{1, 1, 1}, {2, 3, 3}, {4, 7, 6}, {8, 15, 7}, {16, 31, 11}, {32, 63, 12}, {1024, 1024, 18}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (uint64_t m = table[i].first; m <= table[i].last; m++)
            assert_int_equal(tg_omega_length(m), table[i].bits);
}

static void test_omega_bits(void **state)
{
    (void)state;
    static const struct {
        uint64_t m;
        const char *code;
    } table[] = {
        {1, "0"}, {2, "100"}, {3, "110"}, {4, "101000"}, {8, "1110000"}, {16, "10100100000"}, {100, "1011011001000"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint8_t bytes[16] = {0};
        tg_bit_writer w = tg_bit_writer_at(bytes);
        tg_omega_write(&w, table[i].m);
        tg_bits_finish(&w);
        assert_int_equal(tg_omega_length(table[i].m), strlen(table[i].code));
        for (size_t bit = 0; table[i].code[bit]; bit++)
            assert_int_equal(bytes[bit / 8] >> bit % 8 & 1, table[i].code[bit] - '0');
    }
}

/* One number after `before` other bits, and each of its truncations. */
static void check_omega(uint64_t m, unsigned before)
{
    uint8_t bytes[24];
    uint64_t value = 0;
    tg_bit_writer w = tg_bit_writer_at(bytes);
    tg_bits_put(&w, (1u << before) - 1, before);
    tg_omega_write(&w, m);
    const size_t bits = before + tg_omega_length(m), size = (size_t)(tg_bits_finish(&w) - bytes);
    assert_int_equal(size, (bits + 7) / 8);
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *copy = exact_copy(bytes, cut);
        tg_bit_reader r = tg_bit_reader_at(copy, cut);
        tg_bits_get(&r, before);
        assert_int_equal(tg_omega_read(&r, &value), cut == size);
        if (cut == size) {
            assert_true(value == m);
            assert_true(r.position == bits);
            assert_true(tg_bits_at_end(&r));
        }
        free(copy);
    }
}

static void test_omega_round_trips(void **state)
{
    (void)state;
    for (unsigned power = 0; power < 64; power++) {
        const uint64_t m = UINT64_C(1) << power;
        for (unsigned before = 0; before < 8; before++) {
            if (m > 1)
                check_omega(m - 1, before);
            check_omega(m, before);
            check_omega(m + 1, before);
        }
    }
    for (unsigned before = 0; before < 8; before++)
        check_omega(UINT64_MAX, before);
    uint64_t seed = 1;
    for (unsigned i = 0; i < 1000; i++) {
        const unsigned shift = (unsigned)draw_below(&seed, 64);
        check_omega(draw(&seed) >> shift | 1, i % 8);
    }
}

static void test_omega_too_large(void **state)
{
    (void)state;
    /* 2, 6, 64 as groups: what follows would have 65 bits. */
    uint8_t bytes[32];
    tg_bit_writer w = tg_bit_writer_at(bytes);
    tg_bits_put(&w, 1, 2);
    tg_bits_put(&w, 3, 3);
    tg_bits_put(&w, 1, 7);
    for (unsigned i = 0; i < 5; i++)
        tg_bits_put(&w, i == 0, 20);
    tg_bit_reader r = tg_bit_reader_at(bytes, (size_t)(tg_bits_finish(&w) - bytes));
    uint64_t m;
    assert_false(tg_omega_read(&r, &m));
    /* Ones for ever ask for more and more bits. */
    memset(bytes, 0xff, sizeof bytes);
    r = tg_bit_reader_at(bytes, sizeof bytes);
    assert_false(tg_omega_read(&r, &m));
}

enum { ZEROS, RARE, TERNARY, SMALL, WIDE, EXTREME, SHAPES };

static int16_t draw_level(int shape, uint64_t *seed)
{
    const int sign = draw(seed) & 1 ? 1 : -1;
    switch (shape) {
    case ZEROS:
        return 0;
    case RARE:
        return (int16_t)(draw_below(seed, 500) == 0 ? sign * (int)(1 + draw_below(seed, 5)) : 0);
    case TERNARY:
        return (int16_t)(sign * (int)draw_below(seed, 2));
    case SMALL:
        return (int16_t)(sign * __builtin_ctzll(draw(seed) | 1u << 10));
    case WIDE:
        return (int16_t)(sign * (int)draw_below(seed, MAX_LEVEL + 1));
    default:
        return (int16_t)(sign * (int)MAX_LEVEL);
    }
}

/* Writes n levels chunk by chunk, reads each chunk in pieces, and returns the bytes' fingerprint. */
static uint64_t check_layout(int layout, const int16_t *levels, size_t n, size_t piece)
{
    uint8_t *out = malloc(8 * (size_t)TG_ELIAS_CHUNK + 8);
    int16_t *back = malloc(TG_ELIAS_CHUNK * sizeof *back);
    uint64_t prints = 0;
    for (size_t at = 0; at == 0 || at < n; at += TG_ELIAS_CHUNK) {
        const size_t count = n - at < TG_ELIAS_CHUNK ? n - at : TG_ELIAS_CHUNK;
        const uint64_t bits = tg_elias_bits(layout, levels + at, count);
        const size_t size = (size_t)(tg_elias_write(layout, levels + at, count, out) - out);
        assert_int_equal(size, (bits + 7) / 8);
        uint8_t *copy = exact_copy(out, size);
        tg_elias_reader reader;
        tg_elias_open(&reader, layout, copy, size, count, MAX_LEVEL);
        for (size_t done = 0; done < count;) {
            const size_t step = count - done < piece ? count - done : piece;
            assert_false(tg_elias_done(&reader));
            assert_true(tg_elias_next(&reader, step, back + done));
            done += step;
        }
        assert_true(tg_elias_done(&reader));
        assert_false(tg_elias_next(&reader, 1, back));
        assert_memory_equal(back, levels + at, count * sizeof *back);
        prints = prints * 31 + fingerprint(out, size);
        free(copy);
    }
    free(out);
    free(back);
    return prints;
}

static void test_layouts_round_trip(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 8191, 8192, 8193, 30001};
    int16_t *levels = malloc(300001 * sizeof *levels);
    uint64_t seed = 2;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int shape = 0; shape < SHAPES; shape++) {
            for (size_t j = 0; j < lengths[i]; j++)
                levels[j] = draw_level(shape, &seed);
            const size_t piece = 1 + draw_below(&seed, 5000);
            check_layout(TG_ELIAS_SPARSE, levels, lengths[i], piece);
            check_layout(TG_ELIAS_DENSE, levels, lengths[i], piece);
        }
    }
    for (size_t piece = 1; piece < 40; piece++) {
        check_layout(TG_ELIAS_SPARSE, levels, 333, piece);
        check_layout(TG_ELIAS_DENSE, levels, 333, piece);
    }
    free(levels);
}

static void test_bytes_never_change(void **state)
{
    (void)state;
    int16_t levels[5000];
    uint64_t seed = 3;
    for (size_t j = 0; j < 5000; j++)
        levels[j] = draw_level((int)(j % SHAPES), &seed);
    assert_true(check_layout(TG_ELIAS_SPARSE, levels, 5000, 5000) == UINT64_C(0xc9e0c2e0b3458cae));
    assert_true(check_layout(TG_ELIAS_DENSE, levels, 5000, 5000) == UINT64_C(0x974dc3db9ac76c8e));
}

/* Whether n levels come out of `size` bytes, whatever is left over. */
static bool delivers(int layout, const uint8_t *bytes, size_t size, size_t n)
{
    int16_t levels[512];
    uint8_t *copy = exact_copy(bytes, size);
    tg_elias_reader reader;
    tg_elias_open(&reader, layout, copy, size, n, MAX_LEVEL);
    const bool sound = tg_elias_next(&reader, n, levels);
    free(copy);
    return sound;
}

/* Whether `size` bytes are accepted as a chunk of n levels; what is delivered before must be within range. */
static bool accepts(int layout, const uint8_t *bytes, size_t size, size_t n, unsigned max_level, size_t piece)
{
    int16_t levels[512];
    uint8_t *copy = exact_copy(bytes, size);
    tg_elias_reader reader;
    bool sound = true;
    tg_elias_open(&reader, layout, copy, size, n, max_level);
    for (size_t done = 0; sound && done < n;) {
        const size_t step = n - done < piece ? n - done : piece;
        sound = tg_elias_next(&reader, step, levels);
        for (size_t i = 0; sound && i < step; i++)
            assert_in_range(levels[i] + (int)max_level, 0, 2 * max_level);
        done += step;
    }
    assert_true(sound || !tg_elias_done(&reader));
    sound = sound && tg_elias_done(&reader);
    free(copy);
    return sound;
}

static void test_refusals(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        const int layout = round % 2 ? TG_ELIAS_SPARSE : TG_ELIAS_DENSE;
        int16_t levels[64];
        uint8_t bytes[512];
        const size_t n = 1 + draw_below(&seed, 64);
        unsigned largest = 0;
        for (size_t i = 0; i < n; i++) {
            levels[i] = draw_level(1 + (int)draw_below(&seed, SHAPES - 1), &seed);
            const unsigned size = (unsigned)abs(levels[i]);
            largest = size > largest ? size : largest;
        }
        const size_t bits = (size_t)tg_elias_bits(layout, levels, n);
        const size_t size = (size_t)(tg_elias_write(layout, levels, n, bytes) - bytes);
        assert_true(accepts(layout, bytes, size, n, MAX_LEVEL, 512));
        assert_true(accepts(layout, bytes, size, n, largest, 512));
        if (largest > 0)
            assert_false(accepts(layout, bytes, size, n, largest - 1, 512));
        for (size_t cut = 0; cut < size; cut++)
            assert_false(delivers(layout, bytes, cut, n));
        for (size_t bit = bits; bit < 8 * size; bit++) {
            bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
            assert_false(accepts(layout, bytes, size, n, MAX_LEVEL, 512));
            bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        }
        for (unsigned added = 0; added < 256; added += 51) {
            bytes[size] = (uint8_t)added;
            assert_false(accepts(layout, bytes, size + 1, n, MAX_LEVEL, 512));
        }
        /* One element fewer leaves a position outside or a code unread, unless the last level is a zero that takes no
         * bits (sparse) or no byte (dense, where only the bits of the last code can pass for padding). */
        if (levels[n - 1] != 0)
            assert_false(accepts(layout, bytes, size, n - 1, MAX_LEVEL, 512));
    }
}

static size_t write_numbers(uint8_t *bytes, const uint64_t *numbers, size_t n)
{
    /* A zero stands for a single zero bit (a sign). */
    tg_bit_writer w = tg_bit_writer_at(bytes);
    for (size_t i = 0; i < n; i++) {
        if (numbers[i] == 0)
            tg_bits_put(&w, 0, 1);
        else
            tg_omega_write(&w, numbers[i]);
    }
    return (size_t)(tg_bits_finish(&w) - bytes);
}

static void test_sparse_rules(void **state)
{
    (void)state;
    static const struct {
        uint64_t numbers[7];
        size_t length;
        bool sound;
    } table[] = {
        {{3, 1, 0, 5, 9, 0, 7}, 7, true},           /* positions 0 and 9 of 10 */
        {{3, 1, 0, 5, 10, 0, 7}, 7, false},         /* position 10 */
        {{3, 1, 0, 5, UINT64_MAX, 0, 7}, 7, false}, /* a distance that would wrap */
        {{3, 1, 0, 5, UINT64_MAX - 1, 0, 7}, 7, false},
        {{2, 11, 0, 1}, 4, false},
        {{2, 10, 0, 1}, 4, true},
        {{2, 10, 0, 8}, 4, false}, /* level 8 of 7 */
        {{2, 10, 0, UINT64_MAX}, 4, false},
        {{12}, 1, false}, /* 11 non-zero levels of 10 */
        {{UINT64_MAX}, 1, false},
        {{1}, 1, true},
        {{4, 1, 0, 5, 9, 0, 7}, 7, false}, /* one announced that is not there */
    };
    uint8_t bytes[256];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const size_t size = write_numbers(bytes, table[i].numbers, table[i].length);
        for (size_t piece = 1; piece <= 10; piece++)
            assert_int_equal(accepts(TG_ELIAS_SPARSE, bytes, size, 10, 7, piece), table[i].sound);
    }
    /* More non-zero levels than levels are refused before the first. */
    const size_t size = write_numbers(bytes, (const uint64_t[]){12, 1, 0, 1}, 4);
    assert_false(delivers(TG_ELIAS_SPARSE, bytes, size, 1));
    tg_elias_reader reader;
    int16_t level;
    tg_elias_open(&reader, TG_ELIAS_SPARSE, bytes, size, 10, 7);
    assert_false(tg_elias_next(&reader, 1, &level));
}

static void test_damaged_streams(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int layout = TG_ELIAS_SPARSE; layout <= TG_ELIAS_DENSE; layout++) {
        unsigned accepted = 0;
        for (int source = 0; source < 1000; source++) {
            int16_t levels[200];
            uint8_t bytes[2048];
            const size_t n = 1 + draw_below(&seed, 200);
            const int shape = 1 + (int)draw_below(&seed, SHAPES - 1);
            for (size_t i = 0; i < n; i++)
                levels[i] = draw_level(shape, &seed);
            const size_t size = (size_t)(tg_elias_write(layout, levels, n, bytes) - bytes);
            for (int times = 0; times < 100; times++) {
                size_t damaged_size = size;
                uint8_t *damaged = damaged_copy(bytes, &damaged_size, &seed);
                const unsigned max_level = times % 2 ? MAX_LEVEL : (unsigned)(1 + draw_below(&seed, 20));
                accepted += accepts(layout, damaged, damaged_size, n, max_level, 1 + draw_below(&seed, 200));
                free(damaged);
            }
        }
        assert_in_range(accepted, 1, 99999); /* damage that shows and damage that does not */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_omega_lengths),      cmocka_unit_test(test_omega_bits),
        cmocka_unit_test(test_omega_round_trips),  cmocka_unit_test(test_omega_too_large),
        cmocka_unit_test(test_layouts_round_trip), cmocka_unit_test(test_bytes_never_change),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_sparse_rules),
        cmocka_unit_test(test_damaged_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
