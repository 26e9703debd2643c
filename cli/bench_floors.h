/* The rulers of the benchmark: what the machine needs to move the same memory and do nothing else. */
#ifndef CLI_BENCH_FLOORS_H
#define CLI_BENCH_FLOORS_H

#include "bench_team.h"

enum floor_kind {
    FLOOR_READ,       /* a read-only sum:          4 bytes an element move */
    FLOOR_SCALE,      /* x *= s in place:          8 */
    FLOOR_ACCUMULATE, /* e += g in place:         12 */
    FLOOR_COPY,       /* a copy past the caches:   8 */
    FLOOR_MEMCPY,     /* the C library's:          8, or 12 where it reads what it overwrites */
    FLOOR_COUNT
};

/* How the JSON calls them, and the bytes that one element moves. */
extern const char *const floor_names[FLOOR_COUNT];
extern const unsigned floor_bytes[FLOOR_COUNT];

/* Three vectors of `count` floats, prefaulted, on multiples of 64 bytes. */
struct floor_vectors {
    const float *gradient;
    float *sum;
    float *copy;
    size_t count;
};

/* In how many ways this machine can do a floor's work; the fastest one is the floor. */
unsigned floor_ways(enum floor_kind kind);

/* Does a floor's work once, in one of the ways, every member of the team on its share. */
void floor_run(const struct floor_vectors *vectors, enum floor_kind kind, unsigned way, struct team *team);

#endif
