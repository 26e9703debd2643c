/* Laws of a reducer's memory: what it reserves under `shard` hardly grows with the number of ranks, because no owner
 * has a part that is much longer than others; nor does it where hosts have several ranks. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/positions.h"
#include "ranks.h"
#include "reduce/levels.h"

/* Bytes that the C library has given out: reserved, whether touched or not. Where another allocator has taken its place
 * (sanitizers) it knows of none, and then the arena's own count must do. */
static uint64_t given_out(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

enum { LAYERS = 200 };
static const char *const qsgd = "qsgd:levels=7,bucket=512", *const topk = "topk:density=0.01";

/* The rank that owns most, of what is not divided among all. */
static uint32_t largest_owner(const tg_plan *plan, uint32_t world)
{
    uint64_t *owned = calloc(world, sizeof *owned);
    uint32_t largest = 0;
    for (size_t i = 0; i < plan->piece_count; i++)
        if (plan->pieces[i].owner != TG_EVERY_OWNER)
            owned[plan->pieces[i].owner] += plan->pieces[i].count;
    for (uint32_t rank = 0; rank < world; rank++)
        largest = owned[rank] > owned[largest] ? rank : largest;
    free(owned);
    return largest;
}

/* How ranks reduce: alone, or so many on each host. */
typedef struct team {
    tg_algorithm how;
    const char *codec;
    uint32_t world, per_host;
} team;

static const char *name_of(const team *t)
{
    static char text[120];
    (void)snprintf(text, sizeof text, "%s, world %u%s, %s", tg_algorithm_text(t->how), t->world,
                   t->per_host > 1 ? ", 8 to a host" : "", t->codec);
    return text;
}

/* Bytes that a reducer of rank `rank` reserves, residuals and the codecs' memory included; few are touched. */
static uint64_t reserved(const team *team, uint32_t rank, const uint64_t *counts, size_t tensor_count,
                         uint32_t *most_owned)
{
    static tg_reducer_tensor tensors[LAYERS];
    tg_device *device = open_device("cpu/scalar");
    uint32_t *hosts = malloc(team->world * sizeof *hosts);
    for (uint32_t i = 0; i < team->world; i++)
        hosts[i] = i / team->per_host;
    const tg_reducer_options options = {.algorithm = team->how, .host_of_rank = hosts};
    tg_reducer *reducer = NULL;
    tg_error error;
    for (size_t i = 0; i < tensor_count; i++) {
        tensors[i] = (tg_reducer_tensor){.name = "x", .count = counts[i], .feedback = {TG_FEEDBACK_EF, 1, 1, 0, 0}};
        expect(tg_spec_parse(team->codec, &tensors[i].codec, &error) == TG_OK, "%s", error.message);
    }
    const uint64_t before = given_out();
    expect(tg_reducer_create(device, rank, team->world, tensors, tensor_count, &options, &reducer, &error) == TG_OK,
           "%s", error.message);
    const uint64_t after = given_out();
    const tg_reducer *inner = reducer && reducer->levels ? reducer->levels->inner : NULL;
    const uint64_t bytes = (reducer ? reducer->arena.bytes : 0) + (inner ? inner->arena.bytes : 0);
    *most_owned = reducer ? largest_owner(&reducer->coded, team->world) : 0;
    tg_reducer_free(reducer);
    tg_device_free(device);
    free(hosts);
    return after - before > bytes ? after - before : bytes;
}

static const uint64_t one_tensor[] = {25600000};

static void is_limited(const team *team, const char *what, uint32_t rank, uint64_t bytes, uint64_t most)
{
    printf("%s, %s, rank %u: %.2f GB are reserved\n", name_of(team), what, rank, (double)bytes / 1e9);
    expect(bytes <= most, "%.2f GB are reserved, more than %.2f GB", (double)bytes / 1e9, (double)most / 1e9);
    check_all("%s, %s: memory is limited", name_of(team), what);
}

/* Frames go out, come in as parts and come in as results; the sums, in float32 and in 16 bits; the residuals. With the
 * world grow only headers, and what sparse parts may come to at the most. Under gather, room for messages is used again
 * where many ranks' or hosts' frames would take much more than the means, and of many hosts the mean is spread. */
static void hardly_grows(tg_algorithm how, const char *codec, uint32_t world, uint32_t per_host, uint64_t most)
{
    const team team = {how, codec, world, per_host};
    uint32_t owner;
    const uint64_t bytes = reserved(&team, world / 2, one_tensor, 1, &owner);
    is_limited(&team, "one tensor", world / 2, bytes, most);
}

/* ResNet-50: tensors of all sizes. */
static size_t resnet50(uint64_t counts[LAYERS])
{
    static const unsigned blocks[] = {3, 4, 6, 3};
    size_t n = 0;
    uint64_t in = 64;
    counts[n++] = UINT64_C(3) * 64 * 49;
    counts[n++] = 64;
    counts[n++] = 64;
    for (unsigned stage = 0; stage < 4; stage++)
        for (unsigned block = 0; block < blocks[stage]; block++) {
            const uint64_t width = UINT64_C(64) << stage, out = 4 * width;
            const uint64_t convolutions[] = {in * width, 9 * width * width, width * out, block == 0 ? in * out : 0};
            for (size_t i = 0; i < 4 && convolutions[i] > 0; i++) {
                counts[n++] = convolutions[i];
                counts[n++] = i < 2 ? width : out;
                counts[n] = counts[n - 1];
                n++;
            }
            in = out;
        }
    counts[n++] = 2048000;
    counts[n++] = 1000;
    return n;
}

/* Of the rank that owns most. With hosts, which has as many before it as there are owners. */
static void a_model(tg_algorithm how, const char *codec, uint32_t world, uint32_t per_host)
{
    const team team = {how, codec, world, per_host};
    uint64_t counts[LAYERS];
    const size_t n = resnet50(counts);
    uint32_t owner = 0;
    uint64_t bytes = reserved(&team, 0, counts, n, &owner);
    bytes = reserved(&team, owner, counts, n, &owner);
    is_limited(&team, "ResNet-50", owner, bytes, UINT64_C(4) << 30);
}

/* ---- memory that is shared with a device ---- */

enum { MOST_SHARED = 256 };
static struct shared {
    const tg_operations *whole;
    uint8_t *at[MOST_SHARED];
    size_t bytes[MOST_SHARED], count, left; /* so many can still be had */
} shared;

static void *allocate_shared(tg_device *device, size_t bytes)
{
    if (shared.left == 0 || shared.count == MOST_SHARED)
        return NULL;
    shared.left--;
    shared.bytes[shared.count] = bytes;
    return shared.at[shared.count++] = shared.whole->allocate_shared(device, bytes);
}

static void release_shared(tg_device *device, void *memory)
{
    size_t i = 0;
    while (i < shared.count && shared.at[i] != memory)
        i++;
    expect(i < shared.count, "%p is released, and is not shared", memory);
    if (i == shared.count)
        return;
    shared.count--;
    shared.at[i] = shared.at[shared.count];
    shared.bytes[i] = shared.bytes[shared.count];
    shared.whole->release_shared(device, memory);
}

static bool is_shared_with_it(const void *memory)
{
    for (size_t i = 0; i < shared.count; i++)
        if ((const uint8_t *)memory >= shared.at[i] && (const uint8_t *)memory < shared.at[i] + shared.bytes[i])
            return true;
    return false;
}

/* How many rooms for frames, of messages out and in, are memory that is shared with the device; and how many there are.
 */
static size_t shared_rooms(const tg_reduction *r, size_t *all)
{
    size_t count = 0;
    *all = 0;
    for (size_t b = 0; b < r->plan->batch_count; b++) {
        const tg_transfer *const transfers[] = {&r->batches[b],
                                                r->reducer->functions->has_results ? &r->results[b] : NULL};
        for (size_t i = 0; i < 2; i++)
            for (uint32_t peer = 0; transfers[i] && peer < r->reducer->world; peer++)
                if (peer != r->reducer->rank && tg_receives_from(transfers[i], peer)) {
                    count += is_shared_with_it(transfers[i]->receive[peer]) + is_shared_with_it(transfers[i]->out);
                    *all += 2;
                }
    }
    return count;
}

/* A device that does not read memory of the host gets messages from where it can; a reducer is made where there is less
 * of that than it wants, and gives back what it got. */
static void rooms_are_shared(tg_algorithm how)
{
    tg_device *device = open_device("cpu");
    tg_operations operations = *device->operations;
    tg_reducer_tensor tensor = {.name = "x", .count = 98304, .feedback = {TG_FEEDBACK_EF, 1, 1, 0, 0}};
    const tg_reducer_options options = {.algorithm = how, .batch_elements = 32768};
    tg_error error;
    expect(tg_spec_parse(qsgd, &tensor.codec, &error) == TG_OK, "%s", error.message);
    shared = (struct shared){.whole = device->operations};
    operations.allocate_shared = allocate_shared;
    operations.release_shared = release_shared;
    memcpy(&device->operations, &(const tg_operations *){&operations}, sizeof(void *));
    device->reads_host = false;
    bool enough = false;
    for (size_t most = 0; !enough && most < MOST_SHARED; most++) {
        tg_reducer *reducer = NULL;
        shared.left = most;
        expect(tg_reducer_create(device, 1, 3, &tensor, 1, &options, &reducer, &error) == TG_OK, "with %zu: %s", most,
               error.message);
        if (!reducer)
            break;
        enough = shared.left > 0;
        size_t all;
        reducer->reductions->plan = &reducer->coded;
        const size_t rooms = shared_rooms(reducer->reductions, &all);
        expect(enough ? all > 0 && rooms == all : most > 0 || rooms == 0, "with %zu: %zu rooms of %zu", most, rooms,
               all);
        tg_reducer_free(reducer);
        expect(shared.count == 0, "%zu rooms are not given back", shared.count);
    }
    expect(enough, "there is never enough");
    memcpy(&device->operations, &shared.whole, sizeof(void *));
    device->reads_host = true;
    tg_device_free(device);
    check_all("%s: messages lie where the device copies by itself, as far as there is such memory",
              tg_algorithm_text(how));
}

/* ---- parts ---- */

enum { MOST_WORLD = 64 };

/* How much a part has of what lies evenly between old boundaries: 1 for a part that is as long as an old one. */
static double share_of(uint32_t from, uint32_t to, const uint32_t *old, uint32_t world)
{
    double share = 0;
    for (uint32_t j = 0; j < world; j++) {
        const double first = from > old[j] ? from : old[j], last = to < old[j + 1] ? to : old[j + 1];
        share += last > first ? (last - first) / (double)(old[j + 1] - old[j]) : 0;
    }
    return share;
}

/* Most of what is to be balanced lies in a window, the rest anywhere. Cut anew, no part is long, and none has much more
 * than before. */
static void parts_are_limited(uint64_t count, uint64_t start, uint64_t width, uint32_t world)
{
    uint32_t before[MOST_WORLD + 1], cut[MOST_WORLD + 1], room[MOST_WORLD];
    const uint64_t limit = tg_part_limit(count, world);
    for (uint32_t i = 0; i <= world; i++)
        before[i] = cut[i] = (uint32_t)(i == 0 ? 0 : i == world ? count : start + width * i / world);
    tg_boundaries_limit(count, world, cut, room);
    uint64_t longest = 0;
    double most = 0;
    for (uint32_t i = 0; i < world; i++) {
        expect(cut[i] <= cut[i + 1], "boundary %u is %u, and the next is %u", i, cut[i], cut[i + 1]);
        longest = cut[i + 1] - cut[i] > longest ? cut[i + 1] - cut[i] : longest;
        const double share = share_of(cut[i], cut[i + 1], before, world);
        most = share > most ? share : most;
    }
    expect(cut[0] == 0 && cut[world] == count && longest <= limit, "a part has %u of %u elements, more than %u",
           (unsigned)longest, (unsigned)count, (unsigned)limit);
    /* One element more, by rounding, is world/width of an old part. */
    expect(most <= 4.0 / 3 + (double)world / (double)width, "a part has %g times its share", most);
}

static void parts_of_windows(void)
{
    const uint64_t count = 4000000;
    for (uint32_t world = 2; world <= MOST_WORLD; world = world * 3 / 2 + 1)
        for (uint64_t narrow = 1; narrow <= 4096; narrow *= 4)
            for (uint64_t start = 0; start <= 4; start++)
                parts_are_limited(count, (count - count / narrow) / 4 * start, count / narrow, world);
    check_all("wherever selected elements lie, no part is longer than four equal ones");
}

/* The same in a reduction: all that is selected lies in a hundredth of the tensor. */
enum { CROWDED = 12, TENSOR = 70001 };

static void reduce_crowded(rank_state *s)
{
    for (uint64_t step = 0; step < 18 && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        for (uint64_t i = 0; i < TENSOR / 100; i++)
            ((float *)s->gradients[0].data)[TENSOR / 3 + i] *= 1024;
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void parts_have_moved(rank_state *states, uint32_t world)
{
    const uint64_t limit = tg_part_limit(TENSOR, world), equal = TENSOR / world;
    for (uint32_t rank = 0; rank < world; rank++) {
        const uint32_t *b = states[rank].reducer->tensors[0].boundaries;
        uint32_t shortest = TENSOR;
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (uint32_t i = 0; i < world; i++) {
            expect(b[i + 1] - b[i] <= limit, "a part has %u elements", b[i + 1] - b[i]);
            shortest = b[i + 1] - b[i] < shortest ? b[i + 1] - b[i] : shortest;
        }
        expect(shortest < equal / 10, "the shortest part has %u elements", shortest);
        expect(memcmp(states[0].gradients[0].data, states[rank].gradients[0].data, TENSOR * sizeof(float)) == 0,
               "ranks 0 and %u differ", rank);
    }
}

static void crowded(void)
{
    const tensor_case tensors[] = {{"x", "topk:density=0.005", "ef", TENSOR, TG_FLOAT32}, {0}};
    const rank_case what = {
        .world = CROWDED, .tensors = tensors, .options = {.algorithm = TG_SHARD}, .shape = GAUSSIAN, .steps = 18};
    run_ranks(&what, NULL, reduce_crowded, parts_have_moved, NULL);
    check_all("shard, world %u: parts of a crowded tensor are short where it is crowded, and long nowhere", CROWDED);
}

/* ---- what arrives ---- */

/* Receivers have room for what indices come to, not for what writing them takes. */
static void lists_are_short(void)
{
    enum { COUNT = 300000 };
    uint32_t *indices = malloc(COUNT * sizeof *indices);
    uint8_t *out = malloc(tg_positions_bound(COUNT, COUNT) + 64);
    generator g = generator_for("lists", 1);
    for (unsigned i = 0; i < 2000; i++) {
        const uint64_t count = 1 + next_random(&g) % COUNT;
        const unsigned kind = i % 4, width = 1 + (unsigned)(next_random(&g) % 14);
        size_t m = 0;
        for (uint64_t at = next_random(&g) % (1u << width); at < count;
             at += 1 + (kind == 0   ? (1u << width) - 1                              /* alike */
                        : kind == 1 ? next_random(&g) % (1u << width)                /* even */
                        : kind == 2 ? next_random(&g) >> (next_random(&g) % 14 + 50) /* of any length */
                                    : (m % 500 < 250 ? 0 : 1u << width)))            /* runs, and far apart */
            indices[m++] = (uint32_t)at;
        tg_positions_writer w = tg_positions_begin(count, m, out, NULL);
        const size_t size = (size_t)(tg_positions_write(&w, indices, m) - out);
        expect(size <= tg_positions_most(count, m), "%zu of %u indices take %zu bytes, and not %zu", m, (unsigned)count,
               size, tg_positions_most(count, m));
    }
    free(indices);
    free(out);
    check_all("indices come to no more than is said");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    const uint64_t limit = UINT64_C(4) << 30;
    hardly_grows(TG_SHARD, qsgd, 4, 1, 400000000);
    hardly_grows(TG_SHARD, qsgd, 256, 1, 400000000);
    hardly_grows(TG_SHARD, qsgd, 1024, 1, 400000000);
    hardly_grows(TG_SHARD, qsgd, 10000, 1, limit);
    hardly_grows(TG_SHARD, qsgd, 10000, 8, 400000000);
    hardly_grows(TG_SHARD, topk, 4, 1, 1000000000);
    hardly_grows(TG_SHARD, topk, 256, 1, limit / 2);
    hardly_grows(TG_SHARD, topk, 1024, 1, limit / 2);
    hardly_grows(TG_SHARD, topk, 10000, 1, limit);
    hardly_grows(TG_SHARD, topk, 10000, 8, limit / 4);
    hardly_grows(TG_GATHER, qsgd, 8, 1, 500000000);
    hardly_grows(TG_GATHER, qsgd, 256, 1, 2000000000);
    hardly_grows(TG_GATHER, qsgd, 10000, 1, limit / 2); /* shorter batches, three of each rank, and the means */
    hardly_grows(TG_GATHER, qsgd, 10000, 8, limit / 2); /* eight batches of each host, of a share */
    hardly_grows(TG_GATHER, topk, 10000, 8, limit / 2); /* a share is one batch */
    a_model(TG_GATHER, qsgd, 10000, 1);
    a_model(TG_GATHER, qsgd, 10000, 8);
    a_model(TG_GATHER, topk, 10000, 8);
    a_model(TG_SHARD, qsgd, 10000, 1);
    a_model(TG_SHARD, qsgd, 10000, 8);
    a_model(TG_SHARD, topk, 1024, 1);
    a_model(TG_SHARD, topk, 10000, 1);
    a_model(TG_SHARD, topk, 10000, 8);
    rooms_are_shared(TG_GATHER);
    rooms_are_shared(TG_SHARD);
    parts_of_windows();
    crowded();
    lists_are_short();
    return finish();
}
