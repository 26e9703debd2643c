/* The NCCL transport: what every transport must do, exchanges of device memory, and whole reductions whose frames never
 * leave it. Ranks are threads of one process. NCCL itself refuses two ranks on one card, so with it there is one rank,
 * unless there are more cards; with the fake of tests/nccl there are several.
 *
 *     nccl [--library PATH] [--ranks N] [--device NAME] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "support.h"

enum { MOST = 5, EXCHANGES = 40, LARGEST = 70000 };

static const char *library;

typedef struct member {
    tg_transport *over, *transport;
    uint32_t rank, world;
    const char *library;
    tg_status status;
    tg_error problem;
    uint64_t digest;
    unsigned tried;
} member;

static void open_member(member *m)
{
    m->status = tg_transport_nccl(m->library, m->over, NULL, PATIENCE, &m->transport, &m->problem);
}

static void close_member(member *m)
{
    tg_transport_free(m->transport);
    tg_transport_free(m->over);
}

static void together(uint32_t world, void *(*body)(void *), member *members)
{
    pthread_t threads[MOST];
    tg_transport *transports[MOST];
    tg_error error;
    if (tg_transport_local(world, transports, &error) != TG_OK)
        abort();
    for (uint32_t i = 0; i < world; i++) {
        const char *other = members[i].library;
        members[i] = (member){.over = transports[i], .rank = i, .world = world, .library = other ? other : library};
        if (pthread_create(&threads[i], NULL, body, &members[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < world; i++)
        (void)pthread_join(threads[i], NULL);
}

/* ---- device memory ---- */

/* Bytes from one rank to another in an exchange; now and then nothing at all. */
static size_t size_of(uint32_t from, uint32_t to, unsigned number)
{
    const size_t kind = (from + 3 * to + 7 * number) % 5;
    return kind == 0 ? TG_NO_MESSAGE : kind == 1 ? LARGEST - from : 1 + 100 * kind + to + number;
}
static unsigned char byte_of(uint32_t from, uint32_t to, unsigned number, size_t i)
{
    return (unsigned char)(17 * from + 5 * to + 3 * number + i);
}

typedef struct trial {
    tg_exchange exchange;
    const void *send[MOST];
    void *receive[MOST];
    size_t send_size[MOST], capacity[MOST], received[MOST];
} trial;

static void *card_memory(tg_device *device, const void *bytes, size_t size)
{
    void *memory = NULL;
    if (tg_device_allocate(device, size, &memory, NULL) != TG_OK ||
        (bytes && tg_device_copy_in(device, memory, bytes, size, NULL) != TG_OK))
        abort();
    return memory;
}

static void prepare(trial *t, tg_device *device, const member *m, unsigned number)
{
    static _Thread_local unsigned char bytes[LARGEST];
    for (uint32_t peer = 0; peer < m->world; peer++) {
        t->send_size[peer] = size_of(m->rank, peer, number);
        t->capacity[peer] = size_of(peer, m->rank, number);
        t->send[peer] = t->receive[peer] = NULL;
        if (peer == m->rank)
            continue;
        for (size_t i = 0; t->send_size[peer] != TG_NO_MESSAGE && i < t->send_size[peer]; i++)
            bytes[i] = byte_of(m->rank, peer, number, i);
        if (t->send_size[peer] != TG_NO_MESSAGE)
            t->send[peer] = card_memory(device, bytes, t->send_size[peer]);
        if (t->capacity[peer] != TG_NO_MESSAGE)
            t->receive[peer] = card_memory(device, NULL, t->capacity[peer]);
    }
    t->exchange = (tg_exchange){TG_ALL_TO_ALL, m->world,    t->send,     t->send_size,
                                t->receive,    t->capacity, t->received, true};
}

static void finish_trial(trial *t, tg_device *device, member *m, unsigned number)
{
    static _Thread_local unsigned char bytes[LARGEST];
    for (uint32_t peer = 0; peer < m->world; peer++) {
        const size_t due = peer == m->rank || t->capacity[peer] == TG_NO_MESSAGE ? 0 : t->capacity[peer];
        bool right = due == 0 || tg_device_copy_out(device, bytes, t->receive[peer], due, NULL) == TG_OK;
        for (size_t i = 0; right && i < due; i++)
            right = bytes[i] == byte_of(peer, m->rank, number, i);
        if (!right && !m->problem.message[0])
            (void)snprintf(m->problem.message, sizeof m->problem.message, "exchange %u: not what rank %u sent", number,
                           peer);
        tg_device_release(device, (void *)(uintptr_t)t->send[peer]);
        tg_device_release(device, t->receive[peer]);
    }
}

/* All exchanges at once; ranks begin with the host's or with the device's, as they like. */
static void device_exchanges(member *m)
{
    static trial all[MOST][EXCHANGES];
    static tg_exchange hosts[MOST][EXCHANGES];
    static size_t none[MOST][MOST], received[MOST][MOST];
    static const void *nothing[MOST];
    tg_device *device = open_device(device_to_try(0));
    for (uint32_t peer = 0; peer < m->world; peer++)
        none[m->rank][peer] = 0;
    for (unsigned i = 0; i < EXCHANGES; i++) {
        prepare(&all[m->rank][i], device, m, i);
        hosts[m->rank][i] = (tg_exchange){TG_ALL_GATHER,          m->world,      nothing,           none[m->rank],
                                          (void *const *)nothing, none[m->rank], received[m->rank], false};
    }
    for (unsigned i = 0; i < 2 * EXCHANGES && m->status == TG_OK; i++) {
        const bool first = m->rank % 2 == 0 ? i < EXCHANGES : i >= EXCHANGES;
        tg_exchange *e = first ? &hosts[m->rank][i % EXCHANGES] : &all[m->rank][i % EXCHANGES].exchange;
        m->status = tg_transport_start(m->transport, e, &m->problem);
    }
    for (unsigned i = 0; i < EXCHANGES && m->status == TG_OK; i++)
        m->status = tg_transport_wait(m->transport, &all[m->rank][i].exchange, PATIENCE, &m->problem);
    for (unsigned i = 0; i < EXCHANGES && m->status == TG_OK; i++)
        m->status = tg_transport_wait(m->transport, &hosts[m->rank][i], PATIENCE, &m->problem);
    for (unsigned i = 0; i < EXCHANGES; i++)
        finish_trial(&all[m->rank][i], device, m, i);
    if (m->status == TG_OK && tg_transport_wait(m->transport, &all[m->rank][0].exchange, 0, NULL) == TG_OK)
        m->status = TG_INVALID_ARGUMENT; /* it was waited for already */
    tg_device_free(device);
}

static void *suite(void *argument)
{
    member *m = argument;
    open_member(m);
    if (m->status == TG_OK)
        m->tried = conform(m->transport, &m->problem);
    if (m->status == TG_OK && !m->problem.message[0])
        device_exchanges(m);
    close_member(m);
    return NULL;
}

static void *reductions(void *argument)
{
    member *m = argument;
    open_member(m);
    if (m->status == TG_OK)
        m->digest = reduce_over(m->transport, device_to_try(0), &m->problem);
    close_member(m);
    return NULL;
}

static void *reductions_between_hosts(void *argument)
{
    member *m = argument;
    m->digest = reduce_over(m->over, device_to_try(0), &m->problem);
    tg_transport_free(m->over);
    return NULL;
}

static void well(const member *members, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++)
        expect(members[i].status == TG_OK && !members[i].problem.message[0], "rank %u, status %d: %s", i,
               (int)members[i].status, members[i].problem.message);
}

/* ---- what goes wrong ---- */

static void *one_lacks_it(void *argument)
{
    member *m = argument;
    open_member(m);
    close_member(m);
    return NULL;
}

static void lacking(uint32_t world)
{
    member members[MOST] = {{NULL}};
    members[world - 1].library = "/nowhere/libnccl.so.2";
    together(world, one_lacks_it, members);
    for (uint32_t i = 0; i < world; i++)
        expect(members[i].status == TG_UNAVAILABLE && strstr(members[i].problem.message, "no NCCL"),
               "rank %u, status %d: %s", i, (int)members[i].status, members[i].problem.message);
    check_all("%u ranks: one lacks NCCL, and all of them say so", world);
}

/* Rank 1 takes part in nothing, or aborts. */
static void *silent_rank(void *argument)
{
    member *m = argument;
    static trial t[MOST];
    open_member(m);
    tg_device *device = open_device(device_to_try(0));
    const bool aborts = m->world == 3;
    if (m->status == TG_OK) {
        prepare(&t[m->rank], device, m, 3);
        if (m->rank != 1) {
            m->status = tg_transport_start(m->transport, &t[m->rank].exchange, &m->problem);
            if (m->status == TG_OK)
                m->status = tg_transport_wait(m->transport, &t[m->rank].exchange, aborts ? PATIENCE : 0.2, &m->problem);
        } else if (aborts) {
            tg_transport_abort(m->transport, 1);
        }
    }
    close_member(m);
    tg_device_free(device);
    return NULL;
}

static void silence(uint32_t world)
{
    member members[MOST] = {{NULL}};
    together(world, silent_rank, members);
    for (uint32_t i = 0; i < world; i++)
        expect(i == 1 || members[i].status == TG_EXCHANGE, "rank %u, status %d: %s", i, (int)members[i].status,
               members[i].problem.message);
    check_all("%u ranks: one %s, and the others hear of it", world, world == 3 ? "aborts" : "is silent");
}

int main(int argc, char **argv)
{
    member members[MOST] = {{NULL}}, hosts[MOST] = {{NULL}};
    uint32_t most = MOST;
    for (; argc > 2 && strcmp(argv[1], "--device") != 0; argc -= 2, argv += 2)
        if (strcmp(argv[1], "--library") == 0)
            library = argv[2];
        else
            most = (uint32_t)atoi(argv[2]);
    (void)wants_all(argc, argv);
    for (uint32_t world = 1; world <= most && world <= MOST; world++) {
        together(world, suite, members);
        well(members, world);
        check_all("%u ranks: %u things that every transport does, %d exchanges of device memory", world,
                  members[0].tried, EXCHANGES);
        if (world > 3)
            continue;
        together(world, reductions_between_hosts, hosts);
        together(world, reductions, members);
        well(members, world);
        for (uint32_t i = 0; i < world; i++)
            expect(members[i].digest == hosts[0].digest, "rank %u: other means than between hosts", i);
        check_all("%u ranks: reductions, digest %016llx", world, (unsigned long long)members[0].digest);
    }
    lacking(most < 2 ? 1 : 2);
    if (most >= 3) {
        silence(2);
        silence(3);
    }
    return finish();
}
