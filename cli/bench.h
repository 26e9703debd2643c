/* The benchmark's parts: one struct bench for the run, one struct bench_row for each codec. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "bench_data.h"
#include "bench_floors.h"
#include "measure.h"
#include "terminal.h"

#define BENCH_GRADIENTS 4 /* that rotate under feedback */
#define BENCH_PEERS 4     /* whose frames are added in one pass */

struct bench {
    const char *command; /* for warnings */
    const char *distribution;
    size_t count;
    bool feedback;
    tg_nonfinite nonfinite;
    double seconds; /* for each row */
    tg_device *device;
    struct team *team;     /* as many threads as the device has, for the floors */
    size_t gradient_count; /* BENCH_GRADIENTS with feedback, else 1 */
    struct bench_vector gradients[BENCH_GRADIENTS];
    struct bench_vector sum;       /* what decode_add and the floors add to: the same memory for both */
    struct bench_vector copy;      /* of the floors */
    double floors_ms[FLOOR_COUNT]; /* minima over all rounds of all rows */
    bool one_ruler;                /* every row is held against these minima, and not against its own floors */
    struct progress progress;
    size_t rows_done, row_count;
};

struct bench_row {
    const struct listed_spec *spec;
    struct measurement measurement;
    double floors_ms[FLOOR_COUNT];  /* in the same rounds: a machine that others use is not always as fast */
    double encode_ms, verify_ms;    /* minima, as all of these */
    double decode_ms;               /* to a vector: every element is written */
    double add_ms, verified_add_ms; /* decode_add of a frame: verified by it, or before */
    double peers_add_ms, verified_peers_add_ms;           /* of BENCH_PEERS frames in one pass */
    double encode_moves_ms, add_moves_ms, peers_moves_ms; /* what moving the same bytes takes */
    char refusal[sizeof(tg_error)];                       /* why feedback was refused; "" where there is a result */
};

/* The floors alone, for as long as a row takes, so that each has a good figure whatever the rows do. */
void bench_time_floors(struct bench *bench);

/* Measures one row. A pairing that the library calls unstable is an answer, not a failure. */
bool bench_row_run(struct bench *bench, struct bench_row *row, struct failure *failure);

/* The floor that encoding is held against. */
enum floor_kind bench_encode_floor(const struct bench *bench);

/* The floors that a row is held against. */
const double *bench_floors(const struct bench *bench, const struct bench_row *row);

/* Gigabytes of gradient (float32) a second. */
double bench_speed(const struct bench *bench, double ms);

/* Where a rank sends at less than this, in Gbit/s, sending the frame takes less time than sending float32, encoding and
 * adding included; not above 0 where it never does. */
double bench_break_even(const struct bench *bench, const struct bench_row *row);

/* What the rows say to somebody who has to choose. Returns how many sentences there are. */
#define VERDICT_MAX 3
#define VERDICT_TEXT 512
size_t bench_verdict(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                     char verdict[VERDICT_MAX][VERDICT_TEXT]);

/* What others need for the same work, or NULL where that was not asked for. */
struct comparison;
bool comparison_run(const struct bench *bench, struct comparison **comparison, struct failure *failure);
void comparison_print(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                      const struct comparison *comparison);
struct json_writer;
void comparison_put(const struct comparison *comparison, struct json_writer *json);
/* On a card there are no floors: times in microseconds. NULL prints nothing. */
void comparison_print_card(const struct comparison *comparison);
void comparison_put_card(const struct comparison *comparison, struct json_writer *json);

void bench_print_text(const struct bench *bench, const struct bench_row *rows, size_t row_count, bool wide,
                      const struct comparison *comparison);
void bench_print_json(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                      const struct comparison *comparison);

/* The vectors, with their gradients. */
bool bench_make_vectors(struct bench *bench, struct failure *failure);
void bench_free_vectors(struct bench *bench);

/* Makes the vectors, measures a row for each spec, and lets the vectors go. */
bool bench_measure(struct bench *bench, const struct spec_list *specs, struct bench_row *rows, struct failure *failure);

/* Measures and prints on a card: gradients, sums and frames stay in its memory, and what is timed is held against a
 * copy in the same memory. */
struct card_settings {
    const char *tensors; /* a model or a layout file, whose tensors are also measured in one call; or NULL */
    bool compare, wide, json;
};
bool bench_run_card(struct bench *bench, const struct spec_list *specs, const struct card_settings *settings,
                    struct failure *failure);

/* Measures and prints vectors of 10^4, 10^5, … up to bench->count elements. */
bool bench_run_decades(struct bench *bench, const struct spec_list *specs, bool as_json, struct failure *failure);

#endif
