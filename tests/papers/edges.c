/* Inputs at the edge, through every codec: empty, one element, all zero, all equal, and values that are not finite
 * under each policy, with and without a residual. Each has a defined result. */
#include "harness.h"

static const char *const more_specs[] = {
    "qsgd:norm=l2,bucket=0,levels=127",
    "qsgd:norm=l2,bucket=64,levels=15",
    "qsgd:range=minmax",
    "qsgd:coding=elias",
    "qsgd:coding=entropy,bucket=1000",
    "qsgd:coding=auto,bucket=0",
    "terngrad:clip=2.5",
    "onebit:bucket=0",
    "topk:density=0.1,values=fp16",
    "topk:density=0.1,values=levels",
    "gaussiank:density=0.1",
    "dgck:density=0.1",
    "randk:density=0.1,values=levels",
};

/* Every codec of the table with its defaults, then the list above; NULL at the end. */
static const char *spec_at(size_t index)
{
    tg_codec_info info;
    size_t codecs = 0;
    while (tg_codec_list(codecs, &info) == TG_OK)
        codecs++;
    if (index < codecs && tg_codec_list(index, &info) == TG_OK)
        return info.name;
    index -= codecs;
    return index < sizeof more_specs / sizeof *more_specs ? more_specs[index] : NULL;
}

static bool is_sparse(const tg_spec *spec)
{
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        if (info.id == spec->codec)
            return info.sparse;
    return false;
}

/* ---- plain edges ---- */

static void empty_and_one(const char *spec)
{
    coder c = coder_open(spec, 1);
    float value = 0.75f, out = -1; /* exact in every format */
    encode(&c, &value, 0);
    decode(&c, &out);
    (void)check(out == value && c.report.selected == 1, text("%s: one element", spec),
                "0.75 comes back as %g, %" PRIu64 " sent", (double)out, c.report.selected);
    c.count = 0;
    encode(&c, &value, 0);
    tg_error error = {""};
    tg_status status = tg_frame_verify(c.device, frame_of(&c), NULL, &error);
    out = -1;
    decode(&c, &out);
    (void)check(status == TG_OK && out == -1 && c.report.selected == 0, text("%s: empty vector", spec),
                "a frame of %zu bytes: %s; %" PRIu64 " sent", c.report.bytes, tg_status_text(status),
                c.report.selected);
    coder_close(&c);
}

/* Sparsifiers send some elements as they are; the other codecs bring equal values back exactly, but for the L2 norm,
 * which rounds to one of the two levels around them. */
static void equal_elements(const char *spec, float value)
{
    enum { N = 6000 };
    coder c = coder_open(spec, N);
    float *v = floats(N), *out = floats(N);
    for (size_t i = 0; i < N; i++)
        v[i] = value;
    encode(&c, v, 1);
    decode(&c, out);
    uint64_t k = tg_spec_selected(&c.spec, N), sent = c.report.selected;
    size_t exact = 0, zero = 0;
    double farthest = 0;
    for (size_t i = 0; i < N; i++) {
        exact += out[i] == value;
        zero += out[i] == 0;
        farthest = fmax(farthest, fabs((double)out[i] - (double)value));
    }
    bool good;
    if (is_sparse(&c.spec))
        good = 3 * sent >= 2 * k && 3 * sent <= 4 * k && exact >= sent &&
               (value == 0 || (exact == sent && zero == N - sent));
    else if (strstr(spec, "norm=l2"))
        good = farthest <= (double)value * sqrt(c.spec.bucket ? c.spec.bucket : N) / c.spec.levels;
    else
        good = exact == N;
    (void)check(good, text("%s: all %g", spec, (double)value), "%" PRIu64 " sent, %zu exact, %zu zero, farthest %.3g",
                sent, exact, zero, farthest);
    free(v);
    free(out);
    coder_close(&c);
}

/* ---- values that are not finite ---- */

enum { COUNT = 10000, PATTERN = 0xa5 };

/* A codec with a residual after a few steps, or none (kind TG_FEEDBACK_NONE), and copies of everything that a failure
 * must keep. */
typedef struct state {
    coder c;
    tg_feedback *feedback;
    tg_feedback_spec how;
    float *gradient, *residual, *momentum; /* the last two: copies */
    uint8_t *frame;                        /* copy */
} state;

static tg_status encode_state(state *s, tg_nonfinite policy, tg_encode_report *report, tg_error *error)
{
    tg_tensor input = tensor_of(s->gradient, COUNT);
    tg_encode_options options = {.draw = {.seed = 9, .step = 100}, .nonfinite = policy};
    if (!s->feedback)
        return tg_encode(s->c.codec, &input, &options, s->c.frame, s->c.capacity, report, error);
    return tg_encode_with_feedback(s->c.codec, s->feedback, &input, &options, s->c.frame, s->c.capacity, report, error);
}

/* Puts back what the copies hold, and a fresh gradient. */
static void restore(state *s)
{
    fill(s->gradient, COUNT, GAUSSIAN, 61);
    memset(s->c.frame, PATTERN, s->c.capacity);
    if (s->feedback)
        set_residual(s->feedback, s->residual);
    if (s->momentum)
        set_momentum(s->feedback, s->momentum);
}

static state state_open(const char *spec, tg_feedback_spec how)
{
    tg_error error;
    state s = {.c = coder_open(spec, COUNT), .how = how, .gradient = floats(COUNT), .residual = floats(COUNT)};
    s.frame = memory(s.c.capacity, 1);
    memset(s.frame, PATTERN, s.c.capacity);
    if (how.kind == TG_FEEDBACK_NONE)
        return s;
    must(tg_feedback_create(s.c.device, &how, &s.c.spec, COUNT, true, &s.feedback, &error), &error);
    for (unsigned step = 0; step < 3; step++) {
        fill(s.gradient, COUNT, GAUSSIAN, 62 + step);
        must(encode_state(&s, TG_NONFINITE_REJECT, &s.c.report, &error), &error);
    }
    memcpy(s.residual, residual_of(s.feedback), COUNT * sizeof(float));
    if (how.kind == TG_FEEDBACK_DGC) {
        s.momentum = floats(COUNT);
        memcpy(s.momentum, momentum_of(s.feedback), COUNT * sizeof(float));
    }
    return s;
}

static void state_close(state *s)
{
    tg_feedback_free(s->feedback);
    free(s->gradient);
    free(s->residual);
    free(s->momentum);
    free(s->frame);
    coder_close(&s->c);
}

static bool residual_untouched(const state *s)
{
    return (!s->feedback || memcmp(residual_of(s->feedback), s->residual, COUNT * sizeof(float)) == 0) &&
           (!s->momentum || memcmp(momentum_of(s->feedback), s->momentum, COUNT * sizeof(float)) == 0);
}

static bool names_index(const tg_error *error, size_t index)
{
    const char *number = text("%zu", index), *at = strstr(error->message, number);
    return at && (at == error->message || at[-1] < '0' || at[-1] > '9') &&
           !(at[strlen(number)] >= '0' && at[strlen(number)] <= '9');
}

/* How far the residual is from the copy, in half ulps of the largest number that took part in putting it right:
 * gradient, residual and what was sent, divided by beta. */
static double residual_moved(const state *s, double largest)
{
    if (!s->feedback)
        return 0;
    const float *residual = residual_of(s->feedback);
    double farthest = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double moved = fabs((double)residual[i] - (double)s->residual[i]);
        farthest = moved <= farthest ? farthest : moved; /* NaN counts */
        if (residual[i] != residual[i])
            return INFINITY;
    }
    return farthest / (largest / (double)s->how.beta * HALF_ULP);
}

typedef struct verdict {
    unsigned tried, reject, named, kept, zero, same, trust;
    double moved;
} verdict;

static bool says_refused(const tg_encode_report *r)
{
    return r->status == TG_NONFINITE && r->bytes == 0 && r->selected == 0 && r->saturated == 0 && r->dropped == 0;
}

/* One bad value at one place, under the three policies. */
static void try_bad(state *s, float bad, size_t index, verdict *v)
{
    tg_error error = {""};
    tg_encode_report report;
    v->tried++;

    restore(s);
    memset(&report, PATTERN, sizeof report);
    s->gradient[index] = bad;
    s->gradient[COUNT - 1] = bad; /* a second one, later: the first is named */
    v->reject += encode_state(s, TG_NONFINITE_REJECT, &report, &error) == TG_NONFINITE;
    v->named += names_index(&error, index);
    v->kept += memcmp(s->c.frame, s->frame, s->c.capacity) == 0 && says_refused(&report) && residual_untouched(s);

    /* Dropped: the same frame and residual as from an input with zeros there. */
    restore(s);
    s->gradient[index] = s->gradient[COUNT - 1] = 0;
    must(encode_state(s, TG_NONFINITE_REJECT, &s->c.report, &error), &error);
    uint8_t *clean = memory(s->c.report.bytes, 1);
    float *clean_residual = floats(COUNT), *sent = floats(COUNT);
    memcpy(clean, s->c.frame, s->c.report.bytes);
    decode(&s->c, sent);
    if (s->feedback)
        memcpy(clean_residual, residual_of(s->feedback), COUNT * sizeof(float));
    restore(s);
    s->gradient[index] = s->gradient[COUNT - 1] = bad;
    size_t clean_size = s->c.report.bytes;
    tg_status status = encode_state(s, TG_NONFINITE_ZERO, &s->c.report, &error);
    v->zero += status == TG_OK && s->c.report.dropped == (index == COUNT - 1 ? 1 : 2);
    v->same += status == TG_OK && s->c.report.bytes == clean_size && memcmp(s->c.frame, clean, clean_size) == 0 &&
               (!s->feedback || memcmp(residual_of(s->feedback), clean_residual, COUNT * sizeof(float)) == 0);

    /* Trusted: no frame, and the residual put right. */
    restore(s);
    double largest = largest_magnitude(s->gradient, COUNT) + largest_magnitude(s->residual, COUNT) +
                     largest_magnitude(sent, COUNT);
    s->gradient[index] = s->gradient[COUNT - 1] = bad;
    memset(&report, PATTERN, sizeof report);
    v->trust += encode_state(s, TG_NONFINITE_TRUST, &report, &error) == TG_NONFINITE && says_refused(&report);
    v->moved = fmax(v->moved, residual_moved(s, largest));
    free(clean);
    free(clean_residual);
    free(sent);
}

static void not_finite(const char *spec, const char *name, tg_feedback_spec how)
{
    static const size_t places[] = {0, 4095, 4096, 9000, COUNT - 1}; /* the first and later blocks of work */
    const float bad[] = {NAN, INFINITY, -INFINITY};
    state s = state_open(spec, how);
    verdict v = {.tried = 0};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (size_t b = 0; b < 3; b++)
            try_bad(&s, bad[b], places[i], &v);
    name = text("%s, feedback %s", spec, name);
    (void)check(
        v.reject == v.tried && v.named == v.tried && v.kept == v.tried, text("%s: reject", name),
        "%u of %u refused, %u named the first index, %u left frame and residual untouched and said so in the report",
        v.reject, v.tried, v.named, v.kept);
    (void)check(v.zero == v.tried && v.same == v.tried, text("%s: zero", name),
                "%u of %u counted right, %u gave the bytes and residual of zeros", v.zero, v.tried, v.same);
    /* Six operations are rounded on the way there and back: beta h, g + beta h, - sent, + sent, - g, / beta. */
    (void)check(v.trust == v.tried && v.moved <= 6, text("%s: trust", name),
                "%u of %u refused, residual within %.2f half ulps of the largest number involved, at most 6", v.trust,
                v.tried, v.moved);
    state_close(&s);
}

/* Gradient and residual finite, a sum of them not. With ecq the sums are two, u and what remains. */
static void overflowing_sums(const char *spec, const char *name, tg_feedback_spec how, float gradient, float residual)
{
    enum { AT = 5000 };
    tg_error error = {""};
    state s = state_open(spec, how);
    s.residual[AT] = residual;
    static const tg_nonfinite policies[] = {TG_NONFINITE_REJECT, TG_NONFINITE_TRUST, TG_NONFINITE_ZERO};
    static const char *const policy_names[] = {"reject", "trust", "zero"};
    for (size_t i = 0; i < 3; i++) {
        restore(&s);
        s.gradient[AT] = gradient;
        tg_status status = encode_state(&s, policies[i], &s.c.report, &error);
        bool finite = true;
        const float *residual_now = residual_of(s.feedback);
        for (size_t j = 0; j < COUNT; j++)
            finite &= isfinite(residual_now[j]) != 0;
        bool dropped = policies[i] == TG_NONFINITE_ZERO;
        bool good = finite && (dropped ? status == TG_OK && s.c.report.dropped == 1
                                       : status == TG_NONFINITE && names_index(&error, AT));
        (void)check(
            good, text("%s, feedback %s: %g + %g, %s", spec, name, (double)gradient, (double)residual, policy_names[i]),
            "%s, residual %s", tg_status_text(status), finite ? "finite" : "NOT finite");
    }
    state_close(&s);
}

int main(void)
{
    const tg_feedback_spec none = {.kind = TG_FEEDBACK_NONE}, ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1},
                           ecq = {.kind = TG_FEEDBACK_ECQ, .alpha = 0.2f, .beta = 0.9f},
                           dgc = {.kind = TG_FEEDBACK_DGC, .alpha = 1, .beta = 1, .momentum = 0.9f, .clip = 5};
    for (size_t i = 0; spec_at(i); i++) {
        const char *spec = spec_at(i);
        coder c = coder_open(spec, 1);
        bool sparse = is_sparse(&c.spec);
        coder_close(&c);
        empty_and_one(spec);
        equal_elements(spec, 0);
        equal_elements(spec, 0.75f);
        not_finite(spec, "none", none);
        not_finite(spec, "ef", ef);
        not_finite(spec, "ecq", ecq);
        if (sparse)
            not_finite(spec, "dgc", dgc);
        overflowing_sums(spec, "ef", ef, 3e38f, 3e38f);
        overflowing_sums(spec, "ecq", ecq, 3e38f, 1e38f); /* g + 0.2 h is finite, g + 0.9 h is not */
    }
    return finish();
}
