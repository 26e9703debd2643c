/* Laws of residuals that cannot be used, or would become so: the library never makes one that is not finite; one whose
 * memory the test has damaged has a status of its own, whatever the policy; what would overflow is refused, or, where a
 * step has to be undone, limited; what an encode call leaves of huge values is limited as well; frames and lists that
 * do not fit the residual are refused before they are read. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "ranks.h"
#include "reduce/reducer.h"

static tg_feedback *make_feedback(tg_device *device, const char *text, const tg_codec *codec, uint64_t count)
{
    tg_feedback_spec spec;
    tg_feedback *feedback = NULL;
    tg_error error = {""};
    expect(tg_feedback_parse(text, &spec, &error) == TG_OK, "parse %s: %s", text, error.message);
    expect(tg_feedback_create(device, &spec, tg_codec_spec(codec), count, true, &feedback, &error) == TG_OK,
           "create: %s", error.message);
    return feedback;
}

/* ---- a residual that is not finite ---- */

enum { GUARD = 64 };

/* What a failed call must leave as it is. */
typedef struct scene {
    tg_codec *codec;
    tg_feedback *feedback;
    tg_tensor gradient, u;
    uint8_t *frame, *before;
    size_t bound, floats;
    uint64_t index;
    bool damages_residual; /* of plain error feedback */
} scene;

static tg_encode_report expect_refused(const scene *s, tg_nonfinite policy)
{
    const tg_encode_options options = {.nonfinite = policy};
    tg_error error = {""};
    tg_encode_report report = {.bytes = 1};
    char index[48];
    snprintf(index, sizeof index, "element %llu of the", (unsigned long long)s->index);
    memset(s->frame, 0x77, s->bound + GUARD);
    const tg_status status = tg_encode_with_feedback(s->codec, s->feedback, &s->gradient, &options, s->frame, s->bound,
                                                     &report, &error);
    expect(status == TG_BAD_RESIDUAL && report.status == status, "policy %d: %s", (int)policy, tg_status_text(status));
    expect(policy == TG_NONFINITE_ZERO || report.bytes == 0, "policy %d: a frame is reported", (int)policy);
    expect(strstr(error.message, index) != NULL, "policy %d does not name the index: %s", (int)policy, error.message);
    bool same = true;
    for (size_t i = policy == TG_NONFINITE_REJECT ? 0 : s->bound; i < s->bound + GUARD; i++)
        same &= s->frame[i] == 0x77;
    expect(same, "policy %d writes to the frame, or behind it", (int)policy);
    expect(policy != TG_NONFINITE_REJECT || memcmp(residual_of(s->feedback), s->before, s->floats) == 0,
           "policy %d changes the residual", (int)policy);
    return report;
}

/* What was there is in the frame or has stayed, but for the damaged element. For feedback with alpha = beta = 1. */
static void expect_frame_of_the_rest(const scene *s, size_t bytes, const float *h, const float *left)
{
    const uint64_t count = s->gradient.count;
    tg_tensor sent = make_tensor(count, TG_FLOAT32, 0), gradient = make_tensor(count, TG_FLOAT32, 0);
    const tg_frame frame = {s->frame, bytes};
    tg_error error = {""};
    expect(tg_decode(tg_codec_device(s->codec), &frame, 1, 1, 0, &sent, &error) == TG_OK, "the frame: %s",
           error.message);
    tg_kernels_scalar.widen(s->gradient.dtype, s->gradient.data, (size_t)count, gradient.data);
    for (uint64_t i = 0; s->damages_residual && i < count; i++) {
        const float g = ((const float *)gradient.data)[i], back = ((const float *)sent.data)[i] + left[i],
                    u = i == s->index ? 0 : (isfinite(g) ? g : 0) + h[i];
        /* Two roundings, of the residual and here. */
        expect(fabsf(back - u) <= 2 * FLT_EPSILON * (fabsf(u) + fabsf(back) + fabsf(left[i])), "element %llu: %g of %g",
               (unsigned long long)i, (double)back, (double)u);
    }
    drop(&sent);
    drop(&gradient);
}

/* A codec that drops values does not check what it gets then: what is damaged is found all the same, and is 0 from then
 * on, so that the next step is one like any other. Everything else is as if the call had succeeded: the frame holds
 * what has left the residual. */
static void expect_refused_once(const scene *s, const float *h, const float *m)
{
    const tg_encode_options options = {.nonfinite = TG_NONFINITE_ZERO};
    tg_error error = {""};
    set_residual(s->feedback, h);
    if (m)
        set_momentum(s->feedback, m);
    const size_t bytes = expect_refused(s, TG_NONFINITE_ZERO).bytes;
    const float *left = residual_of(s->feedback), *momentum = momentum_of(s->feedback);
    for (uint64_t i = 0; i < s->gradient.count; i++)
        expect(isfinite(left[i]) && (!momentum || isfinite(momentum[i])), "zero leaves element %llu as it is",
               (unsigned long long)i);
    expect_frame_of_the_rest(s, bytes, h, left);
    expect(tg_encode_with_feedback(s->codec, s->feedback, &s->gradient, &options, s->frame, s->bound, NULL, &error) ==
               TG_OK,
           "the step after: %s", error.message);
}

static void bad_residual(tg_device *device, const char *spec, const char *kind, tg_dtype dtype, uint64_t count,
                         uint64_t draw)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000};
    now_at(tg_device_name(device), GAUSSIAN, count);
    scene s = {.codec = make_codec(device, spec, count), .index = (draw >> 32) % count};
    s.feedback = make_feedback(device, kind, s.codec, count);
    s.gradient = make_tensor(count, dtype, 0);
    s.u = make_tensor(count, TG_FLOAT32, 0);
    s.bound = tg_frame_bound(s.codec, count);
    s.floats = (size_t)count * sizeof(float);
    s.frame = malloc(s.bound + GUARD);
    s.before = malloc(s.floats);
    float *h = residual_of(s.feedback), *m = momentum_of(s.feedback);
    float *spoilt = m && draw & 4 ? m : h;
    s.damages_residual = spoilt == h && strcmp(kind, "ef") == 0;
    cut(GAUSSIAN, draw, &s.gradient);
    cut(GAUSSIAN, draw + 1, &(tg_tensor){h, count, TG_FLOAT32});
    memcpy(&spoilt[s.index], &bits[draw & 3], sizeof bits[0]);
    set_residual(s.feedback, h);
    if (m)
        set_momentum(s.feedback, m);
    memcpy(s.before, h, s.floats);
    tg_error error = {""};
    (void)expect_refused(&s, TG_NONFINITE_REJECT);
    expect(tg_feedback_compensate(s.feedback, &s.gradient, &s.u, &error) == TG_BAD_RESIDUAL, "compensate: %s",
           error.message);
    (void)expect_refused(&s, TG_NONFINITE_TRUST); /* which may change the residual by rounding */

    /* A gradient that is not finite is another thing, but does not hide it. */
    if (dtype == TG_FLOAT32)
        ((float *)s.gradient.data)[count / 2] = NAN;
    (void)expect_refused(&s, TG_NONFINITE_TRUST);
    expect_refused_once(&s, h, m);
    tg_feedback_free(s.feedback);
    tg_codec_free(s.codec);
    drop(&s.gradient);
    drop(&s.u);
    free(s.frame);
    free(s.before);
}

static void bad_residuals(tg_device *device, const char *spec, generator *g)
{
    static const char *const kinds[] = {"ef", "ecq:alpha=0.5,beta=0.9", "dgc:momentum=0.9,clip=3"};
    static const uint64_t counts[] = {7, 4096, 5000, 20000};
    for (uint64_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint64_t draw = next_random(g);
        for (int kind = 0; kind < (is_sparsifier(spec) ? 3 : 2); kind++)
            bad_residual(device, spec, kinds[kind], (tg_dtype)((draw >> 8) % 3), counts[i], draw + (uint64_t)kind);
    }
    check_all("%s %s: a residual that is not finite", tg_device_name(device), spec);
}

/* ---- values so large that what is left of them may not fit a float32 ---- */

/* Gradient and residual near the largest float32, of any sign, some of them small: u and rest are finite. */
static void fill_huge(generator *g, float alpha, float beta, uint64_t count, float *gradient, float *h)
{
    for (uint64_t i = 0; i < count; i++) {
        h[i] = (float)(2 * next_uniform(g) - 1) * FLT_MAX;
        gradient[i] = (float)(2 * next_uniform(g) - 1) * FLT_MAX;
        if (next_random(g) % 8 == 0)
            h[i] = next_random(g) % 2 ? FLT_MAX : -FLT_MAX;
        const float most = alpha > beta ? alpha : beta, room = FLT_MAX - most * __builtin_fabsf(h[i]);
        if (gradient[i] * h[i] > 0 && __builtin_fabsf(gradient[i]) > room)
            gradient[i] = (gradient[i] > 0 ? room : -room) * 0.999f;
    }
}

/* Steps with such values: residual and frame are finite and the same on every device, whatever the policy. */
static void huge_steps(tg_device **devices, const char *spec, const char *kind, tg_nonfinite policy, uint64_t count,
                       uint64_t seed)
{
    tg_feedback_spec parsed;
    tg_error error = {""};
    expect(tg_feedback_parse(kind, &parsed, &error) == TG_OK, "%s", error.message);
    tg_tensor gradient = make_tensor(count, TG_FLOAT32, 0);
    float *h = malloc(count * sizeof *h), *due = malloc(count * sizeof *due), *left = malloc(count * sizeof *left);
    generator g = {seed};
    fill_huge(&g, parsed.alpha, parsed.beta, count, gradient.data, h);
    uint64_t saturated = 0;
    for (size_t d = 0; devices[d]; d++) {
        tg_codec *codec = make_codec(devices[d], spec, count);
        tg_feedback *feedback = make_feedback(devices[d], kind, codec, count);
        const size_t bound = tg_frame_bound(codec, count);
        uint8_t *frame = malloc(bound);
        const tg_encode_options options = {.draw = {.seed = seed}, .nonfinite = policy};
        tg_encode_report report;
        now_at(tg_device_name(devices[d]), HUGE_ONES, count);
        expect(tg_feedback_write(feedback, TG_RESIDUAL, 0, count, h, &error) == TG_OK, "%s", error.message);
        const tg_status status = tg_encode_with_feedback(codec, feedback, &gradient, &options, frame, bound, &report,
                                                         &error);
        expect(status == TG_OK, "policy %d: %s", (int)policy, error.message);
        expect(tg_frame_verify(devices[d], (tg_frame){frame, report.bytes}, NULL, &error) == TG_OK, "%s",
               error.message);
        expect(tg_feedback_read(feedback, TG_RESIDUAL, 0, count, left, &error) == TG_OK, "%s", error.message);
        for (uint64_t i = 0; i < count; i++)
            expect(left[i] - left[i] == 0, "residual %llu is %g", (unsigned long long)i, (double)left[i]);
        expect(d == 0 || report.saturated == saturated, "another number is limited");
        saturated = report.saturated;
        if (d == 0)
            memcpy(due, left, count * sizeof *due);
        expect(memcmp(due, left, count * sizeof *due) == 0, "another residual than on %s", tg_device_name(devices[0]));
        free(frame);
        tg_feedback_free(feedback);
        tg_codec_free(codec);
    }
    drop(&gradient);
    free(h);
    free(due);
    free(left);
}

static void huge_values(tg_device **devices, const char *spec, generator *g)
{
    static const char *const kinds[] = {"ef", "ecq:alpha=0,beta=1", "ecq:alpha=1,beta=0", "ecq:alpha=0.1,beta=1",
                                        "ecq:alpha=0.5,beta=0.9"};
    static const tg_nonfinite policies[] = {TG_NONFINITE_REJECT, TG_NONFINITE_ZERO, TG_NONFINITE_TRUST};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 0; p < 3; p++)
            huge_steps(devices, spec, kinds[k], policies[p], next_random(g) % 2 ? 5000 : 1 + next_random(g) % 600,
                       next_random(g));
    check_all("%s: what is left of huge values is finite", spec);
}

/* A value that is not finite, behind such values: under trust the step is undone without a copy of the residual where
 * that can be done, and whatever is computed for it must be finite. Where alpha is not beta, rounding can be as large
 * as the residual itself, so that it must be what it was. */
static void trusted_step(tg_device *device, const char *spec, const char *kind, uint64_t count, uint64_t seed)
{
    tg_feedback_spec parsed;
    tg_error error = {""};
    expect(tg_feedback_parse(kind, &parsed, &error) == TG_OK, "%s", error.message);
    tg_tensor gradient = make_tensor(count, TG_FLOAT32, 0);
    const size_t floats = (size_t)count * sizeof(float);
    float *h = malloc(floats), *values = gradient.data;
    generator g = {seed};
    fill_huge(&g, parsed.alpha, parsed.beta, count, values, h);
    values[count - 1 - next_random(&g) % (count / 4 + 1)] = NAN;
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *feedback = make_feedback(device, kind, codec, count);
    const size_t bound = tg_frame_bound(codec, count);
    uint8_t *frame = malloc(bound);
    const tg_encode_options options = {.draw = {.seed = seed}, .nonfinite = TG_NONFINITE_TRUST};
    now_at(tg_device_name(device), HUGE_ONES, count);
    expect(tg_feedback_write(feedback, TG_RESIDUAL, 0, count, h, &error) == TG_OK, "%s", error.message);
    if (parsed.kind == TG_FEEDBACK_DGC)
        expect(tg_feedback_write(feedback, TG_MOMENTUM, 0, count, h, &error) == TG_OK, "%s", error.message);
    const tg_status status = tg_encode_with_feedback(codec, feedback, &gradient, &options, frame, bound, NULL, &error);
    expect(status == TG_NONFINITE, "%s: %s", kind, error.message);
    const float *left = residual_of(feedback), *momentum = momentum_of(feedback);
    for (uint64_t i = 0; i < count; i++) {
        expect(isfinite(left[i]), "%s: residual %llu is %g", kind, (unsigned long long)i, (double)left[i]);
        expect(!momentum || isfinite(momentum[i]), "%s: momentum %llu is not finite", kind, (unsigned long long)i);
    }
    expect(parsed.alpha == parsed.beta || memcmp(left, h, floats) == 0, "%s: the residual is another one", kind);
    tg_feedback_free(feedback);
    tg_codec_free(codec);
    drop(&gradient);
    free(frame);
    free(h);
}

static void trusted_values(tg_device *device, const char *spec, generator *g)
{
    static const char *const kinds[] = {"ef",
                                        "ecq:alpha=0.01,beta=0.01",
                                        "ecq:alpha=1e-12,beta=1e-12",
                                        "ecq:alpha=0.5,beta=0.9",
                                        "ecq:alpha=0.1,beta=1",
                                        "ecq:alpha=1,beta=0.1",
                                        "ecq:alpha=1,beta=0",
                                        "ecq:alpha=0,beta=1",
                                        "dgc:momentum=0.9",
                                        "dgc:momentum=0.99,clip=1e6"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds - (is_sparsifier(spec) ? 0 : 2); k++)
        for (int i = 0; i < 2; i++)
            trusted_step(device, spec, kinds[k], 1 + next_random(g) % (i ? 12000 : 600), next_random(g));
    check_all("%s %s: a failed step of huge values under trust", tg_device_name(device), spec);
}

/* ---- what would become so ---- */

/* A frame of `count` elements, all but one of them small. */
static tg_frame frame_of(tg_device *device, const char *spec, uint64_t count, uint64_t index, float value,
                         tg_codec **codec)
{
    tg_tensor t = make_tensor(count, TG_FLOAT32, 0);
    tg_error error = {""};
    tg_encode_report report = {.bytes = 0};
    *codec = make_codec(device, spec, count);
    const size_t bound = tg_frame_bound(*codec, count);
    void *bytes = malloc(bound);
    cut(GAUSSIAN, 5, &t);
    ((float *)t.data)[index] = value;
    expect(tg_encode(*codec, &t, NULL, bytes, bound, &report, &error) == TG_OK, "encode: %s", error.message);
    drop(&t);
    return (tg_frame){bytes, report.bytes};
}

static void overflow(tg_device *device, const char *spec, uint64_t count, uint64_t index)
{
    tg_codec *codec;
    const tg_frame frame = frame_of(device, spec, count, index, 3e38f, &codec);
    tg_feedback *f = make_feedback(device, "ef", codec, count);
    const size_t floats = (size_t)count * sizeof(float);
    float *before = malloc(floats);
    tg_tensor zeros = make_tensor(count, TG_FLOAT32, 0);
    memset(zeros.data, 0, floats);
    tg_error error = {""};
    char name[48];
    snprintf(name, sizeof name, "element %llu ", (unsigned long long)index);

    expect(tg_feedback_return(f, frame, NULL, 0, &error) == TG_OK, "return: %s", error.message);
    memcpy(before, residual_of(f), floats);
    expect(before[index] > 2e38f, "it is %g", (double)before[index]);
    expect(tg_feedback_return(f, frame, NULL, 0, &error) == TG_NONFINITE, "return of an overflow: %s", error.message);
    expect(strstr(error.message, name) != NULL, "return names: %s", error.message);
    expect(memcmp(before, residual_of(f), floats) == 0, "a refused return changes the residual");
    /* Where that element was applied, nothing overflows. */
    const uint32_t applied = (uint32_t)index;
    expect(tg_feedback_return(f, frame, &applied, 1, &error) == TG_OK, "return of the others: %s", error.message);
    expect(residual_of(f)[index] == before[index], "an applied element is returned");

    /* rest - sent, where what was sent has the other sign. */
    for (uint64_t i = 0; i < count; i++)
        before[i] = i == index ? -3e38f : 0;
    set_residual(f, before);
    expect(tg_feedback_update(f, &zeros, frame, &error) == TG_NONFINITE, "update of an overflow: %s", error.message);
    expect(strstr(error.message, name) != NULL, "update names: %s", error.message);
    expect(memcmp(before, residual_of(f), floats) == 0, "a refused update changes the residual");
    before[index] = 3e38f;
    set_residual(f, before);
    expect(tg_feedback_update(f, &zeros, frame, &error) == TG_OK, "update: %s", error.message);
    check_all("%s %s, %llu elements: return and update refuse what overflows", tg_device_name(device), spec,
              (unsigned long long)count);
    tg_feedback_free(f);
    tg_codec_free(codec);
    drop(&zeros);
    free((void *)(uintptr_t)frame.data);
    free(before);
}

/* Two steps under way, neither of which is applied: together they are more than a residual holds. */
static void undone(tg_algorithm algorithm, const char *spec)
{
    enum { COUNT = 9000, AT = 4321 };
    const tensor_case one[] = {{"one", spec, "ef", COUNT, TG_FLOAT32}, {0}};
    const rank_case alone = {.world = 1, .tensors = one, .options = {.algorithm = algorithm, .depth = 2}};
    rank_state s;
    tg_reduction *reductions[2];
    tg_exchange *exchange;
    open_rank(&s, &alone, 0, NULL);
    expect(s.status == TG_OK, "reducer: %s", s.error.message);
    fill_gradients(&s, 0);
    ((float *)s.gradients[0].data)[AT] = -3e38f;
    for (uint64_t step = 0; step < 2; step++) {
        expect(tg_reduce_begin(s.reducer, s.gradients, step, &reductions[step], &s.error) == TG_OK, "begin: %s",
               s.error.message);
        expect(tg_reduce_next(reductions[step], &exchange, &s.error) == TG_OK, "next: %s", s.error.message);
    }
    tg_reduce_abandon(reductions[0]);
    expect(s.reducer->stats.saturated == 0, "counted too early");
    tg_reduce_abandon(reductions[1]);
    const float *h = residual_of(s.reducer->tensors[0].feedback);
    for (uint64_t i = 0; i < COUNT; i++)
        expect(isfinite(h[i]), "the residual of element %u is not finite", (unsigned)i);
    expect(h[AT] == -FLT_MAX, "it became %g", (double)h[AT]);
    expect(s.reducer->stats.saturated == 1, "%u are counted", (unsigned)s.reducer->stats.saturated);
    check_all("%s, %s: a step that is undone limits the residual", tg_algorithm_text(algorithm), spec);
    close_rank(&s);
}

/* One rank has a residual that is not finite: every rank hears of it. */
enum { WORLD = 3 };

static void with_a_bad_residual(rank_state *s)
{
    fill_gradients(s, 0);
    if (s->rank == 1) {
        float *values = calloc((size_t)s->tensors[1].count, sizeof *values);
        values[123] = INFINITY;
        set_residual(s->reducer->tensors[1].feedback, values);
        free(values);
    }
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
}

static void all_hear(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_BAD_RESIDUAL, "rank %u: %s: %s", rank, tg_status_text(states[rank].status),
               states[rank].error.message);
        expect(strstr(states[rank].error.message, "'matrix' on rank 1: element 123 of the residual") != NULL,
               "rank %u: %s", rank, states[rank].error.message);
    }
}

static void on_one_rank(tg_algorithm algorithm, tg_nonfinite_step policy)
{
    const rank_case what = {.world = WORLD,
                            .tensors = mixed_tensors,
                            .options = {.algorithm = algorithm, .nonfinite = policy},
                            .shape = GAUSSIAN};
    run_ranks(&what, NULL, with_a_bad_residual, all_hear, NULL);
    check_all("%s, policy %d: every rank hears of a residual that is not finite", tg_algorithm_text(algorithm),
              (int)policy);
}

/* A damaged element in the last of a tensor's pieces: the message counts from the start of the tensor; and after the
 * step, which no rank applies, the residual has the gradient, all but that element. */
static void in_a_later_piece(tg_algorithm algorithm, tg_nonfinite_step policy, const char *spec)
{
    enum { COUNT = 30000, AT = 28123, RANKS = 2 };
    static const uint64_t halves[] = {0, 16384, COUNT}, *const boundaries[] = {halves};
    const tensor_case one[] = {{"one", spec, "ef", COUNT, TG_FLOAT32}, {0}};
    const rank_case what = {.world = RANKS,
                            .tensors = one,
                            .options = {.algorithm = algorithm, .nonfinite = policy, .batch_elements = 4096},
                            .shape = GAUSSIAN,
                            .boundaries = algorithm == TG_SCATTER ? boundaries : NULL};
    rank_state states[RANKS];
    tg_reduction *reductions[RANKS];
    tg_error error;
    float *h = calloc(COUNT, sizeof *h), *due = malloc(COUNT * sizeof *due);
    for (uint32_t r = 0; r < RANKS; r++) {
        open_rank(&states[r], &what, r, NULL);
        expect(states[r].status == TG_OK, "reducer: %s", states[r].error.message);
        fill_gradients(&states[r], 0);
    }
    h[AT] = NAN;
    set_residual(states[0].reducer->tensors[0].feedback, h);
    memcpy(due, states[0].gradients[0].data, COUNT * sizeof *due);
    for (uint32_t r = 0; r < RANKS; r++)
        expect(tg_reduce_begin(states[r].reducer, states[r].gradients, 0, &reductions[r], &error) == TG_OK, "begin: %s",
               error.message);
    while (exchange_by_hand(reductions, RANKS)) {}
    for (uint32_t r = 0; r < RANKS; r++)
        expect(tg_reduce_end(reductions[r], &error) == TG_BAD_RESIDUAL && strstr(error.message, "element 28123 of the"),
               "rank %u: %s", r, error.message);
    const float *left = residual_of(states[0].reducer->tensors[0].feedback);
    float largest = 0; /* sent values are as large as that, and rounded where they are subtracted and returned */
    for (size_t i = 0; i < COUNT; i++)
        largest = fmaxf(largest, fabsf(due[i]));
    for (size_t i = 0; i < COUNT && policy == TG_NONFINITE_DROP; i++)
        expect(i == AT ? left[i] == 0 : fabsf(left[i] - due[i]) <= 2 * FLT_EPSILON * largest,
               "element %zu: %g is left of %g", i, (double)left[i], (double)due[i]);
    check_all("%s, policy %d, %s: a damaged residual in a later piece", tg_algorithm_text(algorithm), (int)policy,
              spec);
    for (uint32_t r = 0; r < RANKS; r++)
        close_rank(&states[r]);
    free(h);
    free(due);
}

/* ---- what does not fit ---- */

/* The header of a frame says how many elements it has; the rest of this one is nothing. */
static void counts_first(tg_device *device)
{
    tg_codec *own, *other;
    const tg_frame frame = frame_of(device, "topk:k=3", 1000, 7, 1, &own),
                   longer = frame_of(device, "topk:k=3", 2000, 7, 1, &other);
    uint8_t *bytes = (uint8_t *)(uintptr_t)longer.data;
    tg_feedback *f = make_feedback(device, "ef", own, 1000);
    tg_tensor g = make_tensor(1000, TG_FLOAT32, 0);
    tg_error error = {""};
    memset(g.data, 0, 4000);
    bytes[longer.size - 1] ^= 1; /* so that verifying it would say something else */
    expect(tg_feedback_return(f, longer, NULL, 0, &error) == TG_SHAPE_MISMATCH, "return: %s", error.message);
    expect(tg_feedback_update(f, &g, longer, &error) == TG_SHAPE_MISMATCH, "update: %s", error.message);
    check_all("counts are compared before anything is verified");

    const uint32_t beyond[] = {3, 1000}, falling[] = {5, 4}, last[] = {999};
    expect(tg_feedback_return(f, frame, beyond, 2, &error) == TG_INVALID_ARGUMENT, "beyond: %s", error.message);
    expect(strstr(error.message, "1000") != NULL, "beyond names: %s", error.message);
    expect(tg_feedback_return(f, frame, falling, 2, &error) == TG_INVALID_ARGUMENT, "falling: %s", error.message);
    expect(tg_feedback_return(f, frame, NULL, 2, &error) == TG_INVALID_ARGUMENT, "NULL: %s", error.message);
    expect(tg_feedback_return(f, frame, last, 1, &error) == TG_OK, "last: %s", error.message);
    check_all("applied indices that are out of range, or missing, are refused");
    tg_feedback_free(f);
    tg_codec_free(own);
    tg_codec_free(other);
    drop(&g);
    free((void *)(uintptr_t)frame.data);
    free(bytes);
}

/* An emulated processor or card. */
static bool is_slow(size_t d) { return EMULATED || (named_device() && d % 2 == 1); }

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    tg_device **devices = open_devices();
    for (size_t d = 0; devices[d]; d++) {
        size_t number = 0;
        for (const char *const *spec = all_specs(); *spec; spec++, number++) {
            generator g = generator_for(*spec, 77 + d);
            if (!is_slow(d) || number % 8 == d % 8) {
                bad_residuals(devices[d], *spec, &g);
                trusted_values(devices[d], *spec, &g);
            }
        }
        static const char *const specs[] = {"none", "bf16", "topk:k=3", "qsgd:levels=7,norm=max,bucket=512",
                                            "gaussiank:density=0.1,values=levels,levels=7"};
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
            for (uint64_t count = 100; count <= 10000; count *= 10)
                if (has_codec(devices[d], specs[i]))
                    overflow(devices[d], specs[i], count, count - 9);
        counts_first(devices[d]);
    }
    size_t number = 0;
    for (const char *const *spec = all_specs(); *spec; spec++, number++) {
        generator g = generator_for(*spec, 99);
        if (!is_slow(1) || number % 4 == 0)
            huge_values(devices, *spec, &g);
    }
    static const char *const undoing[] = {"none", "topk:density=0.02", "qsgd:levels=7,norm=max,bucket=512"};
    for (size_t i = 0; i < sizeof undoing / sizeof *undoing; i++) {
        undone(TG_GATHER, undoing[i]);
        undone(TG_SHARD, undoing[i]);
    }
    static const tg_nonfinite_step policies[] = {TG_NONFINITE_STOP, TG_NONFINITE_SKIP, TG_NONFINITE_DROP};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        on_one_rank(TG_GATHER, policies[i]);
        on_one_rank(TG_SHARD, policies[i]);
        for (size_t j = 0; j < sizeof undoing / sizeof *undoing; j++) {
            in_a_later_piece(TG_GATHER, policies[i], undoing[j]);
            in_a_later_piece(TG_SHARD, policies[i], undoing[j]);
            in_a_later_piece(TG_SCATTER, policies[i], undoing[j]);
        }
    }
    close_devices(devices);
    return finish();
}
