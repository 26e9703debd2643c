/* The AVX-512 encoder has two ways, and the processor's maker decides which is taken; here both go over the same runs on any processor that
 * has the instructions, and must leave the scales, codes and residual that AVX2 leaves. That these are the right ones is devices.c's law. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "support.h"

#if defined(__x86_64__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx512/avx512.h"

typedef struct run {
    float residual[TG_BLOCK];
    _Alignas(64) float kept[TG_BLOCK];
    uint8_t scales[TG_BLOCK / TG_GROUP * 4], packed[TG_BLOCK];
    size_t done;
} run;

/* Until nothing more is done, as the codec goes on with what is left of a block. */
static void encode(size_t (*encoder)(const tg_levels_encoding *, size_t), tg_levels_encoding e, bool feedback, run *r)
{
    const tg_levels_encoding start = e;
    for (size_t here = 1; r->done < TG_BLOCK && here > 0; r->done += here) {
        e.gradient = start.gradient + r->done;
        e.residual = feedback ? r->residual + r->done : NULL;
        e.kept = start.kept ? r->kept + r->done : NULL;
        e.first = start.first + (uint32_t)r->done;
        e.scales = r->scales + r->done / TG_GROUP * 4;
        e.packed = r->packed + r->done / 8 * e.width;
        here = encoder(&e, TG_BLOCK - r->done);
    }
}

/* Buckets of many kinds: ordinary, zero, of a single value, tiny, huge, not finite. */
static void draw(generator *g, float *values, bool bad)
{
    for (size_t b = 0; b < TG_BLOCK / TG_GROUP; b++, values += TG_GROUP) {
        const uint64_t kind = next_random(g) % 12;
        const float scale = kind == 1 ? 0x1p-100f : kind == 2 ? 0x1p-66f : kind == 3 ? 0x1p+100f : kind == 4 ? 0 : 1;
        for (size_t i = 0; i < TG_GROUP; i++)
            values[i] = scale * (float)next_gaussian(g);
        if (kind == 5 || kind == 6) { /* the norm is the one value, or less than it by rounding */
            const float one = (float)next_gaussian(g);
            memset(values, 0, TG_GROUP * sizeof *values);
            values[next_random(g) % TG_GROUP] = one;
            values[next_random(g) % TG_GROUP] = kind == 6 ? one * 0x1p-13f : one;
        }
        if (kind == 7 && bad)
            values[next_random(g) % TG_GROUP] = tg_bits_float(TG_INFINITY_BITS + (uint32_t)(next_random(g) % 2));
    }
}

static void one_case(generator *g)
{
    static run expected, found;
    static float gradient[TG_BLOCK], residual[TG_BLOCK];
    const bool wide = next_random(g) % 2, feedback = next_random(g) % 2;
    const float alpha = next_random(g) % 2 ? 1 : 0.75f;
    const tg_levels_encoding e = {.gradient = gradient,
                                  .residual = feedback ? residual : NULL,
                                  .kept = feedback && next_random(g) % 2 ? residual : NULL, /* or any other */
                                  .alpha = alpha,
                                  .beta = alpha,
                                  .norm = next_random(g) % 2 ? TG_NORM_MAX : TG_NORM_L2,
                                  .levels = (uint32_t)(wide ? 8 + next_random(g) % 120 : 4 + next_random(g) % 4),
                                  .width = wide ? 8 : 4,
                                  .bucket = TG_GROUP,
                                  .first = (uint32_t)(next_random(g) % 1000) * TG_BLOCK,
                                  .key = {(uint32_t)next_random(g), (uint32_t)next_random(g)}};
    draw(g, gradient, next_random(g) % 4 == 0);
    draw(g, residual, false);
    memset(&expected, 0x5a, sizeof expected);
    memcpy(expected.residual, residual, sizeof residual);
    expected.done = 0;
    found = expected;
    expect(tg_avx512_looks_ahead(&e), "%u levels are not suited", e.levels);
    encode(tg_avx2_encode_levels, e, feedback, &expected);
    encode(next_random(g) % 2 ? tg_avx512_encode_ahead : tg_avx512_encode_plain, e, feedback, &found);
    expect(found.done == expected.done, "%zu elements are done, not %zu", found.done, expected.done);
    /* Behind what is done there may be anything, but for the residual. */
    expect(memcmp(found.scales, expected.scales, expected.done / TG_GROUP * 4) == 0, "scales of %u levels", e.levels);
    expect(memcmp(found.packed, expected.packed, expected.done / 8 * e.width) == 0, "codes of %u levels", e.levels);
    expect(memcmp(found.kept, expected.kept, expected.done * sizeof(float)) == 0, "what is kept of %u levels", e.levels);
    expect(memcmp(found.residual, expected.residual, sizeof found.residual) == 0, "the residual of %u levels", e.levels);
}

static bool is_here(void) { return tg_kernels_at(0) == &tg_kernels_avx512; }

#else

static bool is_here(void) { return false; }
static void one_case(generator *g) { (void)g; }

#endif

int main(int argc, char **argv)
{
    const size_t cases = wants_all(argc, argv) ? 20000 : 1000;
    generator g = {1};
    if (!is_here()) {
        skip("this machine has no AVX-512");
        return finish();
    }
    for (size_t i = 0; i < cases; i++) {
        one_case(&g);
        check_all("case %zu", i);
    }
    return finish();
}
