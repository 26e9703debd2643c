/* The benchmark's parts: one struct bench for the run, one struct bench_row for each codec. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "bench_data.h"
#include "bench_floors.h"
#include "measure.h"
#include "terminal.h"

#define BENCH_GRADIENTS 4 /* that rotate under feedback */

struct bench {
    const char *distribution;
    size_t count;
    bool feedback;
    tg_nonfinite nonfinite;
    double seconds; /* for each row */
    tg_device *device;
    size_t gradient_count; /* BENCH_GRADIENTS with feedback, else 1 */
    struct bench_vector gradients[BENCH_GRADIENTS];
    struct bench_vector accumulator, copy; /* of the floors */
    struct bench_vector sum;               /* what decode_add adds to */
    double floors_ms[FLOOR_COUNT];         /* minima over all rounds of all rows */
    struct progress progress;
    size_t rows_done, row_count;
};

struct bench_row {
    const struct listed_spec *spec;
    struct measurement measurement;
    double encode_ms, verify_ms, decode_add_ms; /* minima */
    char refusal[sizeof(tg_error)];             /* why feedback was refused; "" where there is a result */
};

/* The floors alone, for as long as a row takes, so that each has a good figure whatever the rows do. */
void bench_time_floors(struct bench *bench);

/* Measures one row. A pairing that the library calls unstable is an answer, not a failure. */
bool bench_row_run(struct bench *bench, struct bench_row *row, struct message *message);

/* The floor that encoding is held against. */
enum floor_kind bench_encode_floor(const struct bench *bench);
void bench_print_text(const struct bench *bench, const struct bench_row *rows, size_t row_count);
void bench_print_json(const struct bench *bench, const struct bench_row *rows, size_t row_count);

#endif
