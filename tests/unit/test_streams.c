/* Pieces that are moved together by several threads stand as if one had moved them one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/streams.h"
#include "draws.h"
#include "kernels/ranges.h"

enum { LONGEST = 40000 };

/* Lays out pieces of up to `longest` bytes with up to `gap` free bytes between, and compares. */
static void check_join(tg_pool *pool, size_t count, uint64_t longest, uint64_t gap, uint64_t *seed)
{
    tg_stream pieces[TG_MAX_RANGES] = {{0}};
    uint8_t *bytes = malloc((count + 1) * (2 * (size_t)LONGEST)), *expected = malloc(count * (size_t)LONGEST + 1);
    assert_non_null(bytes);
    assert_non_null(expected);
    size_t at = draw_below(seed, 2) ? (size_t)draw_below(seed, gap + 1) : 0, total = 0;
    const size_t start = at > 0 ? (size_t)draw_below(seed, at + 1) : 0;
    for (size_t i = 0; i < count; i++) {
        pieces[i] = (tg_stream){bytes + at, (size_t)draw_below(seed, longest + 1)};
        for (size_t j = 0; j < pieces[i].size; j++)
            expected[total++] = bytes[at++] = (uint8_t)draw_below(seed, 256);
        at += (size_t)draw_below(seed, gap + 1);
    }
    assert_ptr_equal(tg_streams_join(pool, pieces, count, bytes + start), bytes + start + total);
    assert_memory_equal(bytes + start, expected, total);
    free(bytes);
    free(expected);
}

static void test_pieces_join(void **state)
{
    (void)state;
    tg_pool *pool = tg_pool_open(3);
    assert_non_null(pool);
    uint64_t seed = 1;
    for (int i = 0; i < 60; i++) {
        const size_t count = (size_t)draw_below(&seed, 70);
        const uint64_t longest = draw_below(&seed, i % 2 ? LONGEST : 20), gap = draw_below(&seed, i % 3 ? LONGEST : 2);
        check_join(i % 5 ? pool : NULL, count, longest, gap, &seed);
    }
    tg_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces_join)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
