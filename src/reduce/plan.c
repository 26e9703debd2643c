/* Cutting tensors into messages, and messages among owners. */
#include "reduce/plan.h"

#include <string.h>

/* Plans are made twice: first to count, then into memory of that size. */
typedef struct maker {
    const tg_plan_tensor *tensors;
    uint32_t owners;
    tg_plan *plan;
    bool counting;
    /* The message being filled: slices of elements that are not yet divided among owners. */
    tg_piece *slices;
    size_t slice_count;
    uint64_t filled;
    size_t first_piece; /* of this message */
} maker;

static void add_piece(maker *m, const tg_piece *piece)
{
    if (!m->counting) {
        tg_piece *made = &m->plan->pieces[m->plan->piece_count];
        *made = *piece;
        made->part = m->plan->part_count;
        made->last = true; /* until the next one */
        if (m->plan->piece_count > 0 && made[-1].tensor == made->tensor)
            made[-1].last = false;
        m->plan->part_count += piece->owner == TG_EVERY_OWNER ? m->owners : 1;
    }
    m->plan->piece_count++;
    m->plan->total += m->counting ? piece->count : 0;
    m->plan->largest = piece->count > m->plan->largest ? piece->count : m->plan->largest;
}

/* Divides one slice, which starts `before` elements into its message of `total`, at the owners' boundaries, rounded to
 * the tensor's grain. */
static void divide(maker *m, const tg_piece *slice, uint64_t before, uint64_t total)
{
    const uint64_t grain = m->tensors[slice->tensor].grain;
    if (m->tensors[slice->tensor].balanced) {
        add_piece(m,
                  &(tg_piece){
                      .tensor = slice->tensor, .owner = TG_EVERY_OWNER, .first = slice->first, .count = slice->count});
        return;
    }
    if (grain == 0) { /* whole, to the owner of its middle */
        const uint64_t owner = (before + slice->count / 2) * m->owners / total;
        add_piece(m,
                  &(tg_piece){
                      .tensor = slice->tensor, .owner = (uint32_t)owner, .first = slice->first, .count = slice->count});
        return;
    }
    for (uint64_t at = 0, to; at < slice->count; at = to) {
        /* The first owner whose boundary is rounded to beyond `at`: with many owners, most get nothing. */
        const uint64_t beyond = before + at + grain - grain / 2, next = (beyond * m->owners + total - 1) / total,
                       owner = (next < m->owners ? next : m->owners) - 1;
        to = (total * (owner + 1) / m->owners - before + grain / 2) / grain * grain;
        to = owner + 1 == m->owners || to > slice->count ? slice->count : to;
        add_piece(m,
                  &(tg_piece){
                      .tensor = slice->tensor, .owner = (uint32_t)owner, .first = slice->first + at, .count = to - at});
    }
}

static void end_batch(maker *m)
{
    const size_t first = m->first_piece, next = m->plan->piece_count;
    m->filled = 0;
    if (next == first)
        return;
    if (!m->counting)
        m->plan->batches[m->plan->batch_count] = (tg_batch){first, next - first};
    m->plan->batch_count++;
    m->first_piece = next;
}

static void close_batch(maker *m)
{
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < m->slice_count; i++)
        total += m->tensors[m->slices[i].tensor].balanced ? 0 : m->slices[i].count;
    for (size_t i = 0; i < m->slice_count; i++) {
        divide(m, &m->slices[i], before, total);
        before += m->tensors[m->slices[i].tensor].balanced ? 0 : m->slices[i].count;
    }
    m->slice_count = 0;
    end_batch(m);
}

/* ---- scatter ---- */

/* How a tensor's parts are cut: into as many slices as it fills messages, so that each message has something for every
 * owner. */
typedef struct slicing {
    const tg_plan_tensor *tensor;
    uint64_t slices;
} slicing;

/* The slice of an owner's part that goes into the message `number` of the tensor. */
static tg_piece slice_of(const slicing *s, uint32_t owner, uint64_t number)
{
    const uint64_t grain = s->tensor->grain, first = s->tensor->parts[owner],
                   count = s->tensor->parts[owner + 1] - first;
    uint64_t size = (count + s->slices - 1) / s->slices;
    if (grain > 0)
        size = (size + grain - 1) / grain * grain;
    const uint64_t from = number * size < count ? number * size : count;
    return (tg_piece){.owner = owner, .first = first + from, .count = count - from < size ? count - from : size};
}

static void cut_parts(maker *m, uint32_t number, uint64_t batch_elements)
{
    const tg_plan_tensor *t = &m->tensors[number];
    const bool whole = t->grain == 0 || t->balanced;
    const slicing s = {t, whole ? 1 : (t->count + batch_elements - 1) / batch_elements};
    for (uint64_t slice = 0; t->count > 0 && slice < s.slices; slice++) {
        uint64_t count = 0;
        for (uint32_t owner = 0; owner < m->owners; owner++)
            count += slice_of(&s, owner, slice).count;
        if (m->filled + count > batch_elements)
            end_batch(m);
        m->filled += count;
        if (t->balanced)
            add_piece(m, &(tg_piece){.tensor = number, .owner = TG_EVERY_OWNER, .count = t->count});
        for (uint32_t owner = 0; !t->balanced && owner < m->owners; owner++) {
            tg_piece piece = slice_of(&s, owner, slice);
            piece.tensor = number;
            if (piece.count > 0)
                add_piece(m, &piece);
        }
    }
}

/* ---- all of it ---- */

static void cut_all(maker *m, size_t tensor_count, uint64_t batch_elements)
{
    m->plan->piece_count = m->plan->batch_count = m->first_piece = 0;
    for (size_t t = 0; t < tensor_count; t++) {
        const tg_plan_tensor *tensor = &m->tensors[t];
        if (tensor->parts) {
            cut_parts(m, (uint32_t)t, batch_elements);
            continue;
        }
        uint64_t most = tensor->count;
        if (tensor->grain > 0 && !tensor->balanced)
            most = batch_elements < tensor->grain ? tensor->grain : batch_elements / tensor->grain * tensor->grain;
        for (uint64_t first = 0; first < tensor->count; first += most) {
            const uint64_t count = tensor->count - first < most ? tensor->count - first : most;
            if (m->filled + count > batch_elements)
                close_batch(m);
            m->slices[m->slice_count++] = (tg_piece){.tensor = (uint32_t)t, .first = first, .count = count};
            m->filled += count;
        }
    }
    close_batch(m);
}

bool tg_batch_goes_to(const tg_plan *plan, size_t batch, uint32_t owner)
{
    bool goes = false;
    for (size_t i = 0; !goes && batch < plan->batch_count && i < plan->batches[batch].count; i++)
        goes = tg_goes_to(&plan->pieces[plan->batches[batch].first + i], owner);
    return goes;
}

void tg_plan_receive(tg_plan *plan, uint32_t owner, uint32_t world)
{
    for (size_t i = 0; i < plan->piece_count; i++) {
        plan->pieces[i].received = plan->received_count;
        plan->received_count += tg_goes_to(&plan->pieces[i], owner) ? world : 0;
    }
    for (size_t b = 0; b < plan->batch_count; b++) {
        uint64_t place = 0;
        for (size_t i = plan->batches[b].first; i < plan->batches[b].first + plan->batches[b].count; i++) {
            plan->pieces[i].place = place;
            place += tg_goes_to(&plan->pieces[i], owner) ? plan->pieces[i].count : 0;
        }
        plan->summed = place > plan->summed ? place : plan->summed;
    }
}

/* The pieces that an owner has of each message, as elements of its shares. */
static void follow_all(maker *m, const tg_plan *whole, uint32_t share)
{
    m->plan->piece_count = m->plan->batch_count = m->first_piece = 0;
    for (size_t b = 0; b < whole->batch_count; b++) {
        for (size_t i = whole->batches[b].first; i < whole->batches[b].first + whole->batches[b].count; i++) {
            const tg_plan_tensor *t = &m->tensors[whole->pieces[i].tensor];
            tg_piece slice;
            if (whole->pieces[i].owner == share && tg_piece_ends(&whole->pieces[i], t->parts, t->grain > 0, &slice))
                m->slices[m->slice_count++] = (tg_piece){
                    .tensor = slice.tensor, .first = slice.first - t->parts[share], .count = slice.count};
        }
        close_batch(m);
    }
}

bool tg_plan_follow(const tg_plan *whole, uint32_t share, const tg_plan_tensor *tensors, uint32_t owners,
                    tg_arena *arena, tg_plan *plan)
{
    tg_piece *slices = malloc((whole->piece_count + 1) * sizeof *slices);
    if (!slices)
        return false;
    memset(plan, 0, sizeof *plan);
    maker m = {.tensors = tensors, .owners = owners, .plan = plan, .counting = true, .slices = slices};
    follow_all(&m, whole, share);
    plan->pieces = tg_arena_take(arena, plan->piece_count, sizeof *plan->pieces);
    plan->batches = tg_arena_take(arena, plan->batch_count, sizeof *plan->batches);
    m.counting = false;
    if (!arena->failed)
        follow_all(&m, whole, share);
    free(slices);
    return !arena->failed;
}

bool tg_plan_make(const tg_plan_tensor *tensors, size_t tensor_count, uint64_t batch_elements, uint32_t owners,
                  tg_arena *arena, tg_plan *plan)
{
    tg_piece *slices = malloc((tensor_count + 1) * sizeof *slices); /* a message has at most one slice of each tensor */
    if (!slices)
        return false;
    memset(plan, 0, sizeof *plan);
    maker m = {.tensors = tensors, .owners = owners, .plan = plan, .counting = true, .slices = slices};
    cut_all(&m, tensor_count, batch_elements);
    plan->pieces = tg_arena_take(arena, plan->piece_count, sizeof *plan->pieces);
    plan->batches = tg_arena_take(arena, plan->batch_count, sizeof *plan->batches);
    m.counting = false;
    if (!arena->failed)
        cut_all(&m, tensor_count, batch_elements);
    free(slices);
    return !arena->failed;
}
