/* What a reduction exchanges, from its plan alone: for predictions, and for worlds that nobody has. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/header.h"
#include "codec/positions.h"
#include "reduce/describe.h"

enum { MOST_DESCRIBED = 1000000 };

typedef tg_described_share share;
typedef tg_described_batch described_batch;
typedef tg_described_entry entry;

/* ---- sizes ---- */

/* Bits of a gap under the Rice code that suits this density: b low bits, and a quotient that is geometric. */
static double gap_bits(double density)
{
    double best = 64, rest = 1 - density; /* (1 - density)^(2^b) */
    for (unsigned b = 0; b < 32 && rest < 1; b++, rest *= rest)
        best = b + 1 / (1 - rest) < best ? b + 1 / (1 - rest) : best;
    return best;
}

static uint64_t list_bytes(const tg_spec *spec, uint64_t count, uint64_t selected)
{
    if (count == 0 || selected == 0)
        return tg_positions_bound(0, 0);
    const double indices = gap_bits((double)selected / (double)count) * (double)selected / 8;
    /* The bound has a bit for each element beside the directory; a bitmap is what crowded indices become. */
    const uint64_t bitmap = count / 8, directory = tg_positions_bound(count, selected) - bitmap;
    uint64_t values = 0;
    switch (tg_spec_values(spec)) {
    case TG_VALUES_FP32:
        values = 4 * selected;
        break;
    case TG_VALUES_LEVELS: { /* two bits at the least, and a scale for each bucket */
        unsigned bits = 2;
        while ((1u << bits) < 2u * spec->levels + 1)
            bits++;
        values = selected * bits / 8 + 4 * (spec->bucket ? selected / spec->bucket + 1 : 1);
        break;
    }
    default:
        values = 2 * selected;
    }
    return directory + values + (indices < (double)bitmap ? (uint64_t)indices : bitmap);
}

/* A frame of `count` elements of a tensor, of which `selected` are sent if it is sparse. */
static uint64_t frame_bytes(const tg_reducing_tensor *t, uint64_t count, uint64_t selected)
{
    const uint64_t raw = tg_dtype_size(t->given.dtype) * count;
    if (t->sparse)
        return TG_HEADER_SIZE + list_bytes(&t->spec, count, selected);
    tg_spec packed = t->spec;
    packed.choices &= (uint8_t)~TG_CHOICE_CODING;
    return TG_HEADER_SIZE +
           (tg_spec_is_lossless(&t->spec) ? raw : tg_codec_row_of(t->spec.codec)->bound(&packed, count));
}

static bool depends_on_data(const tg_reducing_tensor *t)
{
    return t->sparse || (!tg_spec_is_lossless(&t->spec) && t->spec.choices & TG_CHOICE_CODING);
}

/* ---- batches ---- */

/* The spec after the schedule's last change. */
static uint64_t selected_of(const tg_reducer *r, const tg_reducing_tensor *t)
{
    tg_spec spec = t->spec;
    if (t->sparse && !(spec.choices & TG_CHOICE_BY_K) && r->options.schedule_count > 0)
        spec.amount = r->amounts[r->options.schedule_count - 1];
    return tg_spec_selected(&spec, t->given.count);
}

uint64_t tg_described_frame(const tg_reducer *r, uint32_t tensor, uint64_t count)
{
    const tg_reducing_tensor *t = &r->tensors[tensor];
    return frame_bytes(t, count, t->sparse ? selected_of(r, t) : 0);
}

static void add_balanced(const tg_reducer *r, described_batch *b, const tg_piece *piece)
{
    const tg_reducing_tensor *t = &r->tensors[piece->tensor];
    const uint64_t world = r->world, count = piece->count / world, selected = selected_of(r, t) / world;
    const uint64_t bytes = frame_bytes(t, count, selected);
    const uint64_t result = frame_bytes(t, count, selected > 0 ? selected : 1),
                   dense = TG_HEADER_SIZE + sizeof(float) * count;
    b->every.elements += count;
    b->every.frames++;
    b->every.bytes += bytes;
    b->every_result += result < dense ? result : dense;
    b->balanced++;
    b->frames += world;
    b->bytes += world * bytes;
}

static int by_owner(const void *a, const void *b)
{
    const share *x = a, *y = b;
    return (x->owner > y->owner) - (x->owner < y->owner);
}

/* Those of one owner become one. */
static size_t merge(share *shares, size_t count)
{
    size_t merged = 0;
    qsort(shares, count, sizeof *shares, by_owner);
    for (size_t i = 0; i < count; i++) {
        if (merged == 0 || shares[merged - 1].owner != shares[i].owner) {
            shares[merged++] = shares[i];
            continue;
        }
        shares[merged - 1].frames += shares[i].frames;
        shares[merged - 1].elements += shares[i].elements;
        shares[merged - 1].bytes += shares[i].bytes;
    }
    return merged;
}

/* How many owners have results of a batch: those with shares, and those that have some only in dense steps. */
static uint32_t count_owners(tg_description *d, const described_batch *b, size_t number)
{
    const tg_plan *dense = &d->reducer->dense;
    const tg_batch *batch = number < dense->batch_count ? &dense->batches[number] : &(tg_batch){0, 0};
    share *shares = malloc((b->share_count + batch->count + 1) * sizeof *shares);
    if (b->balanced > 0 || !shares) {
        d->reducer->arena.failed |= !shares;
        free(shares);
        return d->reducer->world;
    }
    memcpy(shares, d->shares + b->first_share, b->share_count * sizeof *shares);
    for (size_t i = 0; i < batch->count; i++)
        shares[b->share_count + i] = (share){.owner = dense->pieces[batch->first + i].owner};
    const size_t owners = merge(shares, b->share_count + batch->count);
    free(shares);
    return (uint32_t)owners;
}

static void describe_batch(tg_description *d, size_t number, size_t *used)
{
    const tg_reducer *r = d->reducer;
    const tg_batch *batch = &r->coded.batches[number];
    described_batch *b = &d->batches[number];
    const uint32_t first = r->coded.pieces[batch->first].tensor;
    *b = (described_batch){.relayed = tg_is_relayed(r, number),
                           .first_tensor = first,
                           .tensor_count = r->coded.pieces[batch->first + batch->count - 1].tensor - first + (size_t)1,
                           .first_share = *used};
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->coded.pieces[i];
        const tg_reducing_tensor *t = &r->tensors[piece->tensor];
        d->estimated = d->estimated || depends_on_data(t);
        b->elements += piece->count;
        if (piece->owner == TG_EVERY_OWNER) {
            add_balanced(r, b, piece);
            continue;
        }
        const uint64_t bytes = tg_described_frame(r, piece->tensor, piece->count);
        b->frames++;
        b->bytes += bytes;
        d->shares[*used + b->share_count++] = (share){piece->owner, 1, piece->count, bytes};
    }
    b->share_count = merge(d->shares + b->first_share, b->share_count);
    for (size_t i = 0; i < b->share_count; i++) {
        const uint64_t bytes = d->shares[b->first_share + i].bytes;
        b->largest_share = bytes > b->largest_share ? bytes : b->largest_share;
        b->smallest_share = i == 0 || bytes < b->smallest_share ? bytes : b->smallest_share;
    }
    if (b->share_count < r->world)
        b->smallest_share = 0;
    b->owners = count_owners(d, b, number);
    *used += b->share_count;
    d->elements += b->elements;
}

/* Rounds after the first, of batches that are handed on. */
static void order_rounds(tg_description *d)
{
    const size_t first = d->entry_count;
    for (uint32_t round = 1; first > 0 && round < tg_agreement_rounds(d->reducer->world); round++)
        for (size_t i = 0; i < d->reducer->coded.batch_count; i++) {
            if (!d->batches[i].relayed)
                continue;
            size_t before = d->entry_count - 1; /* the round before of the same batch; before it, every batch has one */
            while (d->entries[before].batch != i)
                before--;
            d->entries[d->entry_count++] = (entry){TG_ROLE_GRADIENTS, i, before, round};
        }
}

/* The order in which exchanges are handed out. */
static void order(tg_description *d)
{
    const tg_reducer *r = d->reducer;
    const size_t due = r->coded.batch_count;
    const bool results = r->functions->has_results;
    const size_t window = tg_gather_window(r);
    if (r->world == 1)
        return;
    size_t handed = 0, results_handed = 0,
           made[TG_RESULTS_BEHIND + 2] = {0}; /* where the last batches were handed out */
    while (handed < due || (results && results_handed < due)) {
        entry *e = &d->entries[d->entry_count];
        if (results && tg_results_are_next(handed, results_handed, due)) {
            *e = (entry){TG_ROLE_RESULTS, results_handed, made[results_handed % (TG_RESULTS_BEHIND + 2)], 0};
            results_handed++;
        } else {
            made[handed % (TG_RESULTS_BEHIND + 2)] = d->entry_count;
            const bool waits = window > 0 && handed >= window; /* for room that is used again */
            *e = (entry){r->functions->has_parts ? TG_ROLE_PARTS : TG_ROLE_GRADIENTS, handed,
                         waits ? handed - window : SIZE_MAX, 0};
            handed++;
        }
        d->entry_count++;
    }
    order_rounds(d);
    for (uint32_t round = 0; round < tg_agreement_exchanges(r); round++, d->entry_count++)
        d->entries[d->entry_count] = (entry){TG_ROLE_VERDICT, 0, d->entry_count > 0 ? d->entry_count - 1 : SIZE_MAX, 0};
}

/* ---- making and reading ---- */

tg_status tg_description_fill_in(tg_description *d, tg_error *error)
{
    tg_reducer *r = d->reducer;
    uint64_t relays = 0;
    for (size_t i = 0; i < r->coded.batch_count; i++)
        relays += tg_is_relayed(r, i);
    d->batches = tg_arena_take(&r->arena, r->coded.batch_count, sizeof *d->batches);
    d->shares = tg_arena_take(&r->arena, r->coded.piece_count, sizeof *d->shares);
    d->entries = tg_arena_take(&r->arena, 2 * r->coded.batch_count + (relays + 1) * tg_agreement_rounds(r->world),
                               sizeof *d->entries);
    size_t used = 0;
    for (size_t i = 0; !r->arena.failed && i < r->coded.batch_count; i++)
        describe_batch(d, i, &used);
    if (r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a description of %zu tensors", r->tensor_count);
    order(d);
    return tg_succeed(error);
}

tg_status tg_description_create(uint32_t world, const tg_reducer_tensor *tensors, size_t tensor_count,
                                const tg_reducer_options *options, tg_description **description, tg_error *error)
{
    const tg_reducer_options defaults = {.algorithm = TG_AUTO};
    options = options ? options : &defaults;
    if (!description || (!tensors && tensor_count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_description_create: tensors and description must not be NULL");
    if (world == 0 || world > MOST_DESCRIBED)
        return tg_fail(error, TG_INVALID_ARGUMENT, "a world of %u ranks cannot be described: use 1 to %d", world,
                       MOST_DESCRIBED);
    if (options->algorithm == TG_SCATTER)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "scatter has no description: describe shard, whose first half it is");
    tg_description *made = calloc(1, sizeof *made);
    tg_reducer *r = calloc(1, sizeof *r);
    if (!made || !r) {
        free(made);
        free(r);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a description");
    }
    made->reducer = r;
    r->world = world;
    r->tensor_count = tensor_count;
    tg_status status = tg_reducer_keep(r, tensors, options, error);
    if (status == TG_OK)
        status = r->levels ? tg_describe_levels(made, error) : tg_description_fill_in(made, error);
    if (status == TG_OK)
        *description = made;
    else
        tg_description_free(made);
    return status;
}

void tg_description_free(tg_description *description)
{
    if (!description)
        return;
    tg_describe_levels_free(description);
    tg_reducer_free(description->reducer);
    free(description);
}

tg_status tg_description_of(const tg_description *d, tg_description_info *info, tg_error *error)
{
    if (!d || !info)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_description_of: description and info must not be NULL");
    const bool sums_at_the_end = d->reducer->algorithm != TG_SHARD;
    *info = (tg_description_info){.algorithm = d->reducer->algorithm,
                                  .exchange_count = d->entry_count,
                                  .applied = d->levels         ? d->spread
                                             : sums_at_the_end ? d->elements * d->reducer->world
                                                               : d->elements,
                                  .estimated = d->estimated};
    return tg_succeed(error);
}

/* What one rank owns of a batch. */
static share share_of(const tg_description *d, const described_batch *b, uint32_t rank)
{
    share owned = b->every;
    const share key = {.owner = rank};
    const share *found = b->share_count == 0
                             ? NULL
                             : bsearch(&key, d->shares + b->first_share, b->share_count, sizeof *d->shares, by_owner);
    if (found) {
        owned.frames += found->frames;
        owned.elements += found->elements;
        owned.bytes += found->bytes;
    }
    return owned;
}

/* Bytes of boundaries in a message, in the mean over steps. */
static uint64_t proposals_of(const described_batch *b) { return b->balanced * TG_PROPOSAL_SIZE / TG_BOUNDARIES_EVERY; }

static void describe_parts(const tg_description *d, const described_batch *b, const share *owned,
                           tg_described_exchange *e)
{
    const uint64_t world = d->reducer->world, headers = (world - 1) * (TG_MESSAGE_HEADER + proposals_of(b));
    e->kind = TG_ALL_TO_ALL;
    e->bytes_sent = headers + b->bytes - owned->bytes;
    e->bytes_received = headers + (world - 1) * owned->bytes;
    e->largest_sent = headers + b->bytes - b->every.bytes - b->smallest_share;
    e->largest_received = headers + (world - 1) * (b->every.bytes + b->largest_share);
    e->encoded = b->elements;
    e->checked = (world - 1) * owned->elements;
    e->frames = b->frames + (world - 1) * owned->frames;
}

/* From those that have some, to all. */
static void describe_results(const tg_description *d, const described_batch *b, const share *owned, bool has,
                             tg_described_exchange *e)
{
    const uint64_t world = d->reducer->world, extra = TG_MESSAGE_HEADER + proposals_of(b), others = b->owners - has;
    /* Parts and results of pieces that have one owner are alike; those of balanced pieces are not. */
    const uint64_t own = owned->bytes - b->every.bytes + b->every_result,
                   all = b->bytes - world * b->every.bytes + world * b->every_result;
    e->peers = (uint32_t)(has ? world - 1 : others);
    e->bytes_sent = has ? (world - 1) * (extra + own) : 0;
    e->bytes_received = others * extra + all - own;
    e->largest_sent = (world - 1) * (extra + b->every_result + b->largest_share);
    e->largest_received = b->owners < world ? b->owners * extra + all
                                            : (world - 1) * extra + all - b->every_result - b->smallest_share;
    e->summed = world * owned->elements;
    e->encoded = owned->elements;
    e->checked = b->elements - owned->elements;
    e->frames = b->frames;
}

/* Whole messages, each with the entry of its size. */
static void describe_round(const tg_description *d, const described_batch *b, uint32_t round, tg_described_exchange *e)
{
    const uint32_t world = d->reducer->world, rounds = tg_agreement_rounds(world);
    e->kind = TG_ALL_TO_ALL;
    e->peers = 1;
    e->bytes_sent = e->bytes_received = e->largest_sent = e->largest_received =
        tg_relay_blocks(world, round) * (TG_RELAY_ENTRY + TG_MESSAGE_HEADER + b->bytes);
    e->encoded = round == 0 ? b->elements : 0;
    e->checked = round + 1 == rounds ? (world - UINT64_C(1)) * b->elements : 0;
    e->frames = (round == 0 ? b->frames : 0) + (round + 1 == rounds ? (world - UINT64_C(1)) * b->frames : 0);
}

static void describe_gradients(const tg_description *d, const described_batch *b, tg_described_exchange *e)
{
    const uint64_t others = d->reducer->world - (uint64_t)1;
    e->bytes_sent = e->bytes_received = e->largest_sent = e->largest_received = others * (TG_MESSAGE_HEADER + b->bytes);
    e->encoded = b->elements;
    e->checked = others * b->elements;
    e->frames = d->reducer->world * b->frames;
}

void tg_describe(const tg_description *d, uint32_t rank, tg_exchange_role role, size_t batch,
                 tg_described_exchange *exchange)
{
    const described_batch *b = &d->batches[batch];
    const share owned = share_of(d, b, rank);
    if (role == TG_ROLE_GRADIENTS)
        describe_gradients(d, b, exchange);
    else if (role == TG_ROLE_PARTS)
        describe_parts(d, b, &owned, exchange);
    else
        describe_results(d, b, &owned, tg_has_results(d->reducer, batch, rank), exchange);
}

uint64_t tg_described_results(const tg_description *d, size_t batch)
{
    const described_batch *b = &d->batches[batch];
    return b->bytes - d->reducer->world * (b->every.bytes - b->every_result);
}

tg_status tg_description_exchange(const tg_description *d, uint32_t rank, size_t index, tg_described_exchange *exchange,
                                  tg_error *error)
{
    if (!d || !exchange)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_description_exchange: description and exchange must not be NULL");
    if (rank >= d->reducer->world || index >= d->entry_count)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "there is no exchange %zu of rank %u: there are %zu exchanges and %u ranks", index, rank,
                       d->entry_count, d->reducer->world);
    const entry *e = &d->entries[index];
    const uint64_t others = d->reducer->world - (uint64_t)1;
    tg_described_exchange made = {.role = e->role, .kind = TG_ALL_GATHER, .after = e->after, .peers = (uint32_t)others};
    if (e->role == TG_ROLE_VERDICT) {
        const bool timed = d->reducer->options.bypass == TG_BYPASS_AUTO;
        const bool minimum = d->reducer->options.minimum;
        const uint64_t size = minimum ? TG_MINIMUM_BYTES : TG_MESSAGE_HEADER + (timed ? TG_TIMED_BYTES : TG_VOTE_BYTES);
        made.kind = minimum ? TG_ALL_MINIMUM : TG_ALL_GATHER;
        made.peers = minimum ? 1 : tg_agreement_peers(d->reducer->world);
        made.bytes_sent = made.bytes_received = made.peers * size;
        made.largest_sent = made.largest_received = made.bytes_sent;
        *exchange = made;
        return tg_succeed(error);
    }
    made.first_tensor = d->batches[e->batch].first_tensor;
    made.tensor_count = d->batches[e->batch].tensor_count;
    if (d->batches[e->batch].relayed)
        describe_round(d, &d->batches[e->batch], e->round, &made);
    else
        (d->levels ? tg_describe_level : tg_describe)(d, rank, e->role, e->batch, &made);
    *exchange = made;
    return tg_succeed(error);
}
