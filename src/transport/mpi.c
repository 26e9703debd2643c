/* `mpi`: finds and loads the module for the MPI that launched this process. MPIs differ in their binary interface, so
 * there is a module for each, and none is needed where there is no MPI. */
#include <stdio.h>
#include <string.h>

#include "base/modules.h"
#include "base/status.h"
#include "transport/mpi_loaded.h"
#include "transport/mpi_module.h"

/* The module for one MPI, whose own plug-ins expect to find MPI's symbols. */
static void *find(const char *mpi, char why[TG_MODULE_WHY])
{
    char name[32];
    (void)snprintf(name, sizeof name, "mpi-%.20s.so", mpi);
    return tg_module_find(name, true, why);
}

/* The name of the module for what is loaded, which is `module` itself where that is given and fits. */
static tg_status choose(const tg_mpi_loaded *loaded, const char **module, tg_error *error)
{
    if (loaded->openmpi && loaded->mpich)
        return tg_fail(error, TG_UNAVAILABLE,
                       "this process has loaded two MPIs, OpenMPI and MPICH; link the program with one of them");
    const char *found = loaded->openmpi ? "openmpi" : loaded->mpich ? "mpich" : NULL;
    if (!*module && !found)
        return tg_fail(error, TG_UNAVAILABLE,
                       "this process has not loaded an MPI; name the module of its launcher: openmpi or mpich");
    *module = *module ? *module : found;
    return TG_OK;
}

/* Whether a module for this MPI can work in a process that had loaded these before it. */
static tg_status check_mpi(const tg_mpi_loaded *loaded, const char *mpi, tg_error *error)
{
    const bool is_openmpi = strcmp(mpi, "openmpi") == 0;
    if (is_openmpi ? !loaded->mpich : !loaded->openmpi)
        return TG_OK;
    return tg_fail(error, TG_UNAVAILABLE, "the module is for %s, but this process has loaded %s; use the module '%s'",
                   is_openmpi ? "OpenMPI" : "MPICH", is_openmpi ? "MPICH" : "OpenMPI",
                   is_openmpi ? "mpich" : "openmpi");
}

tg_status tg_transport_mpi_open(const char *module, const void *communicator, size_t fragment, tg_transport **transport,
                                tg_error *error)
{
    char why[TG_MODULE_WHY];
    if (!transport)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_mpi: transport must not be NULL");
    const tg_mpi_loaded loaded = tg_mpi_find_loaded(); /* before the module loads its own */
    tg_status status = choose(&loaded, &module, error);
    if (status != TG_OK)
        return status;
    const bool is_path = strchr(module, '/') != NULL;
    if (!is_path && strcmp(module, "openmpi") != 0 && strcmp(module, "mpich") != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "invalid module '%.60s': use openmpi, mpich, or a path that contains a slash", module);
    if (!is_path)
        status = check_mpi(&loaded, module, error);
    if (status != TG_OK)
        return status;
    void *handle = is_path ? tg_module_load(module, true, why) : find(module, why);
    if (!handle)
        return tg_fail(error, TG_UNAVAILABLE, "MPI cannot be used: %.180s", why);
    const tg_mpi_module *found = tg_module_symbol(handle, TG_MPI_MODULE);
    if (!found || strcmp(found->version, TG_VERSION_TEXT) != 0)
        status = tg_fail(error, TG_UNAVAILABLE, "the module '%.150s' does not belong to tersegrad %s", module,
                         TG_VERSION_TEXT);
    else
        status = check_mpi(&loaded, found->mpi, error);
    if (!found || status != TG_OK) {
        tg_module_unload(handle);
        return status;
    }
    return found->open(communicator, fragment, transport,
                       error); /* it stays loaded: MPI does not like to be unloaded */
}

tg_status tg_transport_mpi(const char *module, tg_transport **transport, tg_error *error)
{
    return tg_transport_mpi_open(module, NULL, 0, transport, error);
}

tg_status tg_transport_mpi_on(const char *module, const void *communicator, tg_transport **transport, tg_error *error)
{
    if (!communicator)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_mpi_on needs the address of a communicator");
    return tg_transport_mpi_open(module, communicator, 0, transport, error);
}
