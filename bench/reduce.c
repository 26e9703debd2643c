/* How long reducing takes: reduce [-n FLOATS] [-r REPEATS] [-a gather|shard|auto] [-w THREADS [-l BITS_PER_SECOND] | -m
 * MODULE] [-g RANKS [-f] [-c] [-i]] [-b BATCH_ELEMENTS] [-d DEVICE] [-p SECONDS] [-y STEPS] SPEC[/FEEDBACK]...
 *
 * -d cuda: gradients lie on the card, and a step ends when the card has done everything.
 *
 * -p: rests before each repeat, as a step's computing would, so that links have their burst back.
 *
 * The spec `memory` is no codec: every rank adds the gradient to a residual and stores a mean of zeros, at the same
 * time as the others. With one thread, no reduction with feedback can take less.
 *
 * With -g so many ranks in a row share a host: its link, and reductions have two levels; with -f only the link. There
 * ranks read each other's memory; with -c they send messages, with -i gradients lie in that memory.
 *
 * Ranks are threads (-w), over links that take their time where -l says so, or MPI processes (-m openmpi). Rank 0
 * prints a line for each spec: the least and the median time over repeats of the slowest rank, where this rank spent it
 * (least of each stage), and the bytes it sent. With -y, reducers have bypass `auto`, but for the spec `none`; so many
 * steps are made before those that are timed, and the mean is printed too. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tersegrad.h"

enum { MOST_RANKS = 64, MOST_REPEATS = 1000 };

typedef struct settings {
    uint64_t count, batch_elements;
    unsigned repeats, world;
    tg_algorithm algorithm;
    const char *module, *device;
    double rate, pause;
    unsigned before; /* with bypass: steps that are not timed */
    unsigned group;  /* ranks of a host */
    bool flat;       /* which the reducer does not know */
    bool messages;   /* within a host, instead of shared memory */
    bool in_place;   /* gradients lie in that memory */
    uint32_t hosts[MOST_RANKS];
    char **specs;
    int spec_count;
} settings;

static settings the;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const tg_error *error)
{
    fprintf(stderr, "reduce: %s: %s\n", what, error->message);
    exit(1);
}

/* Everybody's number; also a barrier. */
static void gather(tg_transport *t, double mine, double *all)
{
    const uint32_t world = tg_transport_world(t), rank = tg_transport_rank(t);
    const void *send[MOST_RANKS];
    void *receive[MOST_RANKS];
    size_t sizes[MOST_RANKS], capacity[MOST_RANKS], received[MOST_RANKS];
    tg_error error;
    for (uint32_t i = 0; i < world; i++) {
        send[i] = &mine;
        receive[i] = &all[i];
        sizes[i] = capacity[i] = sizeof mine;
    }
    tg_exchange e = {TG_ALL_GATHER, world, send, sizes, receive, capacity, received, false};
    if (tg_transport_start(t, &e, &error) != TG_OK || tg_transport_wait(t, &e, 0, &error) != TG_OK)
        fail("barrier", &error);
    all[rank] = mine;
}

/* A normal number by the sum of twelve uniform ones: good enough to be compressed. */
static void fill(float *values, uint64_t count, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint64_t i = 0; i < count; i++) {
        float sum = -6;
        for (unsigned j = 0; j < 3; j++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const uint64_t bits = state ^ state >> 29;
            sum += (float)(bits & 0xffff) + (float)(bits >> 16 & 0xffff) + (float)(bits >> 32 & 0xffff) +
                   (float)(bits >> 48);
        }
        values[i] = sum / 65536 - 6;
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The slowest rank's time, after a barrier. */
static double slowest_of(tg_transport *transport, double seconds)
{
    double all[MOST_RANKS], slowest = 0;
    gather(transport, seconds, all);
    for (uint32_t r = 0; r < tg_transport_world(transport); r++)
        slowest = all[r] > slowest ? all[r] : slowest;
    return slowest;
}

static void measure_memory(tg_transport *transport, const float *source, float *gradient)
{
    double times[MOST_REPEATS], all[MOST_RANKS];
    float *residual = calloc(the.count, sizeof *residual);
    if (!residual)
        exit(1);
    for (unsigned i = 0; i < the.repeats + 1; i++) {
        memcpy(gradient, source, the.count * sizeof *gradient);
        gather(transport, 0, all);
        const double start = now();
        for (uint64_t j = 0; j < the.count; j++)
            residual[j] += gradient[j];
        memset(gradient, 0, the.count * sizeof *gradient);
        const double slowest = slowest_of(transport, now() - start);
        if (i > 0)
            times[i - 1] = slowest;
    }
    qsort(times, the.repeats, sizeof *times, ascending);
    if (tg_transport_rank(transport) == 0)
        printf("%-40s %-6s %2u ranks  %9.2f ms  median %9.2f\n", "memory: e += g, and a mean of zeros", "",
               tg_transport_world(transport), 1e3 * times[0], 1e3 * times[the.repeats / 2]);
    (void)fflush(stdout);
    free(residual);
}

static bool is_card(void) { return strncmp(the.device, "cuda", 4) == 0; }

static void measure(tg_device *device, tg_transport *transport, char *what, const float *source, float *gradient)
{
    const uint32_t rank = tg_transport_rank(transport), world = tg_transport_world(transport);
    char spec[256], *slash;
    double times[MOST_REPEATS], all[MOST_RANKS], best[4] = {1e9, 1e9, 1e9, 1e9};
    tg_reducer_tensor tensor = {.name = "gradient", .count = the.count};
    const bool is_plain = strcmp(what, "none") == 0;
    const tg_reducer_options options = {.algorithm = the.algorithm,
                                        .batch_elements = the.batch_elements,
                                        .host_of_rank = the.flat ? NULL : the.hosts,
                                        .bypass = the.before > 0 && !is_plain ? TG_BYPASS_AUTO : TG_BYPASS_OFF};
    const unsigned untimed = the.before > 0 ? the.before : 1;
    double sum = 0;
    tg_reducer *reducer;
    tg_reducer_stats before, after;
    tg_error error;
    (void)snprintf(spec, sizeof spec, "%s", what);
    slash = strchr(spec, '/');
    if (slash)
        *slash = '\0';
    if (tg_spec_parse(spec, &tensor.codec, &error) != TG_OK ||
        tg_feedback_parse(slash ? slash + 1 : "none", &tensor.feedback, &error) != TG_OK ||
        tg_reducer_create(device, rank, world, &tensor, 1, &options, &reducer, &error) != TG_OK)
        fail(what, &error);
    if (!the.messages && tg_reducer_share_memory(reducer, transport, NULL, &error) != TG_OK)
        fail(what, &error);
    if (the.in_place && tg_reducer_gradient_memory(reducer, 0))
        gradient = tg_reducer_gradient_memory(reducer, 0);
    void *there = gradient;
    if (is_card() && tg_device_allocate(device, the.count * sizeof *gradient, &there, &error) != TG_OK)
        fail(what, &error);
    const tg_tensor tensors = {there, the.count, TG_FLOAT32};
    for (unsigned i = 0; i < the.repeats + untimed; i++) {
        if (!is_card())
            memcpy(gradient, source, the.count * sizeof *gradient);
        else if (tg_device_copy_in(device, there, source, the.count * sizeof *source, &error) != TG_OK)
            fail(what, &error);
        (void)!tg_reducer_stats_of(reducer, &before, NULL);
        const struct timespec rest = {.tv_sec = (time_t)the.pause,
                                      .tv_nsec = (long)((the.pause - (double)(time_t)the.pause) * 1e9)};
        (void)nanosleep(&rest, NULL);
        gather(transport, 0, all);
        const double start = now();
        if (tg_reduce(reducer, transport, &tensors, i, &error) != TG_OK || tg_device_wait(device, &error) != TG_OK)
            fail(what, &error);
        const double slowest = slowest_of(transport, now() - start);
        (void)!tg_reducer_stats_of(reducer, &after, NULL);
        if (i < untimed)
            continue;
        times[i - untimed] = slowest;
        sum += slowest;
        const double stages[4] = {
            after.encode_seconds - before.encode_seconds, after.exchange_seconds - before.exchange_seconds,
            after.verify_seconds - before.verify_seconds, after.decode_seconds - before.decode_seconds};
        for (unsigned s = 0; s < 4; s++)
            best[s] = stages[s] < best[s] ? stages[s] : best[s];
    }
    qsort(times, the.repeats, sizeof *times, ascending);
    gather(transport, (double)(after.bytes_sent - before.bytes_sent), all);
    double host = 0; /* what the ranks of the first one send to others */
    for (uint32_t i = 0; i < world; i++)
        host += the.hosts[i] == the.hosts[0] ? all[i] : 0;
    if (the.flat)
        host *= (double)(world - the.group) / (world - 1);
    if (rank == 0) {
        printf("%-40s %-6s %2u ranks  %9.2f ms  median %9.2f  encode %7.2f  wait %8.2f  verify %6.2f  decode %7.2f  "
               "sent %.3f MB, its host %.3f MB\n",
               what, tg_algorithm_text(after.algorithm), world, 1e3 * times[0], 1e3 * times[the.repeats / 2],
               1e3 * best[0], 1e3 * best[1], 1e3 * best[2], 1e3 * best[3],
               (double)(after.bytes_sent - before.bytes_sent) * 1e-6, host * 1e-6);
        if (the.before > 0)
            printf("  mean of steps %u to %u: %.3f ms\n", untimed, untimed + the.repeats - 1, 1e3 * sum / the.repeats);
        (void)fflush(stdout);
    }
    if (is_card())
        tg_device_release(device, there);
    tg_reducer_free(reducer);
}

static void *run(void *argument)
{
    tg_transport *transport = argument;
    tg_device *device;
    tg_error error;
    float *source = malloc(the.count * sizeof *source), *gradient = malloc(the.count * sizeof *gradient);
    if (!source || !gradient)
        exit(1);
    if (tg_device_open(the.device, NULL, &device, &error) != TG_OK)
        fail(the.device, &error);
    fill(source, the.count, tg_transport_rank(transport) + 1);
    for (int i = 0; i < the.spec_count; i++)
        if (strcmp(the.specs[i], "memory") == 0)
            measure_memory(transport, source, gradient);
        else
            measure(device, transport, the.specs[i], source, gradient);
    tg_device_free(device);
    free(source);
    free(gradient);
    tg_transport_free(transport);
    return NULL;
}

int main(int argc, char **argv)
{
    the = (settings){.count = 25600000, .repeats = 5, .world = 2, .group = 1, .device = "cpu"};
    for (int option; (option = getopt(argc, argv, "n:r:a:w:l:m:g:fcib:d:p:y:")) != -1;) {
        if (option == 'n')
            the.count = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            the.repeats = (unsigned)atoi(optarg);
        else if (option == 'a')
            the.algorithm = optarg[0] == 'g' ? TG_GATHER : optarg[0] == 's' ? TG_SHARD : TG_AUTO;
        else if (option == 'w')
            the.world = (unsigned)atoi(optarg);
        else if (option == 'l')
            the.rate = strtod(optarg, NULL);
        else if (option == 'm')
            the.module = optarg;
        else if (option == 'g')
            the.group = (unsigned)atoi(optarg);
        else if (option == 'f')
            the.flat = true;
        else if (option == 'c')
            the.messages = true;
        else if (option == 'i')
            the.in_place = true;
        else if (option == 'b')
            the.batch_elements = strtoull(optarg, NULL, 10);
        else if (option == 'd')
            the.device = optarg;
        else if (option == 'p')
            the.pause = strtod(optarg, NULL);
        else if (option == 'y')
            the.before = (unsigned)atoi(optarg);
        else
            return 2;
    }
    the.specs = argv + optind;
    the.spec_count = argc - optind;
    if (the.repeats < 1 || the.repeats > MOST_REPEATS || the.world < 1 || the.world > MOST_RANKS || the.group < 1 ||
        the.spec_count < 1) {
        fprintf(stderr, "usage: reduce [-n FLOATS] [-r REPEATS] [-a gather|shard|auto] [-w THREADS [-l "
                        "BITS_PER_SECOND] | -m MODULE] [-g RANKS [-f] [-c] [-i]] "
                        "[-b BATCH_ELEMENTS] [-d DEVICE] [-p SECONDS] [-y STEPS] SPEC[/FEEDBACK]...\n");
        return 2;
    }
    for (unsigned i = 0; i < MOST_RANKS; i++)
        the.hosts[i] = i / the.group;
    tg_error error;
    tg_transport *transports[MOST_RANKS];
    if (the.module) {
        if (tg_transport_mpi(the.module, &transports[0], &error) != TG_OK)
            fail("mpi", &error);
        (void)run(transports[0]);
        return 0;
    }
    pthread_t threads[MOST_RANKS];
    const tg_link link = {.bits_per_second = the.rate, .latency_seconds = 50e-6, .host_of_rank = the.hosts};
    if ((the.rate > 0 ? tg_transport_local_link(the.world, &link, transports, &error)
                      : tg_transport_local(the.world, transports, &error)) != TG_OK)
        fail("local", &error);
    for (unsigned i = 0; i < the.world; i++)
        if (pthread_create(&threads[i], NULL, run, transports[i]) != 0)
            return 1;
    for (unsigned i = 0; i < the.world; i++)
        (void)pthread_join(threads[i], NULL);
    return 0;
}
