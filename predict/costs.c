/* See costs.h. */
#include "costs.h"

#include <string.h>

/* Nanoseconds an element. Of a sparsifier, what checks and adds is for each element that was selected; encoding
 * includes 0.13 ns to clear the mean, which is sparse too. */
struct cost {
    const char *codec;
    double encode, with_feedback, check, add;
};

/* `tersegrad bench -n 25600000 --seconds 0.1`, with and without --feedback, 2026-11-18. */
static const struct cost on_cpu[] = {
    {"none", 0.49, 0.49, 0.20, 0.24},    {"fp16", 0.41, 0.47, 0.11, 0.20},     {"bf16", 0.41, 0.47, 0.11, 0.20},
    {"qsgd", 0.30, 0.34, 0.03, 0.16},    {"terngrad", 0.18, 0.33, 0.01, 0.14}, {"onebit", 0.23, 0.51, 0.01, 0.17},
    {"topk", 0.27, 0.47, 0.75, 4.4},     {"randk", 0.57, 0.80, 0.75, 4.4},     {"gaussiank", 0.29, 0.46, 0.75, 4.4},
    {"dgck", 0.37, 0.49, 0.75, 4.4},     {"trimk", 0.29, 0.47, 0.75, 4.4},     {"sidco", 0.30, 0.49, 0.75, 4.4},
    {"entropy", 0.66, 0.66, 0.30, 0.80}, {"elias", 25, 27, 9.1, 9.5},          {NULL, 0, 0, 0, 0},
};

/* docs/performance-card.md, 25.6 M elements; a copy there moves 3.65 TB/s. */
static const struct cost on_card[] = {
    {"none", 0.0022, 0.0022, 0.0011, 0.0033},
    {"fp16", 0.0020, 0.0055, 0.0006, 0.0027},
    {"bf16", 0.0020, 0.0055, 0.0006, 0.0027},
    {"qsgd", 0.0024, 0.0062, 0.0010, 0.0029},
    {"terngrad", 0.0024, 0.0062, 0.0010, 0.0029},
    {"onebit", 0.0024, 0.0062, 0.0010, 0.0029},
    {"topk", 0.0060, 0.0081, 0.10, 0.30},
    {"randk", 0.0060, 0.0081, 0.10, 0.30},
    {"gaussiank", 0.0068, 0.0090, 0.10, 0.30},
    {"dgck", 0.0070, 0.0092, 0.10, 0.30},
    {"trimk", 0.0070, 0.0092, 0.10, 0.30},
    {"sidco", 0.0070, 0.0092, 0.10, 0.30},
    {"entropy", 0.0077, 0.0110, 0.0030, 0.0102},
    {"elias", 25, 27, 9.1, 9.5},
    {NULL, 0, 0, 0, 0},
};

/* Finding and parsing a frame; on a card its launches, a few of which several frames share. */
static const double frame_seconds[] = {[PREDICT_CPU] = 1.5e-6, [PREDICT_CARD] = 15e-6};

/* Between 80 % of machines are believed to lie: a processor with half the memory bandwidth, a smaller card. */
static const double slowest[] = {[PREDICT_CPU] = 1.6, [PREDICT_CARD] = 2.5}, fastest[] = {0.8, 0.8};

const char *predict_costs_source(enum predict_device device)
{
    return device == PREDICT_CARD ? "an NVIDIA H200" : "one thread of an AMD EPYC (Zen 4, AVX-512)";
}

static const struct cost *find(const struct cost *costs, const char *name)
{
    while (costs->codec && strcmp(costs->codec, name) != 0)
        costs++;
    return costs->codec ? costs : NULL;
}

bool predict_costs(enum predict_device device, const tg_spec *codec, bool feedback, struct predict_coding *coding,
                   struct failure *failure)
{
    enum { SOME = 1 << 20 };
    struct predict_coding made = {.frame = frame_seconds[device], .low = fastest[device], .high = slowest[device]};
    tg_error error = {""};
    tg_codec_info info;
    if (tg_spec_print(codec, made.spec, sizeof made.spec, &error) != TG_OK)
        return fail(failure, "%s", error.message);
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK && info.id != codec->codec; i++)
        ;
    const struct cost *costs = device == PREDICT_CARD ? on_card : on_cpu;
    const char *how = info.sparse                           ? info.name
                      : strstr(made.spec, "coding=elias")   ? "elias"
                      : strstr(made.spec, "coding=entropy") ? "entropy"
                      : strstr(made.spec, "coding=auto")    ? "entropy"
                                                            : info.name;
    const struct cost *cost = find(costs, how);
    if (!cost) /* a new codec is believed to cost what others of its kind do */
        cost = find(costs, info.sparse ? "topk" : info.parameter_count > 0 ? "qsgd" : "bf16");
    const double share = info.sparse ? (double)tg_spec_selected(codec, SOME) / SOME : 1;
    made.encode = 1e-9 * (feedback ? cost->with_feedback : cost->encode);
    made.check = 1e-9 * share * cost->check;
    made.add = 1e-9 * share * cost->add;
    *coding = made;
    return true;
}
