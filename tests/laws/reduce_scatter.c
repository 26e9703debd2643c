/* Laws of scatter: whatever the boundaries, each rank is left with the mean of what the codecs make of its part, to the
 * bit, and the rest of its gradients is as it was; what is sent is what shard sends, where parts are those of shard;
 * residuals plus what was applied are the sum of the gradients. Two of three ranks are on guarded devices. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/reducer.h"

enum { MOST_WORLD = 5, STEPS = 3, SEED = 9 };

/* ---- boundaries ---- */

typedef struct boundaries {
    uint64_t of[MOST_TENSORS][MOST_WORLD + 1];
    const uint64_t *list[MOST_TENSORS];
} boundaries;

/* Anywhere, and now and then nothing for a rank, or everything. */
static void draw_boundaries(generator *g, const tensor_case *tensors, uint32_t world, boundaries *b)
{
    for (size_t t = 0; tensors[t].name; t++) {
        const uint64_t count = tensors[t].count;
        uint64_t *of = b->of[t];
        of[0] = 0;
        for (uint32_t rank = 1; rank <= world; rank++) {
            const uint64_t left = count - of[rank - 1], kind = next_random(g) % 8;
            of[rank] = of[rank - 1] + (kind == 0   ? 0
                                       : kind == 1 ? left
                                                   : next_random(g) % (2 * left / (world - rank + 1) + 1) % (left + 1));
        }
        of[world] = count;
        b->list[t] = of;
    }
}

/* ---- against the codecs used by hand ---- */

static const tensor_case by_hand[] = {{"levels", "qsgd:levels=7", "ef", 5000, TG_FLOAT32},
                                      {"few", "topk:density=0.1", "ef", 3001, TG_FLOAT16},
                                      {"empty", "none", "none", 0, TG_FLOAT32},
                                      {"plain", "none", "none", 17, TG_BFLOAT16},
                                      {"signs", "onebit:bucket=0", "ef", 4099, TG_BFLOAT16},
                                      {"chance", "randk:density=0.05,values=fp16", "none", 2000, TG_FLOAT32},
                                      {"cast", "fp16", "ecq:alpha=0.5,beta=0.9", 9001, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* What one rank's encoder needs for the elements from..to-1 of a tensor. */
typedef struct encoder {
    tg_codec *codec;
    tg_feedback *feedback;
    uint8_t *frame;
    size_t bound;
} encoder;

static encoder make_encoder(tg_device *device, const tensor_case *t, uint64_t count)
{
    encoder e = {.codec = make_codec(device, t->spec, count)};
    tg_feedback_spec spec;
    tg_error error;
    expect(tg_feedback_parse(t->feedback, &spec, &error) == TG_OK &&
               tg_feedback_create(device, &spec, tg_codec_spec(e.codec), count, true, &e.feedback, &error) == TG_OK,
           "feedback: %s", error.message);
    e.bound = tg_frame_bound(e.codec, count);
    e.frame = malloc(e.bound);
    return e;
}

static void free_encoder(encoder *e)
{
    tg_codec_free(e->codec);
    tg_feedback_free(e->feedback);
    free(e->frame);
}

/* The mean over all ranks of the elements from..to-1 as each decodes them, after `steps` steps. What is encoded
 * together is `range`: the part, or the whole tensor where elements are selected. */
static void mean_by_hand(const tensor_case *t, size_t tensor, uint32_t world, uint32_t draw, element_range range,
                         float *mean)
{
    tg_device *device = open_device("cpu/scalar");
    const uint64_t count = range.to - range.from;
    tg_tensor whole = make_tensor(t->count, t->dtype, 0), out = {mean, count, TG_FLOAT32};
    const tg_tensor part = {(char *)whole.data + range.from * tg_dtype_size(t->dtype), count, t->dtype};
    tg_error error;
    memset(mean, 0, count * sizeof *mean);
    for (uint32_t rank = 0; rank < world; rank++) {
        encoder e = make_encoder(device, t, count);
        tg_encode_report report = {.bytes = 0};
        for (uint64_t step = 0; step < STEPS; step++) {
            const tg_encode_options options = {.draw = {.seed = SEED, .step = step, .tensor = draw, .rank = rank}};
            fill(GAUSSIAN, 1 + step * 1000 + rank * 10 + tensor, &whole);
            expect(tg_encode_with_feedback(e.codec, e.feedback, &part, &options, e.frame, e.bound, &report, &error) ==
                       TG_OK,
                   "encode: %s", error.message);
        }
        expect(tg_decode_add(device, &(tg_frame){e.frame, report.bytes}, 1, 1, 0, &out, &error) == TG_OK, "decode: %s",
               error.message);
        free_encoder(&e);
    }
    for (uint64_t i = 0; i < count; i++)
        mean[i] = mean[i] * (1.0f / (float)world);
    drop(&whole);
    tg_device_free(device);
}

/* Compares a part with the mean that it should be, and what lies around it with the gradient that was given. */
static void compare(const rank_state *s, size_t t, const float *mean)
{
    const tg_tensor *g = &s->gradients[t];
    const element_range own = shown_by(s, t);
    tg_tensor given = make_tensor(g->count, g->dtype, 0);
    const size_t size = tg_dtype_size(g->dtype);
    fill(GAUSSIAN, 1 + (STEPS - 1) * 1000 + s->rank * 10 + t, &given);
    for (uint64_t first = own.from; first < own.to; first += TG_BLOCK)
        s->reducer->kernels->narrow(g->dtype, mean + (first - own.from), tg_block_size(own.to, first),
                                    (char *)given.data + first * size);
    expect(memcmp(given.data, g->data, g->count * size) == 0, "rank %u, tensor %zu (%s), part %" PRIu64 " to %" PRIu64,
           s->rank, t, by_hand[t].spec, own.from, own.to);
    drop(&given);
}

/* Frames are numbered by piece, and a tensor has one for each part, or one in all where elements are selected. */
static void equals_by_hand(rank_state *states, uint32_t world)
{
    uint32_t piece = 0;
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        const bool selects = is_sparsifier(by_hand[t].spec);
        const uint64_t count = by_hand[t].count;
        float *mean = malloc((count + 1) * sizeof *mean);
        if (selects)
            mean_by_hand(&by_hand[t], t, world, piece * world, (element_range){0, count}, mean);
        for (uint32_t rank = 0; rank < world; rank++) {
            const element_range own = shown_by(&states[rank], t);
            expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
            if (own.from == own.to)
                continue;
            if (!selects)
                mean_by_hand(&by_hand[t], t, world, piece * world + rank, own, mean);
            compare(&states[rank], t, selects ? mean + own.from : mean);
            piece += !selects;
        }
        piece += selects && count > 0;
        free(mean);
    }
}

static void make_steps(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void by_hand_anywhere(uint64_t cases)
{
    generator g = {20};
    for (uint64_t i = 0; i < cases; i++) {
        const uint32_t world = 1 + (uint32_t)(i % MOST_WORLD);
        boundaries b;
        draw_boundaries(&g, by_hand, world, &b);
        const rank_case what = {.world = world,
                                .tensors = by_hand,
                                .options = {.algorithm = TG_SCATTER, .seed = SEED},
                                .shape = GAUSSIAN,
                                .steps = STEPS,
                                .boundaries = i % 4 == 3 ? NULL : b.list};
        run_ranks(&what, NULL, make_steps, equals_by_hand, NULL);
        check_all("world %u, %s: the mean of what the codecs make of the parts, to the bit", world,
                  i % 4 == 3 ? "equal parts" : "any boundaries");
    }
}

/* ---- as shard sends it ---- */

enum { LIKE_SHARD = 70001 };

/* The frames of a step, one after the other, of all ranks; and where shard's parts were. */
typedef struct traffic {
    uint64_t digest[MOST_WORLD][STEPS];
    uint64_t boundaries[MOST_WORLD + 1];
    tg_tensor means[MOST_WORLD];
} traffic;

static void note_frames(rank_state *s)
{
    traffic *t = s->extra;
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        const tg_reduction *r = &s->reducer->reductions[0];
        uint64_t digest = 1;
        for (size_t i = 0; i < r->plan->part_count; i++)
            if (r->sent[i].data)
                digest = digest * 3 + s->reducer->kernels->digest(r->sent[i].data, r->sent[i].size);
        t->digest[s->rank][step] = digest;
    }
}

static void note_boundaries(rank_state *states, uint32_t world)
{
    traffic *t = states[0].extra;
    const tg_reduction *r = &states[0].reducer->reductions[0];
    memset(t->boundaries, 0, sizeof t->boundaries);
    for (size_t i = 0; i < r->plan->piece_count; i++)
        for (uint32_t rank = 0; rank < world; rank++) {
            const tg_piece *piece = &r->plan->pieces[i];
            if (tg_goes_to(piece, rank))
                t->boundaries[rank + 1] = piece->owner == TG_EVERY_OWNER ? piece->count * (rank + 1) / world
                                                                         : piece->first + piece->count;
        }
    for (uint32_t rank = 1; rank <= world; rank++)
        t->boundaries[rank] = t->boundaries[rank] < t->boundaries[rank - 1] ? t->boundaries[rank - 1]
                                                                            : t->boundaries[rank];
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_tensor *g = &states[rank].gradients[0];
        t->means[rank] = make_tensor(g->count, g->dtype, 0);
        memcpy(t->means[rank].data, g->data, g->count * tg_dtype_size(g->dtype));
        expect(states[rank].status == TG_OK, "shard, rank %u: %s", rank, states[rank].error.message);
    }
}

static traffic of_shard;
static bool is_lossless; /* then results are, too */

static void same_frames(rank_state *states, uint32_t world)
{
    const traffic *t = states[0].extra;
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_tensor *g = &states[rank].gradients[0];
        const element_range own = shown_by(&states[rank], 0);
        const size_t size = tg_dtype_size(g->dtype);
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (uint64_t step = 0; step < states[0].what->steps; step++)
            expect(t->digest[rank][step] == of_shard.digest[rank][step], "step %" PRIu64 ": rank %u sends other frames",
                   step, rank);
        expect(!is_lossless ||
                   memcmp((const char *)g->data + own.from * size,
                          (const char *)of_shard.means[rank].data + own.from * size, (own.to - own.from) * size) == 0,
               "rank %u has another mean", rank);
        drop(&of_shard.means[rank]);
    }
}

static void like_shard(const char *spec, tg_dtype dtype, uint32_t world)
{
    const tensor_case tensors[] = {{"x", spec, "ef", LIKE_SHARD, dtype}, {NULL, NULL, NULL, 0, TG_FLOAT32}};
    static traffic own;
    const uint64_t *const list[] = {of_shard.boundaries};
    is_lossless = strcmp(spec, "none") == 0;
    /* What did not make it into a sparse result returns to the residual, under shard alone. */
    rank_case what = {.world = world,
                      .tensors = tensors,
                      .options = {.algorithm = TG_SHARD, .seed = SEED},
                      .shape = GAUSSIAN,
                      .steps = is_sparsifier(spec) ? 1 : STEPS};
    run_ranks(&what, NULL, note_frames, note_boundaries, &of_shard);
    what.options.algorithm = TG_SCATTER;
    what.boundaries = list;
    run_ranks(&what, NULL, note_frames, same_frames, &own);
    check_all("world %u, %s, dtype %d: frames are those of shard", world, spec, (int)dtype);
}

/* ---- mass, in many messages, with tensors that some ranks do not have ---- */

static const tensor_case on_grid[] = {{"a", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                      {"b", "fp16", "ef", 50000, TG_FLOAT32},
                                      {"c", "qsgd:levels=4,norm=max", "ef", 5000, TG_FLOAT32},
                                      {"d", "none", "none", 300, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

typedef struct ledger {
    double *owed[MOST_TENSORS];
    pthread_mutex_t lock;
} ledger;

static bool is_absent(uint32_t rank, uint64_t step, size_t tensor) { return (rank + step + tensor) % 3 == 0; }

static void enter(rank_state *s, uint64_t step, bool applied)
{
    ledger *l = s->extra;
    (void)pthread_mutex_lock(&l->lock);
    for (size_t t = 0; t < s->tensor_count; t++) {
        const element_range own = applied ? shown_by(s, t) : (element_range){0, s->gradients[t].count};
        for (uint64_t j = own.from; j < own.to && (applied || !is_absent(s->rank, step, t)); j++)
            l->owed[t][j] += (applied ? -(double)s->what->world : 1) * (double)element(&s->gradients[t], j);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

/* The loop of a program with its own transport; the local one stands for it. */
static tg_status go(rank_state *s, tg_reduction *r)
{
    tg_exchange *queue[256], *e;
    size_t from = 0, to = 0;
    tg_status status = TG_OK;
    while (status == TG_OK) {
        status = tg_reduce_next(r, &e, &s->error);
        if (status == TG_OK && e) {
            queue[to++ % 256] = e;
            status = tg_transport_start(s->transport, e, &s->error);
        } else if (status == TG_OK && from < to) {
            e = queue[from++ % 256];
            status = tg_transport_wait(s->transport, e, 60, &s->error);
            status = status == TG_OK ? tg_reduce_feed(r, e, &s->error) : status;
        } else if (status == TG_OK) {
            return tg_reduce_end(r, &s->error);
        }
    }
    tg_reduce_abandon(r);
    return status;
}

static void with_absences(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        tg_reduction *r;
        fill_gradients(s, step);
        enter(s, step, false);
        for (size_t t = 0; t < s->tensor_count; t++) /* what no rank has is not written */
            if (is_absent(s->rank, step, t))
                memset(s->gradients[t].data, 0, s->gradients[t].count * sizeof(float));
        s->status = tg_reduce_begin(s->reducer, NULL, step, &r, &s->error);
        for (size_t t = s->tensor_count; s->status == TG_OK && t-- > 0;)
            s->status = is_absent(s->rank, step, t) ? tg_reduce_absent(r, t, &s->gradients[t], &s->error)
                                                    : tg_reduce_ready(r, t, &s->gradients[t], &s->error);
        s->status = s->status == TG_OK ? go(s, r) : s->status;
        if (s->status == TG_OK)
            enter(s, step, true);
    }
}

static double within; /* of what may be missing: rounding */

static void balances(rank_state *states, uint32_t world)
{
    ledger *l = states[0].extra;
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        const uint64_t count = states[0].tensors[t].count;
        float *h = calloc(count, sizeof *h);
        double worst = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            rank_state *s = &states[rank];
            expect(s->status == TG_OK, "rank %u: %s", rank, s->error.message);
            if (s->tensors[t].feedback.kind != TG_FEEDBACK_NONE)
                expect(tg_reducer_residual_read(s->reducer, t, h, count, &s->error) == TG_OK, "%s", s->error.message);
            for (uint64_t j = 0; j < count; j++)
                l->owed[t][j] -= (double)h[j];
        }
        for (uint64_t j = 0; j < count; j++)
            worst = fabs(l->owed[t][j]) > worst ? fabs(l->owed[t][j]) : worst;
        expect(worst <= within, "%g of tensor %zu is missing", worst, t);
        free(h);
    }
}

/* Sums of numbers on a grid of 2^-10 by 2 or 4 ranks are exact. */
static void conserves(generator *g, uint32_t world)
{
    ledger l = {.lock = PTHREAD_MUTEX_INITIALIZER};
    boundaries b;
    draw_boundaries(g, on_grid, world, &b);
    const rank_case what = {.world = world,
                            .tensors = on_grid,
                            .options = {.algorithm = TG_SCATTER, .batch_elements = 8192},
                            .shape = GRID,
                            .steps = 2,
                            .boundaries = b.list};
    for (size_t t = 0; on_grid[t].name; t++)
        l.owed[t] = calloc(on_grid[t].count, sizeof(double));
    within = world == 2 || world == 4 ? 0 : 1e-5;
    run_ranks(&what, NULL, with_absences, balances, &l);
    check_all("world %u, any boundaries, some absent: no mass is lost", world);
    for (size_t t = 0; on_grid[t].name; t++)
        free(l.owed[t]);
}

/* ---- a sum that overflows because of the rank's own value ---- */

static const float own_values[] = {1.2e37f, 3.4e38f, 1.2e37f}; /* the others' are too small to be looked at */

static void one_large_value(rank_state *s)
{
    fill_gradients(s, 0);
    ((float *)s->gradients[0].data)[15] = own_values[s->rank];
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
}

static void all_stop(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_NONFINITE && strstr(states[rank].error.message, "sum of tensor 'x' on rank 1"),
               "rank %u: %s", rank, states[rank].error.message);
}

static void overflow_by_own_value(void)
{
    const tensor_case tensors[] = {{"x", "none", "none", 30, TG_FLOAT32}, {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {.world = 3, .tensors = tensors, .options = {.algorithm = TG_SCATTER}, .shape = GRID};
    run_ranks(&what, NULL, one_large_value, all_stop, NULL);
    check_all("a rank whose own value makes the sum overflow stops all");
}

/* ---- a state, with other boundaries ---- */

static void other_boundaries(void)
{
    static const uint64_t some[] = {0, 70001, 70001}, others[] = {0, 3, 70001};
    static const uint64_t *const some_list[] = {some}, *const other_list[] = {others};
    static float before[70001], after[70001];
    const tensor_case tensors[] = {{"x", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};
    rank_case what = {.world = 2, .tensors = tensors, .options = {.algorithm = TG_SCATTER}, .boundaries = some_list};
    rank_state s;
    size_t size = 0;
    open_rank(&s, &what, 1, NULL);
    fill_gradients(&s, 0);
    expect(tg_feedback_write(s.reducer->tensors[0].feedback, TG_RESIDUAL, 0, 70001, s.gradients[0].data, &s.error) ==
                   TG_OK &&
               tg_reducer_residual_read(s.reducer, 0, before, 70001, &s.error) == TG_OK &&
               tg_reducer_save(s.reducer, NULL, 0, &size, &s.error) == TG_OK,
           "%s", s.error.message);
    void *saved = malloc(size);
    expect(tg_reducer_save(s.reducer, saved, size, &size, &s.error) == TG_OK, "%s", s.error.message);
    close_rank(&s);
    what.boundaries = other_list;
    open_rank(&s, &what, 1, NULL);
    expect(tg_reducer_load(s.reducer, &(tg_state){saved, size}, 1, &s.error) == TG_OK &&
               tg_reducer_residual_read(s.reducer, 0, after, 70001, &s.error) == TG_OK &&
               memcmp(before, after, sizeof before) == 0 && after[5] != 0,
           "%s", s.error.message);
    close_rank(&s);
    free(saved);
    check_all("a state is loaded with other boundaries");
}

/* ---- what is refused ---- */

static void refused(tg_algorithm algorithm, const uint64_t *given, const char *words)
{
    const tensor_case tensors[] = {{"x", "none", "none", 10, TG_FLOAT32}, {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const uint64_t *const list[] = {given};
    const rank_case what = {.world = 2, .tensors = tensors, .options = {.algorithm = algorithm}, .boundaries = list};
    rank_state s;
    open_rank(&s, &what, 0, NULL);
    check(s.status == TG_INVALID_ARGUMENT && strstr(s.error.message, "'x'") && strstr(s.error.message, words),
          "refused: %s", s.error.message);
    close_rank(&s);
}

static void all_say_so(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_LAYOUT_MISMATCH &&
                   strstr(states[rank].error.message, "another count, dtype or boundaries for tensor 0"),
               "rank %u: %s", rank, states[rank].error.message);
}

static void refusals(void)
{
    static const uint64_t decreasing[] = {0, 11, 10}, late[] = {1, 5, 10}, early[] = {0, 5, 9}, sound[] = {0, 5, 10};
    refused(TG_SCATTER, decreasing, "decrease");
    refused(TG_SCATTER, late, "from 1 to 10");
    refused(TG_SCATTER, early, "from 0 to 9");
    refused(TG_SHARD, sound, "TG_SCATTER");
    static const uint64_t usual[] = {0, 8, 17}, other[] = {0, 9, 17};
    static const uint64_t *const usual_list[] = {usual}, *const other_list[] = {other};
    const tensor_case tensors[] = {{"x", "none", "none", 17, TG_FLOAT32}, {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case odd = {
        .world = 2, .tensors = tensors, .options = {.algorithm = TG_SCATTER}, .steps = 1, .boundaries = other_list};
    rank_case what = odd;
    what.boundaries = usual_list;
    what.odd = &odd;
    what.odd_rank = 1;
    run_ranks(&what, NULL, make_steps, all_say_so, NULL);
    check_all("ranks that have other boundaries say so");
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    refusals();
    overflow_by_own_value();
    other_boundaries();
    by_hand_anywhere(all ? 200 : EMULATED ? 5 : 20);
    const char *const *specs = all_specs();
    for (size_t i = 0; specs[i]; i += all ? 1 : EMULATED ? 37 : 5)
        like_shard(specs[i], (tg_dtype)(i % 3), 2 + (uint32_t)(i % 4));
    like_shard("none", TG_FLOAT16, 3);
    like_shard("none", TG_FLOAT32, 4);
    generator g = {3};
    for (uint32_t world = 1; world <= MOST_WORLD; world++)
        for (unsigned i = 0; i < (all ? 10u : EMULATED ? 1u : 3u); i++)
            conserves(&g, world);
    return finish();
}
