/* Laws of reducing over threads: every rank holds the same bits; they are the mean of what the codecs make of the gradients; mass is
 * conserved. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

static void steps(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void same_everywhere(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const tg_tensor *a = &states[0].gradients[i], *b = &states[rank].gradients[i];
            expect(memcmp(a->data, b->data, a->count * tg_dtype_size(a->dtype)) == 0, "tensor %zu differs on rank %u", i, rank);
        }
    }
}

static const char *const algorithm_names[] = {"auto", "gather", "shard"};

static void every_spec(bool all, tg_algorithm algorithm, uint32_t world)
{
    const char *const *specs = all_specs();
    for (size_t i = 0; specs[i]; i += all ? 1 : 7) {
        const tensor_case tensors[] = {{"first", specs[i], "ef", 1000, TG_FLOAT32},
                                       {"empty", specs[i], "none", 0, TG_FLOAT32},
                                       {"large", specs[i], "ef", 70001, TG_FLOAT32},
                                       {"half", specs[i], "none", 4097, TG_FLOAT16},
                                       {NULL, NULL, NULL, 0, TG_FLOAT32}};
        const rank_case what = {.world = world,
                                .tensors = tensors,
                                .options = {.algorithm = algorithm, .chunk = 8192, .seed = 7},
                                .shape = GAUSSIAN,
                                .steps = 3};
        run_ranks(&what, NULL, steps, same_everywhere, NULL);
        check_all("%s, world %u, %s: same bits everywhere", algorithm_names[algorithm], world, specs[i]);
    }
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    every_spec(all, TG_GATHER, 1);
    every_spec(all, TG_GATHER, 3);
    every_spec(all, TG_GATHER, 4);
    every_spec(all, TG_SHARD, 1);
    every_spec(all, TG_SHARD, 3);
    every_spec(all, TG_SHARD, 4);
    return finish();
}
