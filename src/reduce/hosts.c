/* Hosts with several ranks: who owns which share, and the reducer between hosts. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/header.h"
#include "reduce/levels.h"

/* ---- hosts ---- */

static tg_status check_hosts(const tg_reducer *r, const tg_reducer_options *o, bool *several, tg_error *error)
{
    uint8_t *seen = calloc(r->world, 1);
    if (!seen)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the hosts of %u ranks", r->world);
    tg_status status = TG_OK;
    for (uint32_t rank = 0; status == TG_OK && rank < r->world; rank++) {
        const uint32_t host = o->host_of_rank[rank];
        if (host >= r->world) {
            status = tg_fail(error, TG_INVALID_ARGUMENT,
                             "rank %u is on host %u: hosts count from 0, and %u ranks have at most %u", rank, host,
                             r->world, r->world);
            continue;
        }
        *several |= seen[host];
        seen[host] = 1;
    }
    free(seen);
    if (status == TG_OK && *several && o->algorithm == TG_SCATTER)
        return tg_fail(
            error, TG_INVALID_ARGUMENT,
            "scatter does not support hosts with several ranks: use gather, shard or auto, or leave host_of_rank NULL");
    if (status == TG_OK && *several && o->bypass != TG_BYPASS_OFF)
        return tg_fail(
            error, TG_INVALID_ARGUMENT,
            "bypass does not support hosts with several ranks: use TG_BYPASS_OFF, or leave host_of_rank NULL");
    if (status == TG_OK && *several && o->on_device)
        return tg_fail(
            error, TG_INVALID_ARGUMENT,
            "frames that stay on the device do not support hosts with several ranks: leave on_device unset, or "
            "host_of_rank NULL");
    return status;
}

/* Numbers hosts in the order of their first ranks, and finds how many ranks the smallest has. */
static bool number_hosts(tg_reducer *r, const uint32_t *given)
{
    tg_levels *l = r->levels;
    uint32_t *number = calloc(r->world, sizeof *number), *size = calloc(r->world, sizeof *size); /* by the given one */
    l->host_of_rank = tg_arena_take(&r->arena, r->world, sizeof *l->host_of_rank);
    if (!number || !size || !l->host_of_rank) {
        free(number);
        free(size);
        return false;
    }
    for (uint32_t rank = 0; rank < r->world; rank++) {
        if (size[given[rank]]++ == 0)
            number[given[rank]] = l->hosts++;
        l->host_of_rank[rank] = number[given[rank]];
    }
    l->shares = r->world;
    for (uint32_t host = 0; host < r->world; host++)
        l->shares = size[host] > 0 && size[host] < l->shares ? size[host] : l->shares;
    l->local_count = size[given[r->rank]];
    free(number);
    free(size);
    return true;
}

/* The ranks of this host; and the owners of this rank's share, which have as many ranks of their hosts before them. */
static bool find_ranks(tg_reducer *r)
{
    tg_levels *l = r->levels;
    uint32_t *before = calloc(l->hosts + (size_t)1, sizeof *before), count = 0;
    l->host = l->host_of_rank[r->rank];
    l->local = tg_arena_take(&r->arena, l->local_count, sizeof *l->local);
    l->owners = tg_arena_take(&r->arena, l->hosts, sizeof *l->owners);
    l->share = TG_NO_SHARE;
    for (uint32_t rank = 0; before && !r->arena.failed && rank < r->world; rank++) {
        l->digest = (l->digest ^ (l->host_of_rank[rank] + UINT64_C(1))) * UINT64_C(0x9e3779b97f4a7c15);
        if (l->host_of_rank[rank] != l->host)
            continue;
        if (rank == r->rank && count < l->shares)
            l->share = count;
        l->local[count++] = rank;
    }
    for (uint32_t rank = 0; before && !r->arena.failed && l->share != TG_NO_SHARE && rank < r->world; rank++)
        if (before[l->host_of_rank[rank]]++ == l->share)
            l->owners[l->host_of_rank[rank]] = rank;
    free(before);
    return before && !r->arena.failed;
}

tg_status tg_levels_make(tg_reducer *r, const tg_reducer_options *o, tg_error *error)
{
    bool several = false;
    r->options.host_of_rank = NULL; /* the caller's memory */
    if (!o->host_of_rank)
        return TG_OK;
    tg_status status = check_hosts(r, o, &several, error);
    if (status != TG_OK || !several)
        return status;
    r->levels = tg_arena_take(&r->arena, 1, sizeof *r->levels);
    if (!r->levels || !number_hosts(r, o->host_of_rank) || !find_ranks(r))
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the hosts of %u ranks", r->world);
    return TG_OK;
}

/* ---- shares ---- */

static uint64_t nearest(uint64_t at, uint64_t grain) { return (at + grain / 2) / grain * grain; }

/* Where a tensor may be cut into shares. A sparsifier selects within a share, so it may be cut; unless a share would
 * select nothing. */
static uint64_t share_grain(const tg_reducer *r, const tg_reducing_tensor *t)
{
    const tg_spec spec = tg_wire_spec(r, t);
    if (!tg_codec_row_of(spec.codec)->sparse)
        return tg_grain_of(&spec);
    return spec.choices & TG_CHOICE_BY_K && spec.amount < r->levels->shares ? 0 : TG_BLOCK;
}

tg_status tg_levels_share(tg_reducer *r, tg_error *error)
{
    const uint32_t shares = r->levels->shares > 0 ? r->levels->shares : 1;
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const tg_reducer_tensor *t = &r->tensors[i].given;
        total += t->count;
        if (t->feedback.kind == TG_FEEDBACK_DGC && t->feedback.clip > 0 && t->count >= r->options.min_size)
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "tensor '%.60s': dgc's clip limits the gradient of one rank, but hosts with several ranks "
                           "compress sums: use clip=0, or leave host_of_rank NULL",
                           t->name);
    }
    for (size_t i = 0; i < r->tensor_count; i++) {
        tg_reducing_tensor *t = &r->tensors[i];
        const uint64_t grain = share_grain(r, t), count = t->given.count;
        t->parts = tg_arena_take(&r->arena, shares + UINT64_C(1), sizeof *t->parts);
        if (!t->parts)
            return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the shares of a tensor");
        const bool cut = grain > 0 && count >= shares * grain;
        /* Else it goes whole to the owner of its middle, among all tensors. */
        const uint64_t owner = total > 0 ? (before + count / 2) * shares / total : 0;
        for (uint32_t j = 0; j <= shares; j++) {
            const uint64_t at = cut && grain > 0 ? nearest(count * j / shares, grain) : j > owner ? count : 0;
            t->parts[j] = (uint32_t)(j == shares || at > count ? count : at);
            const uint64_t made = j > 0 ? t->parts[j] - t->parts[j - 1] : 0;
            if (t->given.dtype != TG_FLOAT32 && made > r->levels->longest)
                r->levels->longest = made;
        }
        before += count;
    }
    return TG_OK;
}

/* ---- the reducer between hosts ---- */

bool tg_levels_keep(const tg_reducer *r, size_t tensor)
{
    const tg_reducer_tensor *t = &r->tensors[tensor].given;
    return t->feedback.kind != TG_FEEDBACK_NONE && t->count >= r->options.min_size;
}

tg_reducer_tensor tg_share_tensor(const tg_reducer *r, size_t number, uint32_t share)
{
    const tg_reducing_tensor *t = &r->tensors[number];
    tg_reducer_tensor made = t->given;
    made.count = tg_share_count(t, share);
    made.dtype = TG_FLOAT32; /* a sum */
    made.codec = tg_wire_spec(r, t);
    made.boundaries = NULL;
    const bool cut = made.count > 0 && made.count < t->given.count;
    if (cut && made.codec.choices & TG_CHOICE_BY_K && tg_codec_row_of(made.codec.codec)->sparse)
        made.codec.amount = (uint32_t)((uint64_t)made.codec.amount * (share + 1) / r->levels->shares -
                                       (uint64_t)made.codec.amount * share / r->levels->shares);
    if (!tg_levels_keep(r, number)) {
        made.feedback = (tg_feedback_spec){.kind = TG_FEEDBACK_NONE};
    } else if (r->levels->hosts == 1) { /* nothing is left out, but a residual may have been loaded */
        made.feedback = (tg_feedback_spec){.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    }
    if (r->levels->hosts == 1) /* there is nobody to compress for */
        made.codec = TG_SPEC_NONE;
    return made;
}

tg_reducer_options tg_share_options(const tg_reducer *r, uint32_t share)
{
    tg_reducer_options options = r->options;
    options.algorithm = r->algorithm;
    options.min_size = 0;                                 /* tg_share_tensor has seen to it */
    options.seed += share * UINT64_C(0x9e3779b97f4a7c15); /* shares of one host draw numbers of their own */
    return options;
}

bool tg_share_ends(const tg_reducer *r, bool dense, const tg_piece *piece, tg_piece *slice)
{
    const tg_reducing_tensor *t = &r->tensors[piece->tensor];
    const tg_spec spec = r->levels->hosts > 1 ? tg_wire_spec(r, t) : TG_SPEC_NONE;
    return tg_piece_ends(piece, t->parts, dense || tg_grain_of(&spec) > 0, slice);
}

static void follow_messages(tg_reducer *r, bool dense)
{
    const tg_plan *plan = dense ? &r->dense : &r->coded;
    tg_levels *l = r->levels;
    size_t next = 0;
    l->inner_message[dense] = tg_arena_take(&r->arena, plan->batch_count, sizeof(size_t));
    for (size_t b = 0; !r->arena.failed && b < plan->batch_count; b++) {
        bool owns = false;
        tg_piece slice;
        for (size_t i = plan->batches[b].first; i < plan->batches[b].first + plan->batches[b].count; i++)
            owns = owns || (plan->pieces[i].owner == l->share && tg_share_ends(r, dense, &plan->pieces[i], &slice));
        l->inner_message[dense][b] = owns ? next++ : SIZE_MAX;
    }
}

static size_t most_pieces(const tg_plan *plan)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->batch_count; b++)
        most = plan->batches[b].count > most ? plan->batches[b].count : most;
    return most;
}

static tg_status make_inner(tg_reducer *r, tg_error *error)
{
    tg_levels *l = r->levels;
    tg_reducer_tensor *tensors = malloc((r->tensor_count + 1) * sizeof *tensors);
    tg_reducer *inner = l->inner = calloc(1, sizeof *inner);
    if (!tensors || !inner) {
        free(tensors);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the shares of %zu tensors", r->tensor_count);
    }
    for (size_t i = 0; i < r->tensor_count; i++)
        tensors[i] = tg_share_tensor(r, i, l->share);
    inner->device = r->device;
    inner->kernels = r->kernels;
    inner->rank = l->host;
    inner->world = l->hosts;
    inner->tensor_count = r->tensor_count;
    inner->share = (tg_share){.whole = r, .number = l->share, .ranks = l->owners};
    const tg_reducer_options options = tg_share_options(r, l->share);
    const tg_status status = tg_reducer_fill_in(inner, tensors, &options, error);
    free(tensors);
    return status;
}

tg_status tg_levels_fill_in(tg_reducer *r, tg_error *error)
{
    tg_levels *l = r->levels;
    const size_t coded = most_pieces(&r->coded), dense = most_pieces(&r->dense);
    l->stages[l->stage_count++] = TG_STAGE_RAW;
    if (l->hosts > 1)
        l->stages[l->stage_count++] = TG_STAGE_BETWEEN;
    if (l->hosts > 1 && r->algorithm == TG_SHARD)
        l->stages[l->stage_count++] = TG_STAGE_RESULTS;
    l->stages[l->stage_count++] = TG_STAGE_SPREAD;
    follow_messages(r, false);
    follow_messages(r, true);
    l->frames = tg_arena_take(&r->arena, (uint64_t)(coded > dense ? coded : dense) * l->hosts, sizeof *l->frames);
    if (!tg_shared_make(r))
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the messages of %u hosts", l->hosts);
    return l->share == TG_NO_SHARE ? TG_OK : make_inner(r, error);
}

void tg_levels_free(tg_reducer *r)
{
    if (!r->levels)
        return;
    for (uint32_t i = 0; r->reductions && i < r->options.depth; i++)
        if (r->reductions[i].levels)
            r->device->operations->release(r->device, r->reductions[i].levels->sums);
    tg_shared_free(r);
    tg_reducer_free(r->levels->inner);
}

/* ---- what it tells ---- */

tg_status tg_levels_residual(const tg_reducer *r, size_t tensor, float *out, tg_error *error)
{
    const tg_reducing_tensor *t = &r->tensors[tensor];
    const uint32_t share = r->levels->share;
    memset(out, 0, t->given.count * sizeof *out);
    if (share == TG_NO_SHARE || tg_share_count(t, share) == 0)
        return tg_succeed(error);
    return tg_feedback_read(r->levels->inner->tensors[tensor].feedback, TG_RESIDUAL, 0, tg_share_count(t, share),
                            out + t->parts[share], error);
}

void tg_levels_stats(const tg_reducer *r, tg_reducer_stats *stats)
{
    if (!r->levels || !r->levels->inner)
        return;
    const tg_reducer_stats *inner = &r->levels->inner->stats;
    stats->frame_bytes = inner->frame_bytes;
    stats->float32_bytes = inner->float32_bytes;
    stats->dense_parts = inner->dense_parts;
    stats->selected = inner->selected;
    stats->residual_norm = inner->residual_norm;
    stats->residual_growth = inner->residual_growth;
    stats->saturated += inner->saturated;
    stats->dropped += inner->dropped;
    stats->encode_seconds += inner->encode_seconds;
    stats->verify_seconds += inner->verify_seconds;
    stats->decode_seconds += inner->decode_seconds;
}

/* ---- what is spread, and room for it ---- */

/* What frames of a slice are made with between hosts, at its largest. */
static tg_spec spec_of(const tg_reducer *r, bool dense, const tg_piece *slice)
{
    tg_spec spec = TG_SPEC_NONE;
    if (!dense)
        spec = tg_share_tensor(r, slice->tensor, slice->owner).codec;
    for (size_t s = 0;
         tg_codec_row_of(spec.codec)->sparse && !(spec.choices & TG_CHOICE_BY_K) && s < r->options.schedule_count; s++)
        spec.amount = r->amounts[s] > spec.amount ? r->amounts[s] : spec.amount;
    return spec;
}

/* Most bytes of a frame of so many elements of a slice. */
static uint64_t frame_room(const tg_spec *spec, const tg_piece *slice, uint64_t count)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    return TG_HEADER_SIZE + row->bound(spec, count) + (row->sparse ? slice->count / 512 + 32 : 0);
}

static uint64_t mean_room(const tg_piece *slice) { return TG_HEADER_SIZE + sizeof(float) * slice->count; }

bool tg_spreads_mean(const tg_reducer *r, bool dense, const tg_piece *slice)
{
    const tg_spec spec = spec_of(r, dense, slice);
    return r->algorithm != TG_SHARD && r->levels->hosts * frame_room(&spec, slice, slice->count) > mean_room(slice);
}

bool tg_share_spreads_means(const tg_reducer *r, uint32_t share)
{
    for (int dense = 0; dense < 2; dense++) {
        const tg_plan *plan = dense ? &r->dense : &r->coded;
        tg_piece slice;
        for (size_t i = 0; i < plan->piece_count; i++)
            if (plan->pieces[i].owner == share && tg_share_ends(r, dense, &plan->pieces[i], &slice) &&
                !tg_spreads_mean(r, dense, &slice))
                return false;
    }
    return true;
}

/* Under gather a frame of each host, or one of the mean, also where something was dropped of it. */
static uint64_t gathered_room(const tg_reducer *r, bool dense, const tg_piece *slice)
{
    const tg_spec spec = spec_of(r, dense, slice);
    const uint64_t frames = r->levels->hosts * frame_room(&spec, slice, slice->count), mean = mean_room(slice);
    return frames > mean || r->options.nonfinite == TG_NONFINITE_DROP ? mean : frames;
}

/* Under shard a frame of each part. */
static uint64_t results_room(const tg_reducer *r, bool dense, const tg_piece *slice)
{
    const tg_spec spec = spec_of(r, dense, slice);
    const bool sparse = tg_codec_row_of(spec.codec)->sparse;
    const uint64_t hosts = r->levels->hosts, count = slice->count,
                   grain = sparse || dense ? TG_BLOCK : tg_grain_of(&spec),
                   parts = sparse                      ? hosts
                           : grain == 0                ? 1
                           : count / grain + 1 < hosts ? count / grain + 1
                                                       : hosts;
    return frame_room(&spec, slice, count) + parts * frame_room(&spec, slice, grain < count ? grain : count);
}

size_t tg_spread_room(const tg_reducer *r, const tg_plan *plan, size_t message, uint32_t share)
{
    size_t room = TG_MESSAGE_HEADER;
    const bool dense = plan == &r->dense;
    if (message >= plan->batch_count)
        return 0;
    for (size_t i = plan->batches[message].first; i < plan->batches[message].first + plan->batches[message].count;
         i++) {
        tg_piece slice;
        if (plan->pieces[i].owner == share && tg_share_ends(r, dense, &plan->pieces[i], &slice))
            room += sizeof(uint32_t) + (size_t)(r->algorithm == TG_SHARD ? results_room(r, dense, &slice)
                                                                         : gathered_room(r, dense, &slice));
    }
    return room;
}
