/* `nccl`: loads NCCL and the module that is compiled against it, and agrees with the other ranks on whether all of them
 * could. Whatever a rank lacks, all of them hear of it, and none waits for the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/modules.h"
#include "base/status.h"
#include "transport/nccl_module.h"
#include "transport/records.h"

/* What ranks tell each other: how it went, and from rank 0 by which id they find each other. */
typedef struct hello {
    uint32_t status;
    char why[sizeof(tg_error)];
    uint8_t id[TG_NCCL_ID];
} hello;

/* Every rank's hello to every rank. The failure of the lowest becomes that of all. */
static tg_status agree(tg_transport *over, double timeout, tg_status status, const tg_error *why,
                       uint8_t id[TG_NCCL_ID], tg_error *error)
{
    const uint32_t world = over->world, rank = over->rank;
    const tg_peers everybody = {NULL, world};
    hello *all = calloc(world, sizeof *all);
    if (!all)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the messages of %u ranks", world);
    hello *own = &all[rank];
    own->status = (uint32_t)status;
    if (status != TG_OK)
        (void)snprintf(own->why, sizeof own->why, "%s", why->message);
    memcpy(own->id, id, TG_NCCL_ID);
    tg_status outcome = tg_records_exchange(over, everybody, everybody, own, sizeof *own, all, timeout, error);
    if (outcome != TG_OK && status != TG_OK) /* its own reason explains more than that others do not answer */
        outcome = tg_fail(error, status, "%s", why->message);
    for (uint32_t peer = 0; outcome == TG_OK && peer < world; peer++) {
        all[peer].why[sizeof all[peer].why - 1] = '\0';
        if (peer == rank && status != TG_OK)
            outcome = tg_fail(error, status, "%s", why->message);
        else if (all[peer].status != TG_OK)
            outcome = tg_fail(error, TG_UNAVAILABLE, "rank %u cannot use NCCL: %.200s", peer, all[peer].why);
    }
    memcpy(id, all[0].id, TG_NCCL_ID);
    free(all);
    return outcome;
}

/* The module and NCCL. They stay loaded if a later step fails: what has used a card cannot be unloaded safely. */
static tg_status load(const char *path, const tg_nccl_module **module, tg_nccl_library *library, tg_error *error)
{
    char why[TG_MODULE_WHY];
    void *handle = tg_module_find("nccl.so", false, why);
    if (!handle)
        return tg_fail(error, TG_UNAVAILABLE, "NCCL cannot be used: %.180s", why);
    *module = tg_module_symbol(handle, TG_NCCL_MODULE);
    tg_status status = TG_OK;
    if (!*module || strcmp((*module)->version, TG_VERSION_TEXT) != 0)
        status = tg_fail(error, TG_UNAVAILABLE, "the module nccl.so does not belong to tersegrad %s", TG_VERSION_TEXT);
    *library = (tg_nccl_library){NULL, tg_module_symbol};
    if (status == TG_OK && !(library->handle = tg_module_load(path ? path : "libnccl.so.2", false, why)))
        status = tg_fail(error, TG_UNAVAILABLE, "there is no NCCL: looked for %.60s: %.120s",
                         path ? path : "libnccl.so.2, loaded or where the system keeps libraries", why);
    if (status != TG_OK)
        tg_module_unload(handle);
    return status;
}

tg_status tg_transport_nccl(const char *library, tg_transport *over, void *stream, double timeout,
                            tg_transport **transport, tg_error *error)
{
    if (!over || !transport)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_nccl: over and transport must not be NULL");
    if (library && !strchr(library, '/'))
        return tg_fail(error, TG_INVALID_ARGUMENT, "invalid library '%.60s': use NULL, or a path that contains a slash",
                       library);
    if (!(timeout >= 0 && timeout <= 1e9))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the timeout %g is out of range: 0 (no limit) to 1e9 seconds",
                       timeout);
    const tg_nccl_module *module = NULL;
    tg_nccl_library found;
    uint8_t id[TG_NCCL_ID] = {0};
    tg_error why = {""};
    tg_transport *made = NULL;
    tg_status status = load(library, &module, &found, &why);
    if (status == TG_OK)
        status = module->prepare(&found, over->rank == 0, id, &why);
    status = agree(over, timeout, status, &why, id, error);
    if (status != TG_OK)
        return status;
    status = module->join(&found, id, over, stream, timeout, &made, &why);
    /* A rank that could not join is here at once; the others try until their time is over, and then come. */
    status = agree(over, 2 * timeout, status, &why, id, error);
    if (status != TG_OK)
        tg_transport_free(made);
    else
        *transport = made;
    return status == TG_OK ? tg_succeed(error) : status;
}
