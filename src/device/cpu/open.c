/* Opening a device: chooses its kernel set and starts its threads, once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "base/status.h"
#include "base/vector_memory.h"
#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

static const char option[] = ":threads=";

static const tg_kernels *kernels_named(const char *name, size_t length)
{
    if (length == 3 && memcmp(name, "cpu", 3) == 0)
        return tg_kernels_at(0);
    for (size_t i = 0; tg_kernels_at(i); i++) {
        const char *known = tg_kernels_at(i)->name;
        if (strlen(known) == length && memcmp(name, known, length) == 0)
            return tg_kernels_at(i);
    }
    return NULL;
}

static tg_status unknown(const char *name, tg_error *error)
{
    char known[120] = "cpu";
    for (size_t i = 0; tg_kernels_at(i); i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, ", %s", tg_kernels_at(i)->name);
    }
    return tg_fail(error, TG_UNKNOWN_DEVICE, "unknown device '%.60s'; this machine has %s", name, known);
}

/* "": 1; ":threads=N": N, or where that is 0, one for each processor. 0 if it is neither. */
static unsigned threads_of(const char *text)
{
    unsigned threads = 0;
    if (*text == '\0')
        return 1;
    if (strncmp(text, option, sizeof option - 1) != 0)
        return 0;
    const char *digits = text + sizeof option - 1;
    for (const char *at = digits; *at; at++) {
        if (*at < '0' || *at > '9' || threads > TG_MAX_THREADS)
            return 0;
        threads = 10 * threads + (unsigned)(*at - '0');
    }
    if (threads == 0 && *digits)
        return tg_processors() < TG_MAX_THREADS ? tg_processors() : TG_MAX_THREADS;
    return threads <= TG_MAX_THREADS ? threads : 0;
}

static void close_cpu(tg_device *device)
{
    tg_cpu *cpu = tg_cpu_of(device);
    tg_pool_close(cpu->pool);
    tg_scratch_free(&cpu->calls);
    tg_scratch_free(&cpu->parts);
    free(cpu);
}

static void wait_for_nothing(tg_device *device) { (void)device; }

static void *allocate(tg_device *device, size_t bytes, unsigned place)
{
    (void)device;
    return tg_vector_make(bytes, place);
}

static void release(tg_device *device, void *memory)
{
    (void)device;
    tg_vector_free(memory);
}

static void *allocate_shared(tg_device *device, size_t bytes) { return allocate(device, bytes, 3); }

static bool is_shared(const tg_device *device, const void *memory)
{
    (void)device;
    return memory != NULL;
}

/* Long vectors are written past the caches, which would be read first and hold nothing for long. */
static void copy(tg_device *device, void *to, const void *from, size_t bytes)
{
    enum { LONG = 1 << 19 };
    const tg_kernels *k = tg_cpu_of(device)->kernels;
    if (bytes >= LONG) {
        k->copy_nontemporal(from, bytes, to);
        k->nontemporal_fence();
    } else if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

static void clear(tg_device *device, void *memory, size_t bytes)
{
    (void)device;
    if (bytes > 0)
        memset(memory, 0, bytes);
}

static void first_nonfinite(tg_device *device, const tg_source *source, uint64_t *index)
{
    *index = tg_source_first_nonfinite(source, tg_cpu_of(device)->kernels, tg_cpu_of(device)->pool);
}

static const tg_operations operations = {.close = close_cpu,
                                         .wait = wait_for_nothing,
                                         .wait_for_reports = wait_for_nothing,
                                         .wait_for_frames = wait_for_nothing,
                                         .finish = wait_for_nothing,
                                         .allocate = allocate,
                                         .release = release,
                                         .copy_in = copy,
                                         .copy_out = copy,
                                         .copy = copy,
                                         .clear = clear,
                                         .allocate_shared = allocate_shared,
                                         .release_shared = release,
                                         .is_shared = is_shared,
                                         .make_encoder = tg_cpu_make_encoder,
                                         .free_encoder = tg_cpu_free_encoder,
                                         .encoder_fits = tg_cpu_encoder_fits,
                                         .encode = tg_cpu_encode,
                                         .encode_later = tg_cpu_encode_later,
                                         .check = tg_cpu_check,
                                         .add = tg_cpu_add,
                                         .can_add_later = tg_cpu_can_add_later,
                                         .add_later = tg_cpu_add_later,
                                         .reserve = tg_cpu_reserve,
                                         .measure = tg_cpu_measure,
                                         .compensate = tg_cpu_compensate,
                                         .update = tg_cpu_update,
                                         .return_frame = tg_cpu_return_frame,
                                         .first_nonfinite = first_nonfinite,
                                         .peak = tg_cpu_peak,
                                         .scale = tg_cpu_scale,
                                         .add_scaled = tg_cpu_add_scaled,
                                         .sum = tg_cpu_sum,
                                         .drop_nonfinite = tg_cpu_drop_nonfinite,
                                         .narrow = tg_cpu_narrow,
                                         .save = tg_cpu_save,
                                         .load = tg_cpu_load,
                                         .norm = tg_cpu_norm,
                                         .make_list_workspace = tg_cpu_make_list_workspace,
                                         .free_list_workspace = tg_cpu_free_list_workspace,
                                         .add_lists = tg_cpu_add_lists,
                                         .sum_lists = tg_cpu_sum_lists,
                                         .spread_list = tg_cpu_spread_list,
                                         .cut_list = tg_cpu_cut_list};

/* For as many callers at once as there are processors, more of whom would have to wait, and for all threads. */
static bool make_scratch(tg_cpu *cpu)
{
    enum { FEWEST = 4, MOST = 64 };
    const unsigned processors = tg_processors();
    const unsigned callers = processors < FEWEST ? FEWEST : processors < MOST ? processors : MOST;
    return tg_scratch_make(&cpu->calls, callers, sizeof(tg_walk_scratch)) &&
           tg_scratch_make(&cpu->parts, callers + tg_pool_threads(cpu->pool) - 1, sizeof(tg_walk_scratch));
}

tg_status tg_cpu_open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    const size_t length = strcspn(name, ":");
    const tg_kernels *kernels = kernels_named(name, length);
    return kernels ? tg_cpu_open_kernels(kernels, name, stream, device, error) : unknown(name, error);
}

tg_status tg_cpu_open_kernels(const tg_kernels *kernels, const char *name, void *stream, tg_device **device,
                              tg_error *error)
{
    const size_t length = strcspn(name, ":");
    const char *missing = tg_kernels_missing(kernels);
    if (missing)
        return tg_fail(error, TG_UNAVAILABLE, "the kernels %s lack '%s', so they cannot be used", kernels->name,
                       missing);
    const unsigned threads = threads_of(name + length);
    if (threads == 0)
        return tg_fail(
            error, TG_UNKNOWN_DEVICE,
            "device '%.60s': only :threads=N may follow the name, with N from 1 to %u, or 0 for all processors", name,
            TG_MAX_THREADS);
    if (stream)
        return tg_fail(error, TG_INVALID_ARGUMENT, "device %.60s has no streams; pass NULL", name);
    tg_cpu *made = malloc(sizeof *made);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a device handle");
    *made = (tg_cpu){
        .device = {.operations = &operations, .reads_host = true}, .kernels = kernels, .cache = tg_largest_cache()};
    char *text = made->device.name;
    if (threads == 1) {
        (void)snprintf(text, sizeof made->device.name, "%s", kernels->name);
    } else {
        (void)snprintf(text, sizeof made->device.name, "%s%s%u", kernels->name, option, threads);
        made->pool = tg_pool_open(threads);
        if (!made->pool) {
            free(made);
            return tg_fail(error, TG_OUT_OF_MEMORY, "device %.60s: the system cannot start %u threads", name,
                           threads - 1);
        }
    }
    if (!make_scratch(made)) {
        close_cpu(&made->device);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the scratch of device %.60s", name);
    }
    *device = &made->device;
    return tg_succeed(error);
}
