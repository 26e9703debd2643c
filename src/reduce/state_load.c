/* Saved states back into a reducer: by the walk that wrote them, first only to check, so that what is refused changes
 * nothing. */
#include "reduce/state.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"

typedef struct reading {
    tg_reducer *reducer;
    tg_reducer *home; /* where its residuals are */
    bool levels;      /* the state has hosts */
    bool all;         /* states of all ranks are given, of which this rank takes its part; else only those it takes */
    bool takes;       /* this one among them */
    tg_cursor c;
    bool apply;  /* off: only checks */
    bool exact;  /* of this very rank, world and plan: everything is taken as it is */
    bool first;  /* the first state replaces what is there, others are added */
    float scale; /* new world / old world */
    uint32_t rank, world;
    uint64_t begun;
    size_t piece;    /* exact: pieces before this one have had their second residuals */
    double *largest; /* not exact: what residuals could add up to, of all states so far */
    bool odd_number; /* a statistic is not one */
    bool bypasses;   /* the rule of a bypass follows */
    tg_error *error;
} reading;

static uint64_t get64(tg_cursor *c)
{
    const uint8_t *p = tg_cursor_take(c, 8);
    return p ? tg_load64(p) : 0;
}

/* Norms, ratios, seconds: none is negative. */
static double get_double(reading *in)
{
    const uint64_t bits = get64(&in->c);
    double v;
    memcpy(&v, &bits, sizeof v);
    in->odd_number |= !(v >= 0 && v - v == 0);
    return v;
}

static tg_status short_state(const reading *in)
{
    return tg_fail(in->error, TG_TRUNCATED, "the state of rank %u ends too early", in->rank);
}

/* Floats to a part of feedback, of a tensor's elements from `first` on, as far as this rank has these, which start at
 * `start` in the feedback: in their place, or added; `factor` brings them to the new world. */
static tg_status get_part(reading *in, tg_feedback *f, tg_feedback_part part, uint64_t first, uint64_t count,
                          uint64_t start, bool replaces, float factor)
{
    const uint8_t *bytes = count <= SIZE_MAX / 4 ? tg_cursor_take(&in->c, 4 * count) : NULL;
    if (!bytes)
        return short_state(in);
    const uint64_t end = f ? start + f->count : 0, from = first > start ? first : start,
                   to = first + count < end ? first + count : end;
    if (!f || !in->takes || from >= to)
        return TG_OK;
    tg_load_job job = {.bytes = bytes + 4 * (from - first), .count = to - from, .factor = factor, .replaces = replaces};
    tg_feedback_load(f, part, from - start, in->apply, &job);
    if (!job.finite)
        return tg_fail(in->error, TG_CORRUPT, "the state of rank %u has a residual that is not finite", in->rank);
    if (in->exact)
        return TG_OK;
    *in->largest += (double)job.largest;
    if (!(*in->largest <= FLT_MAX / 2)) /* the other half is for rounding */
        return tg_fail(in->error, TG_CORRUPT,
                       "the state of rank %u has residuals that overflow when they are scaled for a world of %u",
                       in->rank, in->reducer->world);
    return TG_OK;
}

static void get_stats(reading *in, tg_stats *stats)
{
    tg_stats s = {.steps = get64(&in->c), .bytes = get64(&in->c), .saturated = get64(&in->c), .dropped = get64(&in->c)};
    s.gradient_norm = get_double(in);
    s.residual_norm = get_double(in);
    s.residual_peak = get_double(in);
    s.residual_growth = get_double(in);
    if (in->apply && in->first && stats)
        *stats = s;
}

static void get_counters(reading *in, tg_reducer *r)
{
    tg_reducer_stats s = in->reducer->stats;
    uint64_t *const whole[] = {&s.applied,       &s.skipped,    &s.bytes_sent,  &s.bytes_received, &s.frame_bytes,
                               &s.float32_bytes, &s.ring_bytes, &s.dense_parts, &s.saturated,      &s.dropped};
    double *const real[] = {&s.residual_norm,    &s.residual_growth, &s.encode_seconds,
                            &s.exchange_seconds, &s.verify_seconds,  &s.decode_seconds};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        *whole[i] = get64(&in->c);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        *real[i] = get_double(in);
    if (in->apply && in->first && r)
        r->stats = s;
}

/* Which hosts there were; and whether this rank takes something of a state of two levels, or for two levels. What
 * hosts have is divided among hosts or, without these, ranks, as what ranks have is among ranks. */
static tg_status get_levels(reading *in)
{
    const tg_levels *l = in->reducer->levels;
    uint32_t hosts = in->world, host = in->rank;
    uint64_t digest = 0;
    if (in->levels) {
        hosts = tg_cursor_u32(&in->c);
        host = tg_cursor_u32(&in->c);
        digest = get64(&in->c);
        get_counters(in, l && in->exact ? l->inner : NULL);
    }
    if (in->c.short_read || hosts == 0 || host >= hosts)
        return short_state(in);
    const bool alike = in->levels && l && digest == l->digest && in->world == in->reducer->world;
    if (alike && (hosts != l->hosts || host != l->host_of_rank[in->rank]))
        return tg_fail(in->error, TG_CORRUPT,
                       "the state of rank %u is damaged: it says host %u of %u, but its list of hosts says host %u of "
                       "%u",
                       in->rank, host, hosts, l->host_of_rank[in->rank], l->hosts);
    in->exact = in->exact && in->levels == (l != NULL) && (!l || digest == l->digest);
    const uint32_t divided = l ? l->hosts : in->reducer->world, here = l ? l->host : in->reducer->rank;
    in->takes = in->exact || !in->all || host % divided == here;
    return TG_OK;
}

static tg_status get_head(reading *in)
{
    tg_reducer *r = in->reducer;
    const uint8_t *start = tg_cursor_take(&in->c, 8);
    if (!start || memcmp(start, tg_state_magic, sizeof tg_state_magic) != 0)
        return tg_fail(in->error, TG_CORRUPT, "this is not a saved state of a reducer");
    if (start[4] != TG_STATE_VERSION)
        return tg_fail(in->error, TG_UNKNOWN_VERSION, "the state has version %u; tersegrad %s reads version %d",
                       start[4], TG_VERSION_TEXT, TG_STATE_VERSION);
    in->bypasses = start[6] & TG_STATE_BYPASSES;
    if (start[5] < TG_GATHER || start[5] > TG_SCATTER || (start[6] & ~(TG_STATE_BYPASSES | TG_STATE_LEVELS)) != 0 ||
        start[7] != 0)
        return tg_fail(in->error, TG_CORRUPT, "the state has the invalid algorithm %u, or sets reserved bits",
                       start[5]);
    in->rank = tg_cursor_u32(&in->c);
    in->world = tg_cursor_u32(&in->c);
    in->begun = get64(&in->c);
    const uint64_t batch_elements = get64(&in->c);
    const uint32_t depth = tg_cursor_u32(&in->c), tensors = tg_cursor_u32(&in->c);
    if (in->c.short_read || in->world == 0 || in->rank >= in->world)
        return short_state(in);
    if (tensors != r->tensor_count)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "the state has %u tensors, but the reducer has %zu", tensors,
                       r->tensor_count);
    in->levels = start[6] & TG_STATE_LEVELS;
    if (!in->all && in->rank % r->world != r->rank)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                       "rank %u of %u loads the states of ranks %u, %u, ..., and not that of rank %u", r->rank,
                       r->world, r->rank, r->rank + r->world, in->rank);
    in->exact = in->world == r->world && start[5] == (uint8_t)r->algorithm && !in->all &&
                batch_elements == r->options.batch_elements && depth == r->options.depth;
    in->scale = (float)((double)r->world / (double)in->world);
    in->first = in->all ? in->rank == r->rank : in->first;
    get_counters(in, r);
    return get_levels(in);
}

static tg_status get_tensor(reading *in, size_t number)
{
    tg_reducer *r = in->reducer;
    tg_reducing_tensor *t = &r->tensors[number];
    uint8_t ours[TG_STATE_IDENTITY];
    tg_state_identity(r, number, ours);
    const uint8_t *theirs = tg_cursor_take(&in->c, TG_STATE_IDENTITY);
    const size_t length = strlen(t->given.name);
    const uint8_t *name = theirs ? tg_cursor_take(&in->c, tg_load32(theirs)) : NULL;
    if (!name)
        return short_state(in);
    if (tg_load32(theirs) != length || memcmp(name, t->given.name, length) != 0)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "tensor %zu is '%.60s' in the reducer, but '%.*s' in the state",
                       number, t->given.name, (int)(tg_load32(theirs) < 60 ? tg_load32(theirs) : 60),
                       (const char *)name);
    const uint8_t has = theirs[TG_STATE_IDENTITY - 1], own = ours[TG_STATE_IDENTITY - 1];
    const bool may_have = in->levels && own & TG_STATE_RESIDUAL && t->given.feedback.kind == TG_FEEDBACK_DGC;
    if (memcmp(theirs, ours, TG_STATE_IDENTITY - 1) != 0 || has > (TG_STATE_RESIDUAL | TG_STATE_MOMENTUM) ||
        (has & TG_STATE_RESIDUAL) != (own & TG_STATE_RESIDUAL) || (has & TG_STATE_MOMENTUM && !may_have) ||
        (in->exact && has != own))
        return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                       "tensor '%.60s' has another count, dtype, codec or feedback in the state", t->given.name);
    tg_status status = TG_OK;
    tg_feedback *f = in->home ? in->home->tensors[number].feedback : NULL;
    const bool momentum = in->levels ? has & TG_STATE_MOMENTUM : t->given.feedback.kind == TG_FEEDBACK_DGC;
    uint64_t first = 0, count = t->given.count;
    if (has && in->levels) {
        first = get64(&in->c);
        count = get64(&in->c);
        if (first > t->given.count || count > t->given.count - first)
            return tg_fail(in->error, TG_CORRUPT, "the state has a part of tensor '%.60s' that does not exist",
                           t->given.name);
        if (in->exact && (first != tg_state_first(r, number) || count != (f ? f->count : 0)))
            return tg_fail(in->error, TG_CORRUPT, "the state has a part of tensor '%.60s' that this rank does not own",
                           t->given.name);
    }
    if (has) {
        const bool replaces = in->first && !in->all;
        get_stats(in, f ? &f->stats : NULL);
        status = get_part(in, f, TG_RESIDUAL, first, count, tg_state_first(r, number), replaces, in->scale);
        if (status == TG_OK && momentum)
            status = get_part(in, tg_feedback_has_momentum(f) ? f : NULL, TG_MOMENTUM, first, count,
                              tg_state_first(r, number), replaces, in->scale);
    }
    const uint64_t boundaries = get64(&in->c);
    const uint8_t *wire = boundaries <= SIZE_MAX / 4 ? tg_cursor_take(&in->c, 4 * boundaries) : NULL;
    if (status != TG_OK || !wire || in->c.short_read)
        return status == TG_OK ? short_state(in) : status;
    if (!in->exact)
        return TG_OK;
    const tg_reducing_tensor *at_home = in->home ? &in->home->tensors[number] : NULL;
    if (boundaries != (at_home ? tg_state_boundaries(in->home, at_home) : 0))
        return tg_fail(in->error, TG_CORRUPT, "the state of tensor '%.60s' has %" PRIu64 " boundaries", t->given.name,
                       boundaries);
    for (uint64_t i = 0; i < boundaries; i++) {
        const uint32_t parts = in->home->world, boundary = tg_load32(wire + 4 * i),
                       place = (uint32_t)(i % ((uint64_t)parts + 1));
        if ((place == 0 && boundary != 0) || (place == parts && boundary != at_home->given.count) ||
            (place > 0 && boundary < tg_load32(wire + 4 * i - 4)))
            return tg_fail(in->error, TG_CORRUPT, "the state of tensor '%.60s' has invalid partition boundaries",
                           t->given.name);
        if (in->apply)
            at_home->boundaries[i] = boundary;
    }
    tg_reducer *home = in->home; /* older states have longer parts */
    for (uint64_t i = 0; in->apply && i < boundaries; i += (uint64_t)home->world + 1)
        tg_boundaries_limit(at_home->given.count, home->world, at_home->boundaries + i, home->old_boundaries);
    return TG_OK;
}

/* Second residuals come in the order of the pieces that they are of. */
static bool is_next_second(const reading *in, uint32_t tensor, uint64_t first, uint64_t count)
{
    const tg_reducer *r = in->home;
    if (!r || in->piece == r->coded.piece_count)
        return false;
    const tg_piece *piece = &r->coded.pieces[in->piece];
    return piece->tensor == tensor && tg_state_first(in->reducer, tensor) + piece->first == first &&
           piece->count == count;
}

static void find_next_second(reading *in)
{
    const tg_reducer *r = in->home;
    while (r && in->piece < r->coded.piece_count && !(r->second && r->second[in->piece]))
        in->piece++;
}

/* A residual of second encodings: to its place, or, where parts have other owners now, to the tensor's own residual on
 * this rank. It is of means, and so `world` times as large there. */
static tg_status get_second(reading *in)
{
    tg_reducer *r = in->reducer;
    const uint32_t tensor = tg_cursor_u32(&in->c);
    const uint64_t first = get64(&in->c), count = get64(&in->c);
    if (in->c.short_read)
        return short_state(in);
    if (tensor >= r->tensor_count || first > r->tensors[tensor].given.count ||
        count > r->tensors[tensor].given.count - first)
        return tg_fail(in->error, TG_CORRUPT, "the state has a part of a tensor that does not exist");
    tg_feedback *home = NULL;
    find_next_second(in);
    if (in->exact && is_next_second(in, tensor, first, count))
        home = in->home->second[in->piece++];
    if (in->exact && !home)
        return tg_fail(in->error, TG_CORRUPT, "the state has a part of tensor '%.60s' that this rank does not own",
                       r->names[tensor]);
    get_stats(in, home ? &home->stats : NULL);
    if (home)
        return get_part(in, home, TG_RESIDUAL, 0, count, 0, true, 1);
    tg_feedback *feedback = in->home ? in->home->tensors[tensor].feedback : NULL;
    if (!feedback && (!r->levels || !tg_levels_keep(r, tensor)))
        return tg_fail(in->error, TG_CORRUPT, "the state has a residual of tensor '%.60s', which has none",
                       r->names[tensor]);
    return get_part(in, feedback, TG_RESIDUAL, first, count, tg_state_first(r, tensor), false,
                    in->scale * (float)in->world);
}

/* Where a log of bypass has a change, as far as it matters to a state after `begun` reductions. */
static const char *place_of(uint64_t number, uint64_t begun, char text[40])
{
    if (number >= begun)
        return "later or never";
    (void)snprintf(text, 40, "at reduction %" PRIu64, number);
    return text;
}

/* What is to be replayed must be what was done before the state was saved. Otherwise it would not be that run. */
static tg_status check_replay(const reading *in, const uint8_t *log, uint32_t changes)
{
    const tg_reducer *r = in->reducer;
    if (!in->exact || r->options.bypass != TG_BYPASS_REPLAY)
        return TG_OK;
    for (size_t i = 0;; i++) {
        const uint64_t ours = i < r->bypass_change_count ? r->bypass_changes[i] : UINT64_MAX,
                       theirs = i < changes ? tg_load64(log + 8 * i) : UINT64_MAX;
        char there[40], here[40];
        if (ours >= in->begun && theirs >= in->begun)
            return TG_OK;
        if (ours != theirs)
            return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                           "change %zu is %s in the state, which was saved after %" PRIu64
                           " reductions, and %s in the bypass log: replay the log of the run that saved it",
                           i, place_of(theirs, in->begun, there), in->begun, place_of(ours, in->begun, here));
    }
}

/* What was decided or replayed, and what the rule remembers: for the same world and plan, if this reducer decides. */
static tg_status get_bypass(reading *in)
{
    tg_reducer *r = in->reducer;
    uint32_t numbers[TG_BYPASS_NUMBERS] = {0};
    for (size_t i = 0; i < TG_BYPASS_NUMBERS; i++)
        numbers[i] = tg_cursor_u32(&in->c);
    const uint32_t changes = tg_cursor_u32(&in->c);
    const uint8_t *wire = tg_cursor_take(&in->c, 8 * (size_t)changes);
    tg_bypass_rule rule;
    memcpy(&rule, numbers, sizeof rule);
    if (in->c.short_read || !wire)
        return short_state(in);
    bool valid = changes <= TG_BYPASS_MOST_CHANGES && tg_bypass_rule_check(&rule, changes);
    for (uint32_t i = 1; i < changes; i++)
        valid = valid && tg_load64(wire + 8 * (size_t)i) > tg_load64(wire + 8 * (size_t)i - 8);
    if (!valid)
        return tg_fail(in->error, TG_CORRUPT, "the state of rank %u has an invalid log of bypass", in->rank);
    if (!in->apply || !in->exact || r->options.bypass != TG_BYPASS_AUTO)
        return check_replay(in, wire, changes);
    r->bypass_rule = rule;
    r->bypass_change_count = changes;
    for (uint32_t i = 0; i < changes; i++)
        r->bypass_changes[i] = tg_load64(wire + 8 * (size_t)i);
    return TG_OK;
}

static tg_status get_all(reading *in)
{
    tg_status status = get_head(in);
    for (size_t i = 0; status == TG_OK && i < in->reducer->tensor_count; i++)
        status = get_tensor(in, i);
    const uint32_t seconds = tg_cursor_u32(&in->c);
    for (uint32_t i = 0; status == TG_OK && i < seconds; i++)
        status = get_second(in);
    if (status == TG_OK)
        status = in->bypasses ? get_bypass(in) : check_replay(in, NULL, 0);
    if (status == TG_OK && in->c.short_read)
        return short_state(in);
    find_next_second(in);
    if (status == TG_OK && in->exact && in->home && in->piece < in->home->coded.piece_count)
        return tg_fail(in->error, TG_CORRUPT, "the state of rank %u lacks residuals of parts that this rank owns",
                       in->rank);
    if (status == TG_OK && in->odd_number)
        return tg_fail(in->error, TG_CORRUPT, "the state of rank %u has statistics that are negative or not finite",
                       in->rank);
    if (status == TG_OK && in->c.left > 0)
        return tg_fail(in->error, TG_TRAILING_BYTES, "the state of rank %u has %zu bytes too many", in->rank,
                       in->c.left);
    return status;
}

/* Rank r loads the states of ranks r, r + world, ... of the old world: each once, and in this order, on which sums
 * depend. */
static tg_status check_ranks(const tg_reducer *r, const reading *in, size_t number, size_t count)
{
    if (in->all && (in->rank != number || in->world != count))
        return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                       "state %zu of %zu is that of rank %u of %u: where ranks share hosts, or did, and the world, the "
                       "hosts or the algorithm have changed, every rank loads the states of all ranks in their order",
                       number, count, in->rank, in->world);
    if (in->all)
        return TG_OK;
    const uint64_t due = r->rank + (uint64_t)number * r->world, after = r->rank + (uint64_t)count * r->world;
    if (in->rank != due)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                       "state %zu is of rank %u, but that of rank %" PRIu64 " is expected", number, in->rank, due);
    if (after < in->world)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH,
                       "the state of rank %" PRIu64 " of %u is missing: rank %u of %u loads those of ranks %u, %u, ...",
                       after, in->world, r->rank, r->world, r->rank, r->rank + r->world);
    return TG_OK;
}

/* Whether a state is this rank's own, of the same hosts and plan. */
static bool is_own(tg_reducer *r, const tg_state *state)
{
    tg_error ignored;
    reading in = {.reducer = r, .home = tg_state_home(r), .error = &ignored};
    in.c = tg_cursor_over(state->data, state->data ? state->size : 0);
    return get_head(&in) == TG_OK && in.exact && in.rank == r->rank;
}

/* Where hosts have several ranks, or had, the states of all ranks are given, unless the own is enough. */
static bool have_hosts(const tg_reducer *r, const tg_state *states, size_t count)
{
    bool hosts = r->levels != NULL;
    for (size_t i = 0; i < count; i++)
        hosts = hosts || (states[i].data && states[i].size > TG_STATE_HEAD &&
                          ((const uint8_t *)states[i].data)[6] & TG_STATE_LEVELS);
    return hosts;
}

static tg_status walk(tg_reducer *r, const tg_state *states, size_t count, bool apply, tg_error *error)
{
    const bool hosts = have_hosts(r, states, count), own = hosts && count > 0 && r->rank < count;
    if (own && count > 1 && is_own(r, &states[r->rank]))
        return walk(r, &states[r->rank], 1, apply, error);
    const bool all = hosts && !(count == 1 && is_own(r, &states[0]));
    uint32_t world = 0;
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        if (!states[i].data || states[i].size < TG_STATE_HEAD + TG_STATE_DIGEST)
            return tg_fail(error, TG_TRUNCATED, "state %zu has too few bytes for a state", i);
        const size_t size = states[i].size - TG_STATE_DIGEST;
        if (!apply && r->kernels->digest(states[i].data, size) != tg_load64((const uint8_t *)states[i].data + size))
            return tg_fail(error, TG_CHECKSUM_MISMATCH, "state %zu is damaged: checksum mismatch", i);
        reading in = {.reducer = r,
                      .home = tg_state_home(r),
                      .all = all,
                      .c = tg_cursor_over(states[i].data, size),
                      .apply = apply,
                      .first = i == 0,
                      .largest = &largest,
                      .error = error};
        tg_status status = get_all(&in);
        if (status == TG_OK)
            status = check_ranks(r, &in, i, count);
        if (status != TG_OK)
            return status;
        if (i > 0 && in.world != world)
            return tg_fail(error, TG_LAYOUT_MISMATCH, "the states are from different worlds, of %u and %u ranks", world,
                           in.world);
        world = in.world;
        if (apply)
            r->begun = in.exact && count == 1 ? in.begun : 0;
    }
    return TG_OK;
}

static void forget(tg_reducer *r)
{
    if (r->levels && r->levels->inner)
        forget(r->levels->inner);
    for (size_t i = 0; i < r->tensor_count; i++)
        tg_feedback_reset(r->tensors[i].feedback);
    for (size_t i = 0; r->second && i < r->coded.piece_count; i++)
        tg_feedback_reset(r->second[i]);
    tg_boundaries_reset(r);
    tg_bypass_forget(r);
    const tg_algorithm algorithm = r->stats.algorithm;
    memset(&r->stats, 0, sizeof r->stats);
    r->stats.algorithm = algorithm;
    r->begun = 0;
}

tg_status tg_reducer_load(tg_reducer *reducer, const tg_state *states, size_t count, tg_error *error)
{
    if (!reducer || (!states && count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_load: reducer and states must not be NULL");
    for (uint32_t i = 0; i < reducer->options.depth; i++)
        if (reducer->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT, "a reduction is in progress; load between steps");
    tg_fp_mode before = tg_fp_enter();
    tg_status status = walk(reducer, states, count, false, error);
    if (status == TG_OK) {
        forget(reducer);
        status = walk(reducer, states, count, true, error);
        tg_reducer_greet(reducer);
        if (reducer->levels && reducer->levels->inner)
            tg_reducer_greet(reducer->levels->inner);
    }
    tg_fp_leave(before);
    if (status == TG_OK)
        status = tg_device_outcome(reducer->device, error);
    return status == TG_OK ? tg_succeed(error) : status;
}
