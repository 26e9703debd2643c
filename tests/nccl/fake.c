/* A fake of NCCL and of the CUDA that the transport needs, in one library: ranks are threads of one process, and device
 * memory is the host's. It is as strict as the real ones may be: a group's messages arrive only when somebody asks
 * whether they have, in the order of the stream; sizes that differ are an error; what is to be received is garbage
 * before. Nothing of it shows that NCCL does the same. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

#define SHOWN __attribute__((visibility("default")))

enum { MOST_RANKS = 64, MOST_OPERATIONS = 1 << 16, GARBAGE = 0xa5, VERSION = 22800 };

typedef struct operation {
    bool sends, done;
    int peer;
    void *bytes;
    size_t count;
    uint64_t group;
} operation;

struct fake_stream {
    uint64_t issued, done; /* groups */
};

struct fake_event {
    struct fake_stream *stream;
    uint64_t group;
};

typedef struct clique clique;
struct fake_comm {
    clique *of;
    int rank;
    bool joined, aborted;
    ncclResult_t error;
    struct fake_stream *stream;
    operation *operations; /* not done yet: a queue */
    size_t count;
};
struct clique {
    char id[128];
    int world, joined, left;
    bool broken;
    struct fake_comm ranks[MOST_RANKS];
    clique *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static clique *cliques;
static uint64_t ids;
static _Thread_local struct fake_comm *grouped;
static _Thread_local operation group[4 * MOST_RANKS];
static _Thread_local size_t group_count;

/* ---- what arrives ---- */

/* The first operation of the other side of this one in the oldest group of its rank that is not done. */
static operation *partner(struct fake_comm *comm, const operation *o)
{
    struct fake_comm *peer = &comm->of->ranks[o->peer];
    for (size_t i = 0; i < peer->count && peer->operations[i].group == peer->operations[0].group; i++) {
        operation *p = &peer->operations[i];
        if (!p->done && p->sends != o->sends && p->peer == comm->rank)
            return p;
    }
    return NULL;
}

static bool deliver_one(struct fake_comm *comm, operation *o)
{
    operation *p = o->sends ? partner(comm, o) : NULL; /* the sender moves it */
    if (!p)
        return false;
    if (p->count != o->count) {
        comm->error = comm->of->ranks[o->peer].error = ncclInvalidUsage;
        return false;
    }
    memcpy(p->bytes, o->bytes, o->count);
    o->done = p->done = true;
    return true;
}

/* Ends groups whose operations are all done. */
static void retire(struct fake_comm *comm)
{
    while (comm->count > 0) {
        size_t n = 0;
        while (n < comm->count && comm->operations[n].group == comm->operations[0].group)
            if (!comm->operations[n++].done)
                return;
        comm->stream->done = comm->operations[0].group;
        comm->count -= n;
        memmove(comm->operations, comm->operations + n, comm->count * sizeof *comm->operations);
    }
    if (comm->stream)
        comm->stream->done = comm->stream->issued;
}

static void deliver(clique *c)
{
    for (bool moved = true; moved && c->joined == c->world && !c->broken;) {
        moved = false;
        for (int r = 0; r < c->world; r++) {
            struct fake_comm *comm = &c->ranks[r];
            for (size_t i = 0; i < comm->count && comm->operations[i].group == comm->operations[0].group; i++)
                if (!comm->operations[i].done)
                    moved = deliver_one(comm, &comm->operations[i]) || moved;
        }
        for (int r = 0; r < c->world; r++)
            retire(&c->ranks[r]);
    }
}

static void deliver_all(void)
{
    for (clique *c = cliques; c; c = c->next)
        deliver(c);
}

/* ---- CUDA ---- */

SHOWN cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
SHOWN cudaError_t cudaGetLastError(void) { return cudaSuccess; }
SHOWN const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "fake error"; }
SHOWN cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
SHOWN cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}
SHOWN cudaError_t cudaMallocHost(void **memory, size_t bytes) { return cudaMalloc(memory, bytes); }
SHOWN cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }

/* Only the greeting copies, with nothing behind its group: so it is waited for here. */
SHOWN cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    for (bool pending = true; pending;) {
        (void)pthread_mutex_lock(&lock);
        deliver_all();
        pending = stream && stream->done < stream->issued;
        (void)pthread_mutex_unlock(&lock);
    }
    memcpy(to, from, bytes);
    return cudaSuccess;
}

SHOWN cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
}
SHOWN cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}
/* The device's stream is no stream of ours: its work is done when its device has been waited for. */
SHOWN cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}
SHOWN cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)pthread_mutex_lock(&lock);
    *event = (struct fake_event){stream, stream ? stream->issued : 0};
    (void)pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
SHOWN cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)pthread_mutex_lock(&lock);
    deliver_all();
    const bool done = !event->stream || event->stream->done >= event->group;
    (void)pthread_mutex_unlock(&lock);
    return done ? cudaSuccess : cudaErrorNotReady;
}
SHOWN cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

/* ---- NCCL ---- */

SHOWN ncclResult_t ncclGetVersion(int *version)
{
    *version = VERSION;
    return ncclSuccess;
}

SHOWN ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    (void)pthread_mutex_lock(&lock);
    const uint64_t number = ++ids;
    (void)pthread_mutex_unlock(&lock);
    memset(id, 0, sizeof *id);
    memcpy(id, &number, sizeof number);
    return ncclSuccess;
}

SHOWN ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)pthread_mutex_lock(&lock);
    clique *c = cliques;
    while (c && memcmp(c->id, &id, sizeof id) != 0)
        c = c->next;
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c || world > MOST_RANKS)
            abort();
        memcpy(c->id, &id, sizeof id);
        c->world = world;
        c->next = cliques;
        cliques = c;
    }
    struct fake_comm *made = &c->ranks[rank];
    const bool fine = c->world == world && !made->joined && config->blocking == 0;
    if (fine) {
        made->operations = malloc(MOST_OPERATIONS * sizeof *made->operations);
        made->of = c;
        made->rank = rank;
        made->joined = true;
        c->joined++;
        *comm = made;
    }
    (void)pthread_mutex_unlock(&lock);
    return fine ? ncclInProgress : ncclInvalidUsage;
}

SHOWN ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    (void)pthread_mutex_lock(&lock);
    *result = comm->of->joined < comm->of->world    ? ncclInProgress
              : comm->error != ncclSuccess          ? comm->error
              : comm->of->broken && comm->count > 0 ? ncclRemoteError
                                                    : ncclSuccess;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static void leave(struct fake_comm *comm, bool aborts)
{
    (void)pthread_mutex_lock(&lock);
    clique *c = comm->of;
    c->broken = c->broken || aborts;
    comm->count = 0;
    comm->stream = NULL; /* it goes too */
    free(comm->operations);
    comm->operations = NULL;
    if (++c->left == c->world) {
        clique **at = &cliques;
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
        free(c);
    }
    (void)pthread_mutex_unlock(&lock);
}

SHOWN ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}
SHOWN ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    leave(comm, false);
    return ncclSuccess;
}
SHOWN ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    leave(comm, true);
    return ncclSuccess;
}

SHOWN ncclResult_t ncclGroupStart(void)
{
    group_count = 0;
    grouped = NULL;
    return ncclSuccess;
}

SHOWN ncclResult_t ncclGroupEnd(void)
{
    if (!grouped)
        return ncclSuccess;
    (void)pthread_mutex_lock(&lock);
    const uint64_t number = ++grouped->stream->issued;
    if (grouped->count + group_count > MOST_OPERATIONS)
        abort();
    for (size_t i = 0; i < group_count; i++) {
        group[i].group = number;
        grouped->operations[grouped->count++] = group[i];
    }
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static ncclResult_t add(bool sends, void *bytes, size_t count, int peer, ncclComm_t comm, cudaStream_t stream)
{
    if (peer < 0 || peer >= comm->of->world || !bytes || count == 0 || (comm->stream && comm->stream != stream) ||
        group_count == sizeof group / sizeof *group)
        return ncclInvalidUsage;
    comm->stream = stream;
    grouped = comm;
    group[group_count++] = (operation){.sends = sends, .peer = peer, .bytes = bytes, .count = count};
    return ncclSuccess;
}
SHOWN ncclResult_t ncclSend(const void *bytes, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream)
{
    (void)type;
    return add(true, (void *)(uintptr_t)bytes, count, peer, comm, stream);
}
SHOWN ncclResult_t ncclRecv(void *bytes, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            cudaStream_t stream)
{
    (void)type;
    memset(bytes, GARBAGE, count);
    return add(false, bytes, count, peer, comm, stream);
}

SHOWN const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}
SHOWN const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "a rank has left" : "invalid usage";
}
