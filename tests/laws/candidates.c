/* The kernels of selection in one pass, of every kernel set that has them, compared with their definition in kernels.h:
 * what collect lists and leaves in the residual, which keys are below a bound, which candidates filter selects and
 * which values it restores in the residual. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "support.h"

enum { MOST = 3000, FIRST = 7 /* index of the first element */, SPARE = TG_COLLECT_SLACK, WIDEST = 16 /* lanes */ };

typedef struct list {
    uint32_t indices[MOST + SPARE];
    float values[MOST + SPARE];
    size_t count;
} list;

/* One vector's way through the kernels, and through the definition. */
typedef struct kernel_case {
    const tg_kernels *kernels;
    generator g;
    size_t n;
    bool feedback;
    uint32_t clear_from;
    float gradient[MOST + 8];
    float residual[FIRST + MOST], expected[FIRST + MOST];
    list found, selected;
} kernel_case;

static uint32_t key_of(float x) { return tg_float_bits(x) & TG_MAGNITUDE_MASK; }

/* Few magnitudes, so that keys are often equal; or many. */
static float value(generator *g, bool few)
{
    const uint64_t bits = next_random(g);
    const float x = few ? (float)(bits % 9) / 8 : (float)next_uniform(g);
    return bits & 0x10000 ? -x : x;
}

static void collect(kernel_case *s, const float *gradient, size_t spoilt)
{
    static const float thresholds[] = {0, 0.02f, 0.5f, 0.875f, 0.99f, 4}, shares[] = {0.001f, 0.01f, 0.025f, 0.5f};
    const float factor = next_random(&s->g) % 2 ? 1 : 0.7f;
    const bool is_short_of_room = next_random(&s->g) % 8 == 0;
    tg_candidates c = {.indices = s->found.indices,
                       .values = s->found.values,
                       .room = is_short_of_room ? s->n / 2 + SPARE : s->n + SPARE,
                       .least = tg_float_bits(thresholds[next_random(&s->g) % 6]),
                       .share = shares[next_random(&s->g) % 4]};
    c.clear_from = s->clear_from = tg_float_bits(thresholds[next_random(&s->g) % 5 + 1]);
    float *h = s->expected + FIRST;
    const size_t done = s->kernels->collect(&c, gradient, s->feedback ? s->residual + FIRST : NULL, factor, FIRST,
                                            s->n);
    if (spoilt < s->n)
        expect(done <= spoilt, "%zu of %zu are done, past a bad value at %zu", done, s->n, spoilt);
    else
        expect(!c.nonfinite, "something is not finite");
    expect(done == s->n || c.nonfinite || c.count + SPARE > c.room, "stopped after %zu of %zu", done, s->n);
    size_t count = 0;
    for (size_t i = 0; i < done; i++) {
        const float u = s->feedback ? gradient[i] + factor * h[i] : gradient[i];
        const bool is_candidate = key_of(u) >= c.least;
        h[i] = !s->feedback ? h[i] : is_candidate && key_of(u) >= c.clear_from ? 0 : u;
        if (!is_candidate)
            continue;
        expect(count < c.count && s->found.indices[count] == FIRST + i &&
                   tg_float_bits(s->found.values[count]) == tg_float_bits(u),
               "candidate %zu among %zu elements", count, s->n);
        count++;
    }
    expect(c.count == count, "%zu candidates, not %zu", c.count, count);
    expect(memcmp(s->residual, s->expected, sizeof s->residual) == 0, "residual of %zu elements", s->n);
    s->found.count = count;
}

static void keys_below(kernel_case *s, uint32_t bound)
{
    static uint32_t keys[MOST + SPARE];
    const list *f = &s->found;
    const size_t room = next_random(&s->g) % 2 ? f->count + WIDEST : f->count / 2,
                 got = s->kernels->keys_below(f->values, f->count, bound, keys, room);
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) {
        const uint32_t key = key_of(f->values[i]);
        if (key >= bound)
            continue;
        expect(got > room || keys[count] == key, "key %zu below", count);
        count++;
    }
    /* Writing whole vectors, it may give up a little early. */
    expect(got == count || (got > room && count + WIDEST > room), "%zu of %zu keys are below, not %zu", got, f->count,
           count);
}

static void filter(kernel_case *s, uint32_t above)
{
    list *f = &s->found, *to = next_random(&s->g) % 2 ? f : &s->selected; /* in place, or not */
    static list chosen;
    uint64_t ties = next_random(&s->g) % 4, left = ties;
    chosen.count = 0;
    for (size_t i = 0; i < f->count; i++) {
        const uint32_t key = key_of(f->values[i]);
        const bool ties_in = key == above && left > 0;
        left -= ties_in;
        if (key > above || ties_in) {
            chosen.indices[chosen.count] = f->indices[i];
            chosen.values[chosen.count++] = f->values[i];
            if (s->feedback)
                s->expected[f->indices[i]] = 0;
        } else if (s->feedback) {
            s->expected[f->indices[i]] = f->values[i];
        }
    }
    const size_t got = s->kernels->filter(f->indices, f->values, f->count, above, &ties,
                                          s->feedback ? s->residual : NULL, s->clear_from, to->indices, to->values);
    expect(got == chosen.count && ties == left, "%zu of %zu are selected, not %zu", got, f->count, chosen.count);
    expect(memcmp(to->indices, chosen.indices, chosen.count * sizeof(uint32_t)) == 0 &&
               memcmp(to->values, chosen.values, chosen.count * sizeof(float)) == 0,
           "selected of %zu", f->count);
    expect(memcmp(s->residual, s->expected, sizeof s->residual) == 0, "residual corrected, of %zu", f->count);
}

static void one_case(kernel_case *s, size_t n)
{
    const bool few = next_random(&s->g) % 2, bad = next_random(&s->g) % 6 == 0 && n > 0;
    float *gradient = s->gradient + next_random(&s->g) % 5;
    s->n = n;
    s->feedback = next_random(&s->g) % 2;
    for (size_t i = 0; i < n; i++)
        gradient[i] = value(&s->g, few);
    for (size_t i = 0; i < FIRST + MOST; i++)
        s->residual[i] = s->expected[i] = value(&s->g, few);
    const size_t spoilt = bad ? next_random(&s->g) % n : n;
    if (bad)
        gradient[spoilt] = tg_bits_float(TG_INFINITY_BITS + (uint32_t)(next_random(&s->g) % 3));
    collect(s, gradient, spoilt);
    const uint32_t bound = s->found.count > 0 ? key_of(s->found.values[next_random(&s->g) % s->found.count]) : 1;
    keys_below(s, bound);
    filter(s, bound);
}

int main(int argc, char **argv)
{
    const size_t cases = wants_all(argc, argv) ? 20000 : 1000;
    static kernel_case s;
    for (size_t t = 0; tg_kernels_at(t); t++) {
        s.kernels = tg_kernels_at(t);
        if (!s.kernels->collect)
            continue;
        s.g = (generator){1};
        for (size_t i = 0; i < cases; i++) {
            one_case(&s, i < 200 ? i : next_random(&s.g) % MOST);
            check_all("%s: case %zu", s.kernels->name, i);
        }
    }
    if (tg_kernels_at(0) == &tg_kernels_scalar)
        skip("this machine has only cpu/scalar, which has no such kernels");
    return finish();
}
