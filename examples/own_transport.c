/* A transport of one's own: four processes, joined by sockets, drive the step machine of a reducer.
 *
 *     cc own_transport.c $(pkg-config --cflags --libs tersegrad) && ./a.out
 *
 * tg_reduce needs a tg_transport. Without one, tg_reduce_next says what to exchange, and tg_reduce_feed takes what
 * came. Everything that must be known of the network is in `exchange` below: bring the bytes of each peer to each peer.
 * Put there whatever you have (NCCL, torch.distributed, a message queue); `reduce` stays as it is. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tersegrad.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 100000, STEPS = 5 };

/* ---- The network: one socket to each peer ---- */

/* A message on its way out or in: 8 bytes that say how long it is, and then so many. */
typedef struct message {
    uint64_t size;
    char *bytes;
    size_t done; /* of the 8 + size */
} message;

/* Moves as much as can be moved now. 1: all of it is done; 0: there is more to come; -1: the peer is gone. */
static int move(int socket, message *m, bool out, size_t capacity)
{
    while (m->done < 8 || m->done < 8 + m->size) {
        char *at = m->done < 8 ? (char *)&m->size + m->done : m->bytes + (m->done - 8);
        const size_t size = m->done < 8 ? 8 - m->done : (size_t)m->size - (m->done - 8);
        const ssize_t moved = out ? send(socket, at, size, MSG_NOSIGNAL) : recv(socket, at, size, 0);
        if (moved < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (moved <= 0)
            return -1;
        m->done += (size_t)moved;
        if (!out && m->done == 8 && m->size > capacity) /* never trust a length that came over a network */
            return -1;
    }
    return 1;
}

/* One exchange with all peers, both ways at once: a rank that only sends until it has sent all may wait for ever. */
static bool exchange(const int *sockets, uint32_t rank, tg_exchange *e)
{
    message out[RANKS], in[RANKS];
    struct pollfd waiting[RANKS];
    for (uint32_t peer = 0; peer < e->world; peer++) {
        /* What is sent is only read, though the pointer does not say so. */
        out[peer] = (message){.size = e->send_size[peer]};
        memcpy(&out[peer].bytes, &e->send[peer], sizeof out[peer].bytes);
        in[peer] = (message){.bytes = e->receive[peer]};
    }
    for (;;) {
        nfds_t open = 0;
        for (uint32_t peer = 0; peer < e->world; peer++) {
            if (peer == rank)
                continue;
            const bool sends = e->send_size[peer] != TG_NO_MESSAGE, receives = e->capacity[peer] != TG_NO_MESSAGE;
            const int sent = sends ? move(sockets[peer], &out[peer], true, 0) : 1;
            const int came = receives ? move(sockets[peer], &in[peer], false, e->capacity[peer]) : 1;
            if (sent < 0 || came < 0)
                return false;
            if (receives)
                e->received[peer] = (size_t)in[peer].size;
            if (sent == 0 || came == 0)
                waiting[open++] = (struct pollfd){
                    .fd = sockets[peer], .events = (short)((sent == 0 ? POLLOUT : 0) | (came == 0 ? POLLIN : 0))};
        }
        if (open == 0)
            return true;
        if (poll(waiting, open, -1) < 0 && errno != EINTR)
            return false;
    }
}

/* ---- The step: what tg_reduce does, with an exchange of our own ---- */

/* Exchanges are done one after the other here. A faster network starts them as next hands them out, and feeds each, in
 * the same order, when it is through: then coding overlaps the wire. */
static tg_status reduce(tg_reducer *reducer, const int *sockets, uint32_t rank, const tg_tensor *gradient,
                        uint64_t step, tg_error *error)
{
    tg_reduction *reduction;
    tg_exchange *next;
    tg_status status = tg_reduce_begin(reducer, gradient, step, &reduction, error);
    if (status != TG_OK)
        return status;
    while ((status = tg_reduce_next(reduction, &next, error)) == TG_OK && next) {
        if (!exchange(sockets, rank, next)) {
            (void)snprintf(error->message, sizeof error->message, "a peer is gone");
            status = TG_EXCHANGE;
            break;
        }
        status = tg_reduce_feed(reduction, next, error);
        if (status != TG_OK)
            break;
    }
    if (status == TG_OK)
        return tg_reduce_end(reduction, error);
    tg_reduce_abandon(reduction); /* what was sent goes back to the residuals */
    return status;
}

/* ---- A rank ---- */

/* Every rank gives (rank + 1) * (i % 64), so the mean is known. */
static bool is_mean(const float *gradient)
{
    bool right = true;
    for (size_t i = 0; i < COUNT; i++)
        right = right && gradient[i] == (float)(i % 64) * (RANKS + 1) / 2;
    return right;
}

static int run(const int *sockets, uint32_t rank)
{
    static float gradient[COUNT];
    const tg_tensor tensor = {gradient, COUNT, TG_FLOAT32};
    tg_reducer_tensor layer = {.name = "layer", .count = COUNT};
    tg_device *device;
    tg_reducer *reducer;
    tg_error error;
    bool right = true;
    tg_status status = tg_spec_parse("fp16", &layer.codec, &error); /* holds these numbers exactly */
    if (status == TG_OK)
        status = tg_device_open("cpu", NULL, &device, &error);
    if (status == TG_OK)
        status = tg_reducer_create(device, rank, RANKS, &layer, 1, NULL, &reducer, &error);
    for (uint64_t step = 0; step < STEPS && status == TG_OK; step++) {
        for (size_t i = 0; i < COUNT; i++)
            gradient[i] = (float)(i % 64) * (float)(rank + 1);
        status = reduce(reducer, sockets, rank, &tensor, step, &error);
        right = right && is_mean(gradient);
    }
    if (status != TG_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, error.message);
        return 1;
    }
    tg_reducer_free(reducer);
    tg_device_free(device);
    if (rank == 0)
        printf("%d steps of %d ranks over sockets: the mean is %s\n", STEPS, RANKS, right ? "right" : "wrong");
    return right ? 0 : 1;
}

int main(void)
{
    int sockets[RANKS][RANKS], status = 0;
    for (uint32_t a = 0; a < RANKS; a++)
        for (uint32_t b = 0; b < a; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0 ||
                fcntl(pair[1], F_SETFL, O_NONBLOCK) != 0) {
                perror("socketpair");
                return 1;
            }
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    for (uint32_t rank = 0; rank < RANKS; rank++)
        switch (fork()) {
        case -1:
            perror("fork");
            return 1;
        case 0: /* a rank closes what belongs to others, so that all notice when one is gone */
            for (uint32_t a = 0; a < RANKS; a++)
                for (uint32_t b = 0; b < RANKS; b++)
                    if (a != rank && a != b)
                        (void)close(sockets[a][b]);
            return run(sockets[rank], rank);
        default:
            break;
        }
    for (uint32_t a = 0; a < RANKS; a++)
        for (uint32_t b = 0; b < RANKS; b++)
            if (a != b)
                (void)close(sockets[a][b]);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int ended;
        if (wait(&ended) < 0 || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
            status = 1;
    }
    return status;
}
