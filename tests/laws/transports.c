/* The transports' suite over threads, and what happens when a rank leaves, gives up, says too much or nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "faulty.h"
#include "support.h"
#include "transport/transport.h"

enum { MOST = 8 };

typedef struct member {
    tg_transport *transport;
    tg_error problem;
    unsigned tried;
    uint64_t digest;
    tg_status status;
} member;

static void together(uint32_t world, void *(*body)(void *), member *members)
{
    pthread_t threads[MOST];
    tg_transport *transports[MOST];
    tg_error error;
    if (tg_transport_local(world, transports, &error) != TG_OK)
        abort();
    memset(members, 0, MOST * sizeof *members);
    for (uint32_t i = 0; i < world; i++)
        members[i].transport = transports[i];
    for (uint32_t i = 0; i < world; i++)
        if (pthread_create(&threads[i], NULL, body, &members[i]) != 0)
            abort();
    for (uint32_t i = 0; i < world; i++)
        (void)pthread_join(threads[i], NULL);
}

static void *suite(void *argument)
{
    member *m = argument;
    m->tried = conform(m->transport, &m->problem);
    tg_transport_free(m->transport);
    return NULL;
}

static void *delayed_suite(void *argument)
{
    member *m = argument;
    tg_transport *t = faulty(m->transport, DELAY, 3, 0, 0);
    m->tried = conform(t, &m->problem);
    tg_transport_free(t);
    return NULL;
}

static const char *device = "cpu";

static void *reductions(void *argument)
{
    member *m = argument;
    m->digest = reduce_over(m->transport, device, &m->problem);
    if (!m->problem.message[0])
        m->digest ^= reduce_levels_over(m->transport, device, &m->problem);
    tg_transport_free(m->transport);
    return NULL;
}

static void conforms(const char *name, void *(*body)(void *), uint32_t most)
{
    member members[MOST];
    for (uint32_t world = 1; world <= most; world++) {
        together(world, body, members);
        for (uint32_t i = 0; i < world; i++)
            expect(members[i].tried > 10 && !members[i].problem.message[0], "rank %u: %s", i,
                   members[i].problem.message);
        check_all("%s, world %u: the suite", name, world);
    }
}

/* One exchange of ten bytes with everybody, except for a rank that does something else. */
static const char *misbehaviour;

static void *ten_bytes(void *argument)
{
    member *m = argument;
    const uint32_t world = tg_transport_world(m->transport), rank = tg_transport_rank(m->transport);
    char bytes[16] = "", room[MOST][16];
    const void *send[MOST];
    void *receive[MOST];
    size_t sizes[MOST], capacity[MOST], received[MOST];
    const bool odd = rank == 1;
    for (uint32_t i = 0; i < world; i++) {
        send[i] = bytes;
        receive[i] = room[i];
        sizes[i] = odd && strcmp(misbehaviour, "shouts") == 0 ? 11 : 10;
        if (odd && strcmp(misbehaviour, "sends nothing where something is expected") == 0)
            sizes[i] = TG_NO_MESSAGE;
        capacity[i] = 10;
    }
    tg_exchange e = {TG_ALL_GATHER, world, send, sizes, receive, capacity, received, false};
    m->status = TG_OK;
    if (odd && strcmp(misbehaviour, "gives up") == 0)
        tg_transport_abort(m->transport, 1);
    else if (!(odd && (strcmp(misbehaviour, "leaves") == 0 || strcmp(misbehaviour, "is silent") == 0))) {
        m->status = tg_transport_start(m->transport, &e, &m->problem);
        if (m->status == TG_OK)
            m->status = tg_transport_wait(m->transport, &e, strcmp(misbehaviour, "is silent") == 0 ? 0.2 : PATIENCE,
                                          &m->problem);
    } else if (strcmp(misbehaviour, "is silent") == 0) {
        return NULL;
    }
    tg_transport_free(m->transport);
    return NULL;
}

static void notices(const char *what, const char *word)
{
    member members[MOST];
    misbehaviour = what;
    together(3, ten_bytes, members);
    for (uint32_t i = 0; i < 3; i += 2)
        expect(members[i].status == TG_EXCHANGE && strstr(members[i].problem.message, word), "rank %u: status %d, %s",
               i, (int)members[i].status, members[i].problem.message);
    check_all("a rank that %s is noticed by all", what);
    if (strcmp(what, "is silent") == 0)
        tg_transport_free(members[1].transport);
}

/* A wait in vain says for whom: for those that have not started the exchange, and for no other. */
static void names_the_silent(void)
{
    enum { WORLD = 14 };
    char byte = 0, room[WORLD];
    const void *send[WORLD];
    void *receive[WORLD];
    size_t sizes[WORLD], received[2][WORLD];
    for (uint32_t i = 0; i < WORLD; i++) {
        send[i] = &byte;
        receive[i] = &room[i];
        sizes[i] = 1;
    }
    static const struct {
        uint32_t world, starts; /* this rank has started it too; 0: none has */
        const char *message;
    } cases[] = {
        {3, 1, "rank 2 did not answer rank 0 within 0.05 s"},
        {3, 0, "ranks 1 and 2 did not answer rank 0 within 0.05 s"},
        {9, 4, "ranks 1, 2, 3, 5, 6, 7 and 8 did not answer rank 0 within 0.05 s"},
        {WORLD, 0, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 5 others did not answer rank 0 within 0.05 s"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const uint32_t world = cases[c].world;
        tg_exchange e[2] = {{TG_ALL_GATHER, world, send, sizes, receive, sizes, received[0], false},
                            {TG_ALL_GATHER, world, send, sizes, receive, sizes, received[1], false}};
        tg_transport *t[WORLD];
        tg_error error;
        expect(tg_transport_local(world, t, &error) == TG_OK, "%s", error.message);
        if (cases[c].starts > 0)
            expect(tg_transport_start(t[cases[c].starts], &e[1], &error) == TG_OK, "start: %s", error.message);
        expect(tg_transport_start(t[0], &e[0], &error) == TG_OK, "start: %s", error.message);
        const tg_status status = tg_transport_wait(t[0], &e[0], 0.05, &error);
        expect(status == TG_EXCHANGE && strcmp(error.message, cases[c].message) == 0, "status %d, %s", (int)status,
               error.message);
        for (uint32_t i = 0; i < world; i++)
            tg_transport_free(t[i]);
    }
    check_all("a wait in vain names the ranks that did not answer");
}

/* A rank that leaves without having waited takes its buffers with it: nobody may copy from them afterwards. */
static void leaves_early(void)
{
    char out[2] = "ab", *gone = malloc(2), in[2] = "..";
    const void *send[2] = {out, out}, *send_gone[2] = {gone, gone};
    void *receive[2] = {in, in}, *receive_gone[2] = {gone, gone};
    const size_t sizes[2] = {2, 2};
    size_t received[2] = {0, 0}, received_gone[2] = {0, 0};
    tg_exchange stays = {TG_ALL_GATHER, 2, send, sizes, receive, sizes, received, false};
    tg_exchange leaves = {TG_ALL_GATHER, 2, send_gone, sizes, receive_gone, sizes, received_gone, false};
    tg_transport *t[2];
    tg_error error;
    memset(gone, 'x', 2);
    expect(tg_transport_local(2, t, &error) == TG_OK && tg_transport_start(t[1], &leaves, &error) == TG_OK, "start: %s",
           error.message);
    tg_transport_free(t[1]);
    free(gone);
    tg_status status = tg_transport_start(t[0], &stays, &error);
    if (status == TG_OK)
        status = tg_transport_wait(t[0], &stays, PATIENCE, &error);
    expect(status == TG_EXCHANGE && strstr(error.message, "rank 1 has left"), "status %d, %s", (int)status,
           error.message);
    check_all("a rank that leaves with an exchange under way is noticed, and its buffers are left alone");
    tg_transport_free(t[0]);
}

/* For comparison with other transports: the digest of this many ranks, alone on its line. */
static int print_digest(uint32_t world)
{
    member members[MOST];
    together(world, reductions, members);
    printf("%016llx\n", (unsigned long long)members[0].digest);
    return members[0].problem.message[0] != '\0';
}

/* A rank that gives up releases the memory it shares, when another has been told of it and has not looked yet. */
static void lent_memory(void)
{
    tg_transport *transports[2];
    tg_error error;
    tg_shared own = {.memory = NULL}, seen = {.memory = NULL}, again = {.memory = NULL};
    uint8_t location[TG_LOCATION_SIZE], other[TG_LOCATION_SIZE];
    if (tg_transport_local(2, transports, &error) != TG_OK)
        abort();
    expect(transports[0]->functions->share(transports[0], 1000, &own, location), "no memory");
    memset(own.memory, 7, 1000);
    own.release(&own);
    expect(transports[1]->functions->look(transports[1], location, &seen) && seen.size == 1000 && seen.memory[999] == 7,
           "it is not there any more");
    expect(transports[0]->functions->share(transports[0], 1000, &again, other), "no memory");
    expect(seen.memory[0] == 7, "it went while it was in use");
    seen.release(&seen);
    again.release(&again);
    tg_transport_free(transports[0]);
    tg_transport_free(transports[1]);
    check_all("what a rank shares is there until nobody can look at it");
}

int main(int argc, char **argv)
{
    member members[MOST];
    if (argc == 3 && strcmp(argv[1], "--digest") == 0)
        return print_digest((uint32_t)atoi(argv[2]));
    conforms("local", suite, MOST);
    conforms("delayed", delayed_suite, 3);
    together(3, reductions, members);
    const uint64_t digest = members[0].digest;
    for (uint32_t i = 0; i < 3; i++)
        expect(members[i].digest == digest && !members[i].problem.message[0], "rank %u: %s", i,
               members[i].problem.message);
    static const char *const others[] = {"cpu/scalar", "queued:cpu", "guarded:cpu"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        device = others[i];
        together(3, reductions, members);
        expect(members[0].digest == digest && !members[0].problem.message[0], "%s differs: %s", device,
               members[0].problem.message);
    }
    check_all("reductions, world 3: digest %016llx", (unsigned long long)digest);
    notices("leaves", "rank 1 has left");
    notices("gives up", "rank 1 has aborted");
    notices("shouts", "rank 1 sent more");
    notices("sends nothing where something is expected", "do not agree on whether there is a message between them");
    notices("is silent", "did not answer");
    names_the_silent();
    leaves_early();
    lent_memory();
    return finish();
}
