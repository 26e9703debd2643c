/* Opening devices by name, and their memory for whoever holds tensors there. */
#include "device/device.h"

#include <string.h>

#include "base/status.h"
#include "device/cpu/cpu.h"
#include "device/module.h"

static const char cuda[] = "cuda";

tg_status tg_device_open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    if (!name || !device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_open: name and device must not be NULL");
    const size_t length = sizeof cuda - 1;
    if (strncmp(name, cuda, length) == 0 && (name[length] == '\0' || name[length] == ':'))
        return tg_cuda_open(name, stream, device, error);
    return tg_cpu_open(name, stream, device, error);
}

void tg_device_free(tg_device *device)
{
    if (device)
        device->operations->close(device);
}

const char *tg_device_name(const tg_device *device) { return device ? device->name : ""; }

const char *tg_device_list(size_t index)
{
    const tg_kernels *kernels = tg_kernels_at(index);
    if (kernels)
        return kernels->name;
    const bool comes_next = index > 0 && tg_kernels_at(index - 1);
    return comes_next && tg_cuda_is_present() ? cuda : NULL;
}

tg_status tg_device_outcome(const tg_device *device, tg_error *error)
{
    if (!device->failure)
        return TG_OK;
    return tg_fail(error, TG_UNAVAILABLE, "device %s failed: %.120s; close it", device->name, device->failure);
}

tg_status tg_device_allocate(tg_device *device, size_t bytes, void **memory, tg_error *error)
{
    if (!device || !memory)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_allocate: device and memory must not be NULL");
    void *made = device->operations->allocate(device, bytes, 3);
    if (!made && device->failure)
        return tg_device_outcome(device, error);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "device %s has no %zu bytes of free memory", device->name, bytes);
    *memory = made;
    return tg_succeed(error);
}

void tg_device_release(tg_device *device, void *memory)
{
    if (device && memory)
        device->operations->release(device, memory);
}

tg_status tg_device_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames, tg_error *error)
{
    if (!device || !spec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_reserve: device and spec must not be NULL");
    const tg_status status = tg_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    if (device->operations->reserve(device, spec, count, frames))
        return device->failure ? tg_device_outcome(device, error) : tg_succeed(error);
    return tg_fail(error, TG_OUT_OF_MEMORY, "device %s has no memory for reading %zu frames", device->name, frames);
}

tg_status tg_device_allocate_shared(tg_device *device, size_t bytes, void **memory, tg_error *error)
{
    if (!device || !memory)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_allocate_shared: device and memory must not be NULL");
    void *made = device->operations->allocate_shared(device, bytes);
    if (!made && device->failure)
        return tg_device_outcome(device, error);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "there are no %zu bytes of memory that device %s can write", bytes,
                       device->name);
    *memory = made;
    return tg_succeed(error);
}

void tg_device_release_shared(tg_device *device, void *memory)
{
    if (device && memory)
        device->operations->release_shared(device, memory);
}

static tg_status check_copy(const tg_device *device, const void *memory, const void *host, size_t bytes,
                            tg_error *error)
{
    if (!device || ((!memory || !host) && bytes > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "copying %zu bytes: device, memory and host must not be NULL",
                       bytes);
    return tg_succeed(error);
}

tg_status tg_device_copy_in(tg_device *device, void *memory, const void *host, size_t bytes, tg_error *error)
{
    tg_status status = check_copy(device, memory, host, bytes, error);
    if (status == TG_OK) {
        device->operations->copy_in(device, memory, host, bytes);
        device->operations->wait(device);
        status = tg_device_outcome(device, error);
    }
    return status;
}

tg_status tg_device_copy_out(tg_device *device, void *host, const void *memory, size_t bytes, tg_error *error)
{
    tg_status status = check_copy(device, memory, host, bytes, error);
    if (status == TG_OK) {
        device->operations->copy_out(device, host, memory, bytes);
        device->operations->wait(device);
        status = tg_device_outcome(device, error);
    }
    return status;
}

tg_status tg_device_copy(tg_device *device, void *to, const void *from, size_t bytes, tg_error *error)
{
    if (!device || ((!to || !from) && bytes > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "copying %zu bytes needs a device and two places in its memory",
                       bytes);
    device->operations->copy(device, to, from, bytes);
    device->operations->wait(device);
    return device->failure ? tg_device_outcome(device, error) : tg_succeed(error);
}

tg_status tg_device_wait(tg_device *device, tg_error *error)
{
    if (!device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_device_wait: device must not be NULL");
    device->operations->finish(device);
    return device->failure ? tg_device_outcome(device, error) : tg_succeed(error);
}
