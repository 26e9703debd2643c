/* A device: the kernels that were picked for it, and its threads. */
#ifndef TG_FRAME_DEVICE_H
#define TG_FRAME_DEVICE_H

#include "base/pool.h"
#include "codec/codec.h"

struct tg_device {
    const tg_kernels *kernels;
    tg_pool *pool; /* NULL for one thread */
    size_t cache;  /* bytes: what is larger does not stay in it */
    char name[48]; /* as tg_device_open takes it */
};

#endif
