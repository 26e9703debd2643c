/* Where modules lie: seen from the folder of this library, or of the program that it is part of. */
#define _GNU_SOURCE /* dladdr */
#include "base/modules.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = TG_MODULE_WHY };

static const char *const places[] = {"tersegrad/",
                                     "../lib/tersegrad/",
                                     "../lib64/tersegrad/",
#if defined(__x86_64__)
                                     "../lib/x86_64-linux-gnu/tersegrad/",
#elif defined(__aarch64__)
                                     "../lib/aarch64-linux-gnu/tersegrad/",
#endif
                                     "",
                                     "../",
                                     "../../",
                                     "../../../"}; /* the last ones: in the tree that it was built in */

void *tg_module_load(const char *path, bool global, char why[TG_MODULE_WHY])
{
    void *handle = dlopen(path, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!handle)
        (void)snprintf(why, PATH, "%s", dlerror());
    return handle;
}

/* The folder of the file that this code is in, with its slash at the end; "" if that cannot be said. A program that was
 * found on the PATH knows only its name, and what lies in the current folder under that name is anybody's. */
static void find_folder(char folder[PATH])
{
    Dl_info self;
    void *here;
    void *(*function)(const char *, bool, char *) = tg_module_find;
    memcpy(&here, &function, sizeof here); /* ISO C has no cast from function to object pointers */
    folder[0] = '\0';
    if (dladdr(here, &self) != 0 && self.dli_fname)
        (void)snprintf(folder, PATH, "%s", self.dli_fname);
    if (!strchr(folder, '/')) {
        const ssize_t length = readlink("/proc/self/exe", folder, PATH - 1);
        folder[length > 0 ? length : 0] = '\0';
    }
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    else
        folder[0] = '\0';
}

void *tg_module_find(const char *name, bool global, char why[TG_MODULE_WHY])
{
    char folder[PATH], path[PATH + 64];
    find_folder(folder);
    (void)snprintf(why, PATH, "%s is not installed beside the library", name);
    for (size_t i = 0; folder[0] && i < sizeof places / sizeof *places; i++) {
        (void)snprintf(path, sizeof path, "%s%s%.30s", folder, places[i], name);
        FILE *file = fopen(path, "rb");
        if (!file)
            continue;
        (void)fclose(file);
        return tg_module_load(path, global, why);
    }
    return NULL;
}

const void *tg_module_symbol(void *module, const char *name) { return dlsym(module, name); }

void tg_module_unload(void *module) { (void)dlclose(module); }
