/* The transports' suite under an MPI launcher: conformance MODULE SEGMENT [suite|reduce|die|abort]. Rank 0 reports. */
#include "conformance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/mpi_module.h"

/* Everybody's number, gathered over the transport itself. */
static void gather(tg_transport *t, uint64_t mine, uint64_t *all)
{
    const uint32_t world = tg_transport_world(t);
    const void *send[64];
    size_t sizes[64], capacity[64], received[64];
    void *receive[64];
    tg_error error;
    for (uint32_t i = 0; i < world; i++) {
        send[i] = &mine;
        sizes[i] = capacity[i] = sizeof mine;
        receive[i] = &all[i];
    }
    tg_exchange e = {TG_ALL_GATHER, world, send, sizes, receive, capacity, received};
    if (tg_transport_start(t, &e, &error) != TG_OK || tg_transport_wait(t, &e, 60, &error) != TG_OK) {
        fprintf(stderr, "rank %u: %s\n", tg_transport_rank(t), error.message);
        exit(1);
    }
    all[tg_transport_rank(t)] = mine;
}

int main(int argc, char **argv)
{
    tg_transport *t;
    tg_error error;
    uint64_t all[64];
    if (argc < 3 || tg_transport_mpi_open(argv[1], (size_t)atol(argv[2]), &t, &error) != TG_OK) {
        fprintf(stderr, "%s\n", argc < 3 ? "usage: conformance MODULE SEGMENT WHAT" : error.message);
        return 2;
    }
    const char *what = argc > 3 ? argv[3] : "suite";
    const uint32_t rank = tg_transport_rank(t), world = tg_transport_world(t);
    int status = 0;
    if (strcmp(what, "die") == 0 && rank == world - 1) {
        fprintf(stderr, "rank %u dies\n", rank);
        abort();
    }
    if (strcmp(what, "abort") == 0 && rank == world - 1) {
        fprintf(stderr, "rank %u gives up\n", rank);
        tg_transport_abort(t, 3);
    }
    if (strcmp(what, "reduce") == 0) {
        const uint64_t digest = reduce_over(t, "cpu", &error);
        if (error.message[0])
            fprintf(stderr, "rank %u: %s\n", rank, error.message);
        gather(t, digest, all);
        bool same = !error.message[0];
        for (uint32_t i = 0; i < world; i++)
            same = same && all[i] == digest;
        if (rank == 0)
            printf("%s %016" PRIx64 "\n", same ? "digest" : "different", digest);
        status = !same;
    } else {
        const unsigned tried = conform(t, &error);
        if (error.message[0])
            fprintf(stderr, "rank %u: %s\n", rank, error.message);
        gather(t, error.message[0] != '\0', all);
        unsigned failed = 0;
        for (uint32_t i = 0; i < world; i++)
            failed += all[i] != 0;
        if (rank == 0)
            printf("%u tried, %u ranks failed\n", tried, failed);
        status = failed > 0;
    }
    tg_transport_free(t);
    return status;
}
