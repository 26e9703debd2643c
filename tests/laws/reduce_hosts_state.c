/* Laws of states with hosts: a run that is saved and loaded goes on to the bit; whatever the world, the hosts and the
 * algorithm change to, residuals will move the mean by as much as before; what does not fit is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/levels.h"

enum { BEFORE = 20, AFTER = 5 }; /* across a change of boundaries, which is every 16 steps */

static const tensor_case tensors[] = {{"weights", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
                                      {"sparse", "topk:density=0.02", "dgc:momentum=0.5,clip=0", 140001, TG_FLOAT32},
                                      {"levels", "topk:density=0.02,values=levels", "ef", 150000, TG_FLOAT16},
                                      {"bias", "none", "none", 10, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};
static const tensor_case grid[] = {{"dense", "onebit:bucket=0", "ef", 5000, TG_FLOAT32},
                                   {"cut", "fp16", "ef", 50001, TG_FLOAT32},
                                   {"sparse", "topk:density=0.01", "ef", 140000, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};
enum { LONGEST = 150000 };

static const uint32_t two_by_two[] = {0, 0, 1, 1}, turns[] = {0, 1, 0, 1}, uneven[] = {0, 1, 1, 0, 1, 2, 2},
                      one_host[] = {0, 0, 0};

typedef struct saved {
    void *data[MOST_RANKS];
    size_t size[MOST_RANKS];
    uint32_t world;
    tg_tensor result[MOST_TENSORS];
    double pending[MOST_TENSORS][LONGEST]; /* what residuals will move the mean by */
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
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const tg_tensor *g = &states[rank].gradients[i];
            expect(memcmp(k->result[i].data, g->data, g->count * tg_dtype_size(g->dtype)) == 0, "tensor %zu differs",
                   i);
        }
    }
}

static void drop_saved(saved *k)
{
    for (uint32_t rank = 0; rank < MOST_RANKS; rank++)
        free(k->data[rank]);
    for (size_t i = 0; i < MOST_TENSORS; i++)
        if (k->result[i].data)
            drop(&k->result[i]);
    free(k);
}

static void resumes(tg_algorithm algorithm, uint32_t world, const uint32_t *hosts, uint32_t depth)
{
    saved *kept = calloc(1, sizeof *kept);
    const rank_case what = {
        .world = world,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .batch_elements = 16384, .seed = 3, .depth = depth, .host_of_rank = hosts},
        .shape = LAYERED};
    run_ranks(&what, NULL, save_half_way, keep_result, kept);
    run_ranks(&what, NULL, load_and_go_on, compare_result, kept);
    check_all("%s, world %u, depth %u: a loaded run goes on to the bit", tg_algorithm_text(algorithm), world, depth);
    drop_saved(kept);
}

/* ---- another world, other hosts, another algorithm ---- */

typedef struct setting {
    const char *name;
    tg_algorithm algorithm;
    uint32_t world;
    const uint32_t *hosts;
} setting;

static const setting settings[] = {{"gather of 4 on 2 hosts", TG_GATHER, 4, two_by_two},
                                   {"shard of 4 on 2 hosts", TG_SHARD, 4, two_by_two},
                                   {"shard of 4 on 2 hosts that take turns", TG_SHARD, 4, turns},
                                   {"shard of 7 on 3 hosts", TG_SHARD, 7, uneven},
                                   {"3 on one host", TG_GATHER, 3, one_host},
                                   {"gather of 4", TG_GATHER, 4, NULL},
                                   {"shard of 2", TG_SHARD, 2, NULL}};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* What all residuals will move the mean by. */
static void add_pending(const rank_state *s, uint32_t world, double (*pending)[LONGEST])
{
    const tg_reducer *r = s->reducer, *home = r->levels ? r->levels->inner : r;
    for (size_t i = 0; i < r->tensor_count; i++) {
        const uint64_t count = r->tensors[i].given.count;
        float *residual = malloc(count * sizeof *residual);
        tg_error error;
        expect(tg_reducer_residual_read(r, i, residual, count, &error) == TG_OK, "%s", error.message);
        for (uint64_t j = 0; j < count; j++)
            pending[i][j] += (double)residual[j] / world;
        free(residual);
    }
    for (size_t p = 0; home && home->second && p < home->coded.piece_count; p++) {
        const tg_piece *piece = &home->coded.pieces[p];
        const float *residual = home->second[p] ? residual_of(home->second[p]) : NULL;
        const uint64_t start = piece->first + (r->levels ? r->tensors[piece->tensor].parts[r->levels->share] : 0);
        for (uint64_t j = 0; residual && j < piece->count; j++)
            pending[piece->tensor][start + j] += (double)residual[j];
    }
}

static void save_only(rank_state *s)
{
    make_steps(s, 0, 3);
    if (s->status == TG_OK)
        keep(s);
}

static void count_pending(rank_state *states, uint32_t world)
{
    saved *k = states[0].extra;
    k->world = world;
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        add_pending(&states[rank], world, k->pending);
    }
}

static void load_all(rank_state *s)
{
    saved *k = s->extra;
    tg_state states[MOST_RANKS];
    for (uint32_t rank = 0; rank < k->world; rank++)
        states[rank] = (tg_state){k->data[rank], k->size[rank]};
    s->status = tg_reducer_load(s->reducer, states, k->world, &s->error);
}

static void compare_pending(rank_state *states, uint32_t world)
{
    saved *k = states[0].extra;
    double(*pending)[LONGEST] = calloc(MOST_TENSORS, sizeof *pending), worst = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        if (states[rank].status == TG_OK)
            add_pending(&states[rank], world, pending);
    }
    for (size_t i = 0; i < states[0].tensor_count; i++)
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            worst = fabs(pending[i][j] - k->pending[i][j]) > worst ? fabs(pending[i][j] - k->pending[i][j]) : worst;
    /* Rounding of a few sums and products of numbers below 4, as in worlds of 3 and 7. */
    expect(worst < 4e-6, "%g is lost or made", worst);
    free(pending);
}

static rank_case case_of(const setting *s)
{
    return (rank_case){.world = s->world,
                       .tensors = grid,
                       .options = {.algorithm = s->algorithm, .batch_elements = 16384, .host_of_rank = s->hosts},
                       .shape = GRID};
}

static void moves(const setting *from, const setting *to)
{
    const rank_case before = case_of(from), after = case_of(to);
    saved *kept = calloc(1, sizeof *kept);
    run_ranks(&before, NULL, save_only, count_pending, kept);
    run_ranks(&after, NULL, load_all, compare_pending, kept);
    check_all("%s to %s: residuals move the mean by as much", from->name, to->name);
    drop_saved(kept);
}

/* ---- refused ---- */

static void load_some(rank_state *s)
{
    saved *k = s->extra;
    const tg_state states[] = {{k->data[0], k->size[0]}, {k->data[1], k->size[1]}};
    s->status = tg_reducer_load(s->reducer, states, 2, &s->error);
}

static void says_all(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_LAYOUT_MISMATCH && strstr(states[rank].error.message, "all ranks"),
               "rank %u: %s", rank, states[rank].error.message);
}

static void refused(void)
{
    const rank_case before = case_of(&settings[0]), after = case_of(&settings[1]);
    saved *kept = calloc(1, sizeof *kept);
    run_ranks(&before, NULL, save_only, count_pending, kept);
    run_ranks(&after, NULL, load_some, says_all, kept);
    check_all("states of some ranks are refused where those of all are needed");
    for (size_t cut = 1; cut < kept->size[0]; cut += 1 + kept->size[0] / 50) {
        rank_state s;
        open_rank(&s, &before, 0, NULL);
        const tg_state state = {kept->data[0], kept->size[0] - cut};
        expect(tg_reducer_load(s.reducer, &state, 1, &s.error) != TG_OK, "a state that lacks %zu bytes is loaded", cut);
        close_rank(&s);
    }
    check_all("states that are cut are refused");
    drop_saved(kept);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    resumes(TG_GATHER, 4, two_by_two, 1);
    resumes(TG_SHARD, 4, two_by_two, 2);
    resumes(TG_SHARD, 7, uneven, 1);
    resumes(TG_GATHER, 3, one_host, 1);
    for (size_t from = 0; from < SETTINGS; from++)
        for (size_t to = 0; to < SETTINGS; to++)
            if ((settings[from].hosts || settings[to].hosts) && from != to && (all || (from + 2 * to) % 3 == 0))
                moves(&settings[from], &settings[to]);
    refused();
    return finish();
}
