/* Laws of ranks that do not keep the rules: messages with sound checksums and anything inside. Nothing is read or
 * written out of bounds (the sanitizers watch), no rank applies a step that it has not got whole, and those that keep
 * the rules stay together. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "ranks.h"
#include "reduce/reducer.h"
#include "together.h"

enum { MOST_WORLD = 4, MOST_EXCHANGES = 512 };

typedef void rogue(const tg_transfer *transfer, uint64_t step, uint32_t to, uint8_t *bytes, size_t *size);

static rank_state ranks[MOST_WORLD];
static uint32_t world; /* of which the last one is the rogue */

/* Where ranks are: alone, or two on a host, which send each other messages or have memory together. */
typedef struct placement {
    const char *name;
    uint32_t world;
    const uint32_t *hosts;
    bool memory;
} placement;

static const uint32_t two_by_two[] = {0, 0, 1, 1};
static const placement placements[] = {{"3 ranks", 3, NULL, false},
                                       {"2 hosts of 2", 4, two_by_two, false},
                                       {"2 hosts of 2 with memory", 4, two_by_two, true}};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

static uint64_t next_number(void)
{
    static uint64_t state = UINT64_C(88172645463325252);
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static bool chance(unsigned one_in) { return next_number() % one_in == 0; }

/* A header for whatever lies behind it now. */
static void seal(uint8_t *bytes, size_t size)
{
    const tg_message m = tg_message_fields(bytes);
    if (m.extra <= size - TG_MESSAGE_HEADER)
        tg_message_seal(ranks[0].reducer->kernels, &m, bytes);
}

/* ---- all ranks in one thread, by way of the machine ---- */

static void hand_over(tg_exchange *const *exchanges, uint64_t step, rogue *spoil)
{
    for (uint32_t from = 0; from < world; from++)
        for (uint32_t to = 0; to < world; to++) {
            const tg_exchange *sender = exchanges[from], *receiver = exchanges[to];
            if (from == to || sender->send_size[to] == TG_NO_MESSAGE)
                continue;
            memcpy(receiver->receive[from], sender->send[to], sender->send_size[to]);
            receiver->received[from] = sender->send_size[to];
            if (from == world - 1)
                spoil((const tg_transfer *)receiver, step, to, receiver->receive[from], &receiver->received[from]);
        }
}

/* One step of all ranks; a rank whose reduction fails takes all others with it, as an aborted transport would. */
static void make_step(uint64_t step, rogue *spoil)
{
    static tg_exchange *started[MOST_WORLD][MOST_EXCHANGES];
    tg_reduction *reductions[MOST_WORLD];
    size_t counts[MOST_WORLD] = {0}, fed = 0;
    bool broken = false;
    for (uint32_t i = 0; i < world; i++) {
        fill_gradients(&ranks[i], step);
        if (tg_reduce_begin(ranks[i].reducer, ranks[i].gradients, step, &reductions[i], &ranks[i].error) != TG_OK)
            abort();
        ranks[i].status = TG_OK;
    }
    while (!broken) {
        for (uint32_t i = 0; i < world; i++)
            for (tg_exchange *e = NULL;; started[i][counts[i]++] = e)
                if (tg_reduce_next(reductions[i], &e, NULL) != TG_OK || !e)
                    break;
        if (counts[0] == fed && counts[1] == fed)
            break;
        tg_exchange *due[MOST_WORLD];
        for (uint32_t i = 0; i < world; i++)
            broken = broken || counts[i] == fed;
        for (uint32_t i = 0; !broken && i < world; i++)
            due[i] = started[i][fed];
        if (!broken)
            hand_over(due, step, spoil);
        for (uint32_t i = 0; !broken && i < world; i++)
            ranks[i].status = tg_reduce_feed(reductions[i], due[i], &ranks[i].error);
        for (uint32_t i = 0; i < world; i++)
            broken = broken || ranks[i].status != TG_OK;
        fed++;
    }
    for (uint32_t i = 0; i < world; i++) {
        if (!broken) {
            ranks[i].status = tg_reduce_end(reductions[i], &ranks[i].error);
            continue;
        }
        ranks[i].status = TG_EXCHANGE;
        tg_reduce_abandon(reductions[i]);
    }
}

static void open_all(const rank_case *what, const placement *p)
{
    tg_reducer *reducers[MOST_WORLD];
    world = what->world;
    for (uint32_t i = 0; i < world; i++) {
        open_rank(&ranks[i], what, i, NULL);
        if (ranks[i].status != TG_OK)
            abort();
        reducers[i] = ranks[i].reducer;
    }
    if (p->memory)
        expect(share_together(reducers, world), "ranks have no memory together");
}

static void close_all(void)
{
    for (uint32_t i = 0; i < world; i++)
        close_rank(&ranks[i]);
}

/* The ranks that keep the rules come to the same. (Not with the same bits: a rogue may have sent them different frames,
 * all of them sound.) */
static void stay_together(void)
{
    for (uint32_t i = 1; i + 1 < world; i++)
        expect(ranks[0].status == ranks[i].status, "rank 0: %s; rank %u: %s", ranks[0].error.message, i,
               ranks[i].error.message);
}

/* ---- what a rogue does ---- */

/* Tells one rank that it abstains, and everybody that all is well. */
static void two_faced(const tg_transfer *transfer, uint64_t step, uint32_t to, uint8_t *bytes, size_t *size)
{
    if (step == 0 || to != 1 || transfer->kind == TG_MESSAGE_VERDICT)
        return;
    bytes[6] = 1;
    tg_store32(bytes + 28, 0);
    tg_store32(bytes + 40, 0);
    *size = TG_MESSAGE_HEADER;
    seal(bytes, *size);
}

/* Anything in a frame, without a checksum so that its contents are looked at. */
static void scribble(uint8_t *frame, uint64_t payload)
{
    frame[6] = 0;
    tg_store32(frame + 60, 0);
    for (unsigned i = 0; payload > 0 && i < 1 + next_number() % 4; i++) {
        const uint64_t among = chance(2) && payload > 32 ? 32 : payload; /* most rules are about the start */
        frame[64 + next_number() % among] = (uint8_t)next_number();
    }
    if (chance(8))
        frame[next_number() % 60] = (uint8_t)next_number();
}

static void wild(const tg_transfer *transfer, uint64_t step, uint32_t to, uint8_t *bytes, size_t *size)
{
    (void)step;
    (void)to;
    if (transfer->kind == TG_MESSAGE_VERDICT || transfer->kind == TG_MESSAGE_GREETING || !chance(3))
        return;
    size_t at = TG_MESSAGE_HEADER + tg_load32(bytes + 40);
    if (at > TG_MESSAGE_HEADER && chance(2))
        bytes[TG_MESSAGE_HEADER + next_number() % (at - TG_MESSAGE_HEADER)] = (uint8_t)next_number();
    while (at + 64 <= *size) {
        const uint64_t payload = tg_load64(bytes + at + 32);
        if (chance(2))
            scribble(bytes + at, payload);
        at += 64 + (size_t)payload;
    }
    if (chance(8))
        *size -= (size_t)(next_number() % (*size - TG_MESSAGE_HEADER + 1));
    if (chance(16))
        bytes[28 + next_number() % 16] = (uint8_t)next_number();
    seal(bytes, *size);
}

/* ---- the laws ---- */

static void abstains_and_agrees(tg_algorithm algorithm, const placement *p)
{
    const tensor_case tensors[] = {{"x", "topk:density=0.01", "ef", 70001, TG_FLOAT32},
                                   {"y", "qsgd:levels=7", "ef", 9000, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {.world = p->world,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = p->hosts},
                            .shape = GAUSSIAN};
    open_all(&what, p);
    make_step(0, two_faced);
    expect(ranks[0].status == TG_OK && ranks[1].status == TG_OK, "the first step: %s", ranks[1].error.message);
    make_step(1, two_faced);
    expect(ranks[1].status == TG_EXCHANGE, "rank 1 applies a step of which it has not got everything");
    check_all("%s, %s: a rank that abstains and calls the step sound is found out", tg_algorithm_text(algorithm),
              p->name);
    close_all();
}

static void anything_inside(tg_algorithm algorithm, const placement *p, const char *spec, const char *other)
{
    const tensor_case tensors[] = {{"x", spec, "ef", 66001, TG_FLOAT32},
                                   {"y", other, "ef", 5001, TG_BFLOAT16},
                                   {"z", spec, "none", 777, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {
        .world = p->world,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .batch_elements = 8192, .warmup = 2, .host_of_rank = p->hosts},
        .shape = GAUSSIAN};
    open_all(&what, p);
    for (uint64_t step = 0; step < 8 && ranks[0].status != TG_EXCHANGE; step++) {
        make_step(step, wild);
        stay_together();
    }
    check_all("%s, %s, %s and %s: anything inside", tg_algorithm_text(algorithm), p->name, spec, other);
    close_all();
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    const char *const *specs = all_specs();
    static const char *const plain[] = {"cpu", NULL}; /* whose memory others can read */
    for (size_t p = 0; p < PLACEMENTS && !(placements[p].memory && named_device()); p++) {
        put_ranks_on(placements[p].memory ? plain : NULL);
        for (int algorithm = TG_GATHER; algorithm <= (placements[p].hosts ? TG_SHARD : TG_SCATTER); algorithm++) {
            abstains_and_agrees((tg_algorithm)algorithm, &placements[p]);
            for (size_t i = 0; specs[i]; i += all ? 1 : EMULATED ? 47 : 5)
                anything_inside((tg_algorithm)algorithm, &placements[p], specs[i], specs[i / 2]);
        }
    }
    return finish();
}
