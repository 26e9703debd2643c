/* What `plan --probe` measures on a network and its machines, and the JSON file in which it is kept; docs/planning.md
 * has the format. */
#ifndef CLI_PROBE_FILE_H
#define CLI_PROBE_FILE_H

#include "complain.h"

#include "predict/predict.h"

#include <stdio.h>

enum { PROBE_VERSION = 2, PROBE_MOST_CODINGS = 2 * 48, PROBE_OLD_DAYS = 30 };

struct probe_coding {
    struct predict_coding coding;
    char feedback[TG_SPEC_TEXT]; /* as tg_feedback_print writes it */
    tg_algorithm algorithm;      /* TG_GATHER or TG_SHARD: what is done for an element differs a little */
};

struct probe {
    char machine[192]; /* what kind of machine: see probe_machine */
    int64_t made;      /* seconds since 1970 */
    char command[512]; /* which made it */
    char library[32], transport[32], device[64];
    uint32_t sharing; /* the most ranks that share a machine's processors, also where they are hosts by name */
    struct predict_network network; /* of its fields world, per_node and points, in the order of enum predict_pattern */
    struct probe_coding codings[PROBE_MOST_CODINGS];
    size_t coding_count;
    double kappa;
};

/* The kind of machine that this process runs on: "x86_64, AMD EPYC, 2 processors". Not its name: the hosts of a cluster
 * are alike. */
void probe_machine(char text[192]);

void probe_print(const struct probe *probe, FILE *out);

/* Safe on any bytes. What is accepted can be predicted from, and prints to a text that reads back as the same. */
bool probe_parse(const char *text, size_t size, struct probe *probe, struct failure *failure);
bool probe_load(const char *path, struct probe *probe, struct failure *failure);
bool probe_save(const char *path, const struct probe *probe, struct failure *failure);

/* Why predictions from it are less certain: sentences for warnings, "" where there is nothing to say. */
struct probe_doubts {
    char age[160], scatter[160], machine[512];
};

/* Before it is used on a machine of this kind at this time. One of another kind, or one whose times are scattered so
 * that they say nothing, is refused, unless the user insists.
 * Every doubt widens the intervals of the probe, `factor` times in all. */
bool probe_judge(struct probe *probe, const char *machine, int64_t now, bool insist, struct probe_doubts *doubts,
                 struct failure *failure);

/* The coding of this spec, feedback and algorithm; of this spec and algorithm with another feedback where that was not
 * probed; NULL: neither. */
const struct probe_coding *probe_coding_of(const struct probe *probe, const tg_spec *spec,
                                           const tg_feedback_spec *feedback, tg_algorithm algorithm);

#endif
