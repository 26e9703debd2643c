/* See mpi_loaded.h. An MPI may be part of the program, one of its libraries, or a library that was loaded
 * privately, as interpreters do. dlsym does not find the last kind, so the list of loaded libraries is searched. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "transport/mpi_loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16, PATH = 1024 };

typedef struct candidates {
    char paths[MOST][PATH];
    size_t count;
} candidates;

/* Only notes the path: nothing may be opened while the list is searched. */
static int note(struct dl_phdr_info *library, size_t size, void *of)
{
    (void)size;
    candidates *c = of;
    const char *path = library->dlpi_name ? library->dlpi_name : "", *slash = strrchr(path, '/');
    if (strncmp(slash ? slash + 1 : path, "libmpi", 6) == 0 && c->count < MOST && strlen(path) < PATH)
        (void)snprintf(c->paths[c->count++], PATH, "%s", path);
    return 0;
}

/* `path` is NULL for the program and what it sees. */
static void look_into(const char *path, tg_mpi_loaded *loaded)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return;
    if (dlsym(handle, "ompi_mpi_comm_world")) /* what MPI_COMM_WORLD is the address of */
        loaded->openmpi = true;
    else if (dlsym(handle, "MPI_Init"))
        loaded->mpich = true; /* or one of those that have its binary interface */
    (void)dlclose(handle);
}

tg_mpi_loaded tg_mpi_find_loaded(void)
{
    tg_mpi_loaded loaded = {false, false};
    candidates c;
    c.count = 0;
    (void)dl_iterate_phdr(note, &c);
    look_into(NULL, &loaded);
    for (size_t i = 0; i < c.count; i++)
        look_into(c.paths[i], &loaded);
    return loaded;
}
