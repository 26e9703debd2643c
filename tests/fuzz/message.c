/* Messages between ranks, spoiled by whoever fuzzes. Two ranks reduce in this process, without a transport, or four on
 * two hosts; one message on its way from one rank to another is edited. The input: algorithm, whether frames stay on
 * the device (which is this process), whether there are hosts and these have memory together, and which tensors rank 1
 * lacks; which exchange; whether checksums are made right again, and, of four ranks, from which and to which; how many
 * bytes are cut; then edits of three bytes (a place, a value). Promises: no step is half applied; what is not applied
 * leaves gradients alone; without forged checksums all ranks come to the same outcome. */
#include "tests/fuzz/fuzz.h"

#include "base/bytes.h"
#include "device/cpu/checksum.h"
#include "device/cpu/cpu.h"
#include "codec/header.h"
#include "reduce/message.h"
#include "together.h"

enum { LARGE = 70000, SMALL = 300, TENSORS = 3, MOST_WORLD = 4 };

typedef struct rank {
    tg_reducer *reducer;
    tg_reduction *reduction;
    tg_exchange *exchange;
    float *values[TENSORS], *before[TENSORS];
    tg_tensor gradients[TENSORS];
} rank;

typedef struct edits {
    unsigned algorithm, absent, exchange, cut;
    uint32_t world, from, to;
    bool on_device, forge, hosts, memory;
    const uint8_t *list;
    size_t count;
} edits;

static tg_device *device;
static const uint64_t counts[TENSORS] = {LARGE, SMALL, 5000};
static const char *const specs[TENSORS] = {"topk:k=200,values=levels", "none", "qsgd:levels=7,coding=entropy"};

static void open_rank(rank *r, unsigned number, const edits *e)
{
    static const char *const names[TENSORS] = {"kernel", "bias", "matrix"};
    static const uint32_t two_by_two[MOST_WORLD] = {0, 0, 1, 1};
    tg_reducer_tensor tensors[TENSORS];
    tg_error error;
    for (unsigned i = 0; i < TENSORS; i++) {
        tensors[i] = (tg_reducer_tensor){
            .name = names[i], .count = counts[i], .feedback = {TG_FEEDBACK_EF, 1, 1, 0, 0}, .insist = true};
        REQUIRE(tg_spec_parse(specs[i], &tensors[i].codec, &error) == TG_OK, "%s", error.message);
        r->values[i] = malloc(counts[i] * sizeof(float));
        r->before[i] = malloc(counts[i] * sizeof(float));
        r->gradients[i] = (tg_tensor){r->values[i], counts[i], TG_FLOAT32};
        for (uint64_t j = 0; j < counts[i]; j++)
            r->values[i][j] = r->before[i][j] = (float)((j * 2654435761u + number * 97 + i) % 4093) / 4096 - 0.5f;
    }
    const tg_reducer_options options = {.algorithm = (tg_algorithm)(TG_GATHER + e->algorithm % 3),
                                        .batch_elements = 4096,
                                        .on_device = e->on_device,
                                        .host_of_rank = e->hosts ? two_by_two : NULL};
    REQUIRE(tg_reducer_create(device, number, e->world, tensors, TENSORS, &options, &r->reducer, &error) == TG_OK, "%s",
            error.message);
}

static void close_rank(rank *r)
{
    tg_reducer_free(r->reducer);
    for (unsigned i = 0; i < TENSORS; i++) {
        free(r->values[i]);
        free(r->before[i]);
    }
}

/* Checksums as a forger would make them, of frames that follow one another at multiples of `step`. */
static void forge_frames(uint8_t *bytes, size_t size, size_t step)
{
    for (size_t at = 0; at < size; at = (at + step - 1) / step * step) {
        tg_cursor rest = tg_cursor_over(bytes + at, size - at);
        tg_frame frame;
        if (!tg_message_frame(&rest, &frame))
            return;
        uint8_t *header = bytes + at;
        tg_header_set_checksum(header, tg_checksum(tg_cpu_of(device)->kernels, NULL, header, header + TG_HEADER_SIZE,
                                                   frame.size - TG_HEADER_SIZE, NULL, NULL));
        at += frame.size;
    }
}

static void forge(uint8_t *bytes, size_t size)
{
    const tg_kernels *k = tg_cpu_of(device)->kernels;
    if (size < TG_MESSAGE_HEADER)
        return;
    const uint32_t extra = tg_load32(bytes + 40);
    if (extra > size - TG_MESSAGE_HEADER)
        return;
    uint8_t both[52];
    memcpy(both, bytes, 44);
    tg_store64(both + 44, k->digest(bytes + TG_MESSAGE_HEADER, extra));
    tg_store32(bytes + 44, (uint32_t)k->digest(both, sizeof both));
    forge_frames(bytes + TG_MESSAGE_HEADER + extra, size - TG_MESSAGE_HEADER - extra, 1);
}

/* Edits go to places that are numbers in the first 256 bytes, or anywhere. */
static size_t spoil(const edits *e, uint8_t *bytes, size_t size, bool is_body)
{
    size -= is_body ? 0 : e->cut < size ? e->cut : size;
    for (size_t i = 0; i < e->count && size > 0; i++) {
        const uint8_t *edit = e->list + 3 * i;
        bytes[(edit[0] | (size_t)edit[1] << 8) % size] ^= edit[2];
    }
    if (e->forge && is_body)
        forge_frames(bytes, size, TG_FRAME_ALIGNMENT);
    else if (e->forge)
        forge(bytes, size);
    return size;
}

/* False where a body is not as long as its receiver expects, or one rank expects what the other does not send: no
 * transport would bring it. */
static bool deliver(const edits *e, const rank *ranks, unsigned from, unsigned to)
{
    const tg_exchange *sender = ranks[from].exchange, *receiver = ranks[to].exchange;
    const size_t size = sender->send_size[to], capacity = receiver->capacity[from];
    if (sender->on_device != receiver->on_device || (sender->on_device && size != capacity))
        return false;
    REQUIRE(e->forge || (size == TG_NO_MESSAGE) == (capacity == TG_NO_MESSAGE), "%u to %u: only one knows of it", from,
            to);
    if ((size == TG_NO_MESSAGE) != (capacity == TG_NO_MESSAGE))
        return false;
    if (size == TG_NO_MESSAGE)
        return true;
    REQUIRE(size <= capacity, "%zu bytes for %zu", size, capacity);
    memcpy(receiver->receive[from], sender->send[to], size);
    receiver->received[from] = size;
    return true;
}

static bool deliver_all(const edits *e, const rank *ranks)
{
    bool delivered = true;
    for (unsigned from = 0; from < e->world; from++)
        for (unsigned to = 0; delivered && to < e->world; to++)
            delivered = from == to || deliver(e, ranks, from, to);
    return delivered;
}

static void spoil_exchange(const edits *e, const rank *ranks)
{
    tg_exchange *x = ranks[e->to].exchange;
    const bool is_body = x->on_device, nothing = x->capacity[e->from] == TG_NO_MESSAGE;
    if (!nothing)
        x->received[e->from] = spoil(e, x->receive[e->from], x->received[e->from], is_body);
    else if (!is_body && e->world == 2 && ranks[e->from].exchange->capacity[e->to] != TG_NO_MESSAGE) {
        x = ranks[e->from].exchange; /* only rank 1 gets a greeting */
        x->received[e->to] = spoil(e, x->receive[e->to], x->received[e->to], false);
    }
}

static void begin(rank *r, unsigned number, const edits *e)
{
    tg_error error;
    REQUIRE(tg_reduce_begin(r->reducer, NULL, 7, &r->reduction, &error) == TG_OK, "%s", error.message);
    for (unsigned t = 0; t < TENSORS; t++) {
        const bool absent = number == 1 && (e->absent >> t & 1);
        const tg_tensor *g = &r->gradients[t];
        REQUIRE((absent ? tg_reduce_absent(r->reduction, t, g, &error) : tg_reduce_ready(r->reduction, t, g, &error)) ==
                    TG_OK,
                "%s", error.message);
    }
}

/* Whether all ranks have another exchange. */
static bool hand_out(const edits *e, rank *ranks)
{
    unsigned have = 0;
    tg_error error;
    for (unsigned i = 0; i < e->world; i++) {
        REQUIRE(tg_reduce_next(ranks[i].reduction, &ranks[i].exchange, &error) == TG_OK, "%s", error.message);
        have += ranks[i].exchange != NULL;
    }
    REQUIRE(e->forge || have == 0 || have == e->world, "%u of %u ranks go on", have, e->world);
    return have == e->world;
}

/* False if an exchange failed for good. */
static bool feed(const edits *e, const rank *ranks)
{
    tg_error error;
    for (unsigned i = 0; i < e->world; i++) {
        const tg_status fed = tg_reduce_feed(ranks[i].reduction, ranks[i].exchange, &error);
        REQUIRE(fed == TG_OK || fed == TG_EXCHANGE, "%s", error.message);
        if (fed == TG_EXCHANGE)
            return false;
    }
    return true;
}

/* One step of all ranks; false if an exchange failed for good. */
static bool reduce(rank *ranks, const edits *e, tg_status *status)
{
    tg_error error;
    bool whole = true;
    for (unsigned i = 0; i < e->world; i++)
        begin(&ranks[i], i, e);
    for (unsigned number = 0; whole && hand_out(e, ranks); number++) {
        whole = deliver_all(e, ranks);
        if (whole && number == e->exchange)
            spoil_exchange(e, ranks);
        whole = whole && feed(e, ranks);
    }
    for (unsigned i = 0; i < e->world; i++)
        if (!whole || ranks[i].exchange) {
            tg_reduce_abandon(ranks[i].reduction);
            status[i] = TG_EXCHANGE;
        } else {
            status[i] = tg_reduce_end(ranks[i].reduction, &error);
            REQUIRE(status[i] != TG_INVALID_ARGUMENT, "%s", error.message);
        }
    return whole;
}

static void open_all(rank *ranks, const edits *e)
{
    tg_reducer *reducers[MOST_WORLD];
    for (unsigned i = 0; i < e->world; i++) {
        open_rank(&ranks[i], i, e);
        reducers[i] = ranks[i].reducer;
    }
    if (e->memory)
        REQUIRE(share_together(reducers, e->world), "no memory together");
}

static void try_message(const edits *e)
{
    rank ranks[MOST_WORLD];
    tg_status status[MOST_WORLD];
    open_all(ranks, e);
    const bool whole = reduce(ranks, e, status);
    for (unsigned i = 0; i < e->world; i++) {
        if (!e->forge)
            REQUIRE(status[i] == status[0], "%d and %d", (int)status[i], (int)status[0]);
        for (unsigned t = 0; t < TENSORS; t++) {
            if (!whole || status[i] != TG_OK)
                REQUIRE(memcmp(ranks[i].values[t], ranks[i].before[t], counts[t] * sizeof(float)) == 0,
                        "a gradient was touched");
            else if (!e->forge && e->algorithm < 2) /* under scatter each has its own part */
                REQUIRE(memcmp(ranks[i].values[t], ranks[0].values[t], counts[t] * sizeof(float)) == 0, "ranks differ");
        }
    }
    for (unsigned i = 0; i < e->world; i++)
        close_rank(&ranks[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_device *devices[FUZZ_DEVICES_MAX];
    device = devices[open_devices(devices) - 1];
    if (size < 4)
        return 0;
    const bool hosts = data[0] & 64;
    const uint32_t from = data[2] >> 1 & 3, to = data[2] >> 3 & 3;
    const edits e = {.algorithm = data[0] & 16 && !hosts ? 2 : data[0] & 1,
                     .on_device = data[0] & 32 && !hosts,
                     .absent = data[0] >> 1 & 7,
                     .world = hosts ? 4 : 2,
                     .from = hosts ? from : 1,
                     .to = !hosts       ? 0
                           : to != from ? to
                                        : (to + 1) % MOST_WORLD,
                     .hosts = hosts,
                     .memory = hosts && data[0] & 128,
                     .exchange = data[1],
                     .forge = data[2] & 1,
                     .cut = data[3],
                     .list = data + 4,
                     .count = (size - 4) / 3};
    try_message(&e);
    return 0;
}
