/* `local`: ranks are threads of one process. A rank posts its exchange; whichever rank of a pair posts later copies
 * both ways, so an exchange goes on while its other side computes, and nothing is copied more than once. With a link,
 * it also finds out when the messages would be there, and whoever waits for them waits until then. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "transport/link.h"
#include "transport/ranks.h"
#include "transport/transport.h"

/* One rank's part in one exchange. */
typedef struct post {
    tg_exchange *exchange; /* NULL: not started */
    uint32_t missing;      /* peers that have not been exchanged with yet */
    uint64_t due;          /* with a link: when all of it so far has been sent and received */
    uint64_t order;        /* among all posts of the group: the later one of a pair does the copying */
} post;

typedef struct local local;

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t world, alive; /* transports not yet freed */
    bool aborted;          /* nothing will be delivered any more */
    tg_error reason;
    uint64_t posted; /* by all ranks */
    local *members;
    bool has_link;
    tg_link link;
    tg_bucket (*buckets)[2]; /* of each host, what goes out and what comes in */
    struct area *areas;      /* shared memory that ranks have made */
} group;

struct local {
    tg_transport base;
    group *group;
    uint32_t host;
    bool left;
    unsigned busy;                 /* copies under way from or to this rank's buffers */
    uint64_t started;              /* exchanges so far */
    post posts[TG_MOST_EXCHANGES]; /* of exchange number n: n mod TG_MOST_EXCHANGES */
};

/* Nobody gets anything any more, for the first reason given. The lock is held, as in all functions that take a group.
 */
static void give_up(group *g, const tg_error *reason)
{
    if (!g->aborted)
        g->reason = *reason;
    g->aborted = true;
    (void)pthread_cond_broadcast(&g->changed);
}

/* Whether an exchange has anything to do with a rank. */
static bool concerns(const tg_exchange *e, uint32_t peer) { return tg_sends(e, peer) || tg_receives(e, peer); }

static uint32_t count_peers(const tg_exchange *e, uint32_t rank)
{
    uint32_t peers = 0;
    for (uint32_t peer = 0; peer < e->world; peer++)
        peers += peer != rank && concerns(e, peer);
    return peers;
}

/* Copies what one rank sends to another; false if there is no room. */
static bool deliver(const tg_exchange *from, uint32_t from_rank, const tg_exchange *to, uint32_t to_rank)
{
    const size_t size = from->send_size[to_rank];
    if (!tg_sends(from, to_rank))
        return true;
    if (size > to->capacity[from_rank])
        return false;
    if (size > 0)
        memcpy(to->receive[from_rank], from->send[to_rank], size);
    to->received[from_rank] = size;
    return true;
}

static uint64_t nanoseconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* When what one rank sends another would be there. */
static void travel(group *g, const local *from, post *a, const local *to, post *b)
{
    const size_t size = a->exchange->send_size[to->base.rank];
    if (!tg_sends(a->exchange, to->base.rank) || from->host == to->host)
        return;
    const uint64_t due = tg_link_move(&g->link, &g->buckets[from->host][0], &g->buckets[to->host][1], nanoseconds(),
                                      size);
    a->due = due > a->due ? due : a->due;
    b->due = due > b->due ? due : b->due;
}

/* Only one of two ranks says that there is a message between them. */
static void disagree(group *g, uint32_t one, uint32_t other)
{
    tg_error reason;
    (void)tg_fail(&reason, TG_EXCHANGE, "ranks %u and %u do not agree on whether there is a message between them", one,
                  other);
    give_up(g, &reason);
}

/* Both ways between two ranks that have posted the same exchange, without the lock. */
static void swap(group *g, local *one, post *a, local *other, post *b)
{
    const uint32_t one_rank = one->base.rank, other_rank = other->base.rank;
    one->busy++;
    other->busy++;
    if (g->has_link) {
        travel(g, one, a, other, b);
        travel(g, other, b, one, a);
    }
    (void)pthread_mutex_unlock(&g->lock);
    const bool there = deliver(a->exchange, one_rank, b->exchange, other_rank);
    const bool back = deliver(b->exchange, other_rank, a->exchange, one_rank);
    (void)pthread_mutex_lock(&g->lock);
    one->busy--;
    other->busy--;
    a->missing--;
    b->missing--;
    if (!there || !back) {
        tg_error reason;
        (void)tg_fail(&reason, TG_EXCHANGE, "rank %u sent more bytes than the buffer of rank %u holds",
                      there ? other_rank : one_rank, there ? one_rank : other_rank);
        give_up(g, &reason);
    }
    (void)pthread_cond_broadcast(&g->changed);
}

/* With a rank that has posted this exchange before: it copies nothing itself. */
static void meet(group *g, local *me, post *mine, local *other, uint64_t number)
{
    post *theirs = &other->posts[number % TG_MOST_EXCHANGES];
    const uint32_t rank = me->base.rank, peer = other->base.rank;
    if (other->started <= number || theirs->order >= mine->order)
        return;
    /* One that exchanges nothing may be through with it, and far ahead. */
    const tg_exchange *e = !other->left && other->started - number <= TG_MOST_EXCHANGES ? theirs->exchange : NULL;
    const bool out = tg_sends(mine->exchange, peer), in = tg_receives(mine->exchange, peer);
    if (out != (e && tg_receives(e, rank)) || in != (e && tg_sends(e, rank)))
        disagree(g, rank, peer);
    else if (out || in)
        swap(g, me, mine, other, theirs);
}

static tg_status start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    local *me = (local *)transport;
    group *g = me->group;
    tg_status status = TG_OK;
    (void)pthread_mutex_lock(&g->lock);
    const uint64_t number = me->started;
    post *mine = &me->posts[number % TG_MOST_EXCHANGES];
    if (g->aborted)
        status = tg_fail(error, TG_EXCHANGE, "%s", g->reason.message);
    else if (mine->exchange)
        status = tg_fail(error, TG_INVALID_ARGUMENT, "more than %u exchanges are in progress", TG_MOST_EXCHANGES);
    if (status == TG_OK) {
        *mine = (post){.exchange = exchange, .missing = count_peers(exchange, me->base.rank), .order = g->posted++};
        me->started++;
    }
    for (uint32_t peer = 0; status == TG_OK && !g->aborted && peer < g->world; peer++)
        if (peer != me->base.rank)
            meet(g, me, mine, &g->members[peer], number);
    (void)pthread_mutex_unlock(&g->lock);
    return status;
}

static post *find(local *me, const tg_exchange *exchange)
{
    for (uint64_t back = 1; back <= TG_MOST_EXCHANGES && back <= me->started; back++) {
        post *p = &me->posts[(me->started - back) % TG_MOST_EXCHANGES];
        if (p->exchange == exchange)
            return p;
    }
    return NULL;
}

static struct timespec after(double seconds)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const double whole = (double)(int64_t)seconds;
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* A rank that has left without starting this exchange; world if there is none. */
static uint32_t never_coming(const group *g, uint64_t number)
{
    uint32_t rank = 0;
    while (rank < g->world && !(g->members[rank].left && g->members[rank].started <= number))
        rank++;
    return rank;
}

/* Ranks that have not started this exchange, for the message of one that waits in vain. */
static tg_ranks not_started(const group *g, const tg_exchange *exchange, uint64_t number)
{
    tg_ranks ranks = {.count = 0};
    for (uint32_t rank = 0; rank < g->world; rank++)
        if (g->members[rank].started <= number && concerns(exchange, rank))
            tg_ranks_add(&ranks, rank);
    return ranks;
}

static tg_status wait_until(local *me, const post *p, const struct timespec *until, double timeout, tg_error *error)
{
    group *g = me->group;
    const uint64_t newest = (me->started - 1) % TG_MOST_EXCHANGES, at = (uint64_t)(p - me->posts);
    const uint64_t number = me->started - 1 - (newest + TG_MOST_EXCHANGES - at) % TG_MOST_EXCHANGES;
    while (p->missing > 0 && !g->aborted) {
        const uint32_t gone = never_coming(g, number);
        tg_error reason;
        if (gone < g->world) {
            (void)tg_fail(&reason, TG_EXCHANGE, "rank %u has left", gone);
            give_up(g, &reason);
        } else if (!until) {
            (void)pthread_cond_wait(&g->changed, &g->lock);
        } else if (pthread_cond_timedwait(&g->changed, &g->lock, until) == ETIMEDOUT && p->missing > 0) {
            const tg_ranks silent = not_started(g, p->exchange, number);
            char names[TG_RANKS_TEXT];
            if (silent.count == 0) { /* all have answered, and copies are under way */
                until = NULL;
                continue;
            }
            (void)tg_fail(&reason, TG_EXCHANGE, "%s did not answer rank %u within %g s", tg_ranks_text(&silent, names),
                          me->base.rank, timeout);
            give_up(g, &reason);
        }
    }
    return p->missing > 0 || g->aborted ? tg_fail(error, TG_EXCHANGE, "%s", g->reason.message) : TG_OK;
}

/* No thread reads or writes this rank's buffers any more. */
static void settle(local *me)
{
    while (me->busy > 0)
        (void)pthread_cond_wait(&me->group->changed, &me->group->lock);
}

static void sleep_until(uint64_t nanosecond)
{
    const struct timespec at = {.tv_sec = (time_t)(nanosecond / 1000000000u),
                                .tv_nsec = (long)(nanosecond % 1000000000u)};
    while (nanosecond > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

static tg_status wait_for(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error)
{
    local *me = (local *)transport;
    const struct timespec until = after(timeout);
    (void)pthread_mutex_lock(&me->group->lock);
    post *p = find(me, exchange);
    uint64_t due = 0;
    tg_status status = TG_INVALID_ARGUMENT;
    if (p)
        status = wait_until(me, p, timeout > 0 ? &until : NULL, timeout, error);
    else
        (void)tg_fail(error, status, "this exchange was not started, or has already been waited for");
    if (p && status == TG_OK) {
        p->exchange = NULL;
        due = p->due;
    } else {
        settle(me);
    }
    (void)pthread_mutex_unlock(&me->group->lock);
    sleep_until(due);
    return status;
}

static void abort_group(tg_transport *transport, int exit_status)
{
    (void)exit_status;
    local *me = (local *)transport;
    tg_error reason;
    (void)tg_fail(&reason, TG_EXCHANGE, "rank %u has aborted", transport->rank);
    (void)pthread_mutex_lock(&me->group->lock);
    give_up(me->group, &reason);
    settle(me);
    (void)pthread_mutex_unlock(&me->group->lock);
}

/* Whether there are exchanges of this rank that others would still copy from and to. */
static bool is_expected(const local *me)
{
    bool expected = false;
    for (size_t i = 0; i < TG_MOST_EXCHANGES; i++)
        expected = expected || (me->posts[i].exchange && me->posts[i].missing > 0);
    return expected;
}

/* ---- shared memory: ranks have the same anyway, but one may end before others have read its memory. So what it
 * shares is freed with its last user, of which the group is one: a rank may have been told of it, and not looked yet.
 */

typedef struct area {
    atomic_uint users;
    uint32_t rank; /* whose it is */
    size_t size;
    struct area *next; /* of the group */
} area;
enum { AREA_AT = 64 };

static void drop(area *of)
{
    if (atomic_fetch_sub(&of->users, 1) == 1)
        free(of);
}

/* Ranks begin to share only after all have ended what they shared before: nobody will look at it any more. */
static void forget_unused(group *g, uint32_t rank)
{
    for (area **at = &g->areas; *at;) {
        area *of = *at;
        if (of->rank == rank && atomic_load(&of->users) == 1) {
            *at = of->next;
            drop(of);
        } else {
            at = &of->next;
        }
    }
}

static void release(tg_shared *shared)
{
    area *of = shared->of;
    shared->memory = NULL;
    if (of)
        drop(of);
}

static bool share(tg_transport *transport, size_t size, tg_shared *shared, uint8_t location[TG_LOCATION_SIZE])
{
    group *g = ((local *)transport)->group;
    area *made = size < SIZE_MAX - AREA_AT ? calloc(1, AREA_AT + size) : NULL;
    if (!made)
        return false;
    atomic_init(&made->users, 2);
    made->size = size;
    made->rank = transport->rank;
    (void)pthread_mutex_lock(&g->lock);
    forget_unused(g, transport->rank);
    made->next = g->areas;
    g->areas = made;
    (void)pthread_mutex_unlock(&g->lock);
    *shared = (tg_shared){(uint8_t *)made + AREA_AT, size, made, release};
    memset(location, 0, TG_LOCATION_SIZE);
    memcpy(location, &made, sizeof(void *));
    return true;
}

static bool look(tg_transport *transport, const uint8_t location[TG_LOCATION_SIZE], tg_shared *shared)
{
    area *of;
    (void)transport;
    memcpy(&of, location, sizeof(void *));
    atomic_fetch_add(&of->users, 1);
    *shared = (tg_shared){(uint8_t *)of + AREA_AT, of->size, of, release};
    return true;
}

/* ---- the end ---- */

static void free_local(tg_transport *transport)
{
    local *me = (local *)transport;
    group *g = me->group;
    tg_error reason;
    (void)tg_fail(&reason, TG_EXCHANGE, "rank %u has left", transport->rank);
    (void)pthread_mutex_lock(&g->lock);
    me->left = true;
    if (is_expected(me)) /* its buffers go with it */
        give_up(g, &reason);
    settle(me);
    const bool last = --g->alive == 0;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
    if (!last)
        return;
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_cond_destroy(&g->changed);
    for (area *of = g->areas, *next; of; of = next) {
        next = of->next;
        drop(of);
    }
    free(g->members);
    free(g->buckets);
    free(g);
}

static const tg_transport_functions functions = {
    .start = start, .wait = wait_for, .abort = abort_group, .free = free_local, .share = share, .look = look};

static tg_status make(uint32_t world, const tg_link *link, tg_transport **transports, tg_error *error)
{
    enum { MOST = 1024 };
    if (!transports)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_local: transports must not be NULL");
    if (world == 0 || world > MOST)
        return tg_fail(error, TG_INVALID_ARGUMENT, "invalid world size %u: a local transport has 1 to %d ranks", world,
                       MOST);
    group *g = malloc(sizeof *g);
    local *members = calloc(world, sizeof *members);
    tg_bucket(*buckets)[2] = calloc(world, sizeof *buckets);
    pthread_condattr_t attributes;
    if (!g || !members || !buckets || pthread_condattr_init(&attributes) != 0) {
        free(g);
        free(members);
        free(buckets);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a local transport of %u ranks", world);
    }
    *g = (group){.world = world, .alive = world, .members = members, .has_link = link != NULL, .buckets = buckets};
    if (link)
        g->link = *link;
    g->link.host_of_rank = NULL; /* the caller's memory */
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    for (uint32_t rank = 0; rank < world; rank++) {
        members[rank].base = (tg_transport){.functions = &functions, .name = "local", .rank = rank, .world = world};
        members[rank].group = g;
        members[rank].host = link && link->host_of_rank ? link->host_of_rank[rank] : rank;
        transports[rank] = &members[rank].base;
    }
    return tg_succeed(error);
}

tg_status tg_transport_local(uint32_t world, tg_transport **transports, tg_error *error)
{
    return make(world, NULL, transports, error);
}

tg_status tg_transport_local_link(uint32_t world, const tg_link *link, tg_transport **transports, tg_error *error)
{
    if (!link)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_local_link: link must not be NULL");
    tg_status status = tg_link_check(link, world, error);
    return status == TG_OK ? make(world, link, transports, error) : status;
}
