/* Making a residual, encoding with it, and keeping its statistics. */
#include "feedback/feedback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/numeric.h"
#include "base/status.h"
#include "base/vector.h"
#include "frame/encode.h"
#include "frame/traits.h"
#include "kernels/ranges.h"

tg_status tg_feedback_create(tg_device *device, const tg_feedback_spec *spec, const tg_spec *codec, uint64_t count,
                             bool insist, tg_feedback **feedback, tg_error *error)
{
    if (!device || !spec || !codec || !feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_feedback_create needs a device, both specs and a place for the handle");
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
                       "dgc clears momentum where an element was sent, so it needs a sparsifier; %s sends all",
                       traits.name);
    if (stability.binding && !insist)
        return tg_fail(
            error, TG_UNSTABLE,
            "this feedback over %s with the L2 norm would diverge: lambda = %.4g is not below 1 (gamma = %.4g); use "
            "more levels, smaller buckets, norm=max, or ecq with a smaller alpha",
            traits.name, stability.lambda, stability.gamma);
    tg_feedback *made = malloc(sizeof *made);
    const size_t size = (size_t)count * sizeof(float);
    const bool with_momentum = spec->kind == TG_FEEDBACK_DGC;
    float *residual = tg_vector_make(size, 0), *momentum = with_momentum ? tg_vector_make(size, 1) : NULL,
          *kept = tg_vector_make(size, 2);
    if (!made || !residual || (with_momentum && !momentum) || !kept) {
        free(made);
        tg_vector_free(residual);
        tg_vector_free(momentum);
        tg_vector_free(kept);
        return tg_fail(error, TG_OUT_OF_MEMORY, "no memory for a residual of %" PRIu64 " elements", count);
    }
    *made = (tg_feedback){.device = device,
                          .kernels = device->kernels,
                          .spec = *spec,
                          .codec = *codec,
                          .count = count,
                          .residual = residual,
                          .momentum = momentum,
                          .kept = kept,
                          .unchecked = spec->alpha != spec->beta || traits.minmax};
    tg_feedback_reset(made);
    *feedback = made;
    return tg_succeed(error);
}

void tg_feedback_free(tg_feedback *feedback)
{
    if (feedback) {
        tg_vector_free(feedback->residual);
        tg_vector_free(feedback->momentum);
        tg_vector_free(feedback->kept);
    }
    free(feedback);
}

float *tg_feedback_residual(tg_feedback *feedback)
{
    if (!feedback)
        return NULL;
    feedback->unchecked = true;
    return feedback->residual;
}

float *tg_feedback_momentum(tg_feedback *feedback)
{
    if (!feedback)
        return NULL;
    feedback->unchecked = true;
    return feedback->momentum;
}

void tg_feedback_reset(tg_feedback *feedback)
{
    if (!feedback)
        return;
    memset(feedback->residual, 0, (size_t)feedback->count * sizeof(float));
    if (feedback->momentum)
        memset(feedback->momentum, 0, (size_t)feedback->count * sizeof(float));
    feedback->stats = (tg_stats){.steps = 0};
}

/* A gradient whose squares are summed. */
typedef struct summand {
    const tg_kernels *kernels;
    const tg_tensor *tensor;
} summand;

/* The finite values of one block of a gradient; what is not finite is dropped or refused later, and must not spoil the
 * norm. */
static void finite_block(const summand *s, uint64_t first, size_t n, float *values)
{
    const tg_tensor *t = s->tensor;
    s->kernels->widen(t->dtype, (const char *)t->data + first * tg_dtype_size(t->dtype), n, values);
    for (size_t i = 0; i < n; i++)
        if (!(values[i] - values[i] == 0))
            values[i] = 0;
}

static double squares_of_block(const void *of, uint64_t first, size_t n)
{
    const summand *s = of;
    float values[TG_BLOCK];
    finite_block(s, first, n, values);
    return (double)s->kernels->block_sum(TG_SUM_OF_SQUARES, values, n, 1, 1);
}

/* DGC's local clipping: the gradient is scaled so that its norm does not exceed `clip`. Where float32 lanes cannot hold
 * the squares, they are added in double, one after the other. */
float tg_feedback_clip(const tg_feedback *f, const tg_tensor *gradient)
{
    if (!(f->spec.clip > 0))
        return 1;
    const summand s = {f->kernels, gradient};
    double squares = tg_sum_blocks(f->device->pool, gradient->count, squares_of_block, &s);
    if (!(squares - squares == 0)) {
        squares = 0;
        for (uint64_t first = 0; first < gradient->count; first += TG_BLOCK) {
            float values[TG_BLOCK];
            const size_t n = tg_block_size(gradient->count, first);
            finite_block(&s, first, n, values);
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
    source.kept = f->kept; /* from its start for every piece: it is of use while one is encoded */
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

/* Elements of the block at `first` that count for the statistics, which must cost next to nothing: of more than 2^20
 * elements only the first 64 of every four blocks. Fewer places would be cheaper still, as each is a page that the
 * processor has to find, but tell less where layers differ. */
enum { SAMPLE = 64, PLACES = 4 * TG_BLOCK };
static size_t counted(uint64_t count, uint64_t first, size_t n)
{
    if (count <= 1u << 20)
        return n;
    return first % PLACES != 0 ? 0 : n < SAMPLE ? n : SAMPLE;
}

static double counted_squares(const void *of, uint64_t first, size_t n)
{
    enum { AHEAD = 4 };
    const summand *s = of;
    const tg_tensor *t = s->tensor;
    const size_t here = counted(t->count, first, n);
    if (here == 0)
        return 0;
    if (here < n && t->count - first > (AHEAD + 1) * PLACES)
        ask_for(t, first + AHEAD * PLACES, here);
    if (t->dtype == TG_FLOAT32)
        return squares_of(s->kernels, (const float *)t->data + first, here);
    float wide[TG_BLOCK];
    s->kernels->widen(t->dtype, (const char *)t->data + first * tg_dtype_size(t->dtype), here, wide);
    return squares_of(s->kernels, wide, here);
}

/* L2 norm, or an estimate of it. */
static double norm_of(const tg_feedback *f, const tg_tensor *tensor)
{
    const summand s = {f->kernels, tensor};
    const uint64_t count = tensor->count;
    double elements = 0;
    if (count == 0)
        return 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        elements += (double)counted(count, first, tg_block_size(count, first));
    return tg_sqrt(tg_sum_blocks(f->device->pool, count, counted_squares, &s) * ((double)count / elements));
}

double tg_feedback_norm(const tg_feedback *f) { return norm_of(f, &(tg_tensor){f->residual, f->count, TG_FLOAT32}); }

/* A step has been made: what remains is this large. */
void tg_feedback_note(tg_feedback *f, const tg_tensor *gradient, const tg_encode_report *report)
{
    tg_stats *s = &f->stats;
    double before = s->residual_norm;
    s->steps++;
    s->bytes += report->bytes;
    s->saturated += report->saturated;
    s->dropped += report->dropped;
    s->gradient_norm = norm_of(f, gradient);
    s->residual_norm = tg_feedback_norm(f);
    s->residual_peak = s->residual_norm > s->residual_peak ? s->residual_norm : s->residual_peak;
    if (s->steps > 1 && before > 0) {
        double ratio = s->residual_norm / before, window = s->steps - 1 < 32 ? (double)(s->steps - 1) : 32;
        s->residual_growth += (ratio - s->residual_growth) / window;
    }
}

/* A codec that is to drop values takes all others as finite, and could not go back; so the residual is looked at
 * before. Under the other policies it is found where it is met. */
static tg_status encode_source(tg_codec *codec, const tg_feedback *f, const tg_source *source,
                               const tg_encode_options *options, void *frame, size_t capacity, tg_encode_report *report,
                               tg_error *error)
{
    if (options && options->nonfinite == TG_NONFINITE_ZERO && f->unchecked) {
        tg_status status = tg_residual_check(source, f->device, error);
        if (status != TG_OK)
            return status;
    }
    return tg_encode_source(codec, source, options, frame, capacity, report, error);
}

static tg_status encode(tg_codec *codec, tg_feedback *f, const tg_tensor *gradient, const tg_encode_options *options,
                        void *frame, size_t capacity, tg_encode_report *report, tg_error *error)
{
    tg_source source = tg_feedback_source(f, gradient);
    tg_encode_report made;
    tg_status status = encode_source(codec, f, &source, options, frame, capacity, &made, error);
    if (status != TG_OK)
        return status;
    tg_feedback_note(f, gradient, &made);
    if (report)
        *report = made;
    return TG_OK;
}

tg_status tg_feedback_encode_piece(tg_codec *codec, tg_feedback *f, const tg_tensor *piece, uint64_t first, float clip,
                                   const tg_encode_options *options, void *frame, size_t capacity,
                                   tg_encode_report *report, tg_error *error)
{
    const tg_source source = source_of(f, piece, first, clip);
    return encode_source(codec, f, &source, options, frame, capacity, report, error);
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
