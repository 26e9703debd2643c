/* A device: the kernels that were picked for it. */
#ifndef TG_FRAME_DEVICE_H
#define TG_FRAME_DEVICE_H

#include "codec/codec.h"

struct tg_device {
    const tg_kernels *kernels;
};

#endif
