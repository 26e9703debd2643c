/* Making a residual, encoding with it, and keeping its statistics. */
#include "feedback/feedback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/numeric.h"
#include "base/status.h"
#include "frame/encode.h"
#include "frame/traits.h"
#include "kernels/sums.h"

static float *zeros(uint64_t count) { return calloc(count ? (size_t)count : 1, sizeof(float)); }

tg_status tg_feedback_create(tg_device *device, const tg_feedback_spec *spec, const tg_spec *codec, uint64_t count,
                             bool insist, tg_feedback **feedback, tg_error *error)
{
    if (!device || !spec || !codec || !feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_create needs a device, both specs and a place for the handle");
    tg_stability stability;
    tg_status status = tg_stability_of(codec, spec, count, &stability, error);
    if (status != TG_OK)
        return status;
    tg_traits traits;
    status = tg_traits_of(codec, count, &traits, error);
    if (status != TG_OK)
        return status;
    if (spec->kind == TG_FEEDBACK_DGC && !traits.sparse)
        return tg_fail(error, TG_INVALID_SPEC,
                       "dgc clears momentum where an element was sent, so it needs a sparsifier; %s sends all", traits.name);
    if (stability.binding && !insist)
        return tg_fail(error, TG_UNSTABLE,
                       "this feedback over %s with the L2 norm would diverge: lambda = %.4g is not below 1 (gamma = %.4g); use "
                       "more levels, smaller buckets, norm=max, or ecq with a smaller alpha",
                       traits.name, stability.lambda, stability.gamma);
    tg_feedback *made = malloc(sizeof *made);
    float *residual = zeros(count), *momentum = spec->kind == TG_FEEDBACK_DGC ? zeros(count) : NULL;
    if (!made || !residual || (spec->kind == TG_FEEDBACK_DGC && !momentum)) {
        free(made);
        free(residual);
        free(momentum);
        return tg_fail(error, TG_OUT_OF_MEMORY, "no memory for a residual of %" PRIu64 " elements", count);
    }
    *made = (tg_feedback){.kernels = device->kernels,
                          .spec = *spec,
                          .codec = *codec,
                          .count = count,
                          .residual = residual,
                          .momentum = momentum};
    *feedback = made;
    return tg_succeed(error);
}

void tg_feedback_free(tg_feedback *feedback)
{
    if (feedback) {
        free(feedback->residual);
        free(feedback->momentum);
    }
    free(feedback);
}

float *tg_feedback_residual(tg_feedback *feedback) { return feedback ? feedback->residual : NULL; }

float *tg_feedback_momentum(tg_feedback *feedback) { return feedback ? feedback->momentum : NULL; }

void tg_feedback_reset(tg_feedback *feedback)
{
    if (!feedback)
        return;
    memset(feedback->residual, 0, (size_t)feedback->count * sizeof(float));
    if (feedback->momentum)
        memset(feedback->momentum, 0, (size_t)feedback->count * sizeof(float));
    feedback->stats = (tg_stats){.steps = 0};
}

/* The finite values of one block of a gradient; what is not finite is dropped or refused later, and must not spoil the norm. */
static size_t finite_block(const tg_feedback *f, const tg_tensor *gradient, uint64_t first, float *values)
{
    size_t n = tg_block_size(gradient->count, first);
    f->kernels->widen(gradient->dtype, (const char *)gradient->data + first * tg_dtype_size(gradient->dtype), n, values);
    for (size_t i = 0; i < n; i++)
        if (!(values[i] - values[i] == 0))
            values[i] = 0;
    return n;
}

/* DGC's local clipping: the gradient is scaled so that its norm does not exceed `clip`. Where float32 lanes cannot hold the squares, they
 * are added in double, one after the other. */
float tg_feedback_clip(const tg_feedback *f, const tg_tensor *gradient)
{
    if (!(f->spec.clip > 0))
        return 1;
    float values[TG_BLOCK];
    tg_tree_sum tree = {.blocks = 0};
    for (uint64_t first = 0; first < gradient->count; first += TG_BLOCK) {
        size_t n = finite_block(f, gradient, first, values);
        tg_tree_add(&tree, (double)f->kernels->block_sum(TG_SUM_OF_SQUARES, values, n, 1, 1));
    }
    double squares = tg_tree_total(&tree);
    if (!(squares - squares == 0)) {
        squares = 0;
        for (uint64_t first = 0; first < gradient->count; first += TG_BLOCK) {
            size_t n = finite_block(f, gradient, first, values);
            for (size_t i = 0; i < n; i++)
                squares += (double)values[i] * (double)values[i];
        }
    }
    double norm = tg_sqrt(squares);
    return norm > (double)f->spec.clip ? (float)((double)f->spec.clip / norm) : 1;
}

/* The source of the elements from `first` on. */
static tg_source source_of(const tg_feedback *f, const tg_tensor *piece, uint64_t first, float clip)
{
    tg_source source = {.gradient = piece->data, .dtype = piece->dtype, .count = piece->count};
    if (f->spec.kind == TG_FEEDBACK_NONE)
        return source;
    source.residual = f->residual + first;
    source.alpha = f->spec.alpha;
    source.beta = f->spec.beta;
    if (f->momentum) {
        source.momentum = f->momentum + first;
        source.momentum_factor = f->spec.momentum;
        source.clip_factor = clip;
    }
    return source;
}

tg_source tg_feedback_source(const tg_feedback *f, const tg_tensor *gradient)
{
    return source_of(f, gradient, 0, f->momentum ? tg_feedback_clip(f, gradient) : 1);
}

/* Sum of the squares of n values; what is not finite was dropped and does not count. */
static double squares_of(const tg_kernels *k, const float *values, size_t n)
{
    const float quick = k->block_sum(TG_SUM_OF_SQUARES, values, n, 1, 1);
    if (quick >= 0x1p-80f && quick - quick == 0)
        return (double)quick;
    double sum = 0; /* too small or too large for float32, or not finite */
    for (size_t i = 0; i < n; i++)
        if (values[i] - values[i] == 0)
            sum += (double)values[i] * (double)values[i];
    return sum;
}

/* Asks the memory for n elements that are soon to be read: they are too far from each other for it to guess. */
static void ask_for(const tg_tensor *tensor, uint64_t first, size_t n)
{
    const char *at = (const char *)tensor->data + first * tg_dtype_size(tensor->dtype);
    for (size_t offset = 0; offset < n * tg_dtype_size(tensor->dtype); offset += 64)
        __builtin_prefetch(at + offset, 0, 2);
}

/* L2 norm for the statistics, which must cost next to nothing: of more than 2^20 elements only the first 16 of each block count. */
static double norm_of(const tg_kernels *k, const tg_tensor *tensor)
{
    enum { SAMPLE = 16, AHEAD = 16 };
    const uint64_t count = tensor->count;
    double sum = 0, counted = 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        float wide[TG_BLOCK];
        const float *values = (const float *)tensor->data + first;
        size_t n = tg_block_size(count, first);
        if (count > 1u << 20 && n > SAMPLE) {
            n = SAMPLE;
            if (count - first > (AHEAD + 1) * TG_BLOCK)
                ask_for(tensor, first + AHEAD * TG_BLOCK, n);
        }
        if (tensor->dtype != TG_FLOAT32) {
            k->widen(tensor->dtype, (const char *)tensor->data + first * tg_dtype_size(tensor->dtype), n, wide);
            values = wide;
        }
        sum += squares_of(k, values, n);
        counted += (double)n;
    }
    return count == 0 ? 0 : tg_sqrt(sum * ((double)count / counted));
}

/* A step has been made: what remains is this large. */
void tg_feedback_note(tg_feedback *f, const tg_tensor *gradient, const tg_encode_report *report)
{
    tg_stats *s = &f->stats;
    double before = s->residual_norm;
    s->steps++;
    s->bytes += report->bytes;
    s->saturated += report->saturated;
    s->dropped += report->dropped;
    s->gradient_norm = norm_of(f->kernels, gradient);
    s->residual_norm = norm_of(f->kernels, &(tg_tensor){f->residual, f->count, TG_FLOAT32});
    s->residual_peak = s->residual_norm > s->residual_peak ? s->residual_norm : s->residual_peak;
    if (s->steps > 1 && before > 0) {
        double ratio = s->residual_norm / before, window = s->steps - 1 < 32 ? (double)(s->steps - 1) : 32;
        s->residual_growth += (ratio - s->residual_growth) / window;
    }
}

static tg_status encode(tg_codec *codec, tg_feedback *f, const tg_tensor *gradient, const tg_encode_options *options,
                        void *frame, size_t capacity, tg_encode_report *report, tg_error *error)
{
    tg_source source = tg_feedback_source(f, gradient);
    tg_encode_report made;
    tg_status status = tg_encode_source(codec, &source, options, frame, capacity, &made, error);
    if (status != TG_OK)
        return status;
    tg_feedback_note(f, gradient, &made);
    if (report)
        *report = made;
    return TG_OK;
}

tg_status tg_feedback_encode_piece(tg_codec *codec, tg_feedback *f, const tg_tensor *piece, uint64_t first, float clip,
                                   const tg_encode_options *options, void *frame, size_t capacity, tg_encode_report *report,
                                   tg_error *error)
{
    tg_source source = source_of(f, piece, first, clip);
    return tg_encode_source(codec, &source, options, frame, capacity, report, error);
}

tg_status tg_encode_with_feedback(tg_codec *codec, tg_feedback *feedback, const tg_tensor *gradient,
                                  const tg_encode_options *options, void *frame, size_t capacity,
                                  tg_encode_report *report, tg_error *error)
{
    if (!codec || !feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode_with_feedback needs a codec and a feedback");
    tg_status status = tg_tensor_check(gradient, "the gradient", error);
    if (status != TG_OK)
        return status;
    if (gradient->count != feedback->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the gradient has %" PRIu64 " elements and the residual %" PRIu64,
                       gradient->count, feedback->count);
    if (memcmp(tg_codec_spec(codec), &feedback->codec, sizeof feedback->codec) != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the feedback was made for another codec spec than this codec's");
    tg_fp_mode before = tg_fp_enter();
    status = encode(codec, feedback, gradient, options, frame, capacity, report, error);
    tg_fp_leave(before);
    return status;
}

tg_status tg_feedback_stats(const tg_feedback *feedback, tg_stats *stats, tg_error *error)
{
    if (!feedback || !stats)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_stats needs a feedback and a place for the answer");
    *stats = feedback->stats;
    return tg_succeed(error);
}
