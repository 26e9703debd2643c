/* Opening a device picks its kernels and starts its threads, once. */
#include "frame/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "base/status.h"

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
    return tg_fail(error, TG_UNKNOWN_DEVICE, "there is no device '%.60s' on this machine; there are %s", name, known);
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

tg_status tg_device_open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    if (!name || !device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_open needs a name and a place for the device");
    const size_t length = strcspn(name, ":");
    const tg_kernels *kernels = kernels_named(name, length);
    if (!kernels)
        return unknown(name, error);
    const char *missing = tg_kernels_missing(kernels);
    if (missing)
        return tg_fail(error, TG_UNAVAILABLE, "the kernels %s lack '%s', so they cannot be used", kernels->name,
                       missing);
    const unsigned threads = threads_of(name + length);
    if (threads == 0)
        return tg_fail(
            error, TG_UNKNOWN_DEVICE,
            "device '%.60s': after the name comes nothing, or :threads=N with N from 1 to %u, or 0 for every processor",
            name, TG_MAX_THREADS);
    if (stream)
        return tg_fail(error, TG_INVALID_ARGUMENT, "device %.60s has no streams; pass NULL", name);
    tg_device *made = malloc(sizeof *made);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "no memory for a device handle");
    *made = (tg_device){.kernels = kernels, .cache = tg_largest_cache()};
    if (threads == 1) {
        (void)snprintf(made->name, sizeof made->name, "%s", kernels->name);
    } else {
        (void)snprintf(made->name, sizeof made->name, "%s%s%u", kernels->name, option, threads);
        made->pool = tg_pool_open(threads);
        if (!made->pool) {
            free(made);
            return tg_fail(error, TG_OUT_OF_MEMORY, "the system does not let device %.60s start %u threads", name,
                           threads - 1);
        }
    }
    *device = made;
    return tg_succeed(error);
}

void tg_device_free(tg_device *device)
{
    if (device)
        tg_pool_close(device->pool);
    free(device);
}

const char *tg_device_name(const tg_device *device) { return device ? device->name : ""; }

const char *tg_device_list(size_t index)
{
    const tg_kernels *kernels = tg_kernels_at(index);
    return kernels ? kernels->name : NULL;
}
