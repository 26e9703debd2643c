/* What the machine needs to move the very bytes that encoding or decoding moves, frames included, and to compute
 * nothing. */
#ifndef CLI_BENCH_MOVES_H
#define CLI_BENCH_MOVES_H

#include "bench_floors.h"

#include <stdint.h>

/* Encoding: the gradient is read (FLOOR_READ) or added to the sum (FLOOR_ACCUMULATE) while a frame is written.
 * Decoding: the sum is scaled (FLOOR_SCALE) while frames are read. */
struct moves {
    enum floor_kind kind;
    const float *gradient;
    float *sum;
    size_t count;
    size_t frame_size;
    uint8_t *written;
    const uint8_t *const *read;
    size_t read_count;
};

/* Moves it all once, in one of floor_ways(kind) ways, every member of the team its share. */
void moves_run(const struct moves *moves, unsigned way, struct team *team);

#endif
