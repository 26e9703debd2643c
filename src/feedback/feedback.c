/* Creating a residual, encoding with it, and its statistics. */
#include "feedback/feedback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/status.h"
#include "frame/encode.h"
#include "frame/traits.h"

tg_status tg_feedback_suits(const tg_feedback_spec *spec, const tg_spec *codec, uint64_t count, bool insist,
                            tg_error *error)
{
    tg_stability stability;
    tg_status status = tg_stability_of(codec, spec, count, &stability, error);
    if (status != TG_OK)
        return status;
    tg_traits traits;
    status = tg_traits_of(codec, count, &traits, error);
    if (status != TG_OK)
        return status;
    if (spec->kind == TG_FEEDBACK_DGC && !traits.sparse)
        return tg_fail(error, TG_INVALID_SPEC, "feedback dgc requires a sparsifier, but %s is not a sparsifier",
                       traits.name);
    if (stability.binding && !insist)
        return tg_fail(
            error, TG_UNSTABLE,
            "this feedback with %s and the L2 norm would diverge: lambda = %.4g is not below 1 (gamma = %.4g); use "
            "more levels, smaller buckets, norm=max, or ecq with a smaller alpha",
            traits.name, stability.lambda, stability.gamma);
    return TG_OK;
}

tg_status tg_feedback_create(tg_device *device, const tg_feedback_spec *spec, const tg_spec *codec, uint64_t count,
                             bool insist, tg_feedback **feedback, tg_error *error)
{
    if (!device || !spec || !codec || !feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_feedback_create: device, spec, codec and feedback must not be NULL");
    tg_status status = tg_feedback_suits(spec, codec, count, insist, error);
    if (status != TG_OK)
        return status;
    status = tg_device_outcome(device, error);
    if (status != TG_OK)
        return status;
    tg_feedback *made = malloc(sizeof *made);
    const size_t size = (size_t)count * sizeof(float);
    const bool with_momentum = spec->kind == TG_FEEDBACK_DGC;
    const tg_operations *on = device->operations;
    float *residual = on->allocate(device, size, 0), *momentum = with_momentum ? on->allocate(device, size, 1) : NULL,
          *undo = on->allocate(device, size, 2);
    uint32_t *side = on->allocate(device, sizeof *side, 3);
    if (!made || !residual || (with_momentum && !momentum) || !undo || !side) {
        free(made);
        on->release(device, side);
        on->release(device, residual);
        on->release(device, momentum);
        on->release(device, undo);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a residual of %" PRIu64 " elements", count);
    }
    *made = (tg_feedback){.device = device,
                          .spec = *spec,
                          .codec = *codec,
                          .count = count,
                          .residual = residual,
                          .momentum = momentum,
                          .undo = undo,
                          .side = side};
    on->clear(device, side, sizeof *side);
    tg_feedback_reset(made);
    *feedback = made;
    return tg_succeed(error);
}

void tg_feedback_free(tg_feedback *feedback)
{
    if (feedback) {
        feedback->device->operations->release(feedback->device, feedback->residual);
        feedback->device->operations->release(feedback->device, feedback->momentum);
        feedback->device->operations->release(feedback->device, feedback->undo);
        feedback->device->operations->release(feedback->device, feedback->side);
    }
    free(feedback);
}

void tg_feedback_find(tg_feedback *f)
{
    uint32_t side = 0;
    if (!f->sided)
        return;
    f->device->operations->copy_out(f->device, &side, f->side, sizeof side);
    f->device->operations->wait(f->device);
    f->residual = f->sides[side & 1];
    f->undo = f->sides[~side & 1];
}

tg_source tg_feedback_source_later(tg_feedback *f, const tg_tensor *gradient)
{
    if (!f->sided) { /* `side` is 0 until then */
        f->sides[0] = f->residual;
        f->sides[1] = f->undo;
        f->sided = true;
    }
    tg_source source = tg_feedback_piece(f, gradient, 0, 1);
    if (source.residual) {
        source.residual = f->sides[0];
        source.undo = source.other = f->sides[1];
        source.side = f->side;
        source.may_move = true;
    }
    return source;
}

/* Where the elements to be read or written lie. */
static tg_status find_part(tg_feedback *f, tg_feedback_part part, uint64_t first, uint64_t count, const float *values,
                           float **found, tg_error *error)
{
    if (!f || (!values && count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_read and _write: feedback and values must not be NULL");
    tg_feedback_find(f);
    float *memory = part == TG_RESIDUAL ? f->residual : part == TG_MOMENTUM ? f->momentum : NULL;
    if (!memory)
        return tg_fail(error, TG_INVALID_ARGUMENT, "this feedback has no part %d: only dgc has a momentum", (int)part);
    if (first > f->count || count > f->count - first)
        return tg_fail(error, TG_SHAPE_MISMATCH,
                       "%" PRIu64 " elements from %" PRIu64 " on are not in a residual of %" PRIu64, count, first,
                       f->count);
    *found = memory + first;
    return TG_OK;
}

tg_status tg_feedback_read(tg_feedback *feedback, tg_feedback_part part, uint64_t first, uint64_t count, float *values,
                           tg_error *error)
{
    float *memory = NULL;
    tg_status status = find_part(feedback, part, first, count, values, &memory, error);
    return status == TG_OK ? tg_device_copy_out(feedback->device, values, memory, (size_t)count * sizeof(float), error)
                           : status;
}

tg_status tg_feedback_write(tg_feedback *feedback, tg_feedback_part part, uint64_t first, uint64_t count,
                            const float *values, tg_error *error)
{
    float *memory = NULL;
    tg_status status = find_part(feedback, part, first, count, values, &memory, error);
    for (uint64_t i = 0; status == TG_OK && i < count; i++)
        if ((tg_float_bits(values[i]) & TG_MAGNITUDE_MASK) >= TG_INFINITY_BITS)
            return tg_fail(error, TG_NONFINITE, "value %" PRIu64 " is %g: a residual holds finite values only", i,
                           (double)values[i]);
    return status == TG_OK ? tg_device_copy_in(feedback->device, memory, values, (size_t)count * sizeof(float), error)
                           : status;
}

void tg_feedback_reset(tg_feedback *feedback)
{
    if (!feedback)
        return;
    tg_feedback_find(feedback);
    const size_t size = (size_t)feedback->count * sizeof(float);
    feedback->device->operations->clear(feedback->device, feedback->residual, size);
    if (feedback->momentum)
        feedback->device->operations->clear(feedback->device, feedback->momentum, size);
    feedback->stats = (tg_stats){.steps = 0};
}

static double norm_of(const tg_feedback *f, const tg_tensor *tensor, tg_norm_of what)
{
    double norm = 0;
    f->device->operations->norm(f->device, tensor, 1, what, &norm);
    f->device->operations->wait(f->device);
    return norm;
}

/* DGC's local clipping: the gradient is scaled so that its norm does not exceed `clip`. */
float tg_feedback_clip(const tg_feedback *f, const tg_tensor *gradient)
{
    if (!(f->spec.clip > 0))
        return 1;
    const double norm = norm_of(f, gradient, TG_NORM_OF_ALL);
    return norm > (double)f->spec.clip ? (float)((double)f->spec.clip / norm) : 1;
}

tg_source tg_feedback_piece(const tg_feedback *f, const tg_tensor *piece, uint64_t first, float clip)
{
    tg_source source = {.gradient = piece->data, .dtype = piece->dtype, .count = piece->count};
    if (!f || f->spec.kind == TG_FEEDBACK_NONE)
        return source;
    source.residual = f->residual + first;
    source.undo = f->undo + first;
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
    return tg_feedback_piece(f, gradient, 0, f->momentum ? tg_feedback_clip(f, gradient) : 1);
}

double tg_feedback_norm(const tg_feedback *f)
{
    return norm_of(f, &(tg_tensor){f->residual, f->count, TG_FLOAT32}, TG_NORM_ESTIMATED);
}

static void ask(tg_feedback *f, const tg_tensor *gradient, float *residual)
{
    const size_t first = gradient ? 0 : 1;
    f->asked[0] = gradient ? *gradient : (tg_tensor){.data = NULL};
    f->asked[1] = (tg_tensor){residual, f->count, TG_FLOAT32};
    f->device->operations->norm(f->device, &f->asked[first], 2 - first, TG_NORM_ESTIMATED, &f->norms[first]);
}

void tg_feedback_ask(tg_feedback *f, const tg_tensor *gradient) { ask(f, gradient, f->residual); }

void tg_feedback_note(tg_feedback *f, const tg_encode_report *report)
{
    tg_stats *s = &f->stats;
    double before = s->residual_norm;
    s->steps++;
    s->bytes += report->bytes;
    s->saturated += report->saturated;
    s->dropped += report->dropped;
    s->gradient_norm = f->norms[0];
    s->residual_norm = f->norms[1];
    s->residual_peak = s->residual_norm > s->residual_peak ? s->residual_norm : s->residual_peak;
    if (s->steps > 1 && before > 0) {
        double ratio = s->residual_norm / before, window = s->steps - 1 < 32 ? (double)(s->steps - 1) : 32;
        s->residual_growth += (ratio - s->residual_growth) / window;
    }
}

static tg_status encode(tg_codec *codec, tg_feedback *f, const tg_tensor *gradient, const tg_encode_options *options,
                        void *frame, size_t capacity, tg_encode_report *report, tg_error *error)
{
    tg_feedback_find(f);
    tg_source source = tg_feedback_source(f, gradient);
    tg_encode_job job;
    /* All of the residual is encoded, so the two buffers can change places, unless the device keeps the side. */
    source.may_move = !f->sided;
    tg_status status = tg_encode_begin(codec, &source, options, frame, capacity, &job, error);
    if (status != TG_OK)
        return status;
    float *before = f->residual, *after = job.moved ? f->undo : f->residual;
    ask(f, gradient, after); /* one wait for everything */
    f->device->operations->wait(f->device);
    status = tg_encode_outcome(f->device, &job, 0, TG_ENCODE_POLICY, error);
    *report = job.report;
    if (status != TG_OK)
        return status;
    if (job.moved) {
        f->residual = after;
        f->undo = before;
    }
    tg_feedback_note(f, report);
    return TG_OK;
}

void tg_feedback_add_lists(tg_device *device, tg_feedback *const *feedbacks, tg_list_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        jobs[i].h = feedbacks[i]->residual;
    device->operations->add_lists(device, jobs, count);
    device->operations->wait(device);
}

uint64_t tg_feedback_add(tg_feedback *f, const float *values, float factor)
{
    uint64_t limited = 0;
    f->device->operations->add_scaled(f->device, values, f->count, factor, f->residual, &limited);
    f->device->operations->wait(f->device);
    return limited;
}

uint64_t tg_feedback_fold(tg_feedback *from, tg_feedback *to, uint64_t first, float factor)
{
    const tg_operations *on = to->device->operations;
    uint64_t limited = 0;
    on->add_scaled(to->device, from->residual, from->count, factor, to->residual + first, &limited);
    on->wait(to->device);
    on->clear(to->device, from->residual, (size_t)from->count * sizeof(float));
    return limited;
}

bool tg_feedback_has_momentum(const tg_feedback *f) { return f && f->momentum; }

void tg_feedback_save(const tg_feedback *f, tg_feedback_part part, uint8_t *bytes)
{
    f->device->operations->save(f->device, part == TG_RESIDUAL ? f->residual : f->momentum, f->count, bytes);
    f->device->operations->wait(f->device);
}

void tg_feedback_load(tg_feedback *f, tg_feedback_part part, uint64_t first, bool applies, tg_load_job *job)
{
    job->h = applies ? (part == TG_RESIDUAL ? f->residual : f->momentum) + first : NULL;
    f->device->operations->load(f->device, job);
    f->device->operations->wait(f->device);
}

bool tg_feedback_can_scale(tg_feedback *f, float factor)
{
    uint32_t peaks[2] = {0, 0};
    f->device->operations->peak(f->device, f->residual, f->count, &peaks[0]);
    if (f->momentum)
        f->device->operations->peak(f->device, f->momentum, f->count, &peaks[1]);
    f->device->operations->wait(f->device);
    const float largest = factor * tg_bits_float(peaks[0] > peaks[1] ? peaks[0] : peaks[1]);
    return largest - largest == 0;
}

void tg_feedback_scale(tg_feedback *f, float factor)
{
    if (!f)
        return;
    f->device->operations->scale(f->device, f->residual, f->count, factor);
    if (f->momentum)
        f->device->operations->scale(f->device, f->momentum, f->count, factor);
    f->stats.residual_norm *= (double)factor;
    f->stats.residual_peak *= (double)factor;
}

tg_status tg_feedback_check_step(const tg_codec *codec, const tg_feedback *feedback, const tg_tensor *gradient,
                                 tg_error *error)
{
    if (!codec || !feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT, "encoding with feedback: codec and feedback must not be NULL");
    tg_status status = tg_tensor_check(gradient, "the gradient", error);
    if (status != TG_OK)
        return status;
    if (gradient->count != feedback->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the gradient has %" PRIu64 " elements, but the residual has %" PRIu64,
                       gradient->count, feedback->count);
    if (memcmp(tg_codec_spec(codec), &feedback->codec, sizeof feedback->codec) != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the feedback was created for another codec spec");
    const tg_device *device = tg_codec_device(codec);
    if (device != feedback->device && !(device->reads_host && feedback->device->reads_host))
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the codec is of device %s, but the feedback of another device, %s; create both on one device",
                       device->name, feedback->device->name);
    return TG_OK;
}

tg_status tg_encode_with_feedback(tg_codec *codec, tg_feedback *feedback, const tg_tensor *gradient,
                                  const tg_encode_options *options, void *frame, size_t capacity,
                                  tg_encode_report *report, tg_error *error)
{
    tg_encode_report made = {.status = TG_OK};
    tg_status status = tg_feedback_check_step(codec, feedback, gradient, error);
    if (status == TG_OK) {
        tg_fp_mode before = tg_fp_enter();
        status = encode(codec, feedback, gradient, options, frame, capacity, &made, error);
        tg_fp_leave(before);
    }
    made.status = status;
    if (report) /* with a damaged residual there may be a frame */
        *report = status == TG_OK || status == TG_BAD_RESIDUAL ? made : (tg_encode_report){.status = status};
    return status;
}

tg_status tg_feedback_stats(const tg_feedback *feedback, tg_stats *stats, tg_error *error)
{
    if (!feedback || !stats)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_stats: feedback and stats must not be NULL");
    *stats = feedback->stats;
    return tg_succeed(error);
}
