/* See team.h. Sizes are exchanged first, so that memory can be allocated for the bytes. */
#include "team.h"

#include <stdlib.h>
#include <string.h>

/* One exchange of what every rank has room for. */
static bool exchange_known(const struct team *team, const void *bytes, size_t size, bool to_first,
                           uint8_t *const *places, const size_t *capacities, struct failure *failure)
{
    uint32_t world = team->world;
    const void **send = calloc(world, sizeof *send);
    size_t *send_sizes = calloc(world, sizeof *send_sizes), *received = calloc(world, sizeof *received);
    void **receive = calloc(world, sizeof *receive);
    bool is_done = send && send_sizes && received && receive;
    if (!is_done)
        fail(failure, "out of memory for exchanges among %u ranks", (unsigned)world);
    for (uint32_t i = 0; is_done && i < world; i++) {
        send[i] = bytes;
        send_sizes[i] = to_first && i > 0 ? 0 : size;
        receive[i] = places[i];
    }
    if (is_done) {
        tg_exchange exchange = {
            to_first ? TG_ALL_TO_ALL : TG_ALL_GATHER, world, send, send_sizes, receive, capacities, received, false};
        tg_error error = {""};
        if (tg_transport_start(team->transport, &exchange, &error) != TG_OK ||
            tg_transport_wait(team->transport, &exchange, team->timeout, &error) != TG_OK)
            is_done = fail(failure, "%s", error.message[0] ? error.message : "the exchange between the ranks failed");
    }
    for (uint32_t i = 0; is_done && i < world; i++)
        if (i != team->rank && received[i] != capacities[i])
            is_done = fail(failure, "rank %u sent %zu bytes where %zu were expected", (unsigned)i, received[i],
                           capacities[i]);
    free(send);
    free(send_sizes);
    free(received);
    free(receive);
    return is_done;
}

void shared_bytes_free(struct shared_bytes *shared)
{
    if (shared)
        free(shared->storage);
    free(shared);
}

struct shared_bytes *team_share(const struct team *team, const void *bytes, size_t size, bool to_first,
                                struct failure *failure)
{
    uint32_t world = team->world;
    struct shared_bytes *shared = calloc(1, sizeof *shared + world * sizeof shared->parts[0]);
    uint8_t **places = calloc(world, sizeof *places);
    size_t *capacities = calloc(world, sizeof *capacities);
    uint64_t *sizes = calloc(world,
                             sizeof *sizes); /* one machine architecture for one job, as MPI's launchers have it */
    bool is_done = shared && places && capacities && sizes;
    if (!is_done)
        fail(failure, "out of memory for exchanges among %u ranks", (unsigned)world);
    for (uint32_t i = 0; is_done && i < world; i++) {
        places[i] = (uint8_t *)&sizes[i];
        capacities[i] = sizeof sizes[i];
    }
    const uint64_t own = size;
    is_done = is_done && exchange_known(team, &own, sizeof own, false, places, capacities, failure);
    uint64_t total = 1;
    if (is_done) {
        sizes[team->rank] = size;
        for (uint32_t i = 0; i < world; i++) {
            if (to_first && team->rank > 0 && i != team->rank)
                sizes[i] = 0;
            total += sizes[i];
        }
        shared->storage = total <= SIZE_MAX ? malloc((size_t)total) : NULL;
        if (!shared->storage)
            is_done = fail(failure, "out of memory for the state of %u ranks", (unsigned)world);
    }
    if (is_done) {
        uint8_t *at = shared->storage;
        for (uint32_t i = 0; i < world; i++) {
            places[i] = at;
            capacities[i] = (size_t)sizes[i];
            shared->parts[i] = (tg_state){at, (size_t)sizes[i]};
            at += sizes[i];
        }
        if (size > 0 && places[team->rank])
            memcpy(places[team->rank], bytes, size);
        is_done = exchange_known(team, bytes, size, to_first, places, capacities, failure);
    }
    free(places);
    free(capacities);
    free(sizes);
    if (is_done)
        return shared;
    shared_bytes_free(shared);
    return NULL;
}

enum verdict team_agree(const struct team *team, enum verdict own, uint32_t *culprit, struct failure *failure)
{
    struct {
        char verdict;
        struct failure failure;
    } said = {(char)own, *failure};
    const size_t size = sizeof said.verdict + strlen(said.failure.text) + 1;
    struct shared_bytes *all = team_share(team, &said, own == TEAM_WELL ? 0 : size, false, failure);
    if (!all)
        return TEAM_LOST;
    enum verdict verdict = TEAM_WELL;
    for (uint32_t i = 0; i < team->world && verdict == TEAM_WELL; i++) {
        const char *bytes = all->parts[i].data;
        if (bytes && all->parts[i].size > 0) {
            verdict = (enum verdict)bytes[0];
            *culprit = i;
            fail(failure, "%s", bytes + 1);
        }
    }
    shared_bytes_free(all);
    return verdict;
}

enum verdict team_verdict(const struct team *team, bool well, uint32_t *culprit, struct failure *failure)
{
    return team_agree(team, well ? TEAM_WELL : TEAM_FAILED, culprit, failure);
}
