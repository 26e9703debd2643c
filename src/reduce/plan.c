/* Cutting tensors into messages, and messages among owners. */
#include "reduce/plan.h"

#include <string.h>

/* Plans are made twice: first to count, then into memory of that size. */
typedef struct maker {
    const tg_plan_tensor *tensors;
    uint32_t owners;
    tg_plan *plan;
    bool counting;
    /* The message being filled: runs of elements that are not yet divided among owners. */
    tg_piece *runs;
    size_t run_count;
    uint64_t filled;
} maker;

static void add_piece(maker *m, const tg_piece *piece)
{
    if (!m->counting) {
        m->plan->pieces[m->plan->piece_count] = *piece;
        m->plan->pieces[m->plan->piece_count].part = m->plan->part_count;
        m->plan->part_count += piece->owner == TG_EVERY_OWNER ? m->owners : 1;
    }
    m->plan->piece_count++;
    m->plan->total += m->counting ? piece->count : 0;
    m->plan->largest = piece->count > m->plan->largest ? piece->count : m->plan->largest;
}

/* Divides one run, which starts `before` elements into its message of `total`, at the owners' boundaries, rounded to
 * the tensor's grain. */
static void divide(maker *m, const tg_piece *run, uint64_t before, uint64_t total)
{
    const uint64_t grain = m->tensors[run->tensor].grain;
    if (m->tensors[run->tensor].balanced) {
        add_piece(
            m, &(tg_piece){.tensor = run->tensor, .owner = TG_EVERY_OWNER, .first = run->first, .count = run->count});
        return;
    }
    if (grain == 0) { /* whole, to the owner of its middle */
        const uint64_t owner = (before + run->count / 2) * m->owners / total;
        add_piece(
            m, &(tg_piece){.tensor = run->tensor, .owner = (uint32_t)owner, .first = run->first, .count = run->count});
        return;
    }
    uint64_t at = 0;
    for (uint32_t owner = 0; owner < m->owners && at < run->count; owner++) {
        const uint64_t boundary = total * (owner + 1) / m->owners, inside = boundary > before ? boundary - before : 0;
        uint64_t to = (inside + grain / 2) / grain * grain;
        to = owner + 1 == m->owners || to > run->count ? run->count : to;
        if (to > at)
            add_piece(m,
                      &(tg_piece){.tensor = run->tensor, .owner = owner, .first = run->first + at, .count = to - at});
        at = to > at ? to : at;
    }
}

static void close_batch(maker *m)
{
    if (m->run_count == 0)
        return;
    const size_t first = m->plan->piece_count;
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < m->run_count; i++)
        total += m->tensors[m->runs[i].tensor].balanced ? 0 : m->runs[i].count;
    for (size_t i = 0; i < m->run_count; i++) {
        divide(m, &m->runs[i], before, total);
        before += m->tensors[m->runs[i].tensor].balanced ? 0 : m->runs[i].count;
    }
    if (!m->counting)
        m->plan->batches[m->plan->batch_count] = (tg_batch){first, m->plan->piece_count - first};
    m->plan->batch_count++;
    m->run_count = 0;
    m->filled = 0;
}

static void cut_all(maker *m, size_t tensor_count, uint64_t batch_elements)
{
    m->plan->piece_count = m->plan->batch_count = 0;
    for (size_t t = 0; t < tensor_count; t++) {
        const tg_plan_tensor *tensor = &m->tensors[t];
        uint64_t most = tensor->count;
        if (tensor->grain > 0 && !tensor->balanced)
            most = batch_elements < tensor->grain ? tensor->grain : batch_elements / tensor->grain * tensor->grain;
        for (uint64_t first = 0; first < tensor->count; first += most) {
            const uint64_t count = tensor->count - first < most ? tensor->count - first : most;
            if (m->filled + count > batch_elements)
                close_batch(m);
            m->runs[m->run_count++] = (tg_piece){.tensor = (uint32_t)t, .first = first, .count = count};
            m->filled += count;
        }
    }
    close_batch(m);
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

bool tg_plan_make(const tg_plan_tensor *tensors, size_t tensor_count, uint64_t batch_elements, uint32_t owners,
                  tg_arena *arena, tg_plan *plan)
{
    tg_piece *runs = malloc((tensor_count + 1) * sizeof *runs); /* a message has at most one run of each tensor */
    if (!runs)
        return false;
    memset(plan, 0, sizeof *plan);
    maker m = {.tensors = tensors, .owners = owners, .plan = plan, .counting = true, .runs = runs};
    cut_all(&m, tensor_count, batch_elements);
    plan->pieces = tg_arena_take(arena, plan->piece_count, sizeof *plan->pieces);
    plan->batches = tg_arena_take(arena, plan->batch_count, sizeof *plan->batches);
    m.counting = false;
    if (!arena->failed)
        cut_all(&m, tensor_count, batch_elements);
    free(runs);
    return !arena->failed;
}
