/* Several ranks in one test: each a thread with a transport, a device and a reducer of its own. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <stdatomic.h>

#include "support.h"

enum { MOST_RANKS = 64, MOST_TENSORS = 10 };

/* One tensor of a test. */
typedef struct tensor_case {
    const char *name, *spec, *feedback;
    uint64_t count;
    tg_dtype dtype;
} tensor_case;

/* A sparsifier's, a cast one and an uncompressed one, named kernel, matrix and bias: each with feedback, so that what
 * is lost is missed. */
extern const tensor_case mixed_tensors[];

typedef struct rank_case rank_case;
struct rank_case {
    uint32_t world;
    const tensor_case *tensors; /* an entry without a name ends */
    tg_reducer_options options;
    shape shape;
    uint64_t steps;
    const uint64_t *const *boundaries; /* of each tensor, for scatter; NULL: equal parts */
    const rank_case *odd;              /* if not NULL, what the rank `odd_rank` does instead */
    uint32_t odd_rank;
};

/* What a rank knows while it runs. */
typedef struct rank_state {
    const rank_case *what;
    uint32_t rank;
    tg_transport *transport;
    tg_device *device;
    tg_reducer *reducer;
    size_t tensor_count;
    tg_reducer_tensor tensors[MOST_TENSORS];
    tg_tensor gradients[MOST_TENSORS];
    tg_status status; /* of the last step */
    tg_error error;
    void *extra; /* for the test */
} rank_state;

/* Fills a rank's gradients for a step, the same each time. */
void fill_gradients(rank_state *state, uint64_t step);

/* From now on, ranks take these devices in turn; NULL ends. At first they are kinds of CPU devices, and every other one
 * what
 * --device names. */
void put_ranks_on(const char *const *devices);

/* Whether ranks of a host read each other's memory, where there is such memory; and how many reducers did so far. */
extern bool ranks_share;
extern atomic_uint ranks_sharing;

/* Makes a device, gradients and the reducer, on which state->status and state->error say how it went. */
void open_rank(rank_state *state, const rank_case *what, uint32_t rank, tg_transport *transport);
void close_rank(rank_state *state);

/* The elements whose mean a rank has to show for a step: its part under scatter, else all of them, by rank 0. */
typedef struct element_range {
    uint64_t from, to;
} element_range;
element_range shown_by(const rank_state *state, size_t tensor);

/* After a scatter, copies parts until every rank has the whole mean; the bytes of others' parts were theirs to keep. */
void join_parts(rank_state *states, uint32_t world);

/* Runs `body` once for each rank, each in a thread of its own, over local transports or those that are given, which are
 * freed; where frames stay on devices, with what carries them (carrier.h). Then calls `after` with all of them, before
 * they are closed. */
void run_ranks(const rank_case *what, tg_transport **transports, void (*body)(rank_state *state),
               void (*after)(rank_state *states, uint32_t world), void *extra);

/* The next exchange of reductions whose ranks all run in this thread, which are not told the size of every other
 * message; false if there is none left. */
bool exchange_by_hand(tg_reduction *const *reductions, uint32_t world);
/* Its parts: whether there is an exchange; it is carried out; and what came is fed. */
bool hand_out(tg_reduction *const *reductions, uint32_t world, tg_exchange **exchanges);
void carry_by_hand(tg_reduction *const *reductions, uint32_t world, tg_exchange *const *exchanges);
void feed_all(tg_reduction *const *reductions, uint32_t world, tg_exchange *const *exchanges);

#endif
