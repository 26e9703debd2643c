/* What travels how: which spec and codec a tensor has in a step, where it may be cut, and which algorithm suits. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/header.h"
#include "codec/sparse.h"
#include "frame/encode.h"
#include "reduce/levels.h"

enum {
    BATCH_ELEMENTS = 1 << 20,  /* half a megabyte at 4 bits */
    FEWEST_ELEMENTS = 1 << 14, /* and of all ranks under gather no more than this, with batches that are shorter */
    BATCH_ROOM = 512 << 20,
    LARGEST_GRAIN = 1 << 22,     /* a bucket that does not fit blocks may make cuts this coarse */
    SMALLEST_BALANCED = 1 << 16, /* elements of a sparse tensor that is worth cutting */
    WORTH_A_ROUND = 32 << 10,    /* bytes: 26 us at 10 Gbit/s, 260 us at 1 Gbit/s */
};

uint32_t tg_amount_at(const tg_reducer *r, const tg_spec *spec, uint64_t step)
{
    uint32_t amount = spec->amount;
    if (tg_codec_row_of(spec->codec)->sparse && !(spec->choices & TG_CHOICE_BY_K))
        for (size_t i = 0; i < r->options.schedule_count && r->options.schedule[i].from_step <= step; i++)
            amount = r->amounts[i];
    return amount;
}

tg_spec tg_spec_in(const tg_reduction *reduction, uint32_t tensor)
{
    const tg_reducing_tensor *t = &reduction->reducer->tensors[tensor];
    if (reduction->dense)
        return *tg_codec_spec(reduction->reducer->plain);
    tg_spec spec = t->spec;
    spec.amount = tg_amount_at(reduction->reducer, &spec, reduction->step);
    return spec;
}

tg_codec *tg_codec_in(tg_reduction *reduction, uint32_t tensor)
{
    tg_reducer *r = reduction->reducer;
    tg_codec *codec = reduction->dense ? r->plain : r->codecs[r->tensors[tensor].codec];
    (void)tg_codec_retune(codec, tg_spec_in(reduction, tensor).amount); /* it was made for the largest */
    return codec;
}

/* A part's list may have up to twice the segments that the bound of a whole allows for, at 9 bytes for every 8192
 * elements. */
static size_t list_slack(uint64_t most) { return (size_t)(most / 512) + 32; }

/* The spec that a tensor's codec is made for: the largest density it will have. */
static tg_spec largest_spec(const tg_reducer *r, const tg_reducing_tensor *t)
{
    tg_spec spec = t->spec;
    if (t->sparse && !(spec.choices & TG_CHOICE_BY_K))
        for (size_t i = 0; i < r->options.schedule_count; i++)
            spec.amount = r->amounts[i] > spec.amount ? r->amounts[i] : spec.amount;
    return spec;
}

static uint64_t most_aimed_at(const tg_reducer *r, const tg_reducing_tensor *t)
{
    const tg_spec spec = largest_spec(r, t);
    return tg_spec_selected(&spec, t->given.count);
}

size_t tg_frame_room(const tg_reducer *r, bool dense, uint32_t tensor, uint64_t count)
{
    const tg_reducing_tensor *t = &r->tensors[tensor];
    if (dense)
        return tg_frame_bound(r->plain, count);
    return tg_frame_bound(r->codecs[t->codec], count) + (t->sparse ? list_slack(t->most) : 0);
}

/* What a part of a tensor that is divided among all may have at the most. */
static uint64_t longest_part(const tg_reducer *r, const tg_reducing_tensor *t, uint32_t owner)
{
    return t->parts ? t->parts[owner + 1] - t->parts[owner] : tg_part_limit(t->given.count, r->world);
}

size_t tg_list_room(const tg_reducer *r, const tg_piece *piece, uint32_t owner, bool results, bool arrives)
{
    const tg_reducing_tensor *t = &r->tensors[piece->tensor];
    const bool every = piece->owner == TG_EVERY_OWNER;
    const uint64_t count = every ? longest_part(r, t, owner) : piece->count,
                   most = results ? tg_most_chosen(r, piece) : t->most, listed = most < count ? most : count;
    if (!arrives && !every)
        return tg_frame_room(r, false, piece->tensor, count);
    return TG_HEADER_SIZE + list_slack(listed) +
           (arrives ? tg_sparse_list_most(&t->spec, count, listed) : tg_sparse_list_bound(&t->spec, count, listed));
}

uint64_t tg_most_chosen(const tg_reducer *r, const tg_piece *piece)
{
    const tg_reducing_tensor *t = &r->tensors[piece->tensor];
    const uint64_t k = most_aimed_at(r, t);
    return piece->owner == TG_EVERY_OWNER ? (k + r->world - 1) / r->world + (k == 0) : k;
}

bool tg_has_results(const tg_reducer *r, size_t batch, uint32_t owner)
{
    return tg_batch_goes_to(&r->coded, batch, owner) || tg_batch_goes_to(&r->dense, batch, owner);
}

static uint64_t plan_bound(const tg_reducer *r, const tg_plan *plan, size_t batch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; batch < plan->batch_count && i < plan->batches[batch].count; i++) {
        const tg_piece *piece = &plan->pieces[plan->batches[batch].first + i];
        const tg_reducing_tensor *t = &r->tensors[piece->tensor];
        const tg_spec spec = largest_spec(r, t);
        bytes += TG_HEADER_SIZE + (plan == &r->dense ? tg_dtype_size(t->given.dtype) * piece->count
                                                     : tg_codec_row_of(spec.codec)->bound(&spec, piece->count));
    }
    return bytes;
}

uint64_t tg_batch_bound(const tg_reducer *r, size_t batch)
{
    const uint64_t coded = plan_bound(r, &r->coded, batch), dense = plan_bound(r, &r->dense, batch);
    return coded > dense ? coded : dense;
}

/* ---- cutting ---- */

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y > 0) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

tg_spec tg_wire_spec(const tg_reducer *r, const tg_reducing_tensor *t)
{
    if (!r->levels)
        return t->spec;
    return t->given.count < r->options.min_size ? TG_SPEC_NONE : t->given.codec;
}

/* Where a tensor may be cut so that what is sent does not depend on it: whole blocks, whole buckets. A sparsifier
 * chooses among all elements, and a bucket of 0 is the whole vector. */
uint64_t tg_grain_of(const tg_spec *spec)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    if (row->sparse)
        return 0;
    bool has_buckets = false;
    for (size_t i = 0; row->parameters[i]; i++)
        has_buckets = has_buckets || row->parameters[i] == &tg_parameter_bucket;
    if (!has_buckets)
        return TG_BLOCK;
    const uint64_t grain = spec->bucket == 0 ? 0 : common_multiple(TG_BLOCK, spec->bucket);
    return grain <= LARGEST_GRAIN ? grain : 0;
}

/* Sparse tensors that are large enough to have a part of them summed by every rank, or that must. */
static bool is_balanced(const tg_reducer *r, const tg_reducing_tensor *t)
{
    if (t->parts)
        return t->sparse;
    return r->functions->has_parts && t->sparse && t->given.count >= SMALLEST_BALANCED &&
           t->given.count >= 64 * (uint64_t)r->world;
}

bool tg_piece_is_sparse(const tg_reduction *reduction, const tg_piece *piece)
{
    return !reduction->dense && reduction->reducer->tensors[piece->tensor].sparse;
}

static bool make_plan(tg_reducer *r, bool dense, tg_plan *plan)
{
    const tg_reducer *whole = r->share.whole;
    tg_plan_tensor *tensors = malloc((r->tensor_count + 1) * sizeof *tensors);
    for (size_t i = 0; tensors && i < r->tensor_count; i++) {
        const tg_spec spec = tg_wire_spec(r, &r->tensors[i]);
        uint64_t grain = dense ? TG_BLOCK : tg_grain_of(&spec);
        if (r->levels && grain == 0) /* what is sent as it is may be cut anywhere */
            grain = TG_BLOCK;
        tensors[i] = (tg_plan_tensor){.count = r->tensors[i].given.count,
                                      .grain = grain,
                                      .balanced = !dense && is_balanced(r, &r->tensors[i]),
                                      .parts = whole ? whole->tensors[i].parts : r->tensors[i].parts};
    }
    const uint32_t owners = r->levels ? r->levels->shares : r->functions->has_parts ? r->world : 1;
    const bool made = tensors && (whole ? tg_plan_follow(dense ? &whole->dense : &whole->coded, r->share.number,
                                                         tensors, owners, &r->arena, plan)
                                        : tg_plan_make(tensors, r->tensor_count, r->options.batch_elements, owners,
                                                       &r->arena, plan));
    free(tensors);
    if (made && r->levels)
        tg_plan_receive(plan, r->levels->share, r->levels->local_count);
    else if (made)
        tg_plan_receive(plan, r->functions->has_parts ? r->rank : 0, r->world);
    return made;
}

/* ---- codecs ---- */

/* One codec for all tensors of a spec, with room for the largest piece of any. */
tg_status tg_reducer_make_codecs(tg_reducer *r, tg_error *error)
{
    for (size_t i = 0; i < r->tensor_count; i++) {
        const tg_spec spec = r->tensors[i].spec, largest = largest_spec(r, &r->tensors[i]);
        size_t first = 0; /* the first tensor with this spec */
        while (memcmp(&r->tensors[first].spec, &spec, sizeof spec) != 0)
            first++;
        if (first < i) {
            r->tensors[i].codec = r->tensors[first].codec;
            continue;
        }
        uint64_t most = 0;
        for (size_t p = 0; p < r->coded.piece_count; p++)
            if (memcmp(&r->tensors[r->coded.pieces[p].tensor].spec, &spec, sizeof spec) == 0 &&
                r->coded.pieces[p].count > most)
                most = r->coded.pieces[p].count;
        tg_status status = tg_codec_create(r->device, &largest, most, &r->codecs[r->codec_count], error);
        if (status != TG_OK)
            return status;
        r->tensors[i].codec = r->codec_count++;
    }
    const tg_spec none = TG_SPEC_NONE;
    const bool coded = r->functions->has_results || r->levels || r->share.whole; /* and not only in dense steps */
    const uint64_t largest = coded && r->coded.largest > r->dense.largest ? r->coded.largest : r->dense.largest;
    return tg_codec_create(r->device, &none, largest, &r->plain, error);
}

/* ---- the choice ---- */

/* About how many bytes a rank's frames of a step take, without headers. */
static uint64_t volume(const tg_reducer *r)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const tg_reducing_tensor *t = &r->tensors[i];
        const uint64_t count = t->given.count;
        const tg_spec spec = tg_wire_spec(r, t);
        const tg_codec_row *row = tg_codec_row_of(spec.codec);
        tg_spec packed = spec; /* the bounds of other codings have room for tables */
        packed.choices &= (uint8_t)~TG_CHOICE_CODING;
        bytes += row->sparse                  ? 5 * tg_spec_selected(&spec, count)
                 : tg_spec_is_lossless(&spec) ? tg_dtype_size(t->given.dtype) * count
                                              : row->bound(&packed, count);
    }
    return bytes;
}

/* Of a volume V, gather sends (world - 1) V and shard 2 V (world - 1) / world, in one more round. So shard where the
 * difference is worth a round. */
static tg_algorithm choose(const tg_reducer *r)
{
    if (r->options.algorithm != TG_AUTO)
        return r->options.algorithm;
    const uint32_t world = r->levels ? r->levels->hosts : r->world; /* of those who exchange frames */
    if (world <= 2)
        return TG_GATHER;
    const double saved = (double)volume(r) / (r->levels ? r->levels->shares : 1) * (world - 1) * (1 - 2.0 / world);
    return saved > WORTH_A_ROUND ? TG_SHARD : TG_GATHER;
}

static bool has_dense_steps(const tg_reducer_options *o) { return o->warmup > 0 || o->bypass != TG_BYPASS_OFF; }

/* Elements of a batch, where the caller leaves it to us. */
static uint64_t batch_elements(const tg_reducer *r)
{
    uint64_t total = 0, elements = BATCH_ELEMENTS;
    for (size_t i = 0; i < r->tensor_count; i++)
        total += r->tensors[i].given.count;
    if (r->algorithm != TG_GATHER || r->levels || total == 0)
        return elements;
    const double each = has_dense_steps(&r->options) ? sizeof(float) : (double)volume(r) / (double)total;
    while (elements > FEWEST_ELEMENTS && each * (double)elements * r->world > BATCH_ROOM)
        elements /= 2;
    return elements;
}

tg_status tg_reducer_lay_out(tg_reducer *r, tg_error *error)
{
    r->algorithm = r->stats.algorithm = choose(r);
    if (r->options.batch_elements == 0)
        r->options.batch_elements = batch_elements(r);
    r->functions = r->levels                    ? &tg_two_levels
                   : r->algorithm == TG_SHARD   ? &tg_shard
                   : r->algorithm == TG_SCATTER ? &tg_scatter
                                                : &tg_gather;
    for (size_t i = 0; i < r->tensor_count; i++) { /* a threshold selector may take a third more than it aims at */
        const tg_spec largest = largest_spec(r, &r->tensors[i]);
        const uint64_t count = r->tensors[i].given.count, most = tg_spec_selected(&largest, count) * 4 / 3 + 1;
        r->tensors[i].most = most < count ? most : count;
        r->tensors[i].largest = largest.amount;
    }
    if (!make_plan(r, false, &r->coded) || (has_dense_steps(&r->options) && !make_plan(r, true, &r->dense)))
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the plan of %zu tensors", r->tensor_count);
    return TG_OK;
}
