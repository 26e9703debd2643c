/* Messages between ranks, spoiled by whoever fuzzes. Two ranks reduce in this process, without a transport; one message
 * on its way from rank 1 to rank 0 is edited. The input: algorithm, whether frames stay on the device (which is this
 * process), and which tensors rank 1 lacks, which exchange,
 * whether checksums are made right again, how many bytes are cut, then edits of three bytes (a place, a value).
 * Promises: no step is half applied; what is not applied leaves gradients alone; without forged checksums both ranks
 * come to the same outcome. */
#include "tests/fuzz/fuzz.h"

#include "base/bytes.h"
#include "device/cpu/checksum.h"
#include "device/cpu/cpu.h"
#include "codec/header.h"
#include "reduce/message.h"

enum { LARGE = 70000, SMALL = 300, TENSORS = 3, WORLD = 2 };

typedef struct rank {
    tg_reducer *reducer;
    tg_reduction *reduction;
    tg_exchange *exchange;
    float *values[TENSORS], *before[TENSORS];
    tg_tensor gradients[TENSORS];
} rank;

typedef struct edits {
    unsigned algorithm, absent, exchange, cut;
    bool on_device, forge;
    const uint8_t *list;
    size_t count;
} edits;

static tg_device *device;
static const uint64_t counts[TENSORS] = {LARGE, SMALL, 5000};
static const char *const specs[TENSORS] = {"topk:k=200,values=levels", "none", "qsgd:levels=7,coding=entropy"};

static void open_rank(rank *r, unsigned number, const edits *e)
{
    static const char *const names[TENSORS] = {"kernel", "bias", "matrix"};
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
    const tg_reducer_options options = {
        .algorithm = (tg_algorithm)(TG_GATHER + e->algorithm % 3), .batch_elements = 4096, .on_device = e->on_device};
    REQUIRE(tg_reducer_create(device, number, WORLD, tensors, TENSORS, &options, &r->reducer, &error) == TG_OK, "%s",
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

/* False where a body is not as long as its receiver expects: no transport would bring it. */
static bool deliver(const rank *from, unsigned from_rank, const rank *to, unsigned to_rank)
{
    const size_t size = from->exchange->send_size[to_rank];
    if (from->exchange->on_device && size != to->exchange->capacity[from_rank])
        return false;
    if (size == TG_NO_MESSAGE)
        return true;
    REQUIRE(size <= to->exchange->capacity[from_rank], "%zu bytes for %zu", size, to->exchange->capacity[from_rank]);
    memcpy(to->exchange->receive[from_rank], from->exchange->send[to_rank], size);
    to->exchange->received[from_rank] = size;
    return true;
}

static bool abandon(rank ranks[WORLD])
{
    for (unsigned i = 0; i < WORLD; i++)
        tg_reduce_abandon(ranks[i].reduction);
    return false;
}

static void spoil_exchange(const edits *e, rank ranks[WORLD])
{
    const bool is_body = ranks[0].exchange->on_device, nothing = ranks[0].exchange->capacity[1] == TG_NO_MESSAGE;
    if (is_body && nothing)
        return;
    tg_exchange *x = ranks[nothing].exchange; /* only rank 1 gets a greeting */
    x->received[!nothing] = spoil(e, x->receive[!nothing], x->received[!nothing], is_body);
}

/* One step of both ranks; false if an exchange failed for good. */
static bool reduce(rank ranks[WORLD], const edits *e, tg_status status[WORLD])
{
    tg_error error;
    for (unsigned i = 0; i < WORLD; i++) {
        REQUIRE(tg_reduce_begin(ranks[i].reducer, NULL, 7, &ranks[i].reduction, &error) == TG_OK, "%s", error.message);
        for (unsigned t = 0; t < TENSORS; t++) {
            const bool absent = i == 1 && (e->absent >> t & 1);
            const tg_tensor *g = &ranks[i].gradients[t];
            REQUIRE((absent ? tg_reduce_absent(ranks[i].reduction, t, g, &error)
                            : tg_reduce_ready(ranks[i].reduction, t, g, &error)) == TG_OK,
                    "%s", error.message);
        }
    }
    for (unsigned number = 0;; number++) {
        for (unsigned i = 0; i < WORLD; i++)
            REQUIRE(tg_reduce_next(ranks[i].reduction, &ranks[i].exchange, &error) == TG_OK, "%s", error.message);
        if (!ranks[0].exchange || !ranks[1].exchange)
            break;
        if (ranks[0].exchange->on_device != ranks[1].exchange->on_device || !deliver(&ranks[0], 0, &ranks[1], 1) ||
            !deliver(&ranks[1], 1, &ranks[0], 0))
            return abandon(ranks);
        if (number == e->exchange)
            spoil_exchange(e, ranks);
        for (unsigned i = 0; i < WORLD; i++) {
            const tg_status fed = tg_reduce_feed(ranks[i].reduction, ranks[i].exchange, &error);
            REQUIRE(fed == TG_OK || fed == TG_EXCHANGE, "%s", error.message);
            if (fed == TG_EXCHANGE)
                return abandon(ranks);
        }
    }
    if (!e->forge)
        REQUIRE(!ranks[0].exchange == !ranks[1].exchange, "one rank has stopped");
    for (unsigned i = 0; i < WORLD; i++)
        if (ranks[i].exchange) {
            tg_reduce_abandon(ranks[i].reduction);
            status[i] = TG_EXCHANGE;
        } else {
            status[i] = tg_reduce_end(ranks[i].reduction, &error);
            REQUIRE(status[i] != TG_INVALID_ARGUMENT, "%s", error.message);
        }
    return true;
}

static void try_message(const edits *e)
{
    rank ranks[WORLD];
    tg_status status[WORLD] = {TG_OK, TG_OK};
    for (unsigned i = 0; i < WORLD; i++)
        open_rank(&ranks[i], i, e);
    const bool whole = reduce(ranks, e, status);
    if (whole && !e->forge)
        REQUIRE(status[0] == status[1], "%d and %d", (int)status[0], (int)status[1]);
    for (unsigned i = 0; i < WORLD; i++)
        for (unsigned t = 0; t < TENSORS; t++) {
            if (!whole || status[i] != TG_OK)
                REQUIRE(memcmp(ranks[i].values[t], ranks[i].before[t], counts[t] * sizeof(float)) == 0,
                        "a gradient was touched");
            else if (!e->forge && e->algorithm < 2) /* under scatter each has its own part */
                REQUIRE(memcmp(ranks[i].values[t], ranks[0].values[t], counts[t] * sizeof(float)) == 0, "ranks differ");
        }
    for (unsigned i = 0; i < WORLD; i++)
        close_rank(&ranks[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_device *devices[FUZZ_DEVICES_MAX];
    device = devices[open_devices(devices) - 1];
    if (size < 4)
        return 0;
    const edits e = {.algorithm = data[0] & 16 ? 2 : data[0] & 1,
                     .on_device = data[0] & 32,
                     .absent = data[0] >> 1 & 7,
                     .exchange = data[1],
                     .forge = data[2] & 1,
                     .cut = data[3],
                     .list = data + 4,
                     .count = (size - 4) / 3};
    try_message(&e);
    return 0;
}
