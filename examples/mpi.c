/* The ranks of an MPI job reduce a gradient of two layers, each with a codec of its own.
 *
 *     cc mpi.c $(pkg-config --cflags --libs tersegrad) && mpirun -n 4 ./a.out openmpi
 *
 * The program itself does not need mpi.h: the library loads its module for the MPI that is named, openmpi or mpich,
 * which must be the one whose mpirun starts the job. */
#include <inttypes.h>
#include <stdio.h>
#include <tersegrad.h>

enum { MATRIX = 100000, BIAS = 100, STEPS = 20 };

/* The same numbers on every machine, others on each rank and in each step. */
static void fill(float *gradient, size_t count, uint32_t rank, uint64_t step)
{
    uint32_t state = 1 + rank + 1000 * (uint32_t)step;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        gradient[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

static tg_status reduce_steps(tg_reducer *reducer, tg_transport *transport, tg_error *error)
{
    static float matrix[MATRIX], bias[BIAS];
    const tg_tensor gradients[] = {{matrix, MATRIX, TG_FLOAT32}, {bias, BIAS, TG_FLOAT32}};
    tg_status status = TG_OK;
    for (uint64_t step = 0; step < STEPS && status == TG_OK; step++) {
        fill(matrix, MATRIX, tg_transport_rank(transport), step);
        fill(bias, BIAS, tg_transport_rank(transport), step);
        status = tg_reduce(reducer, transport, gradients, step, error);
        /* Both hold the mean over all ranks now: descend. */
    }
    return status;
}

int main(int argc, char **argv)
{
    tg_reducer_tensor layers[] = {
        {.name = "matrix", .count = MATRIX, .feedback = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1}},
        {.name = "bias", .count = BIAS}};
    const tg_reducer_options options = {.seed = 7, .timeout = 600}; /* seconds for which a silent rank is waited for */
    tg_transport *transport;
    tg_device *device = NULL;
    tg_reducer *reducer = NULL;
    tg_reducer_stats stats;
    tg_error error;
    if (tg_transport_mpi(argc > 1 ? argv[1] : "openmpi", &transport, &error) != TG_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    const uint32_t rank = tg_transport_rank(transport), world = tg_transport_world(transport);
    if (tg_spec_parse("qsgd:levels=7,bucket=512", &layers[0].codec, &error) != TG_OK ||
        tg_spec_parse("none", &layers[1].codec, &error) != TG_OK ||
        tg_device_open("cpu", NULL, &device, &error) != TG_OK ||
        tg_reducer_create(device, rank, world, layers, 2, &options, &reducer, &error) != TG_OK ||
        reduce_steps(reducer, transport, &error) != TG_OK || tg_reducer_stats_of(reducer, &stats, &error) != TG_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, error.message);
        tg_transport_abort(transport, 1); /* ends the job, so that nobody waits for this rank */
        return 1;
    }
    if (rank == 0)
        printf("%u ranks, %" PRIu64 " steps: %" PRIu64 " bytes sent by rank 0; a ring of float32 would send %" PRIu64
               "\n",
               world, stats.applied, stats.bytes_sent, stats.ring_bytes);
    tg_reducer_free(reducer);
    tg_device_free(device);
    tg_transport_free(transport);
    return 0;
}
