/* From the options of `tersegrad train` to settings. */
#include "train.h"

#include "files.h"
#include "suggest.h"
#include "units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const train_schedule_choices[] = {[SCHEDULE_CONSTANT] = "constant",
                                              [SCHEDULE_LINEAR] = "linear",
                                              [SCHEDULE_COSINE] = "cosine",
                                              [SCHEDULE_STEP] = "step",
                                              NULL};
const char *const train_algorithm_choices[] = {[ALGORITHM_SGD] = "sgd", [ALGORITHM_QSVRG] = "qsvrg", NULL};
const char *const train_reduce_choices[] = {[TG_AUTO] = "auto", [TG_GATHER] = "gather", [TG_SHARD] = "shard", NULL};
const char *const train_nonfinite_choices[] = {"stop", "skip", "drop", NULL};
static const tg_nonfinite_step nonfinite_policies[] = {TG_NONFINITE_STOP, TG_NONFINITE_SKIP, TG_NONFINITE_DROP};

/* What `tersegrad train` alone compares. */
static const struct {
    const char *codec, *feedback;
} standard_runs[] = {
    {"none", "none"},
    {"qsgd", "none"},
    {"topk:density=0.01", "ef"},
};

/* ---- codecs and feedback ---- */

/* A sparsifier or a sign without feedback loses most of the gradient for good. */
static const char *standard_feedback(const tg_spec *spec)
{
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        if (info.id == spec->codec && info.wants_feedback)
            return "ef";
    return "none";
}

static bool add_run(struct train_settings *settings, const char *codec, const char *feedback, struct failure *failure)
{
    struct train_codec *run = &settings->runs[settings->run_count];
    tg_error error = {""};
    if (!parse_spec(codec, &run->codec, failure))
        return false;
    if (!feedback)
        feedback = standard_feedback(&run->codec);
    tg_status status = tg_feedback_parse(feedback, &run->feedback, &error);
    if (status != TG_OK)
        return fail(failure, "%s", library_message(status, &error));
    if (strlen(codec) >= sizeof run->codec_text || strlen(feedback) >= sizeof run->feedback_text)
        return fail(failure, "the spec has more than %d characters: '%.40s...'", TG_SPEC_TEXT - 1, codec);
    strcpy(run->codec_text, codec);
    strcpy(run->feedback_text, feedback);
    settings->run_count++;
    return true;
}

static bool fill_runs(const struct train_options *options, struct train_settings *settings, struct failure *failure)
{
    const struct text_list *codecs = &options->codecs, *feedbacks = &options->feedbacks;
    const size_t count = codecs->count ? codecs->count : sizeof standard_runs / sizeof *standard_runs;
    if (feedbacks->count > 1 && feedbacks->count != codecs->count)
        return fail(
            failure,
            "--feedback is given %zu times and --codec %zu times; give one --feedback for all, or one for each codec",
            feedbacks->count, codecs->count);
    for (size_t i = 0; i < count; i++) {
        const char *codec = codecs->count ? codecs->items[i] : standard_runs[i].codec;
        const char *feedback = feedbacks->count == 0 ? (codecs->count ? NULL : standard_runs[i].feedback)
                                                     : feedbacks->items[feedbacks->count == 1 ? 0 : i];
        if (!add_run(settings, codec, feedback, failure))
            return false;
    }
    return true;
}

/* ---- the density schedule ---- */

/* DGC's: a quarter, and from then on a quarter of that, down to a thousandth. */
static bool fill_dgc_schedule(const char *text, struct train_settings *settings, struct failure *failure)
{
    static const double densities[] = {0.25, 0.0625, 0.015625, 0.004, 0.001};
    char *end;
    unsigned long long steps = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || steps < 1 || steps > UINT64_C(1) << 40)
        return fail(failure, "--density-schedule dgc:STEPS takes a whole number of steps, not '%s'", text);
    for (size_t i = 0; i < sizeof densities / sizeof *densities; i++)
        settings->changes[settings->change_count++] = (tg_density_change){.from_step = i * steps,
                                                                          .density = densities[i]};
    return true;
}

static bool fill_changes(const char *text, struct train_settings *settings, struct failure *failure)
{
    static const char *const form =
        "--density-schedule takes STEP:DENSITY,STEP:DENSITY,... with increasing steps and densities from "
        "0.000000001 to 1, or dgc:STEPS";
    if (!text)
        return true;
    if (strncmp(text, "dgc:", 4) == 0)
        return fill_dgc_schedule(text + 4, settings, failure);
    for (const char *at = text;;) {
        char *end;
        errno = 0; /* too many digits */
        unsigned long long step = strtoull(at, &end, 10);
        bool has_step = *at >= '0' && *at <= '9' && *end == ':' && errno == 0;
        const char *number = has_step ? end + 1 : at;
        double density = strtod(number, &end);
        bool is_plain = end > number && strspn(number, "0123456789.eE-") >= (size_t)(end - number);
        size_t count = settings->change_count;
        if (!has_step || !is_plain || !(density >= 1e-9 && density <= 1) || (*end && *end != ',') ||
            count == TRAIN_MOST_CHANGES || (count > 0 && step <= settings->changes[count - 1].from_step))
            return fail(failure, "%s, not '%s'", form, text);
        settings->changes[settings->change_count++] = (tg_density_change){step, density};
        if (!*end)
            return true;
        at = end + 1;
    }
}

/* ---- the link ---- */

static bool fill_link(const char *text, struct train_settings *settings, struct failure *failure)
{
    if (!text)
        return true;
    const size_t rate = strcspn(text, ",");
    settings->link_text = text;
    if (!parse_rate(text, rate, &settings->link.bits_per_second) ||
        (text[rate] && !parse_time(text + rate + 1, strlen(text + rate + 1), &settings->link.latency_seconds)) ||
        settings->link.bits_per_second < 1e3 || settings->link.bits_per_second > 1e15 ||
        settings->link.latency_seconds > 1e3)
        return fail(failure,
                    "--link takes a rate from 1kbit to 1000tbit, and after a comma a latency up to 1000s, as in 1gbit "
                    "or 100mbit,50us; not '%s'",
                    text);
    if (text[rate] && !(settings->link.latency_seconds > 0))
        return fail(failure, "--link %s has a latency of zero; leave it out, as in --link %.*s", text, (int)rate, text);
    return !settings->mpi ||
           fail(failure, "--link is for workers that are threads; under mpirun the network has links of its own");
}

/* ---- hosts ---- */

static bool fill_group(const char *text, struct train_settings *settings, struct failure *failure)
{
    if (!text)
        return true;
    settings->group_text = text;
    const bool is_auto = strcmp(text, "auto") == 0;
    if (is_auto)
        return settings->mpi || fail(failure, "--group auto is for ranks under mpirun; workers that are threads all "
                                              "share this host: say how many are to be taken for one, as in --group 4");
    char *end;
    const bool is_number = strspn(text, "0123456789") == strlen(text) && strlen(text) < 10;
    settings->group = is_number ? strtoull(text, &end, 10) : 0;
    return settings->group > 0 || fail(failure, "--group takes a number of ranks from 1 on, or auto; not '%s'", text);
}

/* ---- bypass ---- */

static bool fill_bypass(const char *text, struct train_settings *settings, struct failure *failure)
{
    static const char *const form = "--bypass takes off, auto, or replay:STEP,STEP,... with increasing steps";
    settings->bypass_text = text;
    if (!text || strcmp(text, "off") == 0)
        return true;
    settings->bypass = strcmp(text, "auto") == 0 ? TG_BYPASS_AUTO : TG_BYPASS_REPLAY;
    if (settings->bypass == TG_BYPASS_AUTO)
        return true;
    if (strncmp(text, "replay:", 7) != 0 || !text[7])
        return fail(failure, "%s, not '%s'", form, text);
    for (const char *at = text + 7; *at;) {
        char *end;
        const size_t count = settings->bypass_change_count;
        errno = 0; /* too many digits */
        const unsigned long long step = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 || (*end && (*end != ',' || !end[1])) ||
            (count > 0 && step <= settings->bypass_changes[count - 1]))
            return fail(failure, "%s, not '%s'", form, text);
        if (count == TRAIN_MOST_BYPASSES)
            return fail(failure, "--bypass replay has more than %d steps; a run has no more changes, so give its own",
                        TRAIN_MOST_BYPASSES);
        settings->bypass_changes[settings->bypass_change_count++] = step;
        at = *end ? end + 1 : end;
    }
    return true;
}

/* What the library would refuse as well, in words of its own. */
static bool check_clips(const struct train_settings *settings, struct failure *failure)
{
    for (size_t i = 0; settings->group > 1 && i < settings->run_count; i++)
        if (settings->runs[i].feedback.clip > 0)
            return fail(failure,
                        "--feedback %s limits the gradient of one rank, but hosts with several ranks, as --group %s "
                        "makes them, compress sums; use clip=0, or --group 1",
                        settings->runs[i].feedback_text, settings->group_text);
    return true;
}

/* The same. */
static bool check_bypass(const struct train_settings *settings, struct failure *failure)
{
    if (settings->bypass == TG_BYPASS_OFF)
        return true;
    const char *how = settings->bypass == TG_BYPASS_AUTO ? "auto" : "replay";
    if (settings->group > 1)
        return fail(failure,
                    "--bypass %s does not support hosts with several ranks, which --group %s makes; leave out one of "
                    "the two options",
                    how, settings->group_text);
    for (size_t i = 0; i < settings->run_count; i++)
        if (settings->runs[i].feedback.kind == TG_FEEDBACK_DGC)
            return fail(failure,
                        "--bypass %s cannot send the momentum of --feedback %s uncompressed; use --feedback ef, or "
                        "--bypass off",
                        how, settings->runs[i].feedback_text);
    return true;
}

/* ---- files ---- */

/* Two outputs in one file would leave one of them, and a checkpoint that a log is appended to is none any more. */
static bool check_files(const struct train_options *options, struct failure *failure)
{
    const struct {
        const char *name, *path;
    } files[] = {{"--checkpoint", options->checkpoint},
                 {"--resume", options->resume},
                 {"--log", options->log},
                 {"--report", options->report}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (files[i].path && (!files[i].path[0] || strcmp(files[i].path, "-") == 0))
            return fail(failure, "%s takes the name of a file, not '%s'", files[i].name, files[i].path);
        for (size_t j = 0; j < i; j++) {
            const bool is_meant = i == 1; /* to go on, and to be saved again */
            if (!is_meant && files[i].path && files[j].path && is_same_file(files[i].path, files[j].path))
                return fail(failure, "%s and %s are the same file, '%s'", files[j].name, files[i].name, files[i].path);
        }
    }
    return true;
}

/* ---- the launcher ---- */

/* mpirun says in the environment how many ranks there are, each kind in its own variable. */
static const struct {
    const char *variable, *module;
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "openmpi"}, {"PMI_SIZE", "mpich"}};

const char *train_mpi_module(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable))
            return launchers[i].module;
    return NULL;
}

uint64_t train_launched_ranks(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *size = getenv(launchers[i].variable);
        if (size)
            return strtoull(size, NULL, 10);
    }
    return 0;
}

bool train_settings_fill(const struct train_options *options, struct train_settings *settings, struct failure *failure)
{
    *settings = (struct train_settings){
        .data = options->data,
        .model = options->model,
        .workers = (uint32_t)options->workers,
        .batch = options->batch,
        .lr = options->lr,
        .momentum = options->momentum,
        .weight_decay = options->weight_decay,
        .schedule = (enum train_schedule)options->schedule,
        .steps = options->steps,
        .epochs = options->epochs,
        .seed = options->seed,
        .insist = options->insist,
        .algorithm = (enum train_algorithm)options->algorithm,
        .reduce = (tg_algorithm)options->reduce,
        .min_size = options->min_size,
        .warmup = options->warmup,
        .nonfinite = nonfinite_policies[options->nonfinite],
        .device = options->device,
        .checkpoint = options->checkpoint,
        .every = options->every,
        .resume = options->resume,
        .timeout = options->timeout,
        .mpi = train_mpi_module(),
        .launched = train_launched_ranks(),
    };
    if (options->steps && options->epochs > 0)
        return fail(failure, "--steps and --epochs cannot be combined; give one of them");
    if (!options->steps && !(options->epochs > 0))
        settings->steps = 500;
    return check_files(options, failure) && fill_runs(options, settings, failure) &&
           fill_changes(options->density_schedule, settings, failure) && fill_link(options->link, settings, failure) &&
           fill_group(options->group, settings, failure) && fill_bypass(options->bypass, settings, failure) &&
           check_bypass(settings, failure) && check_clips(settings, failure);
}
