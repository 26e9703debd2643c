/* Feedback step by step: compensate, then (the caller encodes), update; and return, which takes back what was not
 * applied. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/status.h"
#include "feedback/feedback.h"
#include "frame/decode.h"
#include "frame/encode.h"
#include "frame/verify.h"
#include "kernels/ranges.h"

static tg_status check(tg_feedback *f, const tg_tensor *gradient, tg_error *error)
{
    if (!f)
        return tg_fail(error, TG_INVALID_ARGUMENT, "a feedback is needed");
    tg_status status = tg_tensor_check(gradient, "the gradient", error);
    if (status == TG_OK && gradient->count != f->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the gradient has %" PRIu64 " elements and the residual %" PRIu64,
                       gradient->count, f->count);
    return status;
}

/* One of the three steps, for all threads. */
typedef struct pass {
    tg_feedback *feedback;
    tg_source source;
    tg_ranges ranges;
    float *u;                /* compensate */
    const tg_reader *opened; /* update, return: the frame */
    uint64_t start;          /* return: the residual's element that the frame starts at */
    const uint32_t *applied;
    size_t applied_count;
    bool checks;                  /* update, return: only find out where the residual would overflow */
    atomic_uint_fast64_t bad;     /* the first such element, or the count */
    atomic_uint_fast64_t limited; /* return: elements that did, and were limited */
} pass;

static tg_status check_finite(const tg_feedback *f, const tg_source *source, tg_error *error)
{
    uint64_t bad = tg_source_first_nonfinite(source, f->kernels, f->device->pool);
    if (bad == source->count)
        return TG_OK;
    tg_status status = tg_residual_check(source, f->device, error);
    if (status != TG_OK)
        return status;
    return tg_fail(error, TG_NONFINITE,
                   "element %" PRIu64 " of the gradient, or its sum with the residual, is not finite", bad);
}

static void compensate_range(void *of, size_t part)
{
    const pass *p = of;
    tg_source_block block;
    const uint64_t end = tg_range_end(&p->ranges, part);
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        (void)tg_source_read(&p->source, p->feedback->kernels, first, n, &block);
        memcpy(p->u + first, block.u, n * sizeof(float));
    }
}

static tg_status compensate(tg_feedback *f, const tg_tensor *gradient, const tg_tensor *u, tg_error *error)
{
    pass p = {.feedback = f, .source = tg_feedback_source(f, gradient), .u = u->data};
    tg_status status = check_finite(f, &p.source, error);
    if (status != TG_OK)
        return status;
    p.ranges = tg_ranges_of(f->device->pool, f->count, TG_BLOCK);
    tg_parallel(f->device->pool, p.ranges.parts, compensate_range, &p);
    return tg_succeed(error);
}

tg_status tg_feedback_compensate(tg_feedback *feedback, const tg_tensor *gradient, const tg_tensor *u, tg_error *error)
{
    tg_status status = check(feedback, gradient, error);
    if (status == TG_OK)
        status = tg_tensor_check(u, "u", error);
    if (status != TG_OK)
        return status;
    if (u->dtype != TG_FLOAT32 || u->count != feedback->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "u must be float32 and have the residual's %" PRIu64 " elements",
                       feedback->count);
    tg_fp_mode before = tg_fp_enter();
    status = compensate(feedback, gradient, u, error);
    tg_fp_leave(before);
    return status;
}

/* Whether a frame is of so many elements, by its header: a few bytes may stand for four billion, and take as long. */
static tg_status compare_count(tg_frame frame, uint64_t count, tg_error *error)
{
    tg_frame_info info;
    tg_status status = tg_frame_read(frame, &info, error);
    if (status == TG_OK && info.count != count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the frame has %" PRIu64 " elements and the residual %" PRIu64,
                       info.count, count);
    return status;
}

/* Checks a frame whose count has been compared, and opens it. `peak`: as of tg_frame_check. */
static tg_status open_frame(const tg_feedback *f, tg_frame frame, tg_reader *reader, uint32_t *peak, tg_error *error)
{
    tg_frame_info info;
    tg_status status = tg_frame_check(f->device, frame, &info, peak, error);
    if (status == TG_OK && !tg_frame_open(reader, f->kernels, frame, &info)) /* cannot be: it was just checked */
        return tg_fail(error, TG_CORRUPT, "the frame changed while it was read");
    return status;
}

/* Decoded values are never NaN, so a NaN marks the elements that a sparse frame does not list. */
static const uint32_t not_sent = UINT32_C(0x7fc00000);

static void read_sent(tg_reader *reader, size_t n, float *sent)
{
    for (size_t i = 0; i < n; i++)
        sent[i] = tg_bits_float(not_sent);
    (void)tg_frame_next(reader, n, TG_READ_SET, 1, sent); /* the frame was checked: it cannot fail */
}

static bool was_sent(float sent) { return tg_float_bits(sent) != not_sent; }

/* The frame at the start of a range. */
static tg_reader reader_at(const pass *p, size_t part)
{
    tg_reader reader = *p->opened;
    if (part > 0)
        reader.row->seek(&reader, tg_range_first(&p->ranges, part));
    return reader;
}

/* Lets threads share out the frame that was opened. */
static void run_with_frame(pass *p, uint64_t count, tg_part *range)
{
    tg_pool *pool = p->opened->grain ? p->feedback->device->pool : NULL;
    p->ranges = tg_ranges_of(pool, count, p->opened->grain);
    tg_parallel(pool, p->ranges.parts, range, p);
}

/* Looks for overflow in what would become of the n elements from `first` on. */
static void look_for_overflow(pass *p, uint64_t first, size_t n, const float *sums)
{
    const size_t at = p->feedback->kernels->first_nonfinite(sums, n);
    uint_fast64_t lowest = atomic_load(&p->bad);
    while (at < n && first + at < lowest && !atomic_compare_exchange_weak(&p->bad, &lowest, first + at)) {}
}

/* A frame with smaller values overflows no residual: they are less than half of the largest float32's last place. */
static const uint32_t harmless = UINT32_C(0x73000000); /* 2^103 */

/* Finds out whether the pass would make an element of the residual overflow: only frames with huge values can. */
static tg_status check_overflow(pass *p, uint64_t count, uint32_t peak, tg_part *range, tg_error *error)
{
    if (peak < harmless)
        return TG_OK;
    atomic_store(&p->bad, count);
    p->checks = true;
    run_with_frame(p, count, range);
    p->checks = false;
    const uint64_t bad = atomic_load(&p->bad);
    if (bad == count)
        return TG_OK;
    return tg_fail(error, TG_NONFINITE, "element %" PRIu64 " of the residual would overflow; the residual is as it was",
                   bad);
}

static void update_range(void *of, size_t part)
{
    pass *p = of;
    const tg_feedback *f = p->feedback;
    tg_reader reader = reader_at(p, part);
    tg_source_block block;
    const uint64_t end = tg_range_end(&p->ranges, part);
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        float sent[TG_BLOCK];
        size_t n = tg_block_size(end, first);
        (void)tg_source_read(&p->source, f->kernels, first, n, &block);
        read_sent(&reader, n, sent);
        for (size_t i = 0; i < n; i++) {
            if (f->momentum && was_sent(sent[i]))
                block.push[i] = 0;
            if (!was_sent(sent[i]))
                sent[i] = 0;
        }
        if (!p->checks) {
            tg_source_commit(&p->source, f->kernels, first, n, &block, sent);
            continue;
        }
        f->kernels->subtract(block.rest, sent, n, sent);
        look_for_overflow(p, first, n, sent);
    }
}

static tg_status update(tg_feedback *f, const tg_tensor *gradient, tg_frame frame, tg_error *error)
{
    tg_reader reader = {.row = NULL};
    uint32_t peak = 0;
    tg_status status = compare_count(frame, f->count, error);
    if (status != TG_OK)
        return status;
    pass p = {.feedback = f, .source = tg_feedback_source(f, gradient), .opened = &reader};
    status = check_finite(f, &p.source, error);
    if (status == TG_OK)
        status = open_frame(f, frame, &reader, &peak, error);
    if (status == TG_OK && f->spec.kind != TG_FEEDBACK_NONE)
        status = check_overflow(&p, f->count, peak, update_range, error);
    if (status != TG_OK || f->spec.kind == TG_FEEDBACK_NONE)
        return status;
    run_with_frame(&p, f->count, update_range);
    return tg_succeed(error);
}

tg_status tg_feedback_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame, tg_error *error)
{
    tg_status status = check(feedback, gradient, error);
    if (status != TG_OK)
        return status;
    tg_fp_mode before = tg_fp_enter();
    status = update(feedback, gradient, frame, error);
    tg_fp_leave(before);
    return status;
}

/* The first place in a list of increasing indices whose index is `limit` or more. */
static size_t first_from(const uint32_t *indices, size_t count, uint64_t limit)
{
    size_t from = 0, to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Adds what was sent of the n elements from `first` on. */
static void return_block(pass *p, uint64_t first, size_t n, const float *sent)
{
    float *residual = p->feedback->residual + p->start + first;
    uint64_t limited = 0;
    for (size_t i = 0; i < n; i++)
        if (was_sent(sent[i]))
            residual[i] = tg_limited(residual[i] + sent[i], &limited);
    if (limited > 0)
        atomic_fetch_add(&p->limited, limited);
}

static void return_range(void *of, size_t part)
{
    pass *p = of;
    tg_reader reader = reader_at(p, part);
    const uint64_t start = tg_range_first(&p->ranges, part), end = tg_range_end(&p->ranges, part);
    size_t next = p->applied ? first_from(p->applied, p->applied_count, start) : 0;
    for (uint64_t first = start; first < end; first += TG_BLOCK) {
        float sent[TG_BLOCK];
        size_t n = tg_block_size(end, first);
        read_sent(&reader, n, sent);
        for (; p->applied && next < p->applied_count && p->applied[next] < first + n; next++)
            sent[p->applied[next] - first] = tg_bits_float(not_sent);
        if (!p->checks) {
            return_block(p, first, n, sent);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            sent[i] = was_sent(sent[i]) ? p->feedback->residual[p->start + first + i] + sent[i] : 0;
        look_for_overflow(p, first, n, sent);
    }
}

/* Whether these are increasing indices of a vector of `count` elements. */
static tg_status check_applied(const uint32_t *applied, size_t applied_count, uint64_t count, tg_error *error)
{
    if (!applied && applied_count > 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%zu applied indices are announced, but the list is NULL",
                       applied_count);
    for (size_t i = 1; i < applied_count; i++)
        if (applied[i] <= applied[i - 1])
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "the applied indices must increase: %" PRIu32 " follows %" PRIu32, applied[i],
                           applied[i - 1]);
    if (applied_count > 0 && applied[applied_count - 1] >= count)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the applied index %" PRIu32 " is out of range: the residual has %" PRIu64 " elements",
                       applied[applied_count - 1], count);
    return TG_OK;
}

static tg_status give_back(tg_feedback *f, tg_frame frame, const uint32_t *applied, size_t applied_count,
                           tg_error *error)
{
    tg_reader reader = {.row = NULL};
    uint32_t peak = 0;
    tg_status status = check_applied(applied, applied_count, f->count, error);
    if (status == TG_OK)
        status = compare_count(frame, f->count, error);
    if (status == TG_OK)
        status = open_frame(f, frame, &reader, &peak, error);
    if (status != TG_OK)
        return status;
    pass p = {.feedback = f, .opened = &reader, .applied = applied, .applied_count = applied_count};
    status = check_overflow(&p, f->count, peak, return_range, error);
    if (status != TG_OK)
        return status;
    run_with_frame(&p, f->count, return_range);
    return tg_succeed(error);
}

tg_status tg_feedback_return(tg_feedback *feedback, tg_frame frame, const uint32_t *applied, size_t applied_count,
                             tg_error *error)
{
    if (!feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_return needs a feedback");
    if (feedback->spec.kind == TG_FEEDBACK_NONE)
        return tg_fail(error, TG_INVALID_ARGUMENT, "feedback none keeps nothing, so nothing can be returned to it");
    tg_fp_mode before = tg_fp_enter();
    tg_status status = give_back(feedback, frame, applied, applied_count, error);
    tg_fp_leave(before);
    return status;
}

uint64_t tg_feedback_return_piece(tg_feedback *feedback, tg_frame frame, uint64_t first)
{
    tg_frame_info info;
    tg_reader reader = {.row = NULL};
    if (feedback->spec.kind == TG_FEEDBACK_NONE)
        return 0;
    /* It was made here, for this residual, so it cannot be refused. */
    if (tg_frame_read(frame, &info, NULL) != TG_OK || info.count > feedback->count - first ||
        open_frame(feedback, frame, &reader, NULL, NULL) != TG_OK)
        return 0;
    pass p = {.feedback = feedback, .start = first, .opened = &reader};
    run_with_frame(&p, info.count, return_range);
    return atomic_load(&p.limited);
}
