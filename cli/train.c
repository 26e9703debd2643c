/* `tersegrad train`: distributed training on this machine or under mpirun, with any codec, side by side. */
#include "train.h"

#include "commands.h"
#include "files.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Set by the handler of SIGINT, read by the workers' threads. A handler may touch an atomic only if it has no lock. */
static atomic_bool interrupted;
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "this machine has no lock-free flag");

/* What no mpirun has set is rank 0 of its own. */
bool train_is_first_process(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void tell_failure(void *context, const char *failure)
{
    const struct train_live *live = context;
    complain(live->command, "%s", failure);
}

static void note_interrupt(int signal)
{
    (void)signal;
    atomic_store(&interrupted, true);
}

/* The first Ctrl-C ends the training after the step; the second ends the process. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* a shell's background job ignores it */
        (void)sigaction(SIGINT, &action, NULL);
}

static bool write_page(const struct train_live *live, const char *stopped, struct failure *failure)
{
    const struct train_report *report = live->report;
    const struct train_settings *settings = live->settings;
    char heading[320], description[1024];
    snprintf(heading, sizeof heading, "%s, %" PRIu32 " workers", report->data, report->world);
    snprintf(description, sizeof description,
             "%s: %" PRIu64 " parameters, %" PRIu64 " rows, %" PRIu64 " steps of %" PRIu64
             " rows a worker, %s. Transport %s, device %s.",
             report->model, report->parameters, report->train_rows, report->steps, settings->batch,
             train_algorithm_choices[settings->algorithm], report->transport, report->device);
    const struct page page = {.report = report,
                              .origin = live->origin,
                              .heading = heading,
                              .description = description,
                              .stopped = stopped,
                              .has_seed = true,
                              .seed = settings->seed};
    return page_write(live->options->report, &page, failure);
}

/* What came of the training is shown even where its page cannot be written. */
static bool show_results(const struct train_live *live, const char *stopped, struct failure *failure)
{
    const struct train_options *options = live->options;
    const bool is_written = !options->report || write_page(live, stopped, failure);
    if (options->json)
        train_print_json(live->report, train_algorithm_choices[live->settings->algorithm], stopped, stdout);
    else
        train_print_table(live->report, options->wide, stdout);
    if (options->report && is_written && !options->json)
        printf("\nreport: %s\n", options->report);
    return is_written;
}

/* Of rank 0, when the others are there to hear that it cannot. */
static bool check_outputs(void *context, struct failure *failure)
{
    const struct train_options *options = ((const struct train_live *)context)->options;
    if (options->report && !can_write_file(options->report, failure))
        return false; /* a page that cannot be written must not cost a night of training */
    return !options->log || train_log_check(options->log, failure);
}

static bool run_settings(const struct command *command, const struct train_options *options,
                         const struct train_settings *settings, const struct origin *origin,
                         struct train_report *report, bool *speaks, bool *is_stopped, struct failure *failure)
{
    struct train_live live = {
        .settings = settings, .options = options, .command = command->name, .report = report, .origin = origin};
    struct train_observer observer = {.context = &live,
                                      .on_start = check_outputs,
                                      .on_levels = train_live_levels,
                                      .on_step = train_live_step,
                                      .on_end = train_live_end,
                                      .on_failure = tell_failure};
    const bool is_trained = train(settings, &observer, report, speaks, failure);
    if (live.is_shown)
        progress_end(&live.progress);
    const bool is_logged = !options->log || train_log_close(&live, failure);
    *is_stopped = !is_trained;
    if (is_trained)
        return (!*speaks || show_results(&live, NULL, failure)) && is_logged;
    /* What was reached is kept, and the reason for the end is told after it. */
    const struct failure reason = *failure;
    if (report->run_count > 0 && !show_results(&live, reason.text, failure))
        complain(command->name, "%s", failure->text);
    *failure = reason;
    return false;
}

static void say_where_help_is(const struct command *command)
{
    fprintf(stderr, "Try 'tersegrad %s --help'.\n", command->name);
}

/* Where no step was made there is nothing new to resume. */
static void say_how_to_resume(const struct train_options *options, const struct origin *origin)
{
    struct origin again = *origin;
    struct stat status;
    if (options->checkpoint && stat(options->checkpoint, &status) == 0 && S_ISREG(status.st_mode)) {
        if (!options->resume) {
            origin_add(&again, "--resume");
            origin_add(&again, options->checkpoint);
        }
        fprintf(stderr, "resume with: %s\n", again.command);
    } else if (!options->checkpoint) {
        fputs("With --checkpoint FILE a run can be resumed.\n", stderr);
    }
}

/* Other ranks of a job may have nothing to refuse, and would wait for this one: they must hear of it. The lowest that
 * has something to say says it. False where this process is alone, or its MPI is of no use. */
static bool refuse_together(const struct command *command, struct train_settings *settings, struct train_report *report,
                            const struct failure *failure)
{
    struct train_live live = {.command = command->name};
    const struct train_observer observer = {.context = &live, .on_failure = tell_failure};
    struct failure ignored;
    bool speaks = true;
    *settings = (struct train_settings){.timeout = 120, .mpi = train_mpi_module(), .refusal = failure->text};
    if (!settings->mpi)
        return false;
    (void)train(settings, &observer, report, &speaks, &ignored);
    train_report_free(report);
    return !speaks;
}

static int refuse(const struct command *command, struct train_settings *settings, struct train_report *report,
                  const struct failure *failure)
{
    const bool is_said = refuse_together(command, settings, report, failure);
    if (!is_said && train_is_first_process())
        complain(command->name, "%s", failure->text);
    if (train_is_first_process())
        say_where_help_is(command);
    return EXIT_USAGE;
}

static int run_and_tell(const struct command *command, const struct train_options *options,
                        struct train_settings *settings, const struct origin *origin, struct train_report *report)
{
    struct failure failure = {""};
    bool speaks = true, is_stopped = false;
    if (!settings->mpi) { /* a launcher ends its ranks itself */
        settings->interrupt = &interrupted;
        catch_interrupts();
    }
    bool is_well = run_settings(command, options, settings, origin, report, &speaks, &is_stopped, &failure);
    if (!is_well && speaks && (train_is_first_process() || report->is_alone))
        complain(command->name, "%s", failure.text);
    const bool is_wrong_usage = report->is_wrong_usage;
    if (is_wrong_usage && train_is_first_process())
        say_where_help_is(command);
    else if (is_stopped && report->run_count > 0 && train_is_first_process())
        say_how_to_resume(options, origin);
    train_report_free(report);
    return is_well                     ? EXIT_DONE
           : is_wrong_usage            ? EXIT_USAGE
           : atomic_load(&interrupted) ? EXIT_INTERRUPTED
                                       : EXIT_FAILED;
}

static int run_train(const struct command *command, int argc, char **argv)
{
    struct train_options options = {
        .data = "synthetic:rows=20000,features=64,classes=10,spread=6",
        .device = "cpu",
        .workers = 4,
        .batch = 32,
        .seed = 1,
        .every = 100,
        .timeout = 120,
    };
    const char *operands[OPERANDS_MAX];
    struct failure failure = {""};
    struct train_settings *settings = malloc(sizeof *settings);
    struct train_report *report = calloc(1, sizeof *report);
    int exit_code = EXIT_FAILED;
    struct train_arguments arguments;
    struct origin origin;
    origin_fill(&origin, command->name, argc, argv); /* before the options are read, which moves the arguments */
    enum options_outcome outcome = OPTIONS_WRONG;
    if (train_arguments_make(command, argc, argv, &arguments, &failure))
        outcome = options_read(command, arguments.count, arguments.items, &options, operands, &failure);
    if (!settings || !report) {
        complain(command->name, "out of memory");
    } else if (outcome == OPTIONS_HELP) {
        if (train_is_first_process())
            print_command_help(command);
        exit_code = EXIT_DONE;
    } else if (outcome == OPTIONS_WRONG || !train_settings_fill(&options, settings, &failure) ||
               !train_check(settings, &failure)) {
        exit_code = refuse(command, settings, report, &failure);
    } else {
        settings->arguments = arguments.text;
        settings->arguments_size = arguments.text_size;
        exit_code = run_and_tell(command, &options, settings, &origin, report);
    }
    train_arguments_free(&arguments);
    free(settings);
    free(report);
    return exit_code;
}

#define AT(field) .offset = offsetof(struct train_options, field)
static const struct option train_option_table[] = {
    {.name = "--data",
     .kind = OPTION_TEXT,
     .value = "DATA",
     AT(data),
     .summary = "syn-256, syn-512, syn-1024, syn-20k; synthetic:KEY=VALUE,... with the keys rows, test, features, "
                "noise, classes, clusters, spread; a directory with the files of MNIST or CIFAR-10; a LIBSVM file "
                "(FILE.t is its test set); X.npy,Y.npy[,XTEST.npy,YTEST.npy] (default "
                "synthetic:rows=20000,features=64,classes=10,spread=6)"},
    {.name = "--model",
     .kind = OPTION_TEXT,
     .value = "MODEL",
     AT(model),
     .summary = "linear[:bias], logistic[:bias], softmax, mlp:SIZE,SIZE,... (default: what suits the data)"},
    {.name = "--workers",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = TRAIN_MOST_WORKERS,
     AT(workers),
     .summary = "ranks, each a thread (default 4); under mpirun its ranks"},
    {.name = "--batch",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = 1000000,
     AT(batch),
     .summary = "rows per worker and step (default 32)"},
    {.name = "--lr",
     .kind = OPTION_REAL,
     .value = "RATE",
     .real_low = 1e-12,
     .real_high = 1e12,
     AT(lr),
     .summary = "learning rate (default 0.02 for least squares, else 0.1)"},
    {.name = "--momentum",
     .kind = OPTION_REAL,
     .value = "M",
     .real_low = 0,
     .real_high = 0.9999,
     AT(momentum),
     .summary = "momentum of the optimiser (default 0); not with feedback dgc, which has its own"},
    {.name = "--weight-decay",
     .kind = OPTION_REAL,
     .value = "D",
     .real_low = 0,
     .real_high = 1,
     AT(weight_decay),
     .summary = "adds D times the weights to the gradient (default 0)"},
    {.name = "--schedule",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = train_schedule_choices,
     AT(schedule),
     .summary = "constant|linear|cosine|step: how the learning rate changes; step divides it by 10 after half and "
                "again after three quarters of the steps (default constant)"},
    {.name = "--steps",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = UINT64_C(1) << 40,
     AT(steps),
     .summary = "number of steps (default 500)"},
    {.name = "--epochs",
     .kind = OPTION_REAL,
     .value = "E",
     .real_low = 1e-6,
     .real_high = 1e9,
     AT(epochs),
     .summary = "instead of --steps: how often all workers together read the data"},
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     AT(seed),
     .summary = "seed of data, weights, order of rows and random numbers (default 1)"},
    {.name = "--codec",
     .kind = OPTION_LIST,
     .value = "SPEC",
     AT(codecs),
     .summary = "may be given again: one run each, from the same start (default none, qsgd and topk:density=0.01)"},
    {.name = "--feedback",
     .kind = OPTION_LIST,
     .value = "SPEC",
     AT(feedbacks),
     .summary = "none|ef|ecq:alpha=A,beta=B|dgc:momentum=M; one for all runs, or one for each codec (default ef for "
                "sparsifiers and onebit, else none)"},
    {.name = "--insist",
     .kind = OPTION_FLAG,
     AT(insist),
     .summary = "run feedback that would be refused because it diverges"},
    {.name = "--algorithm",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = train_algorithm_choices,
     AT(algorithm),
     .summary = "sgd|qsvrg (default sgd)"},
    {.name = "--reduce",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = train_reduce_choices,
     AT(reduce),
     .summary = "gather|shard|auto (default auto)"},
    {.name = "--link",
     .kind = OPTION_TEXT,
     .value = "RATE[,LATENCY]",
     AT(link),
     .summary = "simulate a network: workers that are threads exchange as slowly as over links of this rate and "
                "latency, as in 1gbit or 100mbit,50us; shows loss by time"},
    {.name = "--group",
     .kind = OPTION_TEXT,
     .value = "N|auto",
     AT(group),
     .summary =
         "each N ranks in a row are one host: they add up their gradients, and only hosts compress and exchange; with "
         "--link they share its link too. 1: each rank is a host of its own. auto, under mpirun: ranks whose hosts "
         "have the same "
         "name (default under mpirun with --reduce auto: auto, if there are several hosts, one of them has several "
         "ranks, and neither --bypass nor a clip of dgc is given; else 1)"},
    {.name = "--min-size",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     AT(min_size),
     .summary = "tensors of fewer elements are not compressed (default 0)"},
    {.name = "--warmup",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     AT(warmup),
     .summary = "nothing is compressed in the first N steps (default 0)"},
    {.name = "--bypass",
     .kind = OPTION_TEXT,
     .value = "HOW",
     AT(bypass),
     .summary = "off|auto|replay:STEP,...; auto: some steps are measured, and steps are sent uncompressed while that "
                "is faster; replay:17,22: uncompressed from step 17 on and compressed again from step 22 on, to repeat "
                "a run with auto (default off)"},
    {.name = "--density-schedule",
     .kind = OPTION_TEXT,
     .value = "LIST",
     AT(density_schedule),
     .summary = "STEP:DENSITY,...: from that step on, sparsifiers have that density; or dgc:STEPS: 0.25, 0.0625, "
                "0.015625, 0.004, 0.001, each for that many steps"},
    {.name = "--nonfinite",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = train_nonfinite_choices,
     AT(nonfinite),
     .summary = "stop|skip|drop: what to do about infinities and NaN in a gradient (default stop)"},
    {.name = "--log",
     .kind = OPTION_TEXT,
     .value = "FILE.jsonl",
     AT(log),
     .summary = "write a JSON object for every step"},
    {.name = "--report", .kind = OPTION_TEXT, .value = "FILE.html", AT(report), .summary = "write a page with charts"},
    {.name = "--checkpoint",
     .kind = OPTION_TEXT,
     .value = "FILE",
     AT(checkpoint),
     .summary = "save the whole state there, every N steps (--every)"},
    {.name = "--every",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = UINT64_MAX,
     AT(every),
     .summary = "steps between checkpoints (default 100)"},
    {.name = "--resume",
     .kind = OPTION_TEXT,
     .value = "FILE",
     AT(resume),
     .summary = "continue from a checkpoint. Options that are not given are those it was made with; with --resume "
                "alone, so are --log, --report and --checkpoint. --steps may be larger"},
    {.name = "--timeout",
     .kind = OPTION_REAL,
     .value = "S",
     .real_low = 0,
     .real_high = 1e9,
     AT(timeout),
     .summary = "under mpirun: end the job when a rank does not answer for S seconds (default 120; 0: no limit)"},
    {.name = "--device", .kind = OPTION_TEXT, .value = "NAME", AT(device), .summary = "where codecs run (default cpu)"},
    OPTION_WIDE(struct train_options),
    OPTION_JSON(struct train_options),
    {0},
};

const struct command train_command = {
    .name = "train",
    .summary = "train a model on several workers, with any codec",
    .description =
        "Trains the same model once for each codec and shows what each codec costs. Every worker computes the gradient "
        "of its own batch, compresses it, exchanges frames and applies the mean; all have the same weights to the bit. "
        "Workers are threads, or under mpirun its ranks.\n\n"
        "In the table, 'sent' is what rank 0 sent to all peers together, or, where hosts have several ranks, to other "
        "hosts only; 'wire' is how many times less that is than what a float32 ring all-reduce sends; 'frames' is "
        "float32 bytes divided by compressed bytes, each gradient counted once. With --link there is also the loss of "
        "every run when the first of them was done. Ctrl-C ends "
        "training after the current step and writes table, log and page so far.",
    .options = train_option_table,
    .examples = "  tersegrad train\n"
                "  tersegrad train --data syn-512 --codec none --codec qsgd:levels=4 --steps 1500\n"
                "  tersegrad train --data mnist/ --codec topk:density=0.001 --report page.html\n"
                "  tersegrad train --link 1gbit,50us --report page.html\n"
                "  tersegrad train --checkpoint run.ckpt --every 100\n"
                "  mpirun -np 4 tersegrad train --json",
    .run = run_train,
};
