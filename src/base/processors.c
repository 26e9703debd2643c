/* Asks the operating system. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/processors.h"

#include <stdio.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

unsigned tg_processors(void)
{
    long found = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        found = CPU_COUNT(&allowed);
#endif
    return found < 1 ? 1 : (unsigned)found;
}

/* Not by sysconf: the C library reports ten times the real size on some machines. */
size_t tg_largest_cache(void)
{
    enum { MOST_LEVELS = 5 };
    size_t kib = 0;
    for (unsigned i = 0; i < MOST_LEVELS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/size", i);
        FILE *file = fopen(path, "re");
        unsigned long found;
        if (file && fscanf(file, "%luK", &found) == 1 && found > kib)
            kib = found;
        if (file)
            (void)fclose(file);
    }
    return kib > 0 ? kib << 10 : (size_t)32 << 20;
}
