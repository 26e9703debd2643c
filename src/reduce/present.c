/* Which tensors of a step have been given, and which ranks have a gradient for them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "reduce/reducer.h"

/* The tensors of a message, from the first to the last that has elements in it. */
typedef struct tensor_range {
    uint32_t first, count;
} tensor_range;

static tensor_range tensors_of(const tg_reduction *r, size_t message)
{
    const tg_batch *m = &r->plan->batches[message];
    const uint32_t first = r->plan->pieces[m->first].tensor, last = r->plan->pieces[m->first + m->count - 1].tensor;
    return (tensor_range){first, last - first + 1};
}

/* ---- bitmaps ---- */

uint32_t tg_present_size(const tg_reduction *r, size_t message)
{
    const tensor_range t = tensors_of(r, message);
    for (uint32_t i = t.first; i < t.first + t.count; i++)
        if (r->given[i] != TG_GIVEN)
            return tg_bitmap_bytes(t.count);
    return 0;
}

void tg_present_write(const tg_reduction *r, size_t message, uint8_t *extra)
{
    const tensor_range t = tensors_of(r, message);
    if (tg_present_size(r, message) == 0)
        return;
    for (uint32_t i = 0; i < t.count; i++)
        r->has[t.first + i] = r->given[t.first + i] == TG_GIVEN;
    tg_bitmap_write(r->has + t.first, t.count, extra);
}

/* A tensor that is cut into several messages is in all of a rank's messages or in none. */
bool tg_present_read(tg_reduction *r, size_t message, uint32_t peer, tg_cursor *extra)
{
    const tensor_range t = tensors_of(r, message);
    bool valid = tg_bitmap_read(extra, t.count, r->has + t.first);
    if (valid && message > 0) {
        const tensor_range before = tensors_of(r, message - 1);
        valid = before.first + before.count - 1 != t.first || r->had_last[peer] == TG_NOT_KNOWN ||
                r->had_last[peer] == r->has[t.first];
    }
    if (!valid) {
        r->had_last[peer] = TG_NOT_KNOWN;
        tg_reduction_fail(r, TG_SKIPPED, "rank %u received an invalid list of present tensors from rank %u",
                          tg_named(r->reducer, r->reducer->rank), tg_named(r->reducer, peer));
        return false;
    }
    r->had_last[peer] = r->has[t.first + t.count - 1];
    for (uint32_t i = t.first; i < t.first + t.count; i++)
        r->anywhere[i] |= r->has[i];
    return true;
}

/* ---- giving ---- */

bool tg_message_is_given(const tg_reduction *r, size_t message)
{
    const tensor_range t = tensors_of(r, message);
    for (uint32_t i = t.first; r->missing > 0 && i < t.first + t.count; i++)
        if (r->given[i] == TG_NOT_GIVEN)
            return false;
    return true;
}

void tg_given_reset(tg_reduction *r)
{
    const size_t count = r->reducer->tensor_count;
    memset(r->given, 0, count * sizeof *r->given);
    memset(r->anywhere, 0, count * sizeof *r->anywhere);
    r->missing = count;
}

tg_status tg_gradient_check(const tg_reducer *r, size_t index, const tg_tensor *gradient, tg_error *error)
{
    const tg_reducer_tensor *t = &r->tensors[index].given;
    if (gradient->count != t->count || gradient->dtype != t->dtype)
        return tg_fail(error, TG_SHAPE_MISMATCH,
                       "the gradient of tensor '%.60s' has %" PRIu64 " elements of dtype %d; the reducer was made "
                       "for %" PRIu64 " of dtype %d",
                       t->name, gradient->count, (int)gradient->dtype, t->count, (int)t->dtype);
    if (!gradient->data && t->count > 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the gradient of tensor '%.60s' has no data", t->name);
    return TG_OK;
}

void tg_give(tg_reduction *r, size_t index, const tg_tensor *gradient)
{
    const tg_reducing_tensor *t = &r->reducer->tensors[index];
    r->gradients[index] = *gradient;
    r->clips[index] = tg_feedback_has_momentum(t->feedback) ? tg_feedback_clip(t->feedback, gradient) : 1;
    r->given[index] = TG_GIVEN;
    r->anywhere[index] = true;
    r->missing--;
}

/* Whether a tensor may be given now. */
static tg_status check_index(const tg_reduction *r, size_t index, const char *function, tg_error *error)
{
    if (!r || !r->active)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s needs a reduction in progress", function);
    if (index >= r->reducer->tensor_count)
        return tg_fail(error, TG_INVALID_ARGUMENT, "there is no tensor %zu: the reducer has %zu", index,
                       r->reducer->tensor_count);
    if (r->given[index] != TG_NOT_GIVEN)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tensor '%.60s' was already given in this reduction",
                       r->reducer->names[index]);
    return TG_OK;
}

tg_status tg_reduce_ready(tg_reduction *reduction, size_t index, const tg_tensor *gradient, tg_error *error)
{
    if (!gradient)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_reduce_ready: gradient must not be NULL; for a tensor without one, call tg_reduce_absent");
    tg_status status = check_index(reduction, index, "tg_reduce_ready", error);
    if (status == TG_OK)
        status = tg_gradient_check(reduction->reducer, index, gradient, error);
    if (status != TG_OK)
        return status;
    tg_fp_mode before = tg_fp_enter();
    tg_give(reduction, index, gradient);
    tg_fp_leave(before);
    return tg_succeed(error);
}

tg_status tg_reduce_absent(tg_reduction *reduction, size_t index, const tg_tensor *out, tg_error *error)
{
    tg_status status = check_index(reduction, index, "tg_reduce_absent", error);
    if (status == TG_OK && out)
        status = tg_gradient_check(reduction->reducer, index, out, error);
    if (status != TG_OK)
        return status;
    const tg_reducer_tensor *t = &reduction->reducer->tensors[index].given;
    reduction->gradients[index] = (tg_tensor){out ? out->data : NULL, t->count, t->dtype};
    reduction->given[index] = TG_ABSENT;
    reduction->missing--;
    return tg_succeed(error);
}

tg_status tg_reduce_present(const tg_reduction *reduction, size_t index, bool *present, tg_error *error)
{
    if (!reduction || !present || !reduction->active)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_reduce_present needs a reduction that has not ended, and present must not be NULL");
    if (index >= reduction->reducer->tensor_count)
        return tg_fail(error, TG_INVALID_ARGUMENT, "there is no tensor %zu: the reducer has %zu", index,
                       reduction->reducer->tensor_count);
    if (!reduction->settled)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "which ranks have tensor '%.60s' is known when all exchanges have been fed",
                       reduction->reducer->names[index]);
    *present = reduction->anywhere[index];
    return tg_succeed(error);
}

tg_status tg_missing_fail(const tg_reduction *r, tg_error *error)
{
    enum { NAMED = 3 };
    char names[NAMED * 48 + 1] = "";
    size_t named = 0, at = 0;
    for (size_t i = 0; i < r->reducer->tensor_count && named < NAMED; i++)
        if (r->given[i] == TG_NOT_GIVEN) {
            const int n = snprintf(names + at, sizeof names - at, "%s'%.40s'", named++ ? ", " : "",
                                   r->reducer->names[i]);
            at += n > 0 && (size_t)n < sizeof names - at ? (size_t)n : 0;
        }
    return tg_fail(error, TG_INVALID_ARGUMENT, "%zu tensors have been given neither as ready nor as absent: %s%s",
                   r->missing, names, r->missing > NAMED ? ", ..." : "");
}
