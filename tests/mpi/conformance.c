/* The transports' suite under an MPI launcher: conformance MODULE FRAGMENT
 * [suite|reduce|large|die|abort|leave|shout|silent|again|half]. MODULE may be `loaded`. Rank 0 reports. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "conformance.h"

#include <dlfcn.h>
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
    tg_exchange e = {TG_ALL_GATHER, world, send, sizes, receive, capacity, received, false};
    if (tg_transport_start(t, &e, &error) != TG_OK || tg_transport_wait(t, &e, PATIENCE, &error) != TG_OK) {
        fprintf(stderr, "rank %u: %s\n", tg_transport_rank(t), error.message);
        tg_transport_free(t);
        exit(1);
    }
    all[tg_transport_rank(t)] = mine;
}

/* ---- messages beyond 2 GiB ---- */

/* More than an int, an unsigned int's half and two fragments hold; not a multiple of anything. */
static const uint64_t large = (UINT64_C(1) << 31) + 1234567;

static uint64_t word_of(uint64_t place, uint32_t sender)
{
    return (place + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ sender * UINT64_C(0xd1342543de82ef95);
}

static void fill(uint8_t *bytes, uint64_t size, uint32_t sender)
{
    for (uint64_t at = 0; at < size; at += 8) {
        const uint64_t word = word_of(at, sender);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

static bool holds(const uint8_t *bytes, uint64_t size, uint32_t sender)
{
    for (uint64_t at = 0; at < size; at += 8) {
        const uint64_t word = word_of(at, sender);
        if (memcmp(bytes + at, &word, size - at < 8 ? size - at : 8) != 0)
            return false;
    }
    return true;
}

/* One rank sends the next one a message of more than 2 GiB, and the others a byte; they take turns, so that every rank
 * has sent one, and one buffer of each serves both ways. Returns whether what came here is what was sent. */
static bool send_large(tg_transport *t, tg_error *error)
{
    const uint32_t world = tg_transport_world(t), rank = tg_transport_rank(t);
    uint8_t *bytes = malloc(large), others[64] = {0}, one = 1;
    bool well = bytes != NULL;
    for (uint32_t sender = 0; well && sender < world; sender++) {
        const uint32_t receiver = (sender + 1) % world;
        const void *send[64];
        size_t sizes[64], capacity[64], received[64];
        void *receive[64];
        for (uint32_t i = 0; i < world; i++) {
            const bool out = rank == sender && i == receiver, in = rank == receiver && i == sender;
            send[i] = out ? bytes : &one;
            sizes[i] = out ? large : 1;
            receive[i] = in ? bytes : &others[i];
            capacity[i] = in ? large : 1;
        }
        if (rank == sender)
            fill(bytes, large, sender);
        else if (rank == receiver)
            memset(bytes, 0, large);
        tg_exchange e = {TG_ALL_TO_ALL, world, send, sizes, receive, capacity, received, false};
        if (tg_transport_start(t, &e, error) != TG_OK || tg_transport_wait(t, &e, 0, error) != TG_OK)
            well = false;
        else if (rank == receiver)
            well = received[sender] == large && holds(bytes, large, sender);
    }
    free(bytes);
    return well;
}

/* ---- small exchanges in which something is wrong ---- */

/* The last rank sends this many bytes more than the others have room for. */
static tg_status shout(tg_transport *t, size_t more, double timeout, tg_error *error)
{
    const uint32_t world = tg_transport_world(t), rank = tg_transport_rank(t);
    char bytes[11] = "", room[64][10];
    const void *send[64];
    void *receive[64];
    size_t sizes[64], capacity[64], received[64];
    for (uint32_t i = 0; i < world; i++) {
        send[i] = bytes;
        sizes[i] = rank == world - 1 ? 10 + more : 10;
        receive[i] = room[i];
        capacity[i] = 10;
    }
    tg_exchange e = {TG_ALL_GATHER, world, send, sizes, receive, capacity, received, false};
    tg_status status = tg_transport_start(t, &e, error);
    return status == TG_OK ? tg_transport_wait(t, &e, timeout, error) : status;
}

/* ---- what to do ---- */

/* The communicator of every second rank, where tests/mpi/level is there to make one. */
static const void *half_of_the_world(void)
{
    const void *(*make)(void);
    void *address = dlsym(RTLD_DEFAULT, "level_half");
    memcpy(&make, &address, sizeof make); /* ISO C has no cast to function pointers */
    return make ? make() : NULL;
}

int main(int argc, char **argv)
{
    tg_transport *t;
    tg_error error;
    uint64_t all[64];
    if (argc < 3) {
        fprintf(stderr, "usage: conformance MODULE FRAGMENT WHAT\n");
        return 2;
    }
    const char *what = argc > 3 ? argv[3] : "suite", *module = strcmp(argv[1], "loaded") == 0 ? NULL : argv[1];
    const tg_status opened = strcmp(what, "half") == 0
                                 ? tg_transport_mpi_on(module, half_of_the_world(), &t, &error)
                                 : tg_transport_mpi_open(module, NULL, (size_t)atol(argv[2]), &t, &error);
    if (opened != TG_OK) {
        fprintf(stderr, "%s: %s\n", tg_status_text(opened), error.message);
        return 2;
    }
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
    if (strcmp(what, "leave") == 0 && rank == world - 1) {
        fprintf(stderr, "rank %u leaves\n", rank);
        tg_transport_free(t);
        return 0;
    }
    if (strcmp(what, "again") == 0) {
        tg_transport_free(t);
        const bool refused = tg_transport_mpi_open(module, NULL, 0, &t, &error) == TG_UNAVAILABLE &&
                             strstr(error.message, "finalised");
        if (!refused)
            fprintf(stderr, "rank %u: %s\n", rank, error.message);
        return !refused;
    }
    if (strcmp(what, "shout") == 0 && shout(t, 1, PATIENCE, &error) != TG_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, error.message);
        tg_transport_abort(t, 3);
    }
    if (strcmp(what, "silent") == 0) { /* but for rank 0 */
        while (rank > 0)
            (void)pause();
        if (shout(t, 0, 1, &error) != TG_OK)
            fprintf(stderr, "%s\n", error.message);
        tg_transport_abort(t, 3);
    }
    if (strcmp(what, "large") == 0) {
        error.message[0] = '\0';
        const bool well = send_large(t, &error);
        if (!well)
            fprintf(stderr, "rank %u: what came is not what was sent %s\n", rank, error.message);
        gather(t, well, all);
        for (uint32_t i = 0; i < world; i++)
            status |= !all[i];
        if (rank == 0 && status == 0)
            printf("%" PRIu64 " bytes from each rank to the next\n", large);
    } else if (strcmp(what, "reduce") == 0) {
        const char *device = rank % 2 ? "queued:cpu" : "cpu"; /* to the same bits */
        uint64_t digest = reduce_over(t, device, &error);
        if (!error.message[0])
            digest ^= reduce_levels_over(t, device, &error);
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
            printf("%u tried, %u of %u ranks failed\n", tried, failed, world);
        status = failed > 0;
    }
    tg_transport_free(t);
    return status;
}
