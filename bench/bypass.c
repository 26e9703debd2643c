/* What bypass costs where compression loses: bypass [-n FLOATS] [-s STEPS] [-w THREADS] [-a gather|shard]
 * SPEC[/FEEDBACK]...
 *
 * Ranks are threads, and bytes go through memory: nothing is as fast as sending gradients as they are. A reducer with
 * bypass `auto` and one of `none` take turns, step by step, now the one first and now the other; 200 steps of each are
 * not timed. Printed are the means and medians over all later steps (-s, 3000), tries of the other way among them, and
 * the median of the ratios of a pair's steps, beside the bar of 3 %; the steps at which bypass changed; and before,
 * what the rule itself takes for a step, beside the bar of 20 us.
 *
 * The figures for the bar, about three minutes on two cores that have nothing else to do:
 *
 *     build/bench/bypass -n 2000000 -s 12000 qsgd:coding=entropy qsgd:coding=elias */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "reduce/bypass.h"
#include "tersegrad.h"

enum { UNTIMED = 200, MOST_RANKS = 16, MOST_STEPS = 100000, MOST_CHANGES = 4096 };

static struct {
    uint64_t count;
    unsigned steps, world;
    tg_algorithm algorithm;
    const char *spec;
    pthread_barrier_t barrier;
    double *seconds[2]; /* of rank 0, dense and with bypass */
    uint64_t changes[MOST_CHANGES];
    size_t change_count;
} the = {.count = 2000000, .steps = 3000, .world = 2, .algorithm = TG_SHARD};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const tg_error *error)
{
    fprintf(stderr, "bypass: %s: %s\n", what, error->message);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the rule ---- */

static void time_rule(void)
{
    enum { STEPS = 10000000 };
    tg_bypass_rule rule;
    uint32_t state = 1, changes = 0;
    tg_bypass_rule_begin(&rule);
    const double start = now();
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t dense = rule.dense;
        state = state * 1664525 + 1013904223;
        tg_bypass_rule_note(&rule, dense != 0, 1000 + (state >> 22), true, 1);
        changes += rule.dense != dense;
    }
    const double each = 1e6 * (now() - start) / STEPS;
    printf("the rule: %.4f us a step, over %d steps with %u changes (bar: 20 us, %s)\n", each, STEPS, changes,
           each <= 20 ? "held" : "missed");
}

/* ---- pairs of steps ---- */

static tg_reducer *make(tg_device *device, uint32_t rank, bool bypass)
{
    char spec[256];
    tg_error error;
    tg_reducer *reducer;
    tg_reducer_tensor tensor = {.name = "gradient", .count = the.count};
    const tg_reducer_options options = {.algorithm = the.algorithm, .bypass = bypass ? TG_BYPASS_AUTO : TG_BYPASS_OFF};
    (void)snprintf(spec, sizeof spec, "%s", bypass ? the.spec : "none");
    char *slash = strchr(spec, '/');
    if (slash)
        *slash = '\0';
    if (tg_spec_parse(spec, &tensor.codec, &error) != TG_OK ||
        tg_feedback_parse(slash ? slash + 1 : "none", &tensor.feedback, &error) != TG_OK ||
        tg_reducer_create(device, rank, the.world, &tensor, 1, &options, &reducer, &error) != TG_OK)
        fail(the.spec, &error);
    return reducer;
}

static void *run(void *argument)
{
    tg_transport *transport = argument;
    const uint32_t rank = tg_transport_rank(transport);
    tg_device *device;
    tg_error error;
    float *gradient = malloc(the.count * sizeof *gradient);
    if (!gradient)
        exit(1);
    for (uint64_t i = 0; i < the.count; i++)
        gradient[i] = (float)((i * 2654435761u + rank) % 2001) * 1e-6f - 1e-3f;
    if (tg_device_open("cpu", NULL, &device, &error) != TG_OK)
        fail("cpu", &error);
    tg_reducer *reducers[2] = {make(device, rank, false), make(device, rank, true)};
    const tg_tensor tensor = {gradient, the.count, TG_FLOAT32};
    for (unsigned step = 0; step < UNTIMED + the.steps; step++)
        for (unsigned turn = 0; turn < 2; turn++) {
            const unsigned which = (step + turn) % 2;
            (void)pthread_barrier_wait(&the.barrier);
            const double start = now();
            if (tg_reduce(reducers[which], transport, &tensor, step, &error) != TG_OK)
                fail(the.spec, &error);
            (void)pthread_barrier_wait(&the.barrier);
            if (rank == 0 && step >= UNTIMED)
                the.seconds[which][step - UNTIMED] = now() - start;
        }
    if (rank == 0)
        (void)!tg_reducer_bypass_log(reducers[1], the.changes, MOST_CHANGES, &the.change_count, NULL);
    tg_reducer_free(reducers[0]);
    tg_reducer_free(reducers[1]);
    tg_device_free(device);
    free(gradient);
    tg_transport_free(transport);
    return NULL;
}

static void report(void)
{
    double sums[2] = {0, 0}, *ratios = malloc(the.steps * sizeof *ratios);
    if (!ratios)
        exit(1);
    for (unsigned i = 0; i < the.steps; i++) {
        ratios[i] = the.seconds[1][i] / the.seconds[0][i];
        sums[0] += the.seconds[0][i];
        sums[1] += the.seconds[1][i];
    }
    for (unsigned which = 0; which < 2; which++)
        qsort(the.seconds[which], the.steps, sizeof *ratios, ascending);
    qsort(ratios, the.steps, sizeof *ratios, ascending);
    const unsigned half = the.steps / 2;
    const double mean = sums[1] / sums[0] - 1, median = the.seconds[1][half] / the.seconds[0][half] - 1;
    printf("%s, %s, %llu floats, %u ranks, %u steps after the first %d\n", the.spec, tg_algorithm_text(the.algorithm),
           (unsigned long long)the.count, the.world, the.steps, UNTIMED);
    printf("    mean   dense %8.3f ms, with bypass %8.3f ms: %+.2f %% (bar: 3 %%, %s)\n", 1e3 * sums[0] / the.steps,
           1e3 * sums[1] / the.steps, 100 * mean, mean <= 0.03 ? "held" : "missed");
    printf("    median dense %8.3f ms, with bypass %8.3f ms: %+.2f %% (%s), of pairs %+.2f %%\n",
           1e3 * the.seconds[0][half], 1e3 * the.seconds[1][half], 100 * median, median <= 0.03 ? "held" : "missed",
           100 * (ratios[half] - 1));
    printf("    dense from, coded from, by turns:");
    for (size_t i = 0; i < the.change_count && i < 12; i++)
        printf(" %llu", (unsigned long long)the.changes[i]);
    printf("%s (%zu changes)\n", the.change_count > 12 ? " ..." : "", the.change_count);
    (void)fflush(stdout);
    free(ratios);
}

int main(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "n:s:w:a:")) != -1;) {
        if (option == 'n')
            the.count = strtoull(optarg, NULL, 10);
        else if (option == 's')
            the.steps = (unsigned)atoi(optarg);
        else if (option == 'w')
            the.world = (unsigned)atoi(optarg);
        else if (option == 'a')
            the.algorithm = optarg[0] == 'g' ? TG_GATHER : TG_SHARD;
        else
            return 2;
    }
    if (the.steps < 1 || the.steps > MOST_STEPS || the.world < 1 || the.world > MOST_RANKS || optind == argc) {
        fprintf(stderr, "usage: bypass [-n FLOATS] [-s STEPS] [-w THREADS] [-a gather|shard] SPEC[/FEEDBACK]...\n");
        return 2;
    }
    for (unsigned which = 0; which < 2; which++)
        if (!(the.seconds[which] = calloc(the.steps, sizeof *the.seconds[which])))
            return 1;
    time_rule();
    for (int i = optind; i < argc; i++) {
        tg_error error;
        tg_transport *transports[MOST_RANKS];
        pthread_t threads[MOST_RANKS];
        the.spec = argv[i];
        (void)pthread_barrier_init(&the.barrier, NULL, the.world);
        if (tg_transport_local(the.world, transports, &error) != TG_OK)
            fail("local", &error);
        for (unsigned r = 0; r < the.world; r++)
            if (pthread_create(&threads[r], NULL, run, transports[r]) != 0)
                return 1;
        for (unsigned r = 0; r < the.world; r++)
            (void)pthread_join(threads[r], NULL);
        (void)pthread_barrier_destroy(&the.barrier);
        report();
    }
    return 0;
}
