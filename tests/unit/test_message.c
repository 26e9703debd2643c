/* The format of messages, byte by byte as docs/collectives.md has it, and what is refused of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "reduce/message.h"

static const tg_message sample = {.kind = TG_MESSAGE_PARTS,
                                  .step = UINT64_C(0x0102030405060708),
                                  .rank = 3,
                                  .world = 5,
                                  .number = 9,
                                  .frames = 0,
                                  .layout = UINT64_C(0x1112131415161718),
                                  .extra = 4};

static void seal(uint8_t bytes[52])
{
    memcpy(bytes + TG_MESSAGE_HEADER, "\1\2\3\4", 4);
    tg_message_seal(&tg_kernels_scalar, &sample, bytes);
}

static tg_status open_bytes(const uint8_t *bytes, size_t size, const tg_message *expected)
{
    tg_message message;
    tg_cursor extra, frames;
    return tg_message_open(&tg_kernels_scalar, bytes, size, expected, &message, &extra, &frames, NULL);
}

static void golden(void **state)
{
    (void)state;
    static const uint8_t due[44] = {'T', 'G', 'M',  'S',  3,    2,    0,    0,    8,    7,    6, 5, 4, 3, 2,
                                    1,   3,   0,    0,    0,    5,    0,    0,    0,    9,    0, 0, 0, 0, 0,
                                    0,   0,   0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 4, 0, 0, 0};
    uint8_t bytes[52];
    seal(bytes);
    assert_memory_equal(bytes, due, sizeof due);
    assert_int_equal(tg_load32(bytes + 44), UINT32_C(0x1e7d24f1)); /* as another implementation of XXH3 has it */
}

static void round_trip(void **state)
{
    (void)state;
    uint8_t bytes[52];
    tg_message message;
    tg_cursor extra, frames;
    seal(bytes);
    assert_int_equal(tg_message_open(&tg_kernels_scalar, bytes, sizeof bytes, &sample, &message, &extra, &frames, NULL),
                     TG_OK);
    assert_int_equal(message.kind, sample.kind);
    assert_int_equal(message.extra, 4);
    assert_int_equal(extra.left, 4);
    assert_int_equal(extra.at[2], 3);
    assert_int_equal(frames.left, 0);
}

/* A message with two frames at the start of a longer buffer ends where it says; what breaks off has no other end. */
static void sizes(void **state)
{
    (void)state;
    enum { FRAME = 64, END = 52 + FRAME + 10 + FRAME, ROOM = END + 30 };
    uint8_t bytes[ROOM];
    memset(bytes, 0xff, sizeof bytes);
    tg_message message = sample;
    message.frames = 2;
    tg_message_seal(&tg_kernels_scalar, &message, bytes);
    tg_store64(bytes + 52 + 32, 10);
    tg_store64(bytes + 52 + FRAME + 10 + 32, 0);
    for (size_t room = 0; room <= ROOM; room++)
        assert_int_equal(tg_message_size(bytes, room), room < END ? room : END);
    tg_store64(bytes + 52 + 32, UINT64_MAX - 20);
    assert_int_equal(tg_message_size(bytes, ROOM), ROOM);
    tg_store32(bytes + 40, UINT32_MAX);
    assert_int_equal(tg_message_size(bytes, ROOM), ROOM);
}

static void every_flip_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[52];
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        seal(bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(open_bytes(bytes, sizeof bytes, &sample), TG_OK);
    }
    seal(bytes);
    for (size_t size = 0; size < sizeof bytes; size++)
        assert_int_not_equal(open_bytes(bytes, size, &sample), TG_OK);
}

/* A sound message that is not the one that is due. */
static void others_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[52];
    seal(bytes);
    tg_message due = sample;
    due.kind = TG_MESSAGE_RESULTS;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_CORRUPT);
    due = sample;
    due.rank = 2;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_CORRUPT);
    due = sample;
    due.number = 8;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_CORRUPT);
    due = sample;
    due.step++;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_LAYOUT_MISMATCH);
    due = sample;
    due.world = 4;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_LAYOUT_MISMATCH);
    due = sample;
    due.layout++;
    assert_int_equal(open_bytes(bytes, sizeof bytes, &due), TG_LAYOUT_MISMATCH);
}

static void verdicts(void **state)
{
    (void)state;
    enum { WORLD = 5 };
    tg_verdict said;
    tg_vote read;
    uint8_t bytes[TG_TIMED_BYTES];
    assert_true(tg_sentence_read(tg_cursor_over((const uint8_t *)"a tab\there", 10), &said));
    assert_string_equal(said.text, "a tab?here"); /* it goes to a terminal */
    const uint8_t longest[TG_VERDICT_TEXT] = {'a'};
    assert_true(tg_sentence_read(tg_cursor_over(longest, sizeof longest - 1), &said));
    assert_false(tg_sentence_read(tg_cursor_over(longest, sizeof longest), &said));
    assert_int_equal(tg_vote_write(&(tg_vote){3, TG_SKIPPED, 77}, false, bytes), TG_VOTE_BYTES);
    assert_true(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES), false, WORLD, &read));
    assert_int_equal(read.rank, 3);
    assert_int_equal(read.status, TG_SKIPPED);
    assert_false(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES - 1), false, WORLD, &read));
    assert_false(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES), false, 3, &read));    /* there is no rank 3 */
    assert_false(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES), true, WORLD, &read)); /* there is no time */
    assert_int_equal(tg_vote_write(&(tg_vote){3, TG_SKIPPED, 77}, true, bytes), TG_TIMED_BYTES);
    assert_true(tg_vote_read(tg_cursor_over(bytes, TG_TIMED_BYTES), true, WORLD, &read));
    assert_int_equal(read.microseconds, 77);
    assert_false(tg_vote_read(tg_cursor_over(bytes, TG_TIMED_BYTES), false, WORLD, &read));
    static const tg_vote wrong[] = {{3, TG_OK, 0},
                                    {TG_NO_RANK, TG_SKIPPED, 0},
                                    {WORLD, TG_SKIPPED, 0},
                                    {3, TG_INVALID_ARGUMENT, 0}, /* which no rank says of a step */
                                    {3, TG_STATUS_COUNT, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tg_vote_write(&wrong[i], false, bytes);
        assert_false(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES), false, WORLD, &read));
    }
    tg_vote_write(&(tg_vote){TG_NO_RANK, TG_OK, 0}, false, bytes);
    assert_true(tg_vote_read(tg_cursor_over(bytes, TG_VOTE_BYTES), false, WORLD, &read));
}

/* Every list of up to 20 tensors that is tried is read as it was written; nothing else is taken. */
static void bitmaps(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 20; n++)
        for (uint32_t set = 0; set < 1u << n; set += n < 12 ? 1 : 997) {
            bool bits[20], read[20];
            uint8_t bytes[4] = {0xff, 0xff, 0xff, 0xff};
            for (uint32_t i = 0; i < n; i++)
                bits[i] = set >> i & 1;
            tg_bitmap_write(bits, n, bytes);
            tg_cursor c = tg_cursor_over(bytes, tg_bitmap_bytes(n));
            const bool all = set == (1u << n) - 1; /* which is to be left out */
            assert_int_equal(tg_bitmap_read(&c, n, read), !all);
            if (!all)
                assert_memory_equal(bits, read, n * sizeof *bits);
            c = tg_cursor_over(bytes, tg_bitmap_bytes(n) + 1); /* too long */
            assert_false(tg_bitmap_read(&c, n, read));
            if (n > 8) { /* too short */
                c = tg_cursor_over(bytes, tg_bitmap_bytes(n) - 1);
                assert_false(tg_bitmap_read(&c, n, read));
            }
            if (n % 8 != 0) { /* bits that stand for no tensor */
                bytes[n / 8] |= 0x80;
                c = tg_cursor_over(bytes, tg_bitmap_bytes(n));
                assert_false(tg_bitmap_read(&c, n, read));
            }
        }
    bool read[3];
    tg_cursor none = tg_cursor_over((const uint8_t *)"", 0);
    assert_true(tg_bitmap_read(&none, 3, read));
    assert_true(read[0] && read[1] && read[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden),
                                       cmocka_unit_test(round_trip),
                                       cmocka_unit_test(sizes),
                                       cmocka_unit_test(every_flip_is_refused),
                                       cmocka_unit_test(others_are_refused),
                                       cmocka_unit_test(verdicts),
                                       cmocka_unit_test(bitmaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
