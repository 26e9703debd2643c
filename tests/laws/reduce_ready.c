/* Laws of gradients that are given one by one: in whatever order they come, and whenever, results, residuals and every
 * byte that is sent are those of a reduction that had all at once. Absent tensors count as zero, and their residuals
 * wait. A fault at the very end loses nothing. All ranks run in one thread, their turns drawn at random; the size of
 * every other message is not told. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

enum { MOST_WORLD = 5, MOST_EXCHANGES = 256 };

static const tensor_case tensors[] = {
    {"a", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
    {"b", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
    {"empty", "none", "none", 0, TG_FLOAT32},
    {"c", "topk:density=0.1,values=levels", "dgc:momentum=0.5,clip=2", 3000, TG_FLOAT32},
    {"d", "none", "none", 17, TG_BFLOAT16},
    {"e", "fp16", "ef", 20000, TG_FLOAT16},
    {"f", "topk:density=0.01,values=fp16", "ef", 66000, TG_FLOAT32},
    {NULL, NULL, NULL, 0, TG_FLOAT32}};
/* Lossless values on a grid, so that sums are exact. */
static const tensor_case on_grid[] = {{"a", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                      {"b", "fp16", "ef", 20000, TG_FLOAT32},
                                      {"c", "gaussiank:density=0.05", "ef", 5000, TG_FLOAT32},
                                      {"d", "none", "ef", 300, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* Two levels refuse a clip. */
static const tensor_case without_clip[] = {
    {"a", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
    {"b", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
    {"empty", "none", "none", 0, TG_FLOAT32},
    {"c", "topk:density=0.1,values=levels", "dgc:momentum=0.5,clip=0", 3000, TG_FLOAT32},
    {"d", "none", "none", 17, TG_BFLOAT16},
    {"e", "fp16", "ef", 20000, TG_FLOAT16},
    {"f", "topk:density=0.01,values=fp16", "ef", 66000, TG_FLOAT32},
    {NULL, NULL, NULL, 0, TG_FLOAT32}};

static const struct placement {
    const char *name;
    uint32_t world, hosts[MOST_WORLD];
} placements[] = {{"2 hosts of 2", 4, {0, 0, 1, 1}},
                  {"hosts of 1 and 3", 4, {1, 0, 0, 0}},
                  {"3 hosts that take turns", 5, {4, 1, 4, 2, 1}}};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

/* How the ranks of a run behave. */
typedef struct behaviour {
    bool one_by_one;
    generator order;              /* of gradients and turns */
    uint32_t absent_from;         /* of 256, how many tensors are absent */
    uint32_t bad_rank, bad_index; /* has a value that is not finite in step 1; TG_MAX_COUNT: none */
} behaviour;

typedef struct world {
    uint32_t count;
    rank_state ranks[MOST_WORLD];
    tg_reduction *reductions[MOST_WORLD];
    bool absent[MOST_WORLD][MOST_TENSORS], present[MOST_WORLD][MOST_TENSORS];
    size_t waiting[MOST_WORLD][MOST_TENSORS], waiting_count[MOST_WORLD]; /* tensors to be given */
    tg_exchange *started[MOST_WORLD][MOST_EXCHANGES];
    size_t started_count[MOST_WORLD], fed[MOST_WORLD], delivered;
    tg_status status[MOST_WORLD];
    uint64_t digest; /* of everything that was sent */
} world;

static void digest_bytes(uint64_t *digest, const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    uint64_t d = *digest;
    for (size_t i = 0; i < size; i++)
        d = (d ^ p[i]) * UINT64_C(0x100000001b3);
    *digest = d;
}

/* ---- exchanges ---- */

/* Exchanges that every rank has started are delivered; all must be the same one. */
static void deliver(world *w)
{
    for (;; w->delivered++) {
        for (uint32_t i = 0; i < w->count; i++)
            if (w->started_count[i] == w->delivered)
                return;
        for (uint32_t from = 0; from < w->count; from++)
            for (uint32_t to = 0; to < w->count; to++) {
                const tg_exchange *sender = w->started[from][w->delivered], *receiver = w->started[to][w->delivered];
                expect(sender->kind == receiver->kind, "ranks %u and %u started different exchanges", from, to);
                if (from == to || sender->send_size[to] == TG_NO_MESSAGE ||
                    sender->send_size[to] > receiver->capacity[from])
                    continue;
                memcpy(receiver->receive[from], sender->send[to], sender->send_size[to]);
                receiver->received[from] = w->delivered % 2 ? TG_UNKNOWN_SIZE : sender->send_size[to];
                digest_bytes(&w->digest, sender->send[to], sender->send_size[to]);
            }
    }
}

static void start_some(world *w, uint32_t rank, size_t most)
{
    tg_exchange *e = NULL;
    for (size_t i = 0; i < most; i++) {
        expect(tg_reduce_next(w->reductions[rank], &e, &w->ranks[rank].error) == TG_OK, "next: %s",
               w->ranks[rank].error.message);
        if (!e || w->started_count[rank] == MOST_EXCHANGES)
            return;
        w->started[rank][w->started_count[rank]++] = e;
    }
}

static bool feed_one(world *w, uint32_t rank)
{
    if (w->fed[rank] == w->delivered)
        return false;
    tg_exchange *e = w->started[rank][w->fed[rank]++];
    expect(tg_reduce_feed(w->reductions[rank], e, &w->ranks[rank].error) == TG_OK, "feed: %s",
           w->ranks[rank].error.message);
    return true;
}

static void give_one(world *w, uint32_t rank, generator *g)
{
    size_t *waiting = w->waiting[rank], *count = &w->waiting_count[rank];
    if (*count == 0)
        return;
    const size_t place = next_random(g) % *count, index = waiting[place];
    rank_state *s = &w->ranks[rank];
    waiting[place] = waiting[--*count];
    const tg_status status = w->absent[rank][index]
                                 ? tg_reduce_absent(w->reductions[rank], index, &s->gradients[index], &s->error)
                                 : tg_reduce_ready(w->reductions[rank], index, &s->gradients[index], &s->error);
    expect(status == TG_OK, "rank %u, tensor %zu: %s", rank, index, s->error.message);
}

/* ---- steps ---- */

static bool is_absent(const behaviour *b, uint64_t step, uint32_t rank, size_t index)
{
    generator g = {1 + step * 7919 + rank * 104729 + index * 1299709};
    (void)next_random(&g);
    if (index == 3 && step == 1) /* on all ranks */
        return b->absent_from > 0;
    return next_random(&g) % 256 < b->absent_from;
}

static void begin(world *w, const behaviour *b, uint64_t step)
{
    w->delivered = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        rank_state *s = &w->ranks[i];
        fill_gradients(s, step);
        if (step == 1 && i == b->bad_rank)
            ((float *)s->gradients[b->bad_index].data)[5] = NAN;
        const bool all = !b->one_by_one && b->absent_from == 0;
        w->started_count[i] = w->fed[i] = w->waiting_count[i] = 0;
        expect(tg_reduce_begin(s->reducer, all ? s->gradients : NULL, step, &w->reductions[i], &s->error) == TG_OK,
               "begin: %s", s->error.message);
        for (size_t t = 0; t < s->tensor_count; t++) {
            w->absent[i][t] = is_absent(b, step, i, t);
            if (w->absent[i][t]) /* so that what is written shows */
                memset(s->gradients[t].data, 0x5a, s->gradients[t].count * tg_dtype_size(s->gradients[t].dtype));
            if (!all)
                w->waiting[i][w->waiting_count[i]++] = t;
        }
        for (size_t t = 0; !all && !b->one_by_one && t < s->tensor_count; t++)
            give_one(w, i, &(generator){t});
    }
}

static bool is_done(const world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (w->waiting_count[i] > 0 || w->fed[i] < w->started_count[i])
            return false;
    return true;
}

/* Turns at random; after many without any, all ranks do what they can, so that it ends. */
static void take_turns(world *w, behaviour *b)
{
    for (unsigned idle = 0; idle < 3;) {
        generator *g = &b->order;
        const uint32_t rank = (uint32_t)(next_random(g) % w->count);
        const unsigned what = b->one_by_one ? (unsigned)(next_random(g) % 8) : 7;
        if (what < 2)
            give_one(w, rank, g);
        else if (what < 5)
            start_some(w, rank, 1 + next_random(g) % 3);
        else if (what < 7)
            (void)feed_one(w, rank);
        else
            for (uint32_t i = 0; i < w->count && !b->one_by_one; i++) {
                start_some(w, i, MOST_EXCHANGES);
                deliver(w);
                (void)feed_one(w, i);
            }
        deliver(w);
        if (!is_done(w)) {
            idle = 0;
            continue;
        }
        for (uint32_t i = 0; i < w->count; i++)
            start_some(w, i, MOST_EXCHANGES);
        deliver(w);
        idle++;
    }
}

static void make_step(world *w, behaviour *b, uint64_t step)
{
    begin(w, b, step);
    take_turns(w, b);
    for (uint32_t i = 0; i < w->count; i++) {
        rank_state *s = &w->ranks[i];
        for (size_t t = 0; t < s->tensor_count; t++)
            expect(tg_reduce_present(w->reductions[i], t, &w->present[i][t], &s->error) == TG_OK, "present: %s",
                   s->error.message);
        w->status[i] = tg_reduce_end(w->reductions[i], &s->error);
    }
}

static void open_world(world *w, const rank_case *what)
{
    memset(w, 0, sizeof *w);
    w->count = what->world;
    for (uint32_t i = 0; i < w->count; i++) {
        open_rank(&w->ranks[i], what, i, NULL);
        expect(w->ranks[i].status == TG_OK, "create: %s", w->ranks[i].error.message);
    }
}

static void close_world(world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        close_rank(&w->ranks[i]);
}

/* A tensor's residual; NULL where it keeps none. */
static float *residual_on(const rank_state *s, size_t t)
{
    if (s->tensors[t].feedback.kind == TG_FEEDBACK_NONE)
        return NULL;
    tg_error error;
    float *h = malloc((s->tensors[t].count + 1) * sizeof *h);
    expect(tg_reducer_residual_read(s->reducer, t, h, s->tensors[t].count, &error) == TG_OK, "%s", error.message);
    return h;
}

/* ---- one by one is as all at once ---- */

/* (What is sent in a step that fails depends on when a rank hears of it.) */
static void same_as(const world *a, const world *b, uint64_t step)
{
    const bool applied = a->status[0] == TG_OK;
    expect(!applied || a->digest == b->digest, "step %d: other bytes were sent", (int)step);
    for (uint32_t i = 0; i < a->count; i++) {
        const rank_state *x = &a->ranks[i], *y = &b->ranks[i];
        tg_reducer_stats sent_x, sent_y;
        expect(a->status[i] == b->status[i], "step %d, rank %u: %s; %s", (int)step, i, x->error.message,
               y->error.message);
        expect(tg_reducer_stats_of(x->reducer, &sent_x, NULL) == TG_OK &&
                   tg_reducer_stats_of(y->reducer, &sent_y, NULL) == TG_OK &&
                   (!applied || sent_x.bytes_sent == sent_y.bytes_sent) && sent_x.frame_bytes == sent_y.frame_bytes,
               "rank %u sent another number of bytes", i);
        for (size_t t = 0; t < x->tensor_count; t++) {
            const size_t size = x->gradients[t].count * tg_dtype_size(x->gradients[t].dtype);
            expect(memcmp(x->gradients[t].data, y->gradients[t].data, size) == 0,
                   "step %d: rank %u has another mean of tensor %zu", (int)step, i, t);
            expect(a->present[i][t] == b->present[i][t], "tensor %zu is present in one run", t);
            float *h = residual_on(x, t), *k = residual_on(y, t);
            expect(!h || memcmp(h, k, x->gradients[t].count * sizeof *h) == 0,
                   "step %d: rank %u has another residual of tensor %zu", (int)step, i, t);
            free(h);
            free(k);
        }
    }
}

static void one_by_one(const rank_case *what, behaviour b, const char *text)
{
    static world together, apart;
    behaviour at_once = b;
    at_once.one_by_one = false;
    b.one_by_one = true;
    open_world(&together, what);
    open_world(&apart, what);
    for (uint64_t step = 0; step < what->steps; step++) {
        make_step(&together, &at_once, step);
        make_step(&apart, &b, step);
        same_as(&together, &apart, step);
        const bool fails = step == 1 && b.bad_rank < what->world;
        for (uint32_t i = 0; i < what->world; i++)
            expect((together.status[i] == TG_OK) == !fails, "step %d, rank %u: %s", (int)step, i,
                   together.ranks[i].error.message);
    }
    close_world(&together);
    close_world(&apart);
    check_all("%s, world %u%s, %s: in any order as all at once", tg_algorithm_text(what->options.algorithm),
              what->world, what->options.host_of_rank ? " on hosts" : "", text);
}

/* The three ways in which ranks behave. */
static void any_order_of(const rank_case *what, uint64_t seed)
{
    rank_case failing = *what; /* an owner's second residual goes back to rounding: no step follows */
    failing.steps = 2;
    const behaviour b = {.order = {seed * 31 + what->world}, .bad_rank = TG_MAX_COUNT};
    behaviour some = b, bad = b;
    some.absent_from = 80;
    bad.bad_rank = what->world / 2;
    bad.bad_index = 6;
    one_by_one(what, b, "all present");
    one_by_one(what, some, "some absent");
    one_by_one(&failing, bad, "not finite at the end");
}

static void any_order(bool all)
{
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++)
        for (uint32_t count = 1; count <= MOST_WORLD; count++)
            for (uint64_t seed = 1; seed <= (all ? 8 : EMULATED ? 1 : 2); seed++) {
                if (!my_turn())
                    continue;
                const rank_case what = {
                    .world = count,
                    .tensors = tensors,
                    .options = {.algorithm = (tg_algorithm)algorithm, .batch_elements = 8192, .seed = 3},
                    .shape = GAUSSIAN,
                    .steps = 3};
                any_order_of(&what, seed);
            }
}

static void any_order_on_hosts(bool all)
{
    for (size_t i = 0; i < PLACEMENTS; i++)
        for (uint64_t seed = 1; seed <= (all ? 8 : 1); seed++)
            for (int algorithm = TG_GATHER; algorithm <= TG_SHARD; algorithm++) {
                if (EMULATED && (i + (size_t)algorithm) % 2 == 0)
                    continue;
                const rank_case what = {.world = placements[i].world,
                                        .tensors = without_clip,
                                        .options = {.algorithm = (tg_algorithm)algorithm,
                                                    .batch_elements = 8192,
                                                    .seed = 3,
                                                    .host_of_rank = placements[i].hosts},
                                        .shape = GAUSSIAN,
                                        .steps = 3};
                any_order_of(&what, seed);
            }
}

/* ---- absent tensors ---- */

typedef struct ledger {
    double *owed[MOST_TENSORS];
    float *before[MOST_WORLD][MOST_TENSORS];
} ledger;

static void note_before(world *w, ledger *l, const behaviour *b, uint64_t step)
{
    for (uint32_t i = 0; i < w->count; i++) {
        rank_state *s = &w->ranks[i];
        fill_gradients(s, step);
        for (size_t t = 0; t < s->tensor_count; t++) {
            l->before[i][t] = residual_on(s, t);
            for (uint64_t j = 0; !is_absent(b, step, i, t) && j < s->gradients[t].count; j++)
                l->owed[t][j] += (double)element(&s->gradients[t], j);
        }
    }
}

/* Whether a rank's residual waits: in two levels it is that of its host's sum. */
static bool waits(const world *w, uint32_t rank, size_t t)
{
    const uint32_t *hosts = w->ranks[0].what->options.host_of_rank;
    bool all = w->absent[rank][t];
    for (uint32_t i = 0; hosts && i < w->count; i++)
        all = all && (hosts[i] != hosts[rank] || w->absent[i][t]);
    return all;
}

static void check_absent(world *w, ledger *l)
{
    join_parts(w->ranks, w->count);
    for (size_t t = 0; t < w->ranks[0].tensor_count; t++) {
        const uint64_t count = w->ranks[0].gradients[t].count;
        bool anywhere = false;
        for (uint32_t i = 0; i < w->count; i++)
            anywhere = anywhere || !w->absent[i][t];
        for (uint32_t i = 0; i < w->count; i++) {
            const uint8_t *mean = w->ranks[i].gradients[t].data;
            float *after = residual_on(&w->ranks[i], t);
            expect(w->present[i][t] == anywhere, "rank %u: whether tensor %zu is present", i, t);
            if (waits(w, i, t))
                expect(memcmp(after, l->before[i][t], count * sizeof *after) == 0,
                       "rank %u: the residual of absent tensor %zu changed", i, t);
            if (anywhere)
                expect(memcmp(mean, w->ranks[0].gradients[t].data, count * sizeof(float)) == 0,
                       "rank %u has another mean of tensor %zu", i, t);
            for (uint64_t j = 0; !anywhere && j < count * sizeof(float); j++)
                expect(mean[j] == 0x5a, "tensor %zu is absent everywhere, and was written", t);
            free(after);
            free(l->before[i][t]);
        }
        for (uint64_t j = 0; anywhere && j < count; j++)
            l->owed[t][j] -= (double)w->count * (double)element(&w->ranks[0].gradients[t], j);
    }
}

/* A world of four and values on a grid of 2^-10: nothing is rounded, so nothing may be missing. */
static void absent_waits(tg_algorithm algorithm, const uint32_t *hosts)
{
    static world w;
    const rank_case what = {.world = 4,
                            .tensors = on_grid,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = hosts},
                            .shape = GRID,
                            .steps = 3};
    behaviour b = {.one_by_one = true, .order = {77}, .absent_from = 90, .bad_rank = TG_MAX_COUNT};
    ledger l;
    open_world(&w, &what);
    for (size_t t = 0; on_grid[t].name; t++)
        l.owed[t] = calloc(on_grid[t].count, sizeof(double));
    for (uint64_t step = 0; step < what.steps; step++) {
        note_before(&w, &l, &b, step);
        make_step(&w, &b, step);
        for (uint32_t i = 0; i < w.count; i++)
            expect(w.status[i] == TG_OK, "%s", w.ranks[i].error.message);
        check_absent(&w, &l);
    }
    for (size_t t = 0; on_grid[t].name; t++) {
        double worst = 0;
        for (uint32_t i = 0; i < w.count; i++) {
            float *h = residual_on(&w.ranks[i], t);
            for (uint64_t j = 0; j < on_grid[t].count; j++)
                l.owed[t][j] -= (double)h[j];
            free(h);
        }
        for (uint64_t j = 0; j < on_grid[t].count; j++)
            worst = fabs(l.owed[t][j]) > worst ? fabs(l.owed[t][j]) : worst;
        expect(worst == 0, "%g of tensor %zu is missing", worst, t);
        free(l.owed[t]);
    }
    close_world(&w);
    check_all("%s%s: absent tensors wait, and no mass is lost", tg_algorithm_text(algorithm), hosts ? ", hosts" : "");
}

/* ---- a fault at the end ---- */

/* The last tensor of rank 1 is not finite, when all others have been compressed: they are in the residuals. */
static void nothing_is_lost(tg_algorithm algorithm)
{
    static world w;
    const rank_case what = {.world = 4,
                            .tensors = on_grid,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .nonfinite = TG_NONFINITE_SKIP},
                            .shape = GRID,
                            .steps = 2};
    behaviour b = {.one_by_one = true, .order = {5}, .bad_rank = 1, .bad_index = 3};
    open_world(&w, &what);
    make_step(&w, &b, 0);
    float *before[4][MOST_TENSORS];
    for (uint32_t i = 0; i < 4; i++)
        for (size_t t = 0; t < w.ranks[i].tensor_count; t++)
            before[i][t] = residual_on(&w.ranks[i], t);
    make_step(&w, &b, 1);
    for (uint32_t i = 0; i < 4; i++) {
        rank_state *s = &w.ranks[i];
        expect(w.status[i] == TG_SKIPPED && strstr(s->error.message, "'d' on rank 1"), "rank %u: %s", i,
               s->error.message);
        fill_gradients(s, 1);
        for (size_t t = 0; t < s->tensor_count; t++) {
            float *after = residual_on(s, t);
            const uint64_t bad = i == 1 && t == 3 ? shown_by(&w.ranks[0], t).to : 0; /* elements of that piece */
            for (uint64_t j = 0; j < s->gradients[t].count; j++)
                expect(after[j] == before[i][t][j] + (j < bad ? 0 : element(&s->gradients[t], j)),
                       "rank %u: element %d of tensor %zu is not in the residual", i, (int)j, t);
            free(after);
            free(before[i][t]);
        }
    }
    close_world(&w);
    check_all("%s: a value that is not finite comes last: every rank skips, nothing is lost",
              tg_algorithm_text(algorithm));
}

/* What all ranks of a host hold of a tensor, and are given for it: an owner's residual is of their sum. */
static double *host_sum(const world *w, uint32_t host, size_t t, uint32_t but)
{
    const uint64_t count = w->ranks[0].gradients[t].count;
    double *sum = calloc(count, sizeof *sum);
    for (uint32_t i = 0; i < w->count; i++) {
        float *h = w->ranks[0].what->options.host_of_rank[i] == host ? residual_on(&w->ranks[i], t) : NULL;
        for (uint64_t j = 0; h && j < count; j++)
            sum[j] += (double)h[j] + (i == but ? 0 : (double)element(&w->ranks[i].gradients[t], j));
        free(h);
    }
    return sum;
}

/* The gradients of a step that is lost, in place of those of the next one, which are not given. */
static void residuals_have_all(world *w, uint32_t host, size_t t, double *const *before, uint32_t bad_rank)
{
    const bool is_bad = t == 3 && w->ranks[0].what->options.host_of_rank[bad_rank] == host;
    for (uint32_t i = 0; i < w->count; i++)
        memset(w->ranks[i].gradients[t].data, 0, w->ranks[i].gradients[t].count * sizeof(float));
    double *after = host_sum(w, host, t, TG_MAX_COUNT);
    for (uint64_t j = 0; j < w->ranks[0].gradients[t].count; j++)
        expect(is_bad ? after[j] == before[1][j] || (j != 5 && after[j] == before[0][j]) : after[j] == before[0][j],
               "host %u: element %d of tensor %zu is not in the residual", host, (int)j, t);
    free(after);
}

/* The same in two levels: what is lost is the bad rank's part of the piece. */
static void nothing_is_lost_on_hosts(tg_algorithm algorithm, const struct placement *p)
{
    static world w;
    const rank_case what = {.world = p->world,
                            .tensors = on_grid,
                            .options = {.algorithm = algorithm,
                                        .batch_elements = 8192,
                                        .nonfinite = TG_NONFINITE_SKIP,
                                        .host_of_rank = p->hosts},
                            .shape = GRID,
                            .steps = 2};
    behaviour b = {.one_by_one = true, .order = {5}, .bad_rank = 1, .bad_index = 3};
    double *before[2][MOST_TENSORS][2]; /* of each host, with the bad rank's gradient and without */
    open_world(&w, &what);
    make_step(&w, &b, 0);
    for (uint32_t i = 0; i < w.count; i++)
        fill_gradients(&w.ranks[i], 1);
    for (uint32_t host = 0; host < 2; host++)
        for (size_t t = 0; on_grid[t].name; t++)
            for (size_t k = 0; k < 2; k++)
                before[host][t][k] = host_sum(&w, host, t, k == 0 ? TG_MAX_COUNT : b.bad_rank);
    make_step(&w, &b, 1);
    for (uint32_t i = 0; i < w.count; i++)
        expect(w.status[i] == TG_SKIPPED && strstr(w.ranks[i].error.message, "'d' on rank 1"), "rank %u: %s", i,
               w.ranks[i].error.message);
    for (uint32_t host = 0; host < 2; host++)
        for (size_t t = 0; on_grid[t].name; t++) {
            residuals_have_all(&w, host, t, before[host][t], b.bad_rank);
            free(before[host][t][0]);
            free(before[host][t][1]);
        }
    close_world(&w);
    check_all("%s, %s: a value that is not finite comes last: every rank skips, nothing is lost",
              tg_algorithm_text(algorithm), p->name);
}

/* ---- what is refused ---- */

static void refusals(void)
{
    const rank_case what = {.world = 1, .tensors = on_grid};
    rank_state s;
    tg_reduction *r;
    tg_exchange *e;
    bool present;
    open_rank(&s, &what, 0, NULL);
    fill_gradients(&s, 0);
    expect(tg_reduce_begin(s.reducer, NULL, 0, &r, &s.error) == TG_OK, "begin: %s", s.error.message);
    expect(tg_reduce_end(r, &s.error) == TG_INVALID_ARGUMENT && strstr(s.error.message, "4 tensors") &&
               strstr(s.error.message, "'a', 'b', 'c', ..."),
           "all are missing: %s", s.error.message);
    expect(tg_reduce_ready(r, 4, &s.gradients[0], &s.error) == TG_INVALID_ARGUMENT, "tensor 4");
    expect(tg_reduce_ready(r, 1, &s.gradients[0], &s.error) == TG_SHAPE_MISMATCH, "a wrong count");
    expect(tg_reduce_absent(r, 1, &s.gradients[0], &s.error) == TG_SHAPE_MISMATCH, "a wrong count of out");
    expect(tg_reduce_ready(r, 0, NULL, &s.error) == TG_INVALID_ARGUMENT, "no gradient");
    expect(tg_reduce_ready(r, 0, &s.gradients[0], &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reduce_ready(r, 0, &s.gradients[0], &s.error) == TG_INVALID_ARGUMENT && strstr(s.error.message, "'a'"),
           "twice: %s", s.error.message);
    expect(tg_reduce_absent(r, 0, NULL, &s.error) == TG_INVALID_ARGUMENT, "ready, and then absent");
    expect(tg_reduce_absent(r, 2, NULL, &s.error) == TG_OK && tg_reduce_ready(r, 3, &s.gradients[3], &s.error) == TG_OK,
           "%s", s.error.message);
    expect(tg_reduce_next(r, &e, &s.error) == TG_OK && !e, "%s", s.error.message);
    expect(tg_reduce_end(r, &s.error) == TG_INVALID_ARGUMENT && strstr(s.error.message, "'b'"), "b is missing: %s",
           s.error.message);
    expect(tg_reduce_present(r, 2, &present, &s.error) == TG_INVALID_ARGUMENT, "presence is not known yet");
    expect(tg_reduce_ready(r, 1, &s.gradients[1], &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reduce_next(r, &e, &s.error) == TG_OK && !e, "%s", s.error.message);
    expect(tg_reduce_present(r, 2, &present, &s.error) == TG_OK && !present, "%s", s.error.message);
    expect(tg_reduce_present(r, 1, &present, &s.error) == TG_OK && present, "%s", s.error.message);
    expect(tg_reduce_end(r, &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reduce_ready(r, 0, &s.gradients[0], &s.error) == TG_INVALID_ARGUMENT, "after the end");
    close_rank(&s);
    check_all("tensors that are missing, given twice or of a wrong shape are refused by name");
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    refusals();
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
        absent_waits((tg_algorithm)algorithm, NULL);
        nothing_is_lost((tg_algorithm)algorithm);
    }
    for (size_t i = 0; i < PLACEMENTS; i++)
        for (int algorithm = TG_GATHER; placements[i].world == 4 && algorithm <= TG_SHARD; algorithm++) {
            absent_waits((tg_algorithm)algorithm, placements[i].hosts);
            nothing_is_lost_on_hosts((tg_algorithm)algorithm, &placements[i]);
        }
    any_order(all);
    any_order_on_hosts(all);
    return finish();
}
