/* Every kernel of every table gives the bytes of cpu/scalar's, called directly: at all short lengths and unaligned,
 * with values that the codecs would never pass on (every 16-bit pattern, NaN, infinities), and without a byte written
 * behind the end. Where cpu/scalar has no such kernel, the definition is written out here. candidates.c does the same
 * for selection; encode_levels and decode_levels are compared through the codecs, in devices.c. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/quantiser.h"
#include "support.h"

enum { MOST = TG_BLOCK + 700, ROOM = MOST + 64 };

/* Inputs, and where the table under test and the definition write to. */
typedef struct arrays {
    float values[ROOM], others[ROOM]; /* finite, and small enough that sums are */
    float any[ROOM];                  /* any bits */
    uint16_t halves[ROOM];
    uint32_t fast[2 * ROOM], slow[2 * ROOM];
} arrays;

typedef struct setting {
    const tg_kernels *fast, *slow;
    arrays *a;
    generator *g;
    size_t n, at; /* how many elements, and the first */
} setting;

static uint32_t bits32(generator *g) { return (uint32_t)(next_random(g) >> 16); }

/* Of any magnitude, subnormal and zero too. */
static float finite(generator *g)
{
    const uint32_t bits = bits32(g), sign = bits & 0x80000000;
    switch (bits % 8) {
    case 0:
        return tg_bits_float(sign);
    case 1:
        return tg_bits_float(sign | (bits & 0xffffff));
    case 2:
        return tg_bits_float(sign | (bits & 0x7fffffff) % 0x70000000);
    default:
        return (float)(next_uniform(g) * 2 - 1);
    }
}

static float whatever(generator *g)
{
    /* Around the ends of what float16 and bfloat16 hold, and what is not finite. */
    static const uint32_t edges[] = {0x477fefff, 0x477ff000, 0x7f7f7fff, 0x7f7f8000, 0x33000000, 0x33000001,
                                     0x387fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0x38800000};
    const uint32_t bits = bits32(g);
    return bits % 4 == 0   ? tg_bits_float(edges[bits / 4 % (sizeof edges / sizeof edges[0])] ^ (bits & 0x80000000))
           : bits % 4 == 1 ? tg_bits_float(bits32(g))
                           : finite(g);
}

static void draw(setting *s)
{
    for (size_t i = 0; i < ROOM; i++) {
        s->a->values[i] = finite(s->g);
        s->a->others[i] = finite(s->g);
        s->a->any[i] = whatever(s->g);
        s->a->halves[i] = (uint16_t)bits32(s->g);
    }
    for (size_t i = 0; i < 2 * ROOM; i++)
        s->a->fast[i] = s->a->slow[i] = bits32(s->g);
}

static void same(const setting *s, const char *what)
{
    expect(memcmp(s->a->fast, s->a->slow, sizeof s->a->fast) == 0, "%s of %zu elements from %zu on differ", what, s->n,
           s->at);
}

/* CALL is made twice, with k the kernels and `to` where they write. */
#define BOTH(S, CALL)                                        \
    do {                                                     \
        const tg_kernels *k = (S)->fast;                     \
        float *to = (float *)(void *)(S)->a->fast + (S)->at; \
        CALL;                                                \
        k = (S)->slow;                                       \
        to = (float *)(void *)(S)->a->slow + (S)->at;        \
        CALL;                                                \
    } while (0)

/* ---- one test for each kernel, or for a few that belong together ---- */

static void elements(setting *s)
{
    const uint8_t *wire = (const uint8_t *)(s->a->halves + s->at), *floats = (const uint8_t *)(s->a->any + s->at);
    for (int dtype = TG_FLOAT32; dtype <= TG_BFLOAT16; dtype++) {
        const tg_dtype d = (tg_dtype)dtype;
        const uint8_t *from = d == TG_FLOAT32 ? floats : wire;
        uint64_t counts[4], count = 0;
        BOTH(s, k->widen(d, from, s->n, to));
        same(s, "widened values");
        BOTH(s, k->load(d, from, s->n, to));
        same(s, "loaded values");
        BOTH(s, counts[count++] = k->narrow(d, s->a->any + s->at, s->n, to));
        same(s, "narrowed values");
        BOTH(s, counts[count++] = k->store(d, s->a->any + s->at, s->n, (uint8_t *)to));
        same(s, "stored values");
        expect(counts[0] == counts[1] && counts[2] == counts[3], "%d are limited, not %d", (int)counts[0],
               (int)counts[1]);
    }
}

static void arithmetic(setting *s)
{
    const float *x = s->a->values + s->at, *y = s->a->others + s->at, a = finite(s->g), b = finite(s->g);
    BOTH(s, k->compensate(x, y, a, b, s->n, to, to + ROOM));
    same(s, "compensated values");
    BOTH(s, k->subtract(x, y, s->n, to));
    same(s, "differences");
    BOTH(s, k->set_scaled(x, a, s->n, to));
    same(s, "scaled values");
    BOTH(s, k->add_scaled(y, b, s->n, to));
    same(s, "sums");
}

static void scales(setting *s)
{
    const float *x = s->a->values + s->at, *any = s->a->any + s->at;
    const size_t n = s->n < TG_BLOCK ? s->n : TG_BLOCK;
    BOTH(s, to[0] = tg_bits_float(k->max_magnitude(any, s->n)));
    same(s, "largest magnitudes");
    BOTH(s, to[0] = tg_bits_float((uint32_t)k->first_nonfinite(any, s->n)));
    same(s, "first bad values");
    BOTH(s, to[0] = tg_bits_float((uint32_t)k->first_nonfinite(x, s->n)));
    same(s, "counts of good values");
    if (n > 0)
        BOTH(s, k->extremes(x, n, &to[0], &to[1]));
    same(s, "extremes");
    for (int what = 0; what < 6; what++) {
        const float scale = what < 3 ? 1 : 0x1p-9f;
        BOTH(s, to[what] = k->block_sum((tg_sum_of)(what % 3), x, n, scale, scale));
        same(s, "block sums");
    }
}

/* Positions half-way between two integers, where the random bits of the element make the choice matter. */
static void ties(setting *s)
{
    const tg_quantiser q = tg_quantiser_from(1, 0, 1, false); /* a gain of 2^16 */
    const tg_hash_key key = {bits32(s->g), bits32(s->g)};
    const uint32_t first = bits32(s->g);
    for (size_t i = 0; i < s->n; i++)
        s->a->values[s->at + i] = ((float)(0xffff - tg_random16(key, first + (uint32_t)i)) + 0.5f) * 0x1p-16f -
                                  (float)(i % 3 == 0);
    BOTH(s, k->quantise(&q, s->a->values + s->at, s->n, first, key, (uint16_t *)to));
    same(s, "codes of ties");
}

static void levels(setting *s)
{
    static const uint32_t numbers[] = {1, 2, 7, 15, 127, 1000, 32767};
    static const float radii[] = {1, 0.3f, 0, 0x1p-70f, 0x1p-149f, 1e30f};
    const uint32_t levels = numbers[bits32(s->g) % 7];
    const bool affine = bits32(s->g) % 2;
    const float radius = radii[bits32(s->g) % 6], centre = affine ? finite(s->g) : 0;
    const tg_quantiser q = tg_quantiser_from(levels, centre, radius, affine);
    const tg_hash_key key = {bits32(s->g), bits32(s->g)};
    const uint32_t first = bits32(s->g);
    for (size_t i = 0; radius < 0x1p-60f && i < s->n; i++)
        s->a->values[s->at + i] *= radius; /* else all of them are far outside */
    BOTH(s, k->quantise(&q, s->a->values + s->at, s->n, first, key, (uint16_t *)to));
    same(s, "codes");
    BOTH(s, k->dequantise(&q, s->a->halves + s->at, s->n, to));
    same(s, "values of codes");
}

static void packing(setting *s)
{
    const unsigned width = 1 + bits32(s->g) % 16;
    uint16_t *codes = s->a->halves + s->at;
    for (size_t i = 0; i < s->n; i++)
        codes[i] = (uint16_t)(codes[i] & ((1u << width) - 1));
    BOTH(s, k->pack(codes, s->n, width, (uint8_t *)to));
    same(s, "packed codes");
    uint8_t *packed = (uint8_t *)(s->a->others + s->at);
    s->slow->pack(codes, s->n, width, packed);
    BOTH(s, k->unpack(packed, s->n, width, (uint16_t *)to));
    same(s, "unpacked codes");
    const size_t whole = s->n / TG_GROUP * TG_GROUP;
    if (!s->fast->pack_signs)
        return;
    for (size_t i = 0; i < whole; i++)
        codes[i] = !(tg_float_bits(s->a->values[s->at + i]) >> 31);
    s->fast->pack_signs(s->a->values + s->at, whole, (uint8_t *)(s->a->fast + s->at));
    s->slow->pack(codes, whole, 1, (uint8_t *)(s->a->slow + s->at));
    expect(memcmp(s->a->fast + s->at, s->a->slow + s->at, whole / 8) == 0, "signs of %zu elements", whole);
}

static void keys(setting *s)
{
    const tg_hash_key key = {bits32(s->g), bits32(s->g)};
    const uint32_t first = bits32(s->g), least = bits32(s->g);
    uint64_t counts[2], count = 0;
    BOTH(s, k->magnitude_keys(s->a->any + s->at, s->n, (uint32_t *)to));
    same(s, "keys");
    BOTH(s, k->random_keys(key, first, s->n, (uint32_t *)to));
    same(s, "random keys");
    BOTH(s, counts[count++] = k->count_at_least((uint32_t *)to, s->n, least));
    expect(counts[0] == counts[1], "%d of %zu keys are at least %x, not %d", (int)counts[0], s->n, least,
           (int)counts[1]);
    uint64_t bins[2][16] = {{0}};
    count = 0;
    BOTH(s, k->key_histogram((uint32_t *)to, s->n, 24, *(uint32_t *)to >> 24, 20, 15, bins[count++]));
    expect(memcmp(bins[0], bins[1], sizeof bins[0]) == 0, "histograms of %zu keys differ", s->n);
    const uint8_t *bytes = (const uint8_t *)(s->a->any + s->at) + 1;
    expect(s->fast->digest(bytes, s->n) == s->slow->digest(bytes, s->n), "digests of %zu bytes differ", s->n);
}

static void looking(setting *s)
{
    const float *x = s->a->values + s->at, *any = s->a->any + s->at, *h = s->a->others + s->at;
    const float alpha = finite(s->g), beta = bits32(s->g) % 4 ? finite(s->g) : 0x1.8p127f;
    bool all = true, both = true;
    for (size_t i = 0; i < s->n; i++) {
        const float u = x[i] + alpha * h[i], rest = x[i] + beta * h[i];
        all = all && any[i] - any[i] == 0;
        both = both && u - u == 0 && rest - rest == 0;
    }
    if (s->fast->all_finite) {
        expect(s->fast->all_finite(any, NULL, 1, 1, s->n) == all, "%zu values, finite or not", s->n);
        expect(s->fast->all_finite(x, NULL, 1, 1, s->n), "%zu finite values", s->n);
        expect(s->fast->all_finite(x, h, alpha, beta, s->n) == both, "%zu sums, finite or not", s->n);
    }
    for (int dtype = TG_FLOAT32; s->fast->decode_plain && dtype <= TG_BFLOAT16; dtype++) {
        const tg_dtype d = (tg_dtype)dtype;
        const uint8_t *wire = d == TG_FLOAT32 ? (const uint8_t *)any : (const uint8_t *)(s->a->halves + s->at);
        float *to = (float *)(void *)s->a->fast + s->at, *want = (float *)(void *)s->a->slow + s->at,
              *loaded = want + ROOM;
        s->slow->load(d, wire, s->n, loaded);
        const bool sound = s->slow->first_nonfinite(loaded, s->n) == s->n, set = bits32(s->g) % 2;
        expect(s->fast->decode_plain(d, wire, s->n, set, alpha, NULL) == sound, "%zu values on the wire are sound",
               s->n);
        memcpy(to, h, s->n * sizeof(float));
        memcpy(want, h, s->n * sizeof(float));
        expect(s->fast->decode_plain(d, wire, s->n, set, alpha, to) == sound, "%zu values are sound", s->n);
        if (set)
            s->slow->set_scaled(loaded, alpha, s->n, want);
        else
            s->slow->add_scaled(loaded, alpha, s->n, want);
        expect(!sound || memcmp(to, want, s->n * sizeof(float)) == 0, "%zu values from the wire differ", s->n);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(setting *s);
    } tests[] = {{"element types", elements},
                 {"feedback", arithmetic},
                 {"scales", scales},
                 {"levels", levels},
                 {"ties", ties},
                 {"packing", packing},
                 {"keys and digests", keys},
                 {"finite or not", looking}};
    const size_t repeats = wants_all(argc, argv) ? 2000 : 60;
    arrays *a = malloc(sizeof *a);
    for (size_t t = 0; a && tg_kernels_at(t) && tg_kernels_at(t) != &tg_kernels_scalar; t++)
        for (size_t test = 0; test < sizeof tests / sizeof tests[0]; test++) {
            generator g = {test};
            setting s = {.fast = tg_kernels_at(t), .slow = &tg_kernels_scalar, .a = a, .g = &g};
            for (size_t i = 0; i < 80 + repeats; i++) { /* short ones in turn, then any */
                s.n = i < 80 ? i : next_random(&g) % 4 ? next_random(&g) % 1400 : MOST - next_random(&g) % 1000;
                s.at = next_random(&g) % 5;
                draw(&s);
                tests[test].run(&s);
            }
            check_all("%s: %s", s.fast->name, tests[test].name);
        }
    if (tg_kernels_at(0) == &tg_kernels_scalar)
        skip("this machine has only cpu/scalar");
    free(a);
    return finish();
}
