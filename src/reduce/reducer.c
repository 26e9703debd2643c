/* Making a reducer, and giving it back. */
#include "reduce/levels.h"

#include <inttypes.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "codec/codec.h"

enum { MOST_RANKS = 65536, MOST_DEPTH = 16 };

/* ---- options ---- */

const char *tg_algorithm_text(tg_algorithm algorithm)
{
    static const char *const texts[] = {
        [TG_AUTO] = "auto", [TG_GATHER] = "gather", [TG_SHARD] = "shard", [TG_SCATTER] = "scatter"};
    const unsigned index = (unsigned)algorithm;
    return index < sizeof texts / sizeof *texts ? texts[index] : "unknown algorithm";
}

static tg_status check_options(const tg_reducer_options *o, tg_error *error)
{
    if ((unsigned)o->algorithm > TG_SCATTER)
        return tg_fail(error, TG_INVALID_ARGUMENT, "invalid algorithm %d", (int)o->algorithm);
    if (o->nonfinite != TG_NONFINITE_STOP && o->nonfinite != TG_NONFINITE_SKIP && o->nonfinite != TG_NONFINITE_DROP)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "invalid non-finite policy %d%s; a reducer takes TG_NONFINITE_STOP, _SKIP or _DROP",
                       (int)o->nonfinite,
                       (unsigned)o->nonfinite <= TG_NONFINITE_TRUST ? " (one of tg_nonfinite, for tg_encode)" : "");
    if (o->depth > MOST_DEPTH)
        return tg_fail(error, TG_INVALID_ARGUMENT, "depth %u is too large: the limit is %d", o->depth, MOST_DEPTH);
    if (o->batch_elements > TG_MAX_COUNT)
        return tg_fail(error, TG_INVALID_ARGUMENT, "batch_elements %" PRIu64 " is too large: use at most 4294967295",
                       o->batch_elements);
    if (!(o->timeout >= 0 && o->timeout <= 1e9))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the timeout %g is out of range: 0 (no limit) to 1e9 seconds",
                       o->timeout);
    if (!o->schedule && o->schedule_count > 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the density schedule has %zu entries and no list",
                       o->schedule_count);
    tg_status status = tg_bypass_check(o, error);
    if (status != TG_OK)
        return status;
    for (size_t i = 0; i < o->schedule_count; i++) {
        if (!(o->schedule[i].density >= 1e-9 && o->schedule[i].density <= 1))
            return tg_fail(error, TG_INVALID_ARGUMENT, "density %g of the schedule is out of range: 0.000000001 to 1",
                           o->schedule[i].density);
        if (i > 0 && o->schedule[i].from_step <= o->schedule[i - 1].from_step)
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "the schedule's steps must increase: %" PRIu64 " follows %" PRIu64, o->schedule[i].from_step,
                           o->schedule[i - 1].from_step);
    }
    return TG_OK;
}

static void keep_options(tg_reducer *r, const tg_reducer_options *options)
{
    r->options = *options;
    r->options.depth = options->depth ? options->depth : 1;
    tg_density_change *schedule = tg_arena_take(&r->arena, options->schedule_count, sizeof *schedule);
    r->amounts = tg_arena_take(&r->arena, options->schedule_count, sizeof *r->amounts);
    for (size_t i = 0; !r->arena.failed && i < options->schedule_count; i++) {
        schedule[i] = options->schedule[i];
        r->amounts[i] = (uint32_t)(options->schedule[i].density * 1e9 + 0.5);
    }
    r->options.schedule = schedule;
    (void)tg_bypass_keep(r, options); /* where there is no memory, the arena says so */
}

/* ---- tensors ---- */

static tg_status check_tensor(const tg_reducer_tensor *t, size_t number, tg_error *error)
{
    if (!t->name)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tensor %zu has no name", number);
    if (tg_dtype_size(t->dtype) == 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tensor '%.60s': invalid dtype %d", t->name, (int)t->dtype);
    if (t->count > TG_MAX_COUNT)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tensor '%.60s' has %" PRIu64 " elements: the limit is %" PRIu32,
                       t->name, t->count, TG_MAX_COUNT);
    tg_error why;
    tg_status status = tg_spec_check(&t->codec, &why);
    return status == TG_OK ? TG_OK : tg_fail(error, status, "tensor '%.60s': %.180s", t->name, why.message);
}

static tg_status keep_tensor(tg_reducer *r, const tg_reducer_tensor *given, size_t number, tg_error *error)
{
    tg_reducing_tensor *t = &r->tensors[number];
    tg_status status = check_tensor(given, number, error);
    if (status != TG_OK)
        return status;
    const size_t length = strlen(given->name) + 1;
    char *name = tg_arena_take(&r->arena, length, 1);
    if (!name)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a tensor's name");
    memcpy(name, given->name, length);
    t->given = *given;
    t->given.name = r->names[number] = name;
    t->spec = given->codec;
    if (given->count < r->options.min_size || r->levels) /* within a host, nothing is compressed */
        t->spec = TG_SPEC_NONE;
    t->sparse = tg_codec_row_of(t->spec.codec)->sparse;
    status = tg_scatter_boundaries(r, given, number, error);
    if (status != TG_OK)
        return status;
    if (given->feedback.kind == TG_FEEDBACK_NONE || given->count < r->options.min_size || !r->device)
        return TG_OK;
    if (given->feedback.kind == TG_FEEDBACK_DGC && r->options.bypass != TG_BYPASS_OFF)
        return tg_fail(
            error, TG_INVALID_ARGUMENT,
            "tensor '%.60s': bypass cannot send the momentum of feedback dgc uncompressed: use ef, or bypass off",
            name);
    tg_error why;
    if (r->levels) /* residuals are those of shares; every rank refuses the same, whatever its share */
        status = tg_feedback_suits(&given->feedback, &given->codec, given->count, given->insist, &why);
    else
        status = tg_feedback_create(r->device, &given->feedback, &given->codec, given->count, given->insist,
                                    &t->feedback, &why);
    return status == TG_OK ? TG_OK : tg_fail(error, status, "tensor '%.60s': %.180s", name, why.message);
}

/* ---- greeting ---- */

/* What must be the same on every rank for the next step: how many were made, and where sparse parts begin. */
static uint64_t history(const tg_reducer *r)
{
    uint64_t digest = r->begun;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const uint64_t boundaries = r->tensors[i].boundaries ? r->options.depth * ((uint64_t)r->world + 1) : 0;
        for (uint64_t j = 0; j < boundaries; j++)
            digest = (digest ^ r->tensors[i].boundaries[j]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (size_t i = 0; i < r->bypass_change_count; i++)
        digest = (digest ^ r->bypass_changes[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return digest;
}

void tg_reducer_greet(tg_reducer *r)
{
    const tg_reducer_options *o = &r->options;
    const struct {
        tg_greeting_option option;
        uint64_t value;
    } numbers[] = {{TG_GREETING_ALGORITHM, (uint64_t)r->algorithm},
                   {TG_GREETING_NONFINITE, (uint64_t)o->nonfinite},
                   {TG_GREETING_SEED, o->seed},
                   {TG_GREETING_MIN_SIZE, o->min_size},
                   {TG_GREETING_WARMUP, o->warmup},
                   {TG_GREETING_DEPTH, o->depth},
                   {TG_GREETING_BATCH_ELEMENTS, o->batch_elements},
                   {TG_GREETING_BYPASS, (uint64_t)o->bypass},
                   {TG_GREETING_STATE, history(r)},
                   {TG_GREETING_HOSTS, r->levels ? r->levels->digest : 0},
                   {TG_GREETING_ON_DEVICE, o->on_device}};
    uint8_t bytes[8];
    r->greeting_size = tg_greeting_begin(r->greeting, (uint32_t)r->tensor_count);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        tg_store64(bytes, numbers[i].value);
        tg_greeting_option_set(r->kernels, r->greeting, numbers[i].option, bytes, sizeof bytes);
    }
    uint64_t schedule = 0;
    for (size_t i = 0; i < o->schedule_count; i++) {
        uint8_t entry[20];
        tg_store64(entry, schedule);
        tg_store64(entry + 8, o->schedule[i].from_step);
        tg_store32(entry + 16, r->amounts[i]);
        schedule = r->kernels->digest(entry, sizeof entry);
    }
    tg_store64(bytes, schedule);
    tg_greeting_option_set(r->kernels, r->greeting, TG_GREETING_SCHEDULE, bytes, sizeof bytes);
    for (size_t i = 0; i < r->tensor_count; i++)
        tg_greeting_tensor(r->kernels, r->greeting, (uint32_t)i, &r->tensors[i].given, r->tensors[i].parts,
                           (r->levels ? r->levels->shares : r->world) + (size_t)1);
    r->layout = r->kernels->digest(r->greeting, r->greeting_size);
    r->greeted = false;
}

/* ---- all together ---- */

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

uint64_t tg_wide_room(const tg_reducer *r)
{
    const uint64_t rooms[] = {r->coded.largest, r->dense.largest, r->coded.summed, r->dense.summed};
    uint64_t room = r->levels ? r->levels->longest : 0;
    for (size_t i = 0; i < (r->functions->has_results ? 4 : 2); i++) /* gather and scatter sum piece by piece */
        room = rooms[i] > room ? rooms[i] : room;
    return room;
}

static bool make_reduction(tg_reducer *r, tg_reduction *reduction)
{
    const size_t pieces = most(r->coded.piece_count, r->dense.piece_count),
                 parts = most(r->coded.part_count, r->dense.part_count),
                 received = most(r->coded.received_count, r->dense.received_count);
    const size_t batches = most(r->coded.batch_count, r->dense.batch_count);
    reduction->reducer = r;
    reduction->gradients = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->gradients);
    reduction->given = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->given);
    reduction->anywhere = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->anywhere);
    reduction->has = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->has);
    reduction->had_last = tg_arena_take(&r->arena, r->world, sizeof *reduction->had_last);
    reduction->clips = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->clips);
    reduction->reports = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->reports);
    reduction->received = tg_arena_take(&r->arena, received, sizeof *reduction->received);
    reduction->sent = tg_arena_take(&r->arena, parts, sizeof *reduction->sent);
    if (r->functions->has_parts)
        (void)tg_shard_list_make_steps(r, reduction);
    if (r->functions->has_results) {
        reduction->means = tg_arena_take(&r->arena, parts, sizeof *reduction->means);
        reduction->is_whole = tg_arena_take(&r->arena, parts, sizeof *reduction->is_whole);
    } else {
        reduction->may_overflow = tg_arena_take(&r->arena, pieces, sizeof *reduction->may_overflow);
    }
    /* a batch has one exchange under way, or its results; with levels, one of each stage; on a device, heads and bodies
     */
    reduction->queue_room = (r->levels ? TG_STAGES : r->options.on_device ? 4 : 2) * batches + 2;
    reduction->queue = tg_arena_take(&r->arena, reduction->queue_room, sizeof(tg_exchange *));
    return !r->arena.failed && tg_transfers_make(r, reduction);
}

tg_status tg_reducer_keep(tg_reducer *r, const tg_reducer_tensor *tensors, const tg_reducer_options *options,
                          tg_error *error)
{
    if (r->tensor_count > UINT32_MAX / 2)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%zu tensors are too many", r->tensor_count);
    tg_status status = check_options(options, error);
    if (status != TG_OK)
        return status;
    keep_options(r, options);
    status = tg_levels_make(r, options, error);
    if (status != TG_OK)
        return status;
    r->tensors = tg_arena_take(&r->arena, r->tensor_count, sizeof *r->tensors);
    r->names = tg_arena_take(&r->arena, r->tensor_count, sizeof *r->names);
    if (r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a list of %zu tensors", r->tensor_count);
    for (size_t i = 0; tensors && status == TG_OK && i < r->tensor_count; i++)
        status = keep_tensor(r, &tensors[i], i, error);
    if (status == TG_OK && r->levels)
        status = tg_levels_share(r, error);
    return status == TG_OK ? tg_reducer_lay_out(r, error) : status;
}

tg_status tg_reducer_fill_in(tg_reducer *r, const tg_reducer_tensor *tensors, const tg_reducer_options *options,
                             tg_error *error)
{
    r->codecs = tg_arena_take(&r->arena, r->tensor_count, sizeof(tg_codec *));
    r->greeting = tg_arena_take(&r->arena, TG_GREETING_MOST, 1);
    tg_status status = r->arena.failed ? tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a list of %zu tensors",
                                                 r->tensor_count)
                                       : tg_reducer_keep(r, tensors, options, error);
    if (status == TG_OK)
        status = tg_reducer_make_codecs(r, error);
    if (status != TG_OK)
        return status;
    tg_jobs_make(r);
    r->wide = r->device->operations->allocate(r->device, (size_t)tg_wide_room(r) * sizeof *r->wide, 0);
    if (!r->wide)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the sum of %" PRIu64 " elements", tg_wide_room(r));
    if (r->functions->has_parts)
        status = tg_parts_make(r, error);
    if (status == TG_OK && r->functions->has_results)
        status = tg_shard_make(r, error);
    if (status == TG_OK && r->levels)
        status = tg_levels_fill_in(r, error);
    if (status != TG_OK)
        return status;
    r->reductions = tg_arena_take(&r->arena, r->options.depth, sizeof *r->reductions);
    for (uint32_t i = 0; !r->arena.failed && i < r->options.depth; i++)
        (void)make_reduction(r, &r->reductions[i]);
    if (r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY,
                       "out of memory for the messages of %zu tensors and %u ranks, beyond %" PRIu64 " bytes",
                       r->tensor_count, r->world, r->arena.bytes);
    tg_reducer_greet(r);
    return tg_succeed(error);
}

tg_status tg_reducer_create(tg_device *device, uint32_t rank, uint32_t world, const tg_reducer_tensor *tensors,
                            size_t tensor_count, const tg_reducer_options *options, tg_reducer **reducer,
                            tg_error *error)
{
    const tg_reducer_options defaults = {.algorithm = TG_AUTO};
    options = options ? options : &defaults;
    if (!device || !reducer || (!tensors && tensor_count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_create: device, tensors and reducer must not be NULL");
    if (world == 0 || world > MOST_RANKS || rank >= world)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "invalid rank %u of %u: ranks count from 0, and there are at most %d", rank, world, MOST_RANKS);
    tg_reducer *made = calloc(1, sizeof *made);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a reducer");
    made->device = device;
    made->kernels = tg_kernels_at(0); /* for digests, which are the same for all */
    made->rank = rank;
    made->world = world;
    made->tensor_count = tensor_count;
    const tg_status status = tg_reducer_fill_in(made, tensors, options, error);
    if (status != TG_OK)
        tg_reducer_free(made);
    else
        *reducer = made;
    return status;
}

void tg_reducer_free(tg_reducer *reducer)
{
    if (!reducer)
        return;
    for (size_t i = 0; reducer->tensors && i < reducer->tensor_count; i++)
        tg_feedback_free(reducer->tensors[i].feedback);
    for (size_t i = 0; reducer->codecs && i < reducer->codec_count; i++)
        tg_codec_free(reducer->codecs[i]);
    for (size_t i = 0; reducer->second && i < reducer->coded.piece_count; i++)
        tg_feedback_free(reducer->second[i]);
    tg_codec_free(reducer->plain);
    for (uint32_t i = 0; reducer->device && reducer->reductions && i < reducer->options.depth; i++)
        reducer->device->operations->release(reducer->device, reducer->reductions[i].aside);
    tg_levels_free(reducer);
    if (reducer->device) {
        tg_bodies_free(reducer);
        tg_shard_list_free(reducer);
        reducer->device->operations->release(reducer->device, reducer->wide);
        reducer->device->operations->release(reducer->device, reducer->narrow);
        tg_message_rooms_free(reducer);
    }
    tg_arena_free(&reducer->arena);
    free(reducer);
}

tg_status tg_reducer_stats_of(const tg_reducer *reducer, tg_reducer_stats *stats, tg_error *error)
{
    if (!reducer || !stats)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_stats_of: reducer and stats must not be NULL");
    *stats = reducer->stats;
    tg_levels_stats(reducer, stats);
    stats->ratio = stats->frame_bytes ? (double)stats->float32_bytes / (double)stats->frame_bytes : 0;
    return tg_succeed(error);
}

/* A tensor of the reducer, for one of the functions below. */
static tg_status check_tensor_index(const tg_reducer *r, size_t index, const void *out, const char *function,
                                    tg_error *error)
{
    if (!r || !out)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s needs a reducer and a place for the answer", function);
    if (index >= r->tensor_count)
        return tg_fail(error, TG_INVALID_ARGUMENT, "there is no tensor %zu: the reducer has %zu", index,
                       r->tensor_count);
    return TG_OK;
}

tg_status tg_reducer_tensor_stats(const tg_reducer *reducer, size_t index, tg_stats *stats, tg_error *error)
{
    tg_status status = check_tensor_index(reducer, index, stats, "tg_reducer_tensor_stats", error);
    if (status != TG_OK)
        return status;
    if (reducer->levels && !reducer->levels->inner) { /* it owns no share, and compresses nothing */
        memset(stats, 0, sizeof *stats);
        return tg_succeed(error);
    }
    const tg_reducing_tensor *t = reducer->levels ? &reducer->levels->inner->tensors[index] : &reducer->tensors[index];
    if (!t->feedback) {
        *stats = t->stats;
        return tg_succeed(error);
    }
    tg_fp_mode before = tg_fp_enter();
    *stats = t->feedback->stats;
    stats->residual_norm = tg_feedback_norm(t->feedback); /* something may have returned since it was compressed */
    tg_fp_leave(before);
    return tg_succeed(error);
}

tg_status tg_reducer_residual_read(const tg_reducer *reducer, size_t index, float *out, uint64_t count, tg_error *error)
{
    tg_status status = check_tensor_index(reducer, index, out, "tg_reducer_residual_read", error);
    if (status != TG_OK)
        return status;
    const tg_reducing_tensor *t = &reducer->tensors[index];
    if (!t->feedback && !(reducer->levels && tg_levels_keep(reducer, index)))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tensor '%.60s' has no residual: it has no feedback", t->given.name);
    if (count != t->given.count)
        return tg_fail(error, TG_SHAPE_MISMATCH,
                       "the residual of tensor '%.60s' has %" PRIu64 " elements, not %" PRIu64, t->given.name,
                       t->given.count, count);
    return reducer->levels ? tg_levels_residual(reducer, index, out, error)
                           : tg_feedback_read(t->feedback, TG_RESIDUAL, 0, count, out, error);
}
