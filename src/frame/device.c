/* Opening a device picks its kernels, once. */
#include "frame/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static const tg_kernels *kernels_named(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return tg_kernels_at(0);
    for (size_t i = 0; tg_kernels_at(i); i++)
        if (strcmp(name, tg_kernels_at(i)->name) == 0)
            return tg_kernels_at(i);
    return NULL;
}

tg_status tg_device_open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    if (!name || !device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_open needs a name and a place for the device");
    const tg_kernels *kernels = kernels_named(name);
    if (!kernels) {
        char known[120] = "cpu";
        for (size_t i = 0; tg_kernels_at(i); i++) {
            size_t used = strlen(known);
            (void)snprintf(known + used, sizeof known - used, ", %s", tg_kernels_at(i)->name);
        }
        return tg_fail(error, TG_UNKNOWN_DEVICE, "there is no device '%.60s' on this machine; there are %s", name, known);
    }
    if (stream)
        return tg_fail(error, TG_INVALID_ARGUMENT, "device %s has no streams; pass NULL", name);
    tg_device *made = malloc(sizeof *made);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "no memory for a device handle");
    made->kernels = kernels;
    *device = made;
    return tg_succeed(error);
}

void tg_device_free(tg_device *device) { free(device); }

const char *tg_device_name(const tg_device *device) { return device ? device->kernels->name : ""; }

const char *tg_device_list(size_t index)
{
    const tg_kernels *kernels = tg_kernels_at(index);
    return kernels ? kernels->name : NULL;
}
