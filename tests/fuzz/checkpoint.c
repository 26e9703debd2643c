/* Checkpoints of `tersegrad train`, spoiled by whoever fuzzes. Real ones, made once by training runs of a few steps,
 * are edited; the checksums, the file's and those of the reducers' states within, are made right again; then a rank
 * reads the file, restores every run and saves it. The input: which checkpoint, whether checksums are left wrong and
 * where bytes are put in so that lengths agree, how many (or how many are taken out anywhere, put in if negative), at
 * which place (two bytes), then edits of three bytes (a place, a value). Promises: what is refused says why; what is
 * restored by as many ranks as had saved it, in the same way, saves to the same bytes. */
#include "tests/fuzz/fuzz.h"

#include <unistd.h>

#include "base/bytes.h"
#include "device/cpu/cpu.h"
#include "train/read.h"
#include "train/settings_text.h"
#include "train/worker.h"

enum { CASES = 3 };

/* What a checkpoint was made with, and its bytes. */
struct origin {
    struct train_settings settings;
    struct content file;
};

static char path[] = "/tmp/fuzz-checkpoint-XXXXXX";
static tg_device *device;

static void leave(void) { unlink(path); }

static void add_run(struct train_settings *settings, const char *codec, const char *feedback)
{
    struct train_codec *run = &settings->runs[settings->run_count++];
    tg_error error;
    REQUIRE(tg_spec_parse(codec, &run->codec, &error) == TG_OK &&
                tg_feedback_parse(feedback, &run->feedback, &error) == TG_OK,
            "%s", error.message);
    snprintf(run->codec_text, sizeof run->codec_text, "%s", codec);
    snprintf(run->feedback_text, sizeof run->feedback_text, "%s", feedback);
}

/* Momentum and two runs; QSVRG with its second reducer; a file of two ranks, which one rank takes over. */
static const struct origin *origin_of(unsigned number)
{
    static struct origin origins[CASES];
    struct origin *of = &origins[number];
    if (of->file.bytes)
        return of;
    of->settings = (struct train_settings){
        .data = "synthetic:rows=40,test=4,features=5,classes=3",
        .model = "softmax",
        .workers = number == 2 ? 2 : 1,
        .batch = 4,
        .momentum = number == 0 ? 0.5 : 0,
        .steps = 3,
        .algorithm = number == 1 ? ALGORITHM_QSVRG : ALGORITHM_SGD,
        .reduce = TG_SHARD,
        .device = "cpu",
        .checkpoint = path,
        .every = 1000,
        .insist = true,
    };
    add_run(&of->settings, "qsgd:levels=7,bucket=16", "ef");
    if (number == 0)
        add_run(&of->settings, "topk:density=0.2", "dgc:momentum=0.5");
    struct train_report report;
    struct failure failure = {""};
    bool speaks;
    REQUIRE(train(&of->settings, NULL, &report, &speaks, &failure), "%s", failure.text);
    train_report_free(&report);
    REQUIRE(read_content(path, &of->file, &failure), "%s", failure.text);
    of->settings.checkpoint = NULL;
    of->settings.resume = path;
    return of;
}

/* ---- spoiling ---- */

/* The parts of a run's bytes that have lengths of their own. */
struct parts {
    uint64_t world;
    tg_state points, last_rank;
    tg_state states[2 * TRAIN_MOST_WORKERS]; /* of the reducers, two of each rank */
};

/* False where the bytes end too early. */
static bool find_parts(const uint8_t *start, size_t size, struct parts *parts)
{
    struct blob_reader own = {start, start + size, false};
    struct train_result result;
    uint64_t skipped[2];
    size_t length;
    blob_get(&own, skipped, sizeof skipped);
    blob_get(&own, result.stages, sizeof result.stages);
    blob_get(&own, skipped, sizeof skipped);
    blob_get(&own, &result.early, sizeof result.early);
    blob_get(&own, &result.late, sizeof result.late);
    parts->points.data = blob_get_block(&own, &parts->points.size);
    for (unsigned i = 0; i < 4; i++)
        (void)blob_get_block(&own, &length);
    parts->world = blob_get_number(&own);
    parts->world = parts->world < TRAIN_MOST_WORKERS ? parts->world : TRAIN_MOST_WORKERS;
    for (uint64_t i = 0; i < parts->world; i++) {
        const uint8_t *both = blob_get_block(&own, &length);
        struct blob_reader states = {both, both + length, false};
        parts->last_rank = (tg_state){both, length};
        for (unsigned k = 0; k < 2; k++)
            parts->states[2 * i + k].data = blob_get_block(&states, &parts->states[2 * i + k].size);
        own.is_bad |= states.is_bad;
    }
    return !own.is_bad;
}

/* Where the bytes of the first run lie in a file. */
static tg_state find_run(const struct train_settings *settings, struct blob_reader *file)
{
    static struct setting list[SETTINGS_MOST];
    const struct dataset any = {0}; /* how many settings there are does not depend on it */
    tg_state run;
    uint64_t skipped[2];
    const size_t count = settings_list(settings, &any, list);
    blob_get(file, skipped, sizeof skipped); /* magic, version */
    (void)blob_get_block(file, &run.size);   /* what was typed */
    (void)blob_get_number(file);             /* runs */
    for (size_t i = 0; i < count; i++)
        if (list[i].is_lasting)
            (void)blob_get_block(file, &run.size);
    run.data = blob_get_block(file, &run.size);
    return run;
}

/* Checksums of the states of reducers, as far as the lengths before them make sense. */
static void forge_states(const struct train_settings *settings, uint8_t *bytes, size_t size)
{
    static struct parts parts;
    struct blob_reader file = {bytes, bytes + size, false};
    tg_state run = find_run(settings, &file);
    for (size_t number = 0; number < settings->run_count; number++) {
        (void)find_parts(run.data, run.size, &parts);
        for (uint64_t i = 0; i < 2 * parts.world; i++)
            if (parts.states[i].size >= 8)
                tg_store64(bytes + ((const uint8_t *)parts.states[i].data - bytes) + parts.states[i].size - 8,
                           tg_cpu_of(device)->kernels->digest(parts.states[i].data, parts.states[i].size - 8));
        run.data = blob_get_block(&file, &run.size);
    }
}

/* Makes a block longer by what was put in behind it. */
static void lengthen(uint8_t *bytes, size_t block, size_t more)
{
    uint64_t length;
    memcpy(&length, bytes + block - sizeof length, sizeof length);
    length += more;
    memcpy(bytes + block - sizeof length, &length, sizeof length);
}

/* Bytes put in where they are counted: at the end of the first run (1), of its last rank's states (2), of its points
 * (3). */
static uint8_t *grow(const struct origin *of, unsigned where, size_t more, size_t *total)
{
    static struct parts parts;
    const uint8_t *start = of->file.bytes;
    struct blob_reader file = {start, start + of->file.size - 8, false};
    const tg_state run = find_run(&of->settings, &file);
    REQUIRE(find_parts(run.data, run.size, &parts), "our own file");
    const tg_state block = where == 1 ? run : where == 2 ? parts.last_rank : parts.points;
    const size_t place = (size_t)((const uint8_t *)block.data - start) + block.size;
    *total = of->file.size + more;
    uint8_t *bytes = exact_buffer(*total, 0);
    memcpy(bytes, start, place);
    memcpy(bytes + place + more, start + place, of->file.size - place);
    lengthen(bytes, (size_t)((const uint8_t *)run.data - start), more);
    if (where != 1)
        lengthen(bytes, (size_t)((const uint8_t *)block.data - start), more);
    return bytes;
}

/* Bytes taken out, or put in, anywhere. */
static uint8_t *shift(const struct origin *of, int out, size_t place, size_t *total)
{
    place %= of->file.size;
    const size_t cut = out > 0 ? (size_t)out % (of->file.size - place + 1) : 0, more = out < 0 ? (size_t)-out : 0;
    *total = of->file.size - cut + more;
    uint8_t *bytes = exact_buffer(*total, 0);
    memcpy(bytes, of->file.bytes, place);
    memcpy(bytes + place + more, of->file.bytes + place + cut, of->file.size - place - cut);
    return bytes;
}

static void write_spoilt(const struct origin *of, const uint8_t *data, size_t size)
{
    const unsigned where = data[1] >> 1 & 3;
    size_t total;
    uint8_t *bytes = where ? grow(of, where, data[2], &total)
                           : shift(of, (int8_t)data[2], (size_t)data[3] | (size_t)data[4] << 8, &total);
    for (size_t i = 5; i + 3 <= size; i += 3)
        bytes[((size_t)data[i] | (size_t)data[i + 1] << 8) % total] ^= data[i + 2];
    if (!(data[1] & 1) && total >= 8) {
        forge_states(&of->settings, bytes, total - 8);
        const uint64_t digest = digest_bytes(bytes, total - 8);
        memcpy(bytes + total - 8, &digest, sizeof digest);
    }
    FILE *file = fopen(path, "wb");
    REQUIRE(file && fwrite(bytes, 1, total, file) == total && fclose(file) == 0, "cannot write %s", path);
    free(bytes);
}

/* ---- reading ---- */

/* Whether the reducers' states are of the very plan of those that were saved again: algorithm, world, batch_elements
 * and depth.
 */
static bool is_exact(const tg_state *before, const struct blob *after)
{
    static struct parts old, new;
    if (!find_parts(before->data, before->size, &old) || !find_parts(after->bytes, after->size, &new) ||
        old.world != new.world)
        return false;
    for (uint64_t i = 0; i < 2 * old.world; i++) {
        const uint8_t *a = old.states[i].data, *b = new.states[i].data;
        const bool whole = old.states[i].size >= 40 && new.states[i].size >= 40;
        if (whole && (a[5] != b[5] || memcmp(a + 12, b + 12, 4) != 0 || memcmp(a + 24, b + 24, 12) != 0))
            return false;
    }
    return true;
}

static void restore(struct worker *worker, size_t index, const tg_state *saved)
{
    struct run run;
    REQUIRE(run_create(worker, index, &run), "%s", worker->failure.text);
    worker->failure.text[0] = 0;
    if (!run_restore(&run, saved)) {
        REQUIRE(worker->failure.text[0], "refused without a reason");
    } else {
        blob_free(&worker->saved[index]);
        REQUIRE(run_save(&run), "%s", worker->failure.text);
        if (is_exact(saved, &worker->saved[index]))
            REQUIRE(worker->saved[index].size == saved->size &&
                        memcmp(worker->saved[index].bytes, saved->data, saved->size) == 0,
                    "run %zu was restored and saves to other bytes", index);
    }
    blob_free(&worker->saved[index]);
    run_free(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct worker worker; /* large */
    struct failure failure = {""};
    tg_error error;
    if (!device) {
        int descriptor = mkstemp(path);
        REQUIRE(descriptor >= 0 && close(descriptor) == 0 && atexit(leave) == 0, "no room for a file");
        REQUIRE(tg_device_open("cpu", NULL, &device, &error) == TG_OK, "%s", error.message);
    }
    if (size < 5)
        return 0;
    const struct origin *of = origin_of(data[0] % CASES);
    struct task task = {.settings = &of->settings, .steps = of->settings.steps, .lr = 0.1};
    tg_transport *transport;
    tg_state saved[TRAIN_MOST_RUNS] = {{0}};
    struct shared_bytes *bytes = NULL;
    REQUIRE(dataset_open(of->settings.data, 0, false, &task.data, &failure) &&
                model_create("softmax", &task.data, &task.model, &failure),
            "%s", failure.text);
    REQUIRE(tg_transport_local(1, &transport, &error) == TG_OK, "%s", error.message);
    worker = (struct worker){.task = &task, .team = {.transport = transport, .world = 1}, .device = device};
    write_spoilt(of, data, size);
    if (!checkpoint_read(&worker, &bytes, saved))
        REQUIRE(worker.failure.text[0], "refused without a reason");
    else
        for (size_t i = 0; i < of->settings.run_count; i++)
            restore(&worker, i, &saved[i]);
    shared_bytes_free(bytes);
    tg_transport_free(transport);
    dataset_close(&task.data);
    return 0;
}
