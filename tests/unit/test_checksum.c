/* The tree of digests, against the plainest way to make it: list after list, until a node holds one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "device/cpu/checksum.h"
#include "draws.h"

enum { HEADER = 64, NODE = 512, MOST = 2 * NODE * NODE };

static uint64_t digest(const uint8_t *bytes, size_t n) { return tg_kernels_scalar.digest(bytes, n); }

/* The checksum of a header and a list of digests, which is overwritten. */
static uint32_t plain_checksum(const uint8_t *header, uint8_t *digests, size_t count)
{
    while (count > NODE) {
        const size_t nodes = (count + NODE - 1) / NODE;
        for (size_t i = 0; i < nodes; i++) {
            const size_t left = count - NODE * i, here = left < NODE ? left : NODE;
            tg_store64(digests + 8 * i, digest(digests + 8 * NODE * i, 8 * here));
        }
        count = nodes;
    }
    uint8_t all[HEADER + 8 * NODE];
    memcpy(all, header, HEADER);
    memset(all + 60, 0, 4);
    memcpy(all + HEADER, digests, 8 * count);
    return (uint32_t)digest(all, HEADER + 8 * count);
}

/* With digests that are given there need be no payload, so that this is quick for gigabytes. */
static void test_trees(void **state)
{
    (void)state;
    static const size_t counts[] = {
        1,   2, NODE - 1, NODE, NODE + 1, 8 * NODE, 8 * NODE + 1, NODE * NODE, NODE * NODE + 1, NODE * NODE + NODE + 1,
        MOST};
    uint64_t *given = malloc(MOST * sizeof *given), seed = 1;
    uint8_t *digests = malloc((size_t)8 * MOST), header[HEADER];
    for (size_t i = 0; i < MOST; i++)
        given[i] = draw(&seed);
    for (size_t i = 0; i < HEADER; i++)
        header[i] = (uint8_t)draw(&seed);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const tg_digests known = {.of = given, .to = counts[i]};
        for (size_t j = 0; j < counts[i]; j++)
            tg_store64(digests + 8 * j, given[j]);
        const uint32_t expected = plain_checksum(header, digests, counts[i]);
        /* The last leaf may be short. */
        for (size_t missing = 0; missing < TG_LEAF; missing += TG_LEAF - 1)
            assert_int_equal(
                tg_checksum(&tg_kernels_scalar, NULL, header, header, counts[i] * TG_LEAF - missing, &known, NULL),
                expected);
    }
    free(given);
    free(digests);
}

static void test_payloads(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, TG_LEAF - 1, TG_LEAF, TG_LEAF + 1, 3 * TG_LEAF + 7, (NODE + 3) * TG_LEAF + 9};
    uint8_t *payload = malloc((NODE + 4) * TG_LEAF), digests[8 * (NODE + 4)], header[HEADER] = {1, 2, 3};
    uint64_t seed = 2;
    for (size_t i = 0; i < (size_t)(NODE + 4) * TG_LEAF; i++)
        payload[i] = (uint8_t)draw(&seed);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t count = 0;
        for (size_t at = 0; at < sizes[i]; at += TG_LEAF)
            tg_store64(digests + 8 * count++, digest(payload + at, sizes[i] - at < TG_LEAF ? sizes[i] - at : TG_LEAF));
        assert_int_equal(tg_checksum(&tg_kernels_scalar, NULL, header, payload, sizes[i], NULL, NULL),
                         plain_checksum(header, digests, count));
    }
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trees), cmocka_unit_test(test_payloads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
