/* The benchmark on a card: what is measured, and how it is printed. */
#ifndef CLI_BENCH_CARD_H
#define CLI_BENCH_CARD_H

#include "bench.h"

enum card_kind { ENCODE, VERIFY_ADD, VERIFY_ADD_PEERS, ADD, ADD_PEERS, KINDS };

/* Elements of the vector that are a tensor of their own. */
struct card_part {
    size_t first, count;
};

struct card_row {
    const char *label;
    size_t parts; /* tensors in a call */
    size_t bytes;
    double seconds[KINDS]; /* of a call behind others; NaN: it can only wait */
    double waiting[KINDS]; /* of one that waits; NaN: not measured */
    char refusal[sizeof(tg_error)];
};

struct card_report {
    const char *device;
    size_t count, row_count;
    bool feedback;
    double copied; /* bytes read and written by a copy in a second */
    struct card_row *rows;
    struct comparison *comparison;
};

/* The share of a copy's speed that a call behind others reaches, or one that waits. */
double card_fraction(const struct card_report *report, const struct card_row *row, enum card_kind kind);

void card_print_text(const struct card_report *report, bool wide);
void card_print_json(const struct card_report *report);

#endif
