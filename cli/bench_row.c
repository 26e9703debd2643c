/* One row of the benchmark: a codec, timed in rounds with the floors in between. */
#include "bench.h"

#include "bench_moves.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_ROUNDS 3
#define WARM_UP_STEPS 8 /* so that a residual is there; the frame of the last one is measured */

/* What one row needs while it runs. */
struct row_work {
    tg_codec *codec;
    tg_feedback *feedback; /* or NULL */
    void *bytes;
    size_t capacity;
    tg_frame frame;              /* the latest */
    tg_frame peers[BENCH_PEERS]; /* the first one, as often: each in memory of its own */
    void *scratch;               /* as long as that one */
    uint64_t step;
    size_t repeats; /* of short work, so that the clock's grain does not show */
};

static tg_status encode_next(const struct bench *bench, struct row_work *work, tg_error *error)
{
    const tg_encode_options options = {.draw.step = work->step, .nonfinite = bench->nonfinite};
    const tg_tensor gradient = {
        .data = bench->gradients[work->step % bench->gradient_count].values,
        .count = bench->count,
        .dtype = TG_FLOAT32,
    };
    tg_encode_report report;
    tg_status status = work->feedback
                           ? tg_encode_with_feedback(work->codec, work->feedback, &gradient, &options, work->bytes,
                                                     work->capacity, &report, error)
                           : tg_encode(work->codec, &gradient, &options, work->bytes, work->capacity, &report, error);
    if (status == TG_OK) {
        work->frame = (tg_frame){work->bytes, report.bytes};
        work->step++;
    }
    return status;
}

static void keep_minimum(double *best, uint64_t started_ns, size_t repeats)
{
    double ms = (double)(clock_ns() - started_ns) * 1e-6 / (double)repeats;
    if (ms < *best)
        *best = ms;
}

static size_t repeats_for(const struct bench *bench) { return bench->count >= 65536 ? 1 : 65536 / bench->count; }

static void time_floor(struct bench *bench, enum floor_kind kind, size_t repeats, double floors_ms[FLOOR_COUNT])
{
    const struct floor_vectors vectors = {bench->gradients[0].values, bench->sum.values, bench->copy.values,
                                          bench->count};
    for (unsigned way = 0; way < floor_ways(kind); way++) {
        uint64_t started = clock_ns();
        for (size_t i = 0; i < repeats; i++)
            floor_run(&vectors, kind, way, bench->team);
        keep_minimum(&floors_ms[kind], started, repeats);
    }
}

void bench_time_floors(struct bench *bench)
{
    uint64_t started = clock_ns();
    for (int round = 0; round < LEAST_ROUNDS || (double)(clock_ns() - started) * 1e-9 < bench->seconds; round++)
        for (int kind = 0; kind < FLOOR_COUNT; kind++)
            time_floor(bench, (enum floor_kind)kind, repeats_for(bench), bench->floors_ms);
}

static tg_status time_encode(struct bench *bench, struct row_work *work, struct bench_row *row, tg_error *error)
{
    tg_status status = TG_OK;
    uint64_t started = clock_ns();
    for (size_t i = 0; i < work->repeats && status == TG_OK; i++)
        status = encode_next(bench, work, error);
    keep_minimum(&row->encode_ms, started, work->repeats);
    return status;
}

static tg_status time_verify(struct bench *bench, struct row_work *work, struct bench_row *row, tg_error *error)
{
    tg_status status = TG_OK;
    uint64_t started = clock_ns();
    for (size_t i = 0; i < work->repeats && status == TG_OK; i++)
        status = tg_frame_verify(bench->device, work->frame, NULL, error);
    keep_minimum(&row->verify_ms, started, work->repeats);
    return status;
}

static tg_status time_decode(struct bench *bench, const struct row_work *work, struct bench_row *row, tg_error *error)
{
    const tg_tensor out = {bench->sum.values, bench->count, TG_FLOAT32};
    tg_status status = TG_OK;
    uint64_t started = clock_ns();
    for (size_t i = 0; i < work->repeats && status == TG_OK; i++)
        status = tg_decode(bench->device, &work->frame, 1, 1, 0, &out, error);
    keep_minimum(&row->decode_ms, started, work->repeats);
    return status;
}

static tg_status time_add(struct bench *bench, const struct row_work *work, const tg_frame *frames, size_t frame_count,
                          unsigned flags, double *best, tg_error *error)
{
    const tg_tensor sum = {bench->sum.values, bench->count, TG_FLOAT32};
    tg_status status = TG_OK;
    uint64_t started = clock_ns();
    for (size_t i = 0; i < work->repeats && status == TG_OK; i++)
        status = tg_decode_add(bench->device, frames, frame_count, 1.0f / (float)frame_count, flags, &sum, error);
    keep_minimum(best, started, work->repeats);
    return status;
}

static void time_moves(struct bench *bench, const struct row_work *work, struct moves moves, double *best)
{
    moves.gradient = bench->gradients[0].values;
    moves.sum = bench->sum.values;
    moves.count = bench->count;
    moves.frame_size = work->peers[0].size;
    for (unsigned way = 0; way < floor_ways(moves.kind); way++) {
        uint64_t started = clock_ns();
        for (size_t i = 0; i < work->repeats; i++)
            moves_run(&moves, way, bench->team);
        keep_minimum(best, started, work->repeats);
    }
}

/* A sparse frame touches few elements of the sum: there is nothing as simple to compare it with. */
static void time_all_moves(struct bench *bench, const struct row_work *work, struct bench_row *row)
{
    const uint8_t *frames[BENCH_PEERS];
    for (int i = 0; i < BENCH_PEERS; i++)
        frames[i] = work->peers[i].data;
    time_moves(bench, work, (struct moves){.kind = bench_encode_floor(bench), .written = work->scratch},
               &row->encode_moves_ms);
    if (row->spec->info.sparse)
        return;
    time_moves(bench, work, (struct moves){.kind = FLOOR_SCALE, .read = frames, .read_count = 1}, &row->add_moves_ms);
    time_moves(bench, work, (struct moves){.kind = FLOOR_SCALE, .read = frames, .read_count = BENCH_PEERS},
               &row->peers_moves_ms);
}

/* Every operation once, each beside the floor that it is held against. */
static tg_status run_round(struct bench *bench, struct row_work *work, struct bench_row *row, tg_error *error)
{
    time_floor(bench, FLOOR_READ, work->repeats, row->floors_ms);
    time_floor(bench, FLOOR_ACCUMULATE, work->repeats, row->floors_ms);
    tg_status status = time_encode(bench, work, row, error);
    if (status == TG_OK)
        status = time_verify(bench, work, row, error);
    if (status == TG_OK)
        status = time_decode(bench, work, row, error);
    time_floor(bench, FLOOR_SCALE, work->repeats, row->floors_ms);
    if (status == TG_OK)
        status = time_add(bench, work, &work->frame, 1, 0, &row->add_ms, error);
    if (status == TG_OK)
        status = time_add(bench, work, work->peers, BENCH_PEERS, 0, &row->peers_add_ms, error);
    if (status == TG_OK)
        status = time_add(bench, work, &work->frame, 1, TG_VERIFIED, &row->verified_add_ms, error);
    if (status == TG_OK)
        status = time_add(bench, work, work->peers, BENCH_PEERS, TG_VERIFIED, &row->verified_peers_add_ms, error);
    time_all_moves(bench, work, row);
    time_floor(bench, FLOOR_COPY, work->repeats, row->floors_ms);
    time_floor(bench, FLOOR_MEMCPY, work->repeats, row->floors_ms);
    return status;
}

static tg_status prepare(struct bench *bench, struct row_work *work, const struct bench_row *row, tg_error *error)
{
    tg_status status = tg_codec_create(bench->device, &row->spec->spec, bench->count, &work->codec, error);
    if (status == TG_OK && bench->feedback) {
        tg_feedback_spec ef;
        status = tg_feedback_parse("ef", &ef, error);
        if (status == TG_OK)
            status = tg_feedback_create(bench->device, &ef, &row->spec->spec, bench->count, false, &work->feedback,
                                        error);
    }
    if (status != TG_OK)
        return status;
    work->capacity = tg_frame_bound(work->codec, bench->count);
    work->bytes = malloc(work->capacity);
    if (!work->bytes)
        return TG_OUT_OF_MEMORY;
    memset(work->bytes, 0, work->capacity);
    work->repeats = repeats_for(bench);
    return TG_OK;
}

/* One encode without feedback, for the error; with feedback, the frame after the warm-up gives the sizes. */
static tg_status measure_plain(struct bench *bench, struct bench_row *row, tg_error *error)
{
    const tg_tensor gradient = {bench->gradients[0].values, bench->count, TG_FLOAT32};
    const tg_encode_options options = {.nonfinite = bench->nonfinite};
    return measure_once(bench->device, row->spec, &gradient, &options, bench->sum.values, &row->measurement, error);
}

static tg_status warm_up(struct bench *bench, struct row_work *work, struct bench_row *row, tg_error *error)
{
    tg_status status = TG_OK;
    for (int i = 0; i < (work->feedback ? WARM_UP_STEPS : 1) && status == TG_OK; i++)
        status = encode_next(bench, work, error);
    if (status == TG_OK && work->feedback)
        status = measure_frame(bench->device, row->spec, work->frame, bench->count, &row->measurement, error);
    return status;
}

static tg_status make_peers(struct row_work *work)
{
    for (int i = 0; i < BENCH_PEERS; i++) {
        void *bytes = malloc(work->frame.size);
        if (!bytes)
            return TG_OUT_OF_MEMORY;
        work->peers[i] = (tg_frame){memcpy(bytes, work->frame.data, work->frame.size), work->frame.size};
    }
    work->scratch = calloc(1, work->frame.size);
    return work->scratch ? TG_OK : TG_OUT_OF_MEMORY;
}

static void free_work(struct row_work *work)
{
    for (int i = 0; i < BENCH_PEERS; i++)
        free((void *)(uintptr_t)work->peers[i].data);
    free(work->scratch);
    free(work->bytes);
    tg_feedback_free(work->feedback);
    tg_codec_free(work->codec);
}

static void show_progress(struct bench *bench, const struct bench_row *row, double elapsed)
{
    double share = bench->seconds > 0 && elapsed < bench->seconds ? elapsed / bench->seconds : 1;
    progress_update(&bench->progress, ((double)bench->rows_done + share) / (double)bench->row_count, row->spec->label);
}

bool bench_row_run(struct bench *bench, struct bench_row *row, struct failure *failure)
{
    row->encode_ms = row->verify_ms = row->decode_ms = INFINITY;
    row->add_ms = row->verified_add_ms = row->peers_add_ms = row->verified_peers_add_ms = INFINITY;
    row->encode_moves_ms = row->add_moves_ms = row->peers_moves_ms = INFINITY;
    for (int kind = 0; kind < FLOOR_COUNT; kind++)
        row->floors_ms[kind] = INFINITY;
    tg_error error = {""};
    struct row_work work = {0};
    tg_status status = measure_plain(bench, row, &error);
    if (status == TG_OK)
        status = prepare(bench, &work, row, &error);
    if (status == TG_UNSTABLE) {
        snprintf(row->refusal, sizeof row->refusal, "%s", library_message(status, &error));
        status = TG_OK;
    } else if (status == TG_OK) {
        status = warm_up(bench, &work, row, &error);
        if (status == TG_OK)
            status = make_peers(&work);
        uint64_t started = clock_ns();
        for (int round = 0; status == TG_OK; round++) {
            double elapsed = (double)(clock_ns() - started) * 1e-9;
            if (round >= LEAST_ROUNDS && elapsed >= bench->seconds)
                break;
            show_progress(bench, row, elapsed);
            status = run_round(bench, &work, row, &error);
        }
    }
    for (int kind = 0; kind < FLOOR_COUNT; kind++)
        bench->floors_ms[kind] = fmin(bench->floors_ms[kind], row->floors_ms[kind]);
    free_work(&work);
    return status == TG_OK || fail(failure, "%s: %s", row->spec->label, library_message(status, &error));
}
