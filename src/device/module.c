/* `cuda`: finds and loads the module for cards of this kind. It stays loaded: its driver does not like to be
 * unloaded. */
#include "device/module.h"

#include <string.h>

#include "base/modules.h"
#include "base/status.h"

static const char cuda_file[] = "libtersegrad_cuda.so";

static const tg_device_module *load(char why[TG_MODULE_WHY])
{
    void *handle = tg_module_find(cuda_file, false, why);
    if (!handle)
        return NULL;
    const tg_device_module *found = tg_module_symbol(handle, TG_CUDA_MODULE);
    if (found && strcmp(found->version, TG_VERSION_TEXT) == 0 && found->layout == TG_DEVICE_LAYOUT)
        return found;
    tg_module_unload(handle);
    static const char other[] = "it does not belong to this build of tersegrad " TG_VERSION_TEXT;
    memcpy(why, other, sizeof other);
    return NULL;
}

tg_status tg_cuda_open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    char why[TG_MODULE_WHY];
    const tg_device_module *module = load(why);
    if (!module)
        return tg_fail(error, TG_UNAVAILABLE, "device %.20s cannot be used: %.180s", name, why);
    const char *missing = module->missing();
    if (missing)
        return tg_fail(error, TG_UNAVAILABLE, "device %.20s cannot be used: %.180s", name, missing);
    return module->open(name, stream, device, error);
}

bool tg_cuda_is_present(void)
{
    char why[TG_MODULE_WHY];
    const tg_device_module *module = load(why);
    return module && !module->missing();
}
