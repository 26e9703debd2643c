/* Between the library and the module that is compiled against NCCL: the only symbol that the module shows. The library
 * loads NCCL itself, so that the module can be loaded where NCCL is not. */
#ifndef TG_TRANSPORT_NCCL_MODULE_H
#define TG_TRANSPORT_NCCL_MODULE_H

#include "transport/transport.h"

enum { TG_NCCL_ID = 128 };

/* NCCL, where its functions are looked up. */
typedef struct tg_nccl_library {
    void *handle;
    const void *(*symbol)(void *handle, const char *name);
} tg_nccl_library;

typedef struct tg_nccl_module {
    const char *version; /* TG_VERSION_TEXT of the library that it was built with */
    /* Whether this NCCL and this card can be used; rank 0 makes an id, by which all ranks find each other. */
    tg_status (*prepare)(const tg_nccl_library *library, bool makes_id, uint8_t id[TG_NCCL_ID], tg_error *error);
    /* Joins the others. `over` carries what lies in host memory. */
    tg_status (*join)(const tg_nccl_library *library, const uint8_t id[TG_NCCL_ID], tg_transport *over, void *stream,
                      double timeout, tg_transport **transport, tg_error *error);
} tg_nccl_module;

#define TG_NCCL_MODULE "tg_nccl_module_of_nccl"

#endif
