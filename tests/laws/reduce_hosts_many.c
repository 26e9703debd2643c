/* Laws of two levels with many hosts, under gather: owners add up what comes between hosts and spread the mean, which
 * is set aside as messages come, so that room for these is used in turn. */
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/levels.h"

enum { HOSTS = 9, WORLD = 2 * HOSTS + 1 };

/* Two or three on a host; the last rank owns nothing. */
static const uint32_t hosts[WORLD] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4};
static const tensor_case tensors[] = {
    {"a", "none", "none", 120000, TG_FLOAT32}, {"b", "none", "none", 30001, TG_FLOAT16},
    {"c", "fp16", "none", 70000, TG_FLOAT32},  {"d", "none", "none", 17, TG_BFLOAT16},
    {"e", "bf16", "none", 9000, TG_BFLOAT16},  {NULL, NULL, NULL, 0, TG_FLOAT32}};
static const tg_dtype wire[] = {TG_FLOAT32, TG_FLOAT32, TG_FLOAT16, TG_FLOAT32, TG_BFLOAT16};
enum { STEPS = 2 };

static void narrow(const rank_state *s, const float *values, tg_tensor *out)
{
    for (uint64_t first = 0; first < out->count; first += TG_BLOCK)
        s->reducer->kernels->narrow(out->dtype, values + first, tg_block_size(out->count, first),
                                    (char *)out->data + first * tg_dtype_size(out->dtype));
}

/* What a host sends: the sum of its ranks in their order, as its codec leaves it. */
static tg_tensor sent_by(const rank_state *s, size_t t, uint32_t host, tg_tensor *gradient)
{
    tg_tensor sum = make_tensor(gradient->count, TG_FLOAT32, 0), sent = make_tensor(gradient->count, wire[t], 0);
    float *values = sum.data;
    memset(values, 0, sum.count * sizeof *values);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        if (hosts[rank] != host)
            continue;
        fill(GAUSSIAN, 1 + (STEPS - 1) * 1000 + rank * 10 + t, gradient);
        for (uint64_t i = 0; i < sum.count; i++)
            values[i] += element(gradient, i);
    }
    if (wire[t] == TG_FLOAT32)
        memcpy(sent.data, values, sum.count * sizeof *values);
    else
        narrow(s, values, &sent);
    drop(&sum);
    return sent;
}

static void is_the_mean(rank_state *states, uint32_t world)
{
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        const tg_tensor *g = &states[0].gradients[t];
        tg_tensor mean = make_tensor(g->count, g->dtype, 0), wide = make_tensor(g->count, TG_FLOAT32, 0);
        float *sum = wide.data;
        memset(sum, 0, wide.count * sizeof *sum);
        for (uint32_t host = 0; host < HOSTS; host++) {
            tg_tensor sent = sent_by(&states[0], t, host, &mean);
            for (uint64_t i = 0; i < wide.count; i++)
                sum[i] += element(&sent, i);
            drop(&sent);
        }
        for (uint64_t i = 0; i < wide.count; i++)
            sum[i] *= 1.0f / WORLD;
        if (g->dtype == TG_FLOAT32)
            memcpy(mean.data, sum, wide.count * sizeof *sum);
        else
            narrow(&states[0], sum, &mean);
        for (uint32_t rank = 0; rank < world; rank++) {
            expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
            expect(memcmp(mean.data, states[rank].gradients[t].data, g->count * tg_dtype_size(g->dtype)) == 0,
                   "rank %u: tensor %zu is not the mean", rank, t);
        }
        drop(&mean);
        drop(&wide);
    }
}

static bool one_at_a_time;

/* All batches between hosts get the same room. */
static void share_room(tg_reducer *inner)
{
    tg_reduction *r = &inner->reductions[0];
    inner->gather_window = 1;
    for (size_t b = 0; b < inner->coded.batch_count || b < inner->dense.batch_count; b++)
        memcpy(r->batches[b].receive, r->batches[0].receive, inner->world * sizeof *r->batches[b].receive);
}

static void steps(rank_state *s)
{
    tg_reducer *inner = s->reducer->levels->inner;
    expect(!inner || inner->reductions[0].aside, "no means are set aside");
    if (inner && one_at_a_time)
        share_room(inner);
    for (uint64_t step = 0; step < STEPS && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void means(bool alone, const char *what_else)
{
    const rank_case what = {
        .world = WORLD,
        .tensors = tensors,
        .options = {.algorithm = TG_GATHER, .batch_elements = 2048, .host_of_rank = hosts, .warmup = 1},
        .shape = GAUSSIAN};
    one_at_a_time = alone;
    run_ranks(&what, NULL, steps, is_the_mean, NULL);
    check_all("means of %d hosts that are set aside, to the bit: %s", HOSTS, what_else);
}

int main(int argc, char **argv)
{
    static const char *const plain[] = {"cpu", "cpu/scalar", NULL}; /* whose memory others can read */
    (void)wants_all(argc, argv);
    means(false, "messages");
    means(true, "one batch at a time");
    if (named_device())
        return finish();
    put_ranks_on(plain);
    ranks_share = true;
    means(false, "memory together");
    return finish();
}
