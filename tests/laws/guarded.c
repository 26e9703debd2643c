/* The guarded device does what it is for: a host that touches its memory is ended, a result that nobody waited for is
 * not there, and memory that was released is not the device's any more. */
#include "guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* Whether a child that does this ends in another way than by its own will. */
static bool is_stopped(void (*act)(tg_device *device, float *memory), bool queues)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        void *memory;
        tg_device *device = open_guarded("cpu", queues);
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr) ||
            tg_device_allocate(device, 64, &memory, NULL) != TG_OK)
            _exit(0);
        act(device, memory);
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status != 0;
}

static void read_on_host(tg_device *device, float *memory)
{
    (void)device;
    volatile float *at = memory;
    (void)*at;
}

static void write_on_host(tg_device *device, float *memory)
{
    (void)device;
    memory[3] = 1;
}

static void encode_from_host(tg_device *device, float *memory) /* after the device has worked on it */
{
    const float values[16] = {1};
    if (tg_device_copy_in(device, memory, values, sizeof values, NULL) == TG_OK)
        read_on_host(device, memory);
}

static void release_twice(tg_device *device, float *memory)
{
    tg_device_release(device, memory);
    tg_device_release(device, memory);
}

static void nothing(tg_device *device, float *memory)
{
    float values[16];
    (void)!tg_device_copy_out(device, values, memory, sizeof values, NULL);
}

static void results_come_with_the_wait(void)
{
    tg_device *device = open_device("queued:cpu");
    void *memory;
    const float values[4] = {3, -7, 2, 1};
    double norm = 0;
    expect(tg_device_allocate(device, sizeof values, &memory, NULL) == TG_OK &&
               tg_device_copy_in(device, memory, values, sizeof values, NULL) == TG_OK,
           "memory");
    const tg_tensor tensor = {memory, 4, TG_FLOAT32};
    device->operations->norm(device, &tensor, 1, TG_NORM_OF_ALL, &norm);
    expect(norm != 7.937253933193772, "the result is there before the wait");
    device->operations->wait(device);
    expect(norm == 7.937253933193772, "the result is %.17g after the wait", norm);
    tg_device_release(device, memory);
    tg_device_free(device);
    check_all("results are there after the wait, not before");
}

/* The sum of raw vectors is that of a plain loop over them, in their order, on every device. */
static void sums_have_one_order(void)
{
    enum { COUNT = 5001, VECTORS = 5 };
    tg_device **devices = open_devices();
    tg_tensor values[VECTORS], due = make_tensor(COUNT, TG_FLOAT32, 0), found = make_tensor(COUNT, TG_FLOAT32, 0);
    memset(due.data, 0, COUNT * sizeof(float));
    for (size_t v = 0; v < VECTORS; v++) {
        values[v] = make_tensor(COUNT, TG_FLOAT32, 0);
        fill(GAUSSIAN, v, &values[v]);
        for (size_t i = 0; i < COUNT; i++)
            ((float *)due.data)[i] += ((float *)values[v].data)[i];
    }
    for (size_t i = 0; i < COUNT; i++)
        ((float *)due.data)[i] *= 1.0f / VECTORS;
    for (size_t d = 0; devices[d]; d++) {
        void *there[VECTORS + 1];
        const float *inputs[VECTORS];
        for (size_t v = 0; v <= VECTORS; v++) {
            const void *from = v < VECTORS ? values[v].data : due.data;
            expect(tg_device_allocate(devices[d], COUNT * sizeof(float), &there[v], NULL) == TG_OK &&
                       tg_device_copy_in(devices[d], there[v], from, COUNT * sizeof(float), NULL) == TG_OK,
                   "memory");
            if (v < VECTORS)
                inputs[v] = there[v];
        }
        devices[d]->operations->clear(devices[d], there[VECTORS], COUNT * sizeof(float));
        devices[d]->operations->sum(devices[d], inputs, VECTORS, 1.0f / VECTORS, COUNT, there[VECTORS]);
        expect(tg_device_copy_out(devices[d], found.data, there[VECTORS], COUNT * sizeof(float), NULL) == TG_OK &&
                   memcmp(found.data, due.data, COUNT * sizeof(float)) == 0,
               "%s: another sum", tg_device_name(devices[d]));
        for (size_t v = 0; v <= VECTORS; v++)
            tg_device_release(devices[d], there[v]);
    }
    for (size_t v = 0; v < VECTORS; v++)
        drop(&values[v]);
    drop(&due);
    drop(&found);
    close_devices(devices);
    check_all("raw vectors are summed in their order");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    for (int queues = 0; queues < 2; queues++) {
        expect(is_stopped(read_on_host, queues), "the host may read");
        expect(is_stopped(write_on_host, queues), "the host may write");
        expect(is_stopped(encode_from_host, queues), "the host may read after a call");
        expect(is_stopped(release_twice, queues), "memory may be released twice");
        expect(!is_stopped(nothing, queues), "what is allowed is stopped");
        check_all("%s: a host that touches device memory is ended", queues ? "queued" : "guarded");
    }
    results_come_with_the_wait();
    sums_have_one_order();
    return finish();
}
