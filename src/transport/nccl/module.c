/* The transport of the module that is compiled for NCCL. What lies in device memory is sent by NCCL, on a stream of its
 * own, which waits for that of the device and is waited for; everything else goes over another transport. */
#include <nccl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "transport/nccl_module.h"

enum {
    OLDEST = 21800,      /* version of NCCL: 2.18, the first whose communicators wait for nothing */
    MOST_POSTED = 1024,  /* exchanges of device memory under way */
    LOOKS = 4000,        /* at an event, before the processor is given to others */
    LEAVING_SECONDS = 5, /* for a communicator to end */
    PAUSE = 20000        /* nanoseconds */
};

/* NCCL's functions, as far as they are used. */
typedef struct functions {
    ncclResult_t (*GetVersion)(int *);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *);
    ncclResult_t (*CommInitRankConfig)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*CommFinalize)(ncclComm_t);
    ncclResult_t (*CommDestroy)(ncclComm_t);
    ncclResult_t (*CommAbort)(ncclComm_t);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
    ncclResult_t (*Send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*Recv)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    const char *(*GetLastError)(ncclComm_t);
    const char *(*GetErrorString)(ncclResult_t);
} functions;

typedef struct posted {
    tg_exchange *of; /* NULL: free */
    cudaEvent_t done;
} posted;

typedef struct nccl {
    tg_transport base;
    tg_transport *over;
    functions call;
    ncclComm_t comm;
    cudaStream_t device, own; /* of the device, and of exchanges */
    cudaEvent_t before;       /* an exchange: what is on the device's stream */
    posted posted[MOST_POSTED];
    unsigned events;
    double patience; /* seconds for connections */
    bool broken;
    tg_error reason;
} nccl;

/* ---- finding NCCL ---- */

static bool find(const tg_nccl_library *library, const char *name, void *function)
{
    const void *address = library->symbol(library->handle, name);
    memcpy(function, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    return address != NULL;
}

static bool find_all(const tg_nccl_library *l, functions *f)
{
    return find(l, "ncclGetVersion", &f->GetVersion) && find(l, "ncclGetUniqueId", &f->GetUniqueId) &&
           find(l, "ncclCommInitRankConfig", &f->CommInitRankConfig) &&
           find(l, "ncclCommGetAsyncError", &f->CommGetAsyncError) && find(l, "ncclCommFinalize", &f->CommFinalize) &&
           find(l, "ncclCommDestroy", &f->CommDestroy) && find(l, "ncclCommAbort", &f->CommAbort) &&
           find(l, "ncclGroupStart", &f->GroupStart) && find(l, "ncclGroupEnd", &f->GroupEnd) &&
           find(l, "ncclSend", &f->Send) && find(l, "ncclRecv", &f->Recv) &&
           find(l, "ncclGetLastError", &f->GetLastError) && find(l, "ncclGetErrorString", &f->GetErrorString);
}

static tg_status prepare(const tg_nccl_library *library, bool makes_id, uint8_t id[TG_NCCL_ID], tg_error *error)
{
    functions call;
    int version = 0, cards = 0;
    ncclUniqueId made;
    _Static_assert(sizeof made == TG_NCCL_ID, "an id of NCCL has another size");
    if (!find_all(library, &call) || call.GetVersion(&version) != ncclSuccess || version < OLDEST)
        return tg_fail(error, TG_UNAVAILABLE, "this NCCL has version code %d: 2.18 or newer is needed", version);
    const cudaError_t problem = cudaGetDeviceCount(&cards);
    if (problem != cudaSuccess || cards == 0)
        return tg_fail(error, TG_UNAVAILABLE, "there is no card: %.120s",
                       problem != cudaSuccess ? cudaGetErrorString(problem) : "the CUDA driver finds none");
    if (!makes_id)
        return TG_OK;
    const ncclResult_t result = call.GetUniqueId(&made);
    if (result != ncclSuccess)
        return tg_fail(error, TG_UNAVAILABLE, "NCCL cannot start: %.180s", call.GetErrorString(result));
    memcpy(id, &made, TG_NCCL_ID);
    return TG_OK;
}

/* ---- time ---- */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits a little, longer as `looks` grows. */
static void pause_after(unsigned looks)
{
    const struct timespec pause = {.tv_nsec = PAUSE};
    if (looks > 2 * LOOKS)
        (void)nanosleep(&pause, NULL);
    else if (looks > LOOKS)
        (void)sched_yield();
}

static bool is_over(double since, double timeout) { return timeout > 0 && now() - since > timeout; }

/* ---- failures ---- */

/* Nothing works any more: other ranks' exchanges with this one fail too. */
static tg_status give_up(nccl *t, tg_error *error, const char *what, const char *why)
{
    if (!t->broken) {
        (void)tg_fail(&t->reason, TG_EXCHANGE, "%s: %.180s", what, why);
        t->broken = true;
        if (t->comm)
            (void)t->call.CommAbort(t->comm);
        t->comm = NULL;
    }
    return tg_fail(error, TG_EXCHANGE, "%s", t->reason.message);
}

static const char *words(const nccl *t, ncclResult_t result)
{
    const char *last = t->call.GetLastError(t->comm);
    return last && *last ? last : t->call.GetErrorString(result);
}

/* Until NCCL is done with a call that waits for nothing. */
static ncclResult_t settle(const nccl *t, ncclResult_t result, double timeout)
{
    const double since = now();
    for (unsigned looks = 0; result == ncclInProgress && !is_over(since, timeout); looks++) {
        pause_after(looks);
        if (t->call.CommGetAsyncError(t->comm, &result) != ncclSuccess)
            return ncclInternalError;
    }
    return result;
}

/* ---- exchanges ---- */

static posted *find_posted(nccl *t, const tg_exchange *exchange)
{
    for (unsigned i = 0; i < MOST_POSTED; i++)
        if (t->posted[i].of == exchange)
            return &t->posted[i];
    return NULL;
}

/* Within a group nothing has been done yet. */
static bool goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/* All messages of an exchange at once, so that their order does not matter. */
static ncclResult_t post(nccl *t, const tg_exchange *e)
{
    ncclResult_t result = t->call.GroupStart();
    for (uint32_t peer = 0; goes_on(result) && peer < e->world; peer++) {
        const bool other = peer != t->base.rank;
        if (other && tg_sends(e, peer) && e->send_size[peer] > 0)
            result = t->call.Send(e->send[peer], e->send_size[peer], ncclUint8, (int)peer, t->comm, t->own);
        if (goes_on(result) && other && tg_receives(e, peer) && e->capacity[peer] > 0)
            result = t->call.Recv(e->receive[peer], e->capacity[peer], ncclUint8, (int)peer, t->comm, t->own);
    }
    const ncclResult_t end = t->call.GroupEnd();
    return settle(t, goes_on(result) ? end : result, t->patience);
}

static tg_status start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    nccl *t = (nccl *)transport;
    if (!exchange->on_device)
        return t->over->functions->start(t->over, exchange, error);
    if (t->broken)
        return tg_fail(error, TG_EXCHANGE, "%s", t->reason.message);
    posted *p = find_posted(t, NULL);
    if (!p)
        return tg_fail(error, TG_INVALID_ARGUMENT, "more than %d exchanges of device memory are in progress",
                       MOST_POSTED);
    if (cudaEventRecord(t->before, t->device) != cudaSuccess ||
        cudaStreamWaitEvent(t->own, t->before, 0) != cudaSuccess)
        return give_up(t, error, "the card has failed", cudaGetErrorString(cudaGetLastError()));
    const ncclResult_t result = post(t, exchange);
    if (result != ncclSuccess)
        return give_up(t, error, "NCCL cannot send", words(t, result));
    if (cudaEventRecord(p->done, t->own) != cudaSuccess)
        return give_up(t, error, "the card has failed", cudaGetErrorString(cudaGetLastError()));
    p->of = exchange;
    return TG_OK;
}

/* The host waits for the event, and not the device's stream alone: a rank that does not answer would stop that for
 * ever. */
static tg_status wait_for_event(nccl *t, cudaEvent_t done, double timeout, tg_error *error)
{
    const double since = now();
    for (unsigned looks = 0;; looks++) {
        const cudaError_t state = cudaEventQuery(done);
        ncclResult_t result = ncclSuccess;
        if (state == cudaSuccess)
            return TG_OK;
        if (state != cudaErrorNotReady)
            return give_up(t, error, "the card has failed", cudaGetErrorString(state));
        if (looks % 64 == 63 && (t->call.CommGetAsyncError(t->comm, &result) != ncclSuccess ||
                                 (result != ncclSuccess && result != ncclInProgress)))
            return give_up(t, error, "an exchange between cards failed", words(t, result));
        if (looks % 64 == 63 && is_over(since, timeout))
            return give_up(t, error, "an exchange between cards was not done in time", "a rank has stopped");
        pause_after(looks);
    }
}

static tg_status wait_for(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error)
{
    nccl *t = (nccl *)transport;
    if (!exchange->on_device)
        return t->over->functions->wait(t->over, exchange, timeout, error);
    posted *p = find_posted(t, exchange);
    if (!p)
        return tg_fail(error, TG_INVALID_ARGUMENT, "this exchange was not started, or has already been waited for");
    p->of = NULL;
    return t->broken ? tg_fail(error, TG_EXCHANGE, "%s", t->reason.message)
                     : wait_for_event(t, p->done, timeout, error);
}

static void abort_all(tg_transport *transport, int exit_status)
{
    nccl *t = (nccl *)transport;
    (void)give_up(t, NULL, "this rank has aborted", "no exchange will complete any more");
    t->over->functions->abort(t->over, exit_status);
}

/* ---- joining and leaving ---- */

static void free_nccl(tg_transport *transport)
{
    nccl *t = (nccl *)transport;
    bool pending = t->broken;
    for (unsigned i = 0; i < MOST_POSTED; i++)
        pending = pending || t->posted[i].of;
    if (t->comm && !pending && settle(t, t->call.CommFinalize(t->comm), LEAVING_SECONDS) == ncclSuccess)
        (void)t->call.CommDestroy(t->comm);
    else if (t->comm)
        (void)t->call.CommAbort(t->comm);
    for (unsigned i = 0; i < t->events; i++)
        (void)cudaEventDestroy(t->posted[i].done);
    if (t->before)
        (void)cudaEventDestroy(t->before);
    if (t->own)
        (void)cudaStreamDestroy(t->own);
    free(t);
}

static const tg_transport_functions table = {.start = start, .wait = wait_for, .abort = abort_all, .free = free_nccl};

static cudaError_t furnish(nccl *t)
{
    cudaError_t error = cudaStreamCreateWithFlags(&t->own, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&t->before, cudaEventDisableTiming);
    for (; error == cudaSuccess && t->events < MOST_POSTED; t->events += error == cudaSuccess)
        error = cudaEventCreateWithFlags(&t->posted[t->events].done, cudaEventDisableTiming);
    return error;
}

/* A few bytes from each rank to each, its own included: so every connection is made before the first step, and works.
 */
static ncclResult_t post_greetings(const nccl *t, uint64_t *card)
{
    ncclResult_t result = t->call.GroupStart();
    for (uint32_t peer = 0; goes_on(result) && peer < t->base.world; peer++) {
        result = t->call.Send(card, sizeof *card, ncclUint8, (int)peer, t->comm, t->own);
        if (goes_on(result))
            result = t->call.Recv(card + 1 + peer, sizeof *card, ncclUint8, (int)peer, t->comm, t->own);
    }
    const ncclResult_t end = t->call.GroupEnd();
    return settle(t, goes_on(result) ? end : result, t->patience);
}

static tg_status greet(nccl *t, uint64_t *heard, uint64_t *card, tg_error *error)
{
    const uint64_t first = UINT64_C(0x7465727365000000);
    const uint32_t world = t->base.world;
    heard[0] = first + t->base.rank;
    cudaError_t copied = cudaMemcpyAsync(card, heard, sizeof *card, cudaMemcpyHostToDevice, t->own);
    const ncclResult_t result = post_greetings(t, card);
    if (result != ncclSuccess)
        return tg_fail(error, TG_UNAVAILABLE, "NCCL cannot send to the other ranks: %.180s", words(t, result));
    if (copied == cudaSuccess)
        copied = cudaMemcpyAsync(heard, card + 1, world * sizeof *card, cudaMemcpyDeviceToHost, t->own);
    if (copied == cudaSuccess)
        copied = cudaEventRecord(t->before, t->own);
    if (copied != cudaSuccess)
        return tg_fail(error, TG_UNAVAILABLE, "the card has failed: %.120s", cudaGetErrorString(copied));
    tg_status status = wait_for_event(t, t->before, t->patience, error);
    for (uint32_t peer = 0; status == TG_OK && peer < world; peer++)
        if (heard[peer] != first + peer)
            status = tg_fail(error, TG_UNAVAILABLE, "the test message of rank %u did not arrive over NCCL", peer);
    return status;
}

/* With memory for it, which stays where it is after a failure: NCCL may still write there. */
static tg_status try_out(nccl *t, tg_error *error)
{
    const size_t places = t->base.world + (size_t)1;
    uint64_t *heard = NULL, *card = NULL;
    if (cudaMallocHost((void **)&heard, places * sizeof *heard) != cudaSuccess ||
        cudaMalloc((void **)&card, places * sizeof *card) != cudaSuccess)
        return tg_fail(error, TG_UNAVAILABLE, "the card has no memory for test messages");
    const tg_status status = greet(t, heard, card, error);
    if (status == TG_OK) {
        (void)cudaFreeHost(heard);
        (void)cudaFree(card);
    }
    return status;
}

static tg_status join(const tg_nccl_library *library, const uint8_t id[TG_NCCL_ID], tg_transport *over, void *stream,
                      double timeout, tg_transport **transport, tg_error *error)
{
    nccl *t = calloc(1, sizeof *t);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId of;
    if (!t)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a transport");
    memcpy(&of, id, TG_NCCL_ID);
    t->base = (tg_transport){&table, "nccl", over->rank, over->world, true};
    t->over = over;
    t->patience = timeout;
    t->device = (cudaStream_t)stream;
    (void)find_all(library, &t->call);
    config.blocking = 0;
    tg_status status = TG_OK;
    const cudaError_t furnished = furnish(t);
    if (furnished != cudaSuccess)
        status = tg_fail(error, TG_UNAVAILABLE, "the card cannot be used: %.120s", cudaGetErrorString(furnished));
    if (status == TG_OK) {
        const ncclResult_t result = settle(
            t, t->call.CommInitRankConfig(&t->comm, (int)over->world, of, (int)over->rank, &config), timeout);
        if (result != ncclSuccess)
            status = tg_fail(error, TG_UNAVAILABLE, "NCCL refuses: %.200s",
                             result == ncclInProgress ? "some ranks did not join in time" : words(t, result));
    }
    if (status == TG_OK)
        status = try_out(t, error);
    if (status == TG_OK) {
        *transport = &t->base;
    } else {
        t->broken = true; /* nobody is waited for */
        free_nccl(&t->base);
    }
    return status;
}

__attribute__((visibility("default")))
const tg_nccl_module tg_nccl_module_of_nccl = {.version = TG_VERSION_TEXT, .prepare = prepare, .join = join};
