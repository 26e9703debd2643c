/* Four threads train together, and send a tenth of their gradients.
 *
 *     cc -pthread threads.c $(pkg-config --cflags --libs tersegrad) -lm && ./a.out
 *
 * Each rank r has a loss of its own, |w - t_r|^2 / 2, so the best common w is the mean of all t_r. tg_reduce compresses
 * the gradients by Top-k with error feedback, exchanges them, and leaves their mean in each rank's gradient, the same
 * bits everywhere: that is why every rank ends with the same w, though only gradients travel. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <tersegrad.h>

enum { RANKS = 4, COUNT = 10000, STEPS = 400 };

static float target(uint32_t rank, size_t i) { return sinf(0.01f * (float)i) + cosf((float)i * (float)(rank + 1)); }

/* The mean over the elements of the distance to the best w. */
static double distance(const float *w)
{
    double sum = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double best = 0;
        for (uint32_t rank = 0; rank < RANKS; rank++)
            best += (double)target(rank, i) / RANKS;
        sum += fabs((double)w[i] - best);
    }
    return sum / COUNT;
}

typedef struct worker {
    tg_transport *transport;
    float w[COUNT], gradient[COUNT];
    double sent; /* of the bytes that float32 gradients would have */
    bool well;
} worker;

static tg_status train(worker *me, tg_error *error)
{
    const uint32_t rank = tg_transport_rank(me->transport), world = tg_transport_world(me->transport);
    const tg_tensor gradient = {me->gradient, COUNT, TG_FLOAT32};
    tg_reducer_tensor layer = {
        .name = "w", .count = COUNT, .feedback = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1}};
    tg_device *device = NULL;
    tg_reducer *reducer = NULL;
    tg_reducer_stats stats;
    tg_status status = tg_spec_parse("topk:density=0.1", &layer.codec, error);
    if (status == TG_OK)
        status = tg_device_open("cpu", NULL, &device, error);
    if (status == TG_OK)
        status = tg_reducer_create(device, rank, world, &layer, 1, NULL, &reducer, error);
    for (uint64_t step = 0; step < STEPS && status == TG_OK; step++) {
        const float rate = 0.2f / (1 + (float)step / 50);
        for (size_t i = 0; i < COUNT; i++)
            me->gradient[i] = me->w[i] - target(rank, i);
        status = tg_reduce(reducer, me->transport, &gradient, step, error);
        for (size_t i = 0; i < COUNT; i++)
            me->w[i] -= rate * me->gradient[i];
    }
    if (status == TG_OK)
        status = tg_reducer_stats_of(reducer, &stats, error);
    if (status == TG_OK)
        me->sent = 1 / stats.ratio;
    else
        tg_transport_abort(me->transport, 1); /* or the other ranks would wait for this one */
    tg_reducer_free(reducer);
    tg_device_free(device);
    return status;
}

static void *run(void *argument)
{
    worker *me = argument;
    tg_error error;
    const uint32_t rank = tg_transport_rank(me->transport);
    me->well = train(me, &error) == TG_OK;
    if (!me->well)
        fprintf(stderr, "rank %u: %s\n", rank, error.message);
    tg_transport_free(me->transport);
    return NULL;
}

int main(void)
{
    static worker workers[RANKS];
    tg_transport *transports[RANKS];
    pthread_t threads[RANKS];
    tg_error error;
    bool well = true;
    if (tg_transport_local(RANKS, transports, &error) != TG_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        workers[rank].transport = transports[rank];
        if (pthread_create(&threads[rank], NULL, run, &workers[rank]) != 0) {
            fprintf(stderr, "no thread for rank %u\n", rank);
            return 1;
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        (void)pthread_join(threads[rank], NULL);
        well = well && workers[rank].well;
    }
    if (!well)
        return 1;
    const double before = distance((const float[COUNT]){0}), after = distance(workers[0].w);
    printf("distance to the best w: %.3f before, %.3f after %d steps; gradients took %.1f %% of their bytes\n", before,
           after, STEPS, 100 * workers[0].sent);
    return after < before / 10 ? 0 : 1;
}
