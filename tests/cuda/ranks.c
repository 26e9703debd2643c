/* Reductions among ranks on different devices: after every step the same bits as among ranks that are all on a CPU, in
 * gradients, residuals and statistics. Also where frames stay on the device.
 *
 *     ranks [--device NAME] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

enum { WORLD = 3, STEPS = 4 };

static tensor_case tensors[] = {{"sparse", "topk:density=0.02", "ef", 9001, TG_FLOAT32},
                                {"guess", "gaussiank:density=0.05,values=fp16", "ef", 5003, TG_FLOAT32},
                                {"both", "topk:density=0.05,values=levels,levels=7", "ef", 3001, TG_FLOAT32},
                                {"all", "gaussiank:density=0.05,values=levels,coding=elias", "ef", 2047, TG_FLOAT16},
                                {"levels", "qsgd:levels=7", "ef", 7001, TG_FLOAT32},
                                {"coded", "qsgd:levels=3,coding=auto", "none", 3001, TG_BFLOAT16},
                                {"rare", "qsgd:levels=2,bucket=4096,norm=l2,coding=entropy", "none", 9001, TG_FLOAT32},
                                {"signs", "onebit", "ef", 2049, TG_FLOAT16},
                                {"half", "fp16", "ef", 1001, TG_FLOAT32},
                                {"plain", "none", "none", 17, TG_FLOAT32},
                                {0}};

/* What a rank has after each step. */
typedef struct record {
    tg_status status;
    tg_error error;
    uint8_t *gradients[STEPS];
    size_t gradient_bytes;
    float *residuals[MOST_TENSORS];
    tg_reducer_stats stats; /* without times */
} record;

static record *records; /* of the ranks that run now */

static uint8_t *copy_gradients(const rank_state *s, size_t *bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < s->tensor_count; i++)
        at += s->gradients[i].count * tg_dtype_size(s->gradients[i].dtype);
    uint8_t *copy = malloc(at);
    *bytes = at;
    for (size_t i = s->tensor_count; copy && i-- > 0;) {
        const size_t size = s->gradients[i].count * tg_dtype_size(s->gradients[i].dtype);
        memcpy(copy + (at -= size), s->gradients[i].data, size);
    }
    return copy;
}

static void steps(rank_state *s)
{
    record *r = &records[s->rank];
    for (uint64_t step = 0; step < STEPS && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        r->gradients[step] = copy_gradients(s, &r->gradient_bytes);
    }
    for (size_t i = 0; i < s->tensor_count && s->status == TG_OK; i++) {
        const uint64_t count = s->tensors[i].count;
        r->residuals[i] = calloc(count, sizeof(float));
        if (s->tensors[i].feedback.kind != TG_FEEDBACK_NONE)
            s->status = tg_reducer_residual_read(s->reducer, i, r->residuals[i], count, &s->error);
    }
    if (s->status == TG_OK)
        s->status = tg_reducer_stats_of(s->reducer, &r->stats, &s->error);
    r->stats.encode_seconds = r->stats.exchange_seconds = r->stats.verify_seconds = r->stats.decode_seconds = 0;
}

static void keep_status(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        records[rank].status = states[rank].status;
        records[rank].error = states[rank].error;
    }
}

static void compare(const record *a, const record *b, uint32_t rank, bool on_device)
{
    expect(a->status == TG_OK, "rank %u: %s", rank, a->error.message);
    expect(b->status == TG_OK, "rank %u on a CPU: %s", rank, b->error.message);
    if (a->status != TG_OK || b->status != TG_OK)
        return;
    for (int step = 0; step < STEPS; step++)
        expect(memcmp(a->gradients[step], b->gradients[step], a->gradient_bytes) == 0,
               "rank %u: other gradients after step %d", rank, step);
    for (size_t i = 0; tensors[i].name; i++)
        expect(memcmp(a->residuals[i], b->residuals[i], tensors[i].count * sizeof(float)) == 0,
               "rank %u: another residual of %s", rank, tensors[i].name);
    tg_reducer_stats stats = a->stats;
    if (on_device) { /* heads take more */
        stats.bytes_sent = b->stats.bytes_sent;
        stats.bytes_received = b->stats.bytes_received;
    }
    expect(memcmp(&stats, &b->stats, sizeof stats) == 0, "rank %u: other statistics", rank);
}

static void drop_record(record *r)
{
    for (int step = 0; step < STEPS; step++)
        free(r->gradients[step]);
    for (size_t i = 0; i < MOST_TENSORS; i++)
        free(r->residuals[i]);
}

static void reduce_on(const rank_case *what, const char *const *devices, record *kept)
{
    memset(kept, 0, WORLD * sizeof *kept);
    records = kept;
    put_ranks_on(devices);
    run_ranks(what, NULL, steps, keep_status, NULL);
}

static void one_case(const char *device, const rank_case *what, const char *name)
{
    const char *const places[][4] = {
        {device, "cpu", NULL}, {"cpu", device, device, NULL}, {device, NULL}}; /* taken in turn by the ranks */
    static const char *const host[] = {"cpu/scalar", NULL};
    record expected[WORLD], kept[WORLD];
    reduce_on(what, host, expected);
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        rank_case here = *what;
        here.options.on_device = i % 2;
        reduce_on(&here, places[i / 2], kept);
        for (uint32_t rank = 0; rank < what->world; rank++) {
            compare(&kept[rank], &expected[rank], rank, here.options.on_device);
            drop_record(&kept[rank]);
        }
        check_all("%s, %u ranks, places %zu%s: same bits as among CPUs", name, what->world, i / 2,
                  here.options.on_device ? ", frames stay there" : "");
    }
    for (uint32_t rank = 0; rank < what->world; rank++)
        drop_record(&expected[rank]);
}

/* What the device does not have goes uncompressed. */
static void do_without(void)
{
    tg_device *device = open_device(device_to_try(0));
    for (size_t i = 0; tensors[i].name; i++)
        if (!has_codec(device, tensors[i].spec)) {
            skip_codec(tensors[i].spec);
            tensors[i].spec = "none";
        }
    tg_device_free(device);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    do_without();
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++)
        for (uint32_t world = 2; world <= WORLD; world++) {
            const rank_case what = {
                .world = world,
                .tensors = tensors,
                .options = {.algorithm = (tg_algorithm)algorithm, .batch_elements = 4096, .seed = 7},
                .shape = GAUSSIAN};
            one_case(device_to_try(0), &what, tg_algorithm_text((tg_algorithm)algorithm));
        }
    return finish();
}
