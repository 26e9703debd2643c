/* Laws of a reducer's state: a run that is saved and loaded goes on to the bit; a changed world keeps what residuals
 * will move the mean by; damage and other layouts are refused by name and change nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "guarded.h"
#include "ranks.h"
#include "reduce/state.h"

enum { BEFORE = 20, AFTER = 5 }; /* across a change of boundaries, which is every 16 steps */

static const tensor_case tensors[] = {{"weights", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
                                      {"sparse", "topk:density=0.02", "dgc:momentum=0.5", 70001, TG_FLOAT32},
                                      {"levels", "topk:density=0.02,values=levels", "ef", 66000, TG_FLOAT16},
                                      {"bias", "none", "none", 10, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

typedef struct saved {
    void *data[MOST_RANKS];
    size_t size[MOST_RANKS];
    tg_tensor result[MOST_TENSORS];
} saved;

static void make_steps(rank_state *s, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void keep(rank_state *s)
{
    saved *k = s->extra;
    size_t size = 0;
    s->status = tg_reducer_save(s->reducer, NULL, 0, &size, &s->error);
    k->data[s->rank] = malloc(size);
    k->size[s->rank] = size;
    if (s->status == TG_OK)
        s->status = tg_reducer_save(s->reducer, k->data[s->rank], size, &size, &s->error);
}

static void save_half_way(rank_state *s)
{
    make_steps(s, 0, BEFORE);
    if (s->status == TG_OK)
        keep(s);
    make_steps(s, BEFORE, BEFORE + AFTER);
}

static void keep_result(rank_state *states, uint32_t world)
{
    saved *k = states[0].extra;
    join_parts(states, world);
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        const tg_tensor *g = &states[0].gradients[i];
        k->result[i] = make_tensor(g->count, g->dtype, 0);
        memcpy(k->result[i].data, g->data, g->count * tg_dtype_size(g->dtype));
    }
}

static void load_and_go_on(rank_state *s)
{
    saved *k = s->extra;
    const tg_state state = {k->data[s->rank], k->size[s->rank]};
    s->status = tg_reducer_load(s->reducer, &state, 1, &s->error);
    make_steps(s, BEFORE, BEFORE + AFTER);
}

static void compare_result(rank_state *states, uint32_t world)
{
    saved *k = states[0].extra;
    join_parts(states, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const tg_tensor *g = &states[rank].gradients[i];
            expect(memcmp(k->result[i].data, g->data, g->count * tg_dtype_size(g->dtype)) == 0, "tensor %zu differs",
                   i);
        }
    }
}

static void drop_saved(saved *k, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        free(k->data[rank]);
    for (size_t i = 0; tensors[i].name; i++)
        drop(&k->result[i]);
}

static void resumes(tg_algorithm algorithm, uint32_t world, uint32_t depth)
{
    saved kept;
    memset(&kept, 0, sizeof kept);
    const rank_case what = {.world = world,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .seed = 3, .depth = depth},
                            .shape = LAYERED};
    run_ranks(&what, NULL, save_half_way, keep_result, &kept);
    run_ranks(&what, NULL, load_and_go_on, compare_result, &kept);
    check_all("%s, world %u, depth %u: a loaded run goes on to the bit", tg_algorithm_text(algorithm), world, depth);
    drop_saved(&kept, world);
}

/* ---- another world ---- */

/* Sum of everything that residuals hold, in the mean: dyadic gradients make it exact. */
static const tensor_case grid[] = {{"dense", "onebit:bucket=0", "ef", 5000, TG_FLOAT32},
                                   {"sparse", "topk:density=0.01", "ef", 70000, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};

static void save_only(rank_state *s)
{
    make_steps(s, 0, 3);
    if (s->status == TG_OK)
        keep(s);
}

static void nothing_failed(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
}

/* All of the residuals' mass, divided by the world, out of saved states: read back through the format's public promise,
 * that loading them into a world of one adds them up and scales them. */
static double mass_of(const saved *k, uint32_t world)
{
    const rank_case alone = {.world = 1,
                             .tensors = grid,
                             .options = {.algorithm = TG_GATHER, .warmup = 1000, .batch_elements = 8192, .seed = 3}};
    rank_state s;
    tg_state states[MOST_RANKS];
    double sum = 0;
    open_rank(&s, &alone, 0, NULL);
    for (uint32_t rank = 0; rank < world; rank++)
        states[rank] = (tg_state){k->data[rank], k->size[rank]};
    tg_transport *transport;
    expect(tg_transport_local(1, &transport, &s.error) == TG_OK, "transport: %s", s.error.message);
    expect(tg_reducer_load(s.reducer, states, world, &s.error) == TG_OK, "load: %s", s.error.message);
    for (size_t i = 0; i < s.tensor_count; i++)
        memset(s.gradients[i].data, 0, s.gradients[i].count * sizeof(float));
    /* A dense step of zeros sends the residual. */
    expect(tg_reduce(s.reducer, transport, s.gradients, 0, &s.error) == TG_OK, "reduce: %s", s.error.message);
    for (size_t i = 0; i < s.tensor_count; i++)
        for (uint64_t j = 0; j < s.gradients[i].count; j++)
            sum += (double)((const float *)s.gradients[i].data)[j];
    tg_transport_free(transport);
    close_rank(&s);
    return sum;
}

static saved *from;
static uint32_t from_world;

static void load_from_other_world(rank_state *s)
{
    tg_state states[MOST_RANKS];
    size_t count = 0;
    for (uint32_t rank = s->rank; rank < from_world; rank += s->what->world)
        states[count++] = (tg_state){from->data[rank], from->size[rank]};
    s->status = tg_reducer_load(s->reducer, states, count, &s->error);
    if (s->status == TG_OK)
        keep(s);
}

static void moves(tg_algorithm algorithm, uint32_t world, uint32_t other)
{
    saved kept, again;
    memset(&kept, 0, sizeof kept);
    memset(&again, 0, sizeof again);
    rank_case what = {.world = world,
                      .tensors = grid,
                      .options = {.algorithm = algorithm, .batch_elements = 8192, .seed = 3},
                      .shape = GRID};
    run_ranks(&what, NULL, save_only, nothing_failed, &kept);
    from = &kept;
    from_world = world;
    what.world = other;
    run_ranks(&what, NULL, load_from_other_world, nothing_failed, &again);
    const double before = mass_of(&kept, world), after = mass_of(&again, other);
    /* onebit's scales are no dyadic numbers: float32 sums of 75,000 elements of order 10 are right to 1e-3. */
    expect(fabs(before - after) < 1e-3 && fabs(before) > 1, "mass %g became %g", before, after);
    check_all("%s: from %u ranks to %u, mass is kept", tg_algorithm_text(algorithm), world, other);
    for (uint32_t rank = 0; rank < world; rank++)
        free(kept.data[rank]);
    for (uint32_t rank = 0; rank < other; rank++)
        free(again.data[rank]);
}

/* ---- refusals ---- */

static void refuses(void)
{
    saved kept;
    memset(&kept, 0, sizeof kept);
    rank_case what = {
        .world = 2, .tensors = tensors, .options = {.batch_elements = 8192, .seed = 3}, .shape = GAUSSIAN};
    run_ranks(&what, NULL, save_only, nothing_failed, &kept);
    check_all("a state is saved");
    unsigned char *bytes = kept.data[0];
    const size_t size = kept.size[0];
    rank_state s;
    open_rank(&s, &what, 0, NULL);
    size_t refused = 0, tried = 0;
    for (size_t cut = 0; cut < size; cut += 1 + size / (EMULATED ? 49 : 199), tried++) {
        const tg_state shorter = {bytes, cut};
        refused += tg_reducer_load(s.reducer, &shorter, 1, &s.error) != TG_OK;
    }
    check(refused == tried, "a state that was cut short is refused (%zu of %zu)", refused, tried);
    refused = tried = 0;
    for (size_t at = 0; at < size; at += 1 + size / (EMULATED ? 47 : 197), tried++) {
        const tg_state damaged = {bytes, size};
        bytes[at] ^= 0x10;
        refused += tg_reducer_load(s.reducer, &damaged, 1, &s.error) == TG_CHECKSUM_MISMATCH;
        bytes[at] ^= 0x10;
    }
    check(refused == tried, "a damaged state is refused (%zu of %zu)", refused, tried);
    const tg_state good = {bytes, size}, of_other = {kept.data[1], kept.size[1]};
    tg_status status = tg_reducer_load(s.reducer, &of_other, 1, &s.error);
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "rank 1"), "another rank's state is refused: %s",
          s.error.message);
    check(tg_reducer_load(s.reducer, &good, 1, &s.error) == TG_OK, "the good one is taken: %s", s.error.message);
    const tg_state twice[2] = {good, good};
    status = tg_reducer_load(s.reducer, twice, 2, &s.error);
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "rank 0"), "a state given twice is refused: %s",
          s.error.message);
    size_t again = 0;
    unsigned char *copy = malloc(size);
    check(tg_reducer_save(s.reducer, copy, size, &again, &s.error) == TG_OK && again == size &&
              memcmp(copy, bytes, size) == 0,
          "saving what was loaded gives the same bytes");
    check(tg_reducer_save(s.reducer, copy, size - 1, &again, &s.error) == TG_BUFFER_TOO_SMALL,
          "a small buffer is refused");
    free(copy);
    close_rank(&s);

    const tensor_case renamed[] = {tensors[0],
                                   {"other", "topk:density=0.02", "dgc:momentum=0.5", 70001, TG_FLOAT32},
                                   tensors[2],
                                   tensors[3],
                                   tensors[4]};
    what.tensors = renamed;
    open_rank(&s, &what, 0, NULL);
    status = tg_reducer_load(s.reducer, &good, 1, &s.error);
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "other") && strstr(s.error.message, "sparse"),
          "another name: %s", s.error.message);
    close_rank(&s);
    const tensor_case resized[] = {
        {"weights", "qsgd:levels=7", "ef", 30001, TG_FLOAT32}, tensors[1], tensors[2], tensors[3], tensors[4]};
    what.tensors = resized;
    open_rank(&s, &what, 0, NULL);
    status = tg_reducer_load(s.reducer, &good, 1, &s.error);
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "weights"), "another count: %s", s.error.message);
    close_rank(&s);
    what.tensors = tensors;
    what.world = 1;
    open_rank(&s, &what, 0, NULL);
    const tg_state both[2] = {good, of_other}, swapped[2] = {of_other, good};
    status = tg_reducer_load(s.reducer, &good, 1, &s.error);
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "rank 1"),
          "a world of two to one, of which one is missing: %s", s.error.message);
    status = tg_reducer_load(s.reducer, swapped, 2, &s.error); /* sums depend on the order */
    check(status == TG_LAYOUT_MISMATCH && strstr(s.error.message, "rank 0 is expected"), "out of order: %s",
          s.error.message);
    check(tg_reducer_load(s.reducer, both, 2, &s.error) == TG_OK, "both are taken: %s", s.error.message);
    close_rank(&s);
    free(kept.data[0]);
    free(kept.data[1]);
}

/* ---- states that are forged: the checksum holds ---- */

enum { LONE = 3000, COUNTERS = 10 * 8 + 6 * 8, STATISTICS = 8 * 8 };
static const tensor_case lone[] = {{"w", "qsgd:levels=7", "ef", LONE, TG_FLOAT32}, {NULL, NULL, NULL, 0, TG_FLOAT32}};
enum {
    RESIDUAL_AT = TG_STATE_HEAD + COUNTERS + TG_STATE_IDENTITY + 1 + STATISTICS,
    SECONDS_AT = RESIDUAL_AT + 4 * LONE + 8
};

static void forged(uint32_t world, uint32_t rank, const saved *good, const char *what, size_t at, const void *edit,
                   size_t edit_size, size_t size, const char *words)
{
    const rank_case loading = {.world = world, .tensors = lone, .options = {.algorithm = TG_SHARD}};
    rank_state s;
    tg_state states[2];
    unsigned char *copies[2];
    open_rank(&s, &loading, world == 1 ? 0 : rank, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        copies[i] = malloc(good->size[i]);
        memcpy(copies[i], good->data[i], good->size[i]);
        states[i] = (tg_state){copies[i], size && i == rank ? size : good->size[i]};
    }
    memcpy(copies[rank] + at, edit, edit_size);
    tg_store64(copies[rank] + states[rank].size - 8,
               cpu_of(s.device)->kernels->digest(copies[rank], states[rank].size - 8));
    const tg_status status = tg_reducer_load(s.reducer, states + (world == 1 ? 0 : rank), world == 1 ? 2 : 1, &s.error);
    check(status == TG_CORRUPT && strstr(s.error.message, words), "forged: %s is refused: %s", what, s.error.message);
    free(copies[0]);
    free(copies[1]);
    close_rank(&s);
}

static void refuses_forged(void)
{
    saved kept;
    memset(&kept, 0, sizeof kept);
    const rank_case what = {.world = 2, .tensors = lone, .options = {.algorithm = TG_SHARD}, .shape = GAUSSIAN};
    run_ranks(&what, NULL, save_only, nothing_failed, &kept);
    check_all("a small state is saved");
    const uint32_t owner = kept.size[1] > kept.size[0]; /* the one that has a second residual */
    uint8_t nan[8], huge[4];                            /* as the state has numbers, whatever this machine does */
    tg_store64(nan, UINT64_C(0x7ff8000000000000));
    tg_store_float(huge, 3e38f);
    forged(2, owner, &kept, "a bit that means nothing", 6, "\4", 1, 0, "reserved bits");
    forged(2, owner, &kept, "an unknown algorithm", 5, "\7", 1, 0, "algorithm 7");
    forged(2, owner, &kept, "a norm that is no number", TG_STATE_HEAD + 80, nan, 8, 0, "statistics");
    forged(2, owner, &kept, "a lack of second residuals", SECONDS_AT, "\0", 1, SECONDS_AT + 4 + 8, "lacks");
    forged(1, owner, &kept, "a residual that cannot be added to others", SECONDS_AT + 4 + 20 + STATISTICS, huge, 4, 0,
           "overflow when they are scaled");
    free(kept.data[0]);
    free(kept.data[1]);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    resumes(TG_GATHER, 3, 1);
    resumes(TG_SHARD, 3, 1);
    resumes(TG_SHARD, 4, 2);
    resumes(TG_SCATTER, 3, 2);
    moves(TG_GATHER, 4, 2);
    moves(TG_GATHER, 2, 4);
    moves(TG_SHARD, 4, 2);
    moves(TG_SHARD, 2, 4);
    moves(TG_SCATTER, 4, 2);
    moves(TG_SCATTER, 2, 4);
    refuses();
    refuses_forged();
    return finish();
}
