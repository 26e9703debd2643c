/* What is measured of a run: points during the run, histograms of gradients, and the figures at the end. On rank 0. */
#include "random.h"
#include "worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const train_stage_names[STAGE_COUNT] = {"data", "gradient", "encode", "exchange", "decode", "update"};

static double distance_to_optimum(const struct run *run)
{
    const struct task *task = run->worker->task;
    if (!task->data.optimum || task->model.loss != LOSS_SQUARED || task->model.parameters != task->data.features)
        return NAN;
    double sum = 0;
    for (uint64_t i = 0; i < task->model.parameters; i++) {
        double difference = (double)run->weights[i] - (double)task->data.optimum[i];
        sum += difference * difference;
    }
    return sum;
}

bool train_has_diverged(const struct train_result *result)
{
    const double first = result->point_count ? result->points[0].loss : NAN;
    return !isfinite(result->final_loss) || result->final_loss > 100 * first;
}

/* Loss and accuracy over the test rows, or over those for training where there are none; at most `most` of them. */
static void evaluate(const struct run *run, uint64_t most, double *loss, double *accuracy)
{
    struct worker *worker = run->worker;
    const struct dataset *data = &worker->task->data;
    uint64_t first = data->test_rows ? data->train_rows : 0,
             count = data->test_rows ? data->test_rows : data->train_rows;
    count = count < most ? count : most;
    struct model_score score = model_evaluate(&worker->task->model, run->weights, data, first, count, &worker->score);
    *loss = isnan(score.loss) ? NAN : score.loss / (double)count; /* without the sign that some NaNs have */
    *accuracy = worker->task->model.loss == LOSS_SQUARED ? NAN : (double)score.correct / (double)count;
}

bool run_counters(struct run *run, tg_reducer_stats *stats)
{
    tg_error error = {""};
    tg_status status = tg_reducer_stats_of(run->reducer, stats, &error);
    tg_reducer_stats exact = {0};
    if (status == TG_OK && run->exact)
        status = tg_reducer_stats_of(run->exact, &exact, &error);
    if (status != TG_OK)
        return worker_fails(run->worker, status, &error);
    stats->bytes_sent += exact.bytes_sent;
    stats->ring_bytes += exact.ring_bytes;
    stats->frame_bytes += exact.frame_bytes;
    stats->float32_bytes += exact.float32_bytes;
    stats->encode_seconds += exact.encode_seconds;
    stats->exchange_seconds += exact.exchange_seconds;
    stats->verify_seconds += exact.verify_seconds;
    stats->decode_seconds += exact.decode_seconds;
    stats->ratio = stats->frame_bytes ? (double)stats->float32_bytes / (double)stats->frame_bytes : 0;
    return true;
}

bool run_add_point(struct run *run)
{
    struct train_result *result = run->result;
    tg_reducer_stats stats;
    if (!run_counters(run, &stats))
        return false;
    if (result->point_count == result->point_room) {
        size_t room = result->point_room * 2 + 64;
        struct train_point *points = realloc(result->points, room * sizeof *points);
        if (!points)
            return fail(&run->worker->failure, "out of memory for %zu points", room);
        result->points = points;
        result->point_room = room;
    }
    struct train_point point = {
        .step = run->step,
        .bytes_sent = stats.bytes_sent,
        .batch_loss = run->loss_count ? run->loss_sum / (double)run->loss_count : NAN,
        .distance = distance_to_optimum(run),
        .residual_norm = stats.residual_norm,
        .selected = run->step ? (double)stats.selected : NAN,
        .seconds = result->stages[STAGE_DATA] + result->stages[STAGE_GRADIENT] + result->stages[STAGE_UPDATE] +
                   stats.encode_seconds + stats.exchange_seconds + stats.verify_seconds + stats.decode_seconds,
    };
    /* The last one is over all rows, so that it agrees with the result. */
    run->is_scored = run->step == run->worker->task->steps;
    evaluate(run, run->is_scored ? UINT64_MAX : TRAIN_POINT_ROWS, &point.loss, &point.accuracy);
    result->points[result->point_count++] = point;
    run->loss_sum = 0;
    run->loss_count = 0;
    return true;
}

/* The selection that the codec, a sparsifier, makes of a tensor in this step, by warm-up, minimum size and schedule;
 * false if it makes none. */
static bool selection_now(const struct run *run, const tg_codec_info *info, uint64_t count, tg_spec *spec)
{
    const struct train_settings *settings = run->worker->task->settings;
    const char *typed = run->codec->codec_text;
    if (!info->sparse || run->step < settings->warmup || count < settings->min_size)
        return false;
    *spec = run->codec->codec;
    const bool has_k = strstr(typed, ":k=") || strstr(typed, ",k="); /* the schedule is for those that have a density */
    for (size_t i = 0; i < settings->change_count && settings->changes[i].from_step <= run->step && !has_k; i++) {
        char text[TG_SPEC_TEXT];
        snprintf(text, sizeof text, "%s:density=%.9f", info->name, settings->changes[i].density);
        if (tg_spec_parse(text, spec, NULL) != TG_OK)
            return false;
    }
    return true;
}

/* The smallest magnitude that the codec takes of the largest tensor: encoded apart from the run, without feedback. */
static double selector_threshold(struct run *run)
{
    struct worker *worker = run->worker;
    const struct model *model = &worker->task->model;
    const struct model_tensor *largest = &model->tensors[0];
    for (unsigned i = 1; i < model->tensor_count; i++)
        if (model->tensors[i].count > largest->count)
            largest = &model->tensors[i];
    tg_codec_info info = {0};
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK && info.id != run->codec->codec.codec; i++)
        ;
    tg_spec spec;
    tg_codec *codec;
    if (!selection_now(run, &info, largest->count, &spec) ||
        tg_codec_create(worker->device, &spec, largest->count, &codec, NULL) != TG_OK)
        return NAN;
    size_t bound = tg_frame_bound(codec, largest->count);
    void *frame = malloc(bound);
    float *decoded = calloc(largest->count, sizeof *decoded);
    double smallest = INFINITY;
    tg_encode_report report;
    tg_tensor gradient = {worker->gradient + largest->offset, largest->count, TG_FLOAT32};
    if (frame && decoded && tg_encode(codec, &gradient, NULL, frame, bound, &report, NULL) == TG_OK &&
        tg_decode(worker->device, &(tg_frame){frame, report.bytes}, 1, 1, 0,
                  &(tg_tensor){decoded, largest->count, TG_FLOAT32}, NULL) == TG_OK)
        for (uint64_t i = 0; i < largest->count; i++)
            if (decoded[i] != 0 && fabs((double)decoded[i]) < smallest)
                smallest = fabs((double)decoded[i]);
    free(frame);
    free(decoded);
    tg_codec_free(codec);
    return isfinite(smallest) ? smallest : NAN;
}

void take_histogram(struct run *run, struct train_histogram *histogram)
{
    *histogram = (struct train_histogram){.step = run->step + 1};
    const float *gradient = run->worker->gradient;
    for (uint64_t i = 0; i < run->worker->task->model.parameters; i++) {
        double magnitude = fabs((double)gradient[i]);
        if (!(magnitude > 0)) {
            histogram->zeros++;
            continue;
        }
        double bin = floor(4 * log10(magnitude)) + 48;
        histogram->bins[bin < 0 ? 0 : bin >= TRAIN_BINS ? TRAIN_BINS - 1 : (size_t)bin]++;
    }
    histogram->threshold = selector_threshold(run);
}

/* The bits of all ranks' weights must be equal: that is what the reducer promises. */
static bool check_hashes(struct run *run, uint64_t hash)
{
    struct worker *worker = run->worker;
    struct shared_bytes *all = team_share(&worker->team, &hash, sizeof hash, false, &worker->failure);
    if (!all) {
        worker->how_failed = FAILED_LOST;
        return false;
    }
    bool is_equal = true;
    for (uint32_t i = 0; i < worker->team.world && is_equal; i++)
        if (memcmp(all->parts[i].data, all->parts[0].data, sizeof hash) != 0)
            is_equal = fail(&worker->failure,
                            "the weights of rank %" PRIu32 " differ from those of rank 0 after %" PRIu64
                            " steps; do all "
                            "ranks run the same program on the same data?",
                            i, run->step);
    shared_bytes_free(all);
    worker->how_failed = is_equal ? FAILED_ALONE : FAILED_TOGETHER;
    worker->culprit = 0;
    return is_equal;
}

static void take_last_point(struct train_result *result)
{
    const struct train_point *last = &result->points[result->point_count - 1];
    result->final_loss = last->loss;
    result->accuracy = last->accuracy;
}

/* A change that was decided but would come after the last step was not made. */
static bool fill_changes(const struct run *run)
{
    struct train_result *result = run->result;
    size_t count = 0;
    tg_error error = {""};
    tg_status status = tg_reducer_bypass_log(run->reducer, NULL, 0, &count, &error);
    uint64_t *changes = calloc(count + 1, sizeof *changes);
    if (!changes)
        return fail(&run->worker->failure, "out of memory for %zu changes of bypass", count);
    if (status == TG_OK)
        status = tg_reducer_bypass_log(run->reducer, changes, count, &count, &error);
    while (status == TG_OK && count > 0 && changes[count - 1] >= run->step - run->uncounted)
        count--;
    free(result->bypass_changes);
    result->bypass_changes = changes;
    result->bypass_change_count = status == TG_OK ? count : 0;
    return status == TG_OK || worker_fails(run->worker, status, &error);
}

static bool fill_result(const struct run *run, const tg_reducer_stats *stats)
{
    struct train_result *result = run->result;
    result->distance = distance_to_optimum(run);
    result->codec = run->codec;
    result->steps = run->step;
    result->bytes_sent = stats->bytes_sent;
    result->dense_bytes = stats->ring_bytes;
    result->ratio = stats->ratio;
    result->residual_norm = stats->residual_norm;
    result->reduce = stats->algorithm;
    result->stages[STAGE_ENCODE] = stats->encode_seconds;
    result->stages[STAGE_EXCHANGE] = stats->exchange_seconds;
    result->stages[STAGE_DECODE] = stats->verify_seconds + stats->decode_seconds;
    return fill_changes(run);
}

bool run_finish(struct run *run)
{
    struct worker *worker = run->worker;
    struct train_result *result = run->result;
    uint64_t hash = digest_floats(run->weights, worker->task->model.parameters);
    if (!check_hashes(run, hash))
        return false;
    tg_reducer_stats stats;
    if (!run_counters(run, &stats))
        return false;
    if (worker->team.rank > 0)
        return true;
    snprintf(result->weights_hash, sizeof result->weights_hash, "%016" PRIx64, hash);
    if (run->is_scored)
        take_last_point(result);
    else
        evaluate(run, UINT64_MAX, &result->final_loss, &result->accuracy);
    return fill_result(run, &stats);
}

bool run_keep(struct run *run)
{
    struct worker *worker = run->worker;
    struct train_result *result = run->result;
    const struct failure failure = worker->failure;
    const enum how_failed how_failed = worker->how_failed;
    tg_reducer_stats stats;
    if (!worker->report)
        return true;
    const bool has_point = result->point_count > 0 && result->points[result->point_count - 1].step == run->step;
    if (run->step == 0 && !run->diverged)
        return true;
    const bool is_well = (has_point || run_add_point(run)) && run_counters(run, &stats) && fill_result(run, &stats);
    if (is_well) {
        take_last_point(result);
        if (run->diverged)
            result->final_loss = result->accuracy = NAN;
        snprintf(result->weights_hash, sizeof result->weights_hash, "%016" PRIx64,
                 digest_floats(run->weights, worker->task->model.parameters));
        result->stopped = true;
        worker->report->run_count = run->index + 1;
    }
    if (run->diverged)
        return is_well;
    worker->failure = failure;
    worker->how_failed = how_failed;
    return true;
}
