/* A reducer's residuals and counters to bytes. */
#include "reduce/state.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"

/* With a NULL `at`, only the size is found. */
typedef struct writer {
    uint8_t *at;
    uint64_t size;
} writer;

static void put(writer *w, const void *bytes, size_t size)
{
    if (w->at) {
        memcpy(w->at, bytes, size);
        w->at += size;
    }
    w->size += size;
}

static void put32(writer *w, uint32_t v)
{
    uint8_t bytes[4];
    tg_store32(bytes, v);
    put(w, bytes, sizeof bytes);
}

static void put64(writer *w, uint64_t v)
{
    uint8_t bytes[8];
    tg_store64(bytes, v);
    put(w, bytes, sizeof bytes);
}

static void put_double(writer *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put64(w, bits);
}

static void put_part(writer *w, const tg_feedback *f, tg_feedback_part part)
{
    if (w->at) {
        tg_feedback_save(f, part, w->at);
        w->at += 4 * f->count;
    }
    w->size += 4 * f->count;
}

static void put_stats(writer *w, const tg_stats *s)
{
    put64(w, s->steps);
    put64(w, s->bytes);
    put64(w, s->saturated);
    put64(w, s->dropped);
    put_double(w, s->gradient_norm);
    put_double(w, s->residual_norm);
    put_double(w, s->residual_peak);
    put_double(w, s->residual_growth);
}

static void put_counters(writer *w, const tg_reducer_stats *s)
{
    const uint64_t whole[] = {s->applied,       s->skipped,    s->bytes_sent,  s->bytes_received, s->frame_bytes,
                              s->float32_bytes, s->ring_bytes, s->dense_parts, s->saturated,      s->dropped};
    const double real[] = {s->residual_norm,    s->residual_growth, s->encode_seconds,
                           s->exchange_seconds, s->verify_seconds,  s->decode_seconds};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        put64(w, whole[i]);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        put_double(w, real[i]);
}

void tg_state_identity(const tg_reducer *r, size_t tensor, uint8_t bytes[TG_STATE_IDENTITY])
{
    const tg_reducing_tensor *t = &r->tensors[tensor];
    const tg_feedback *f = tg_state_home(r) ? tg_state_home(r)->tensors[tensor].feedback : NULL;
    tg_store32(bytes, (uint32_t)strlen(t->given.name));
    tg_identity_store(bytes + 4, &t->given);
    const bool keeps = r->levels ? tg_levels_keep(r, tensor) : f != NULL;
    bytes[TG_STATE_IDENTITY - 1] = (uint8_t)((keeps ? TG_STATE_RESIDUAL : 0) |
                                             (r->levels && tg_feedback_has_momentum(f) ? TG_STATE_MOMENTUM : 0));
}

static void put_tensor(writer *w, const tg_reducer *r, size_t number)
{
    uint8_t identity[TG_STATE_IDENTITY];
    const tg_reducer *home = tg_state_home(r);
    const tg_reducing_tensor *t = home ? &home->tensors[number] : NULL;
    const tg_stats nothing = {.steps = 0};
    tg_state_identity(r, number, identity);
    put(w, identity, sizeof identity);
    put(w, r->names[number], strlen(r->names[number]));
    if (identity[TG_STATE_IDENTITY - 1] && r->levels) {
        put64(w, tg_state_first(r, number));
        put64(w, t ? t->given.count : 0);
    }
    if (identity[TG_STATE_IDENTITY - 1])
        put_stats(w, t ? &t->feedback->stats : &nothing);
    if (t && t->feedback)
        put_part(w, t->feedback, TG_RESIDUAL);
    if (t && tg_feedback_has_momentum(t->feedback))
        put_part(w, t->feedback, TG_MOMENTUM);
    const uint64_t boundaries = t ? tg_state_boundaries(home, t) : 0;
    put64(w, boundaries);
    for (uint64_t i = 0; i < boundaries; i++)
        put32(w, t->boundaries[i]);
}

static void put_levels(writer *w, const tg_reducer *r)
{
    const tg_levels *l = r->levels;
    const tg_reducer_stats nothing = {.applied = 0};
    put32(w, l->hosts);
    put32(w, l->host);
    put64(w, l->digest);
    put_counters(w, l->inner ? &l->inner->stats : &nothing);
}

/* What is only replayed has no rule yet that decides, and what is to be replayed later is not of this run so far. */
static void put_bypass(writer *w, const tg_reducer *r)
{
    const bool decides = r->options.bypass == TG_BYPASS_AUTO;
    size_t changes = r->bypass_change_count;
    while (!decides && changes > 0 && r->bypass_changes[changes - 1] >= r->begun)
        changes--;
    tg_bypass_rule rule;
    tg_bypass_rule_begin(&rule);
    rule.dense = changes % 2;
    uint32_t numbers[TG_BYPASS_NUMBERS];
    memcpy(numbers, decides ? &r->bypass_rule : &rule, sizeof numbers);
    for (size_t i = 0; i < TG_BYPASS_NUMBERS; i++)
        put32(w, numbers[i]);
    put32(w, (uint32_t)changes);
    for (size_t i = 0; i < changes; i++)
        put64(w, r->bypass_changes[i]);
}

static void put_all(writer *w, const tg_reducer *r)
{
    const bool bypasses = r->options.bypass != TG_BYPASS_OFF;
    const tg_reducer *home = tg_state_home(r);
    const size_t pieces = home && home->second ? home->coded.piece_count : 0;
    uint32_t seconds = 0;
    for (size_t i = 0; i < pieces; i++)
        seconds += home->second[i] != NULL;
    const uint8_t version[4] = {TG_STATE_VERSION, (uint8_t)r->algorithm,
                                (uint8_t)((r->levels ? TG_STATE_LEVELS : 0) | (bypasses ? TG_STATE_BYPASSES : 0)), 0};
    put(w, tg_state_magic, sizeof tg_state_magic);
    put(w, version, sizeof version);
    put32(w, r->rank);
    put32(w, r->world);
    put64(w, r->begun);
    put64(w, r->options.batch_elements);
    put32(w, r->options.depth);
    put32(w, (uint32_t)r->tensor_count);
    put_counters(w, &r->stats);
    if (r->levels)
        put_levels(w, r);
    for (size_t i = 0; i < r->tensor_count; i++)
        put_tensor(w, r, i);
    put32(w, seconds);
    for (size_t i = 0; i < pieces; i++) {
        const tg_piece *piece = &home->coded.pieces[i];
        if (!home->second[i])
            continue;
        put32(w, piece->tensor);
        put64(w, tg_state_first(r, piece->tensor) + piece->first);
        put64(w, piece->count);
        put_stats(w, &home->second[i]->stats);
        put_part(w, home->second[i], TG_RESIDUAL);
    }
    if (bypasses)
        put_bypass(w, r);
}

tg_status tg_reducer_save(const tg_reducer *reducer, void *buffer, size_t capacity, size_t *size, tg_error *error)
{
    if (!reducer || !size)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_save: reducer and size must not be NULL");
    for (uint32_t i = 0; i < reducer->options.depth; i++)
        if (reducer->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT, "a reduction is in progress; save between steps");
    writer w = {.at = NULL};
    put_all(&w, reducer);
    const uint64_t total = w.size + TG_STATE_DIGEST;
    if (total > SIZE_MAX || (buffer && capacity < total))
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the state has %" PRIu64 " bytes, but the buffer has %zu", total,
                       capacity);
    *size = (size_t)total;
    if (!buffer)
        return tg_succeed(error);
    w = (writer){.at = buffer};
    put_all(&w, reducer);
    tg_store64(w.at, reducer->kernels->digest(buffer, (size_t)w.size));
    return reducer->device->failure ? tg_device_outcome(reducer->device, error) : tg_succeed(error);
}
