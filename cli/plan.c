/* `tersegrad plan`: will compression help, and which? */
#include "plan.h"

#include "commands.h"
#include "probe.h"
#include "train.h"

#include <stdio.h>

const char *const plan_devices[] = {[PREDICT_CPU] = "cpu", [PREDICT_CARD] = "cuda", NULL};

/* The first option that measuring would ignore, or NULL. */
static const char *not_for_measuring(const struct plan_options *o)
{
    const struct {
        const char *name;
        bool is_given;
    } options[] = {{"--model", o->model >= 0},
                   {"--layout", o->layout},
                   {"--backward", o->backward},
                   {"--forward", o->forward},
                   {"--insist", o->insist},
                   {"--world", o->world > 0},
                   {"--per-node", o->per_node > 0},
                   {"--flat", o->flat},
                   {"--rate", o->rate},
                   {"--latency", o->latency},
                   {"--min-size", o->min_size > 0},
                   {"--kappa", o->kappa > 0},
                   {"--report", o->report},
                   {"--simulate", o->simulate},
                   {"--rack", o->rack > 0},
                   {"--oversubscription", o->oversubscription >= 0},
                   {"--jitter", o->jitter >= 0},
                   {"--stragglers", o->stragglers >= 0},
                   {"--slowdown", o->slowdown >= 0},
                   {"--steps", o->steps > 0},
                   {"--seed", o->seed != UINT64_MAX},
                   {"--json", o->json}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_given)
            return options[i].name;
    return NULL;
}

/* All ranks have the same arguments: one speaks. */
static int measure(const struct command *command, const struct plan_options *options, const struct origin *origin)
{
    const struct probe_request request = {.path = options->probe,
                                          .device = options->device == PREDICT_CARD ? "cuda" : "cpu",
                                          .seconds = options->seconds > 0 ? options->seconds : PROBE_SECONDS,
                                          .command = origin->command,
                                          .feedback = options->feedback,
                                          .specs = options->codecs};
    const char *other = not_for_measuring(options);
    if (!other)
        return probe_run(command, &request);
    if (train_is_first_process())
        complain(command->name, "%s is for predicting, but mpirun with --probe measures; leave it out", other);
    return EXIT_USAGE;
}

/* Under mpirun all ranks have the same options: one says what is wrong with them. */
static bool read_options(const struct command *command, int argc, char **argv, struct plan_options *options,
                         const char *operands[OPERANDS_MAX], int *exit_code)
{
    if (train_is_first_process())
        return options_parse(command, argc, argv, options, operands, exit_code);
    struct failure failure = {""};
    const enum options_outcome outcome = options_read(command, argc, argv, options, operands, &failure);
    *exit_code = outcome == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    return outcome == OPTIONS_READ;
}

static int run_plan(const struct command *command, int argc, char **argv)
{
    struct plan_options options = {.model = -1,
                                   .device = -1,
                                   .seed = UINT64_MAX,
                                   .oversubscription = -1,
                                   .jitter = -1,
                                   .stragglers = -1,
                                   .slowdown = -1};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    struct origin origin;
    origin_fill(&origin, command->name, argc, argv); /* before the options are read, which moves the arguments */
    if (!read_options(command, argc, argv, &options, operands, &exit_code))
        return exit_code;
    if (options.probe && train_mpi_module())
        return measure(command, &options, &origin);
    struct plan plan;
    struct failure failure = {""};
    if (!plan_inputs(&plan, &options, &failure)) {
        complain(command->name, "%s", failure.text);
        plan_free(&plan);
        return EXIT_USAGE;
    }
    exit_code = EXIT_DONE;
    if (!plan_predict(&plan, &failure) ||
        (options.report && !plan_write_page(options.report, &plan, &origin, &failure))) {
        complain(command->name, "%s", failure.text);
        exit_code = EXIT_FAILED;
    } else if (options.json) {
        plan_print_json(&plan, stdout);
    } else {
        plan_print_table(&plan, stdout);
    }
    plan_free(&plan);
    return exit_code;
}

#define AT(field) .offset = offsetof(struct plan_options, field)

static const struct option plan_option_table[] = {
    {.name = "--model",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = known_models,
     AT(model),
     .summary = "resnet50|resnet152|vgg16|vgg19|alexnet|lstm|gpt2 (default resnet50)"},
    {.name = "--layout",
     .kind = OPTION_TEXT,
     .value = "FILE.json",
     AT(layout),
     .summary = "the tensors of your model, with the times at which they are ready, if they are known"},
    {.name = "--backward",
     .kind = OPTION_TEXT,
     .value = "TIME",
     AT(backward),
     .summary = "how long a backward pass takes: 80ms (default: of --model, for a card of 10 TFLOP/s)"},
    {.name = "--forward",
     .kind = OPTION_TEXT,
     .value = "TIME",
     AT(forward),
     .summary = "how long a forward pass takes (default: half of the backward pass)"},
    {.name = "--probe",
     .kind = OPTION_TEXT,
     .value = "FILE.json",
     AT(probe),
     .summary =
         "under mpirun, on the hosts that will train: measure exchanges and codecs between its ranks; without: predict "
         "from what was measured there"},
    {.name = "--seconds",
     .kind = OPTION_REAL,
     .value = "S",
     .real_low = 1,
     .real_high = PROBE_MOST_SECONDS,
     AT(seconds),
     .summary = "how long measuring may take, 1 to 30 (default 28)"},
    {.name = "--insist",
     .kind = OPTION_FLAG,
     AT(insist),
     .summary = "use a probe of another machine, or one whose times vary too much"},
    {.name = "--world",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = PREDICT_MOST_RANKS,
     AT(world),
     .summary = "ranks (default: those of the probe, or 8)"},
    {.name = "--per-node",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = PLAN_MOST_ON_A_HOST,
     AT(per_node),
     .summary = "ranks of one host, up to 1024, which share its link (default: those of the probe, or 1)"},
    {.name = "--flat",
     .kind = OPTION_FLAG,
     AT(flat),
     .summary = "every rank exchanges with every other; else several hosts with several ranks reduce in two levels"},
    {.name = "--rate",
     .kind = OPTION_TEXT,
     .value = "RATE",
     AT(rate),
     .summary =
         "of a host's link, each way: 100mbit, 2.5gbit (default: what was probed, or 10gbit); beside --probe, give "
         "--latency too"},
    {.name = "--latency",
     .kind = OPTION_TEXT,
     .value = "TIME",
     AT(latency),
     .summary = "of a message: 50us, 2ms (default: what was probed, or 50us); beside --probe, give --rate too"},
    {.name = "--codec",
     .kind = OPTION_LIST,
     .value = "SPEC",
     AT(codecs),
     .summary = "a codec to ask about; may be given again (default: nine that span what there is)"},
    {.name = "--feedback",
     .kind = OPTION_TEXT,
     .value = "SPEC",
     AT(feedback),
     .summary = "none|ef|ecq:alpha=A,beta=B|dgc:momentum=M, for all codecs (default ef for sparsifiers and onebit, "
                "else none)"},
    {.name = "--min-size",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     AT(min_size),
     .summary = "tensors of fewer elements are not compressed (default 0)"},
    {.name = "--device",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = plan_devices,
     AT(device),
     .summary = "cpu|cuda: where codecs run (default: as in the probe, or cpu)"},
    {.name = "--kappa",
     .kind = OPTION_REAL,
     .value = "K",
     .real_low = 1,
     .real_high = 100,
     AT(kappa),
     .summary = "how many times longer coding takes while the backward pass runs (default: what was probed, or 1, as "
                "where a card computes)"},
    {.name = "--report",
     .kind = OPTION_TEXT,
     .value = "FILE.html",
     AT(report),
     .summary = "write a page with charts: step time by bandwidth and by world, and where each codec wins"},
    {.name = "--simulate",
     .kind = OPTION_FLAG,
     AT(simulate),
     .summary = "simulate every exchange of every rank, up to 100000 ranks, on hosts and racks that are not all alike"},
    {.name = "--rack",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = PREDICT_MOST_RANKS,
     AT(rack),
     .summary = "simulated: hosts of a rack (default: all hosts are in one)"},
    {.name = "--oversubscription",
     .kind = OPTION_REAL,
     .value = "X",
     .real_low = 1,
     .real_high = 1000,
     AT(oversubscription),
     .summary = "simulated: the links of a rack's hosts together are X times as fast as its uplink (default 1)"},
    {.name = "--jitter",
     .kind = OPTION_REAL,
     .value = "X",
     .real_low = 0,
     .real_high = 1,
     AT(jitter),
     .summary = "simulated: how much a rank's computing varies, as a share of it (default 0.02)"},
    {.name = "--stragglers",
     .kind = OPTION_REAL,
     .value = "X",
     .real_low = 0,
     .real_high = 1,
     AT(stragglers),
     .summary = "simulated: share of the hosts that are slow (default 0)"},
    {.name = "--slowdown",
     .kind = OPTION_REAL,
     .value = "X",
     .real_low = 1,
     .real_high = 1000,
     AT(slowdown),
     .summary = "simulated: how many times longer slow hosts compute, and code with --device cpu (default 2)"},
    {.name = "--steps",
     .kind = OPTION_NUMBER,
     .value = "N",
     .low = 1,
     .high = SIMULATE_MOST_STEPS,
     AT(steps),
     .summary = "number of steps to simulate (default 20)"},
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX - 1,
     AT(seed),
     .summary = "simulated: seed of what varies (default 1)"},
    OPTION_JSON(struct plan_options),
    {0},
};

const struct command plan_command = {
    .name = "plan",
    .summary = "predict whether compression makes training faster",
    .description =
        "Predicts how long a training step takes with each codec, and says which to use, or none. Sizes and exchanges "
        "are those that the reducer plans. 'ring' is the dense baseline: ring all-reduces of float32 in buckets of "
        "25 MiB, as data-parallel training does without compression; with more than eight ranks 'tree' is the same up "
        "and down a tree, and the faster of the two is the baseline. 'gather' and 'shard' are the two algorithms of "
        "this library. '80 %' is the interval that should hold four of five measured steps; 'gain' is how many times "
        "longer the baseline's step is; 'sent' is what the busiest rank sends to other hosts in a step, 0 where there "
        "is one host; 'bound by' is what would have to be faster for a shorter step.\n\n"
        "A codec is recommended if the lower end of its interval is at least 5 % faster than the best without "
        "compression. This is about time, not about accuracy. What is assumed is listed below the table.",
    .options = plan_option_table,
    .examples = "  tersegrad plan\n"
                "  tersegrad plan --model gpt2 --world 16 --rate 1gbit --latency 100us\n"
                "  tersegrad plan --model vgg16 --backward 250ms --per-node 8 --world 64\n"
                "  tersegrad plan --world 1024 --simulate --rack 32 --oversubscription 4\n"
                "  tersegrad plan --model gpt2 --report page.html\n"
                "  tersegrad plan --codec qsgd --codec topk:density=0.001 --json\n"
                "  mpirun -np 4 tersegrad plan --probe network.json",
    .run = run_plan,
};
