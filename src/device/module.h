/* Between the library and the module of a kind of card: the only symbol that the module shows. */
#ifndef TG_DEVICE_MODULE_H
#define TG_DEVICE_MODULE_H

#include "device/device.h"

typedef struct tg_device_module {
    const char *version; /* TG_VERSION_TEXT of the library that it was built with */
    size_t layout;       /* TG_DEVICE_LAYOUT */
    /* NULL if a device can be opened; else what is missing: a driver, a card. */
    const char *(*missing)(void);
    tg_status (*open)(const char *name, void *stream, tg_device **device, tg_error *error);
} tg_device_module;

#define TG_CUDA_MODULE "tg_module_of_cuda"

/* Differs where the structs that library and module hand each other differ. */
#define TG_DEVICE_LAYOUT                                                                                         \
    (sizeof(tg_operations) + sizeof(struct tg_device) + 3 * sizeof(tg_encode_job) + 5 * sizeof(tg_check_job) +   \
     7 * sizeof(tg_add_job) + 11 * sizeof(tg_settle_job) + 13 * sizeof(tg_list_job) + 17 * sizeof(tg_load_job) + \
     19 * sizeof(tg_frame_info) + 23 * sizeof(tg_sum_job))

/* Accepts "cuda" and "cuda:N". */
tg_status tg_cuda_open(const char *name, void *stream, tg_device **device, tg_error *error);
/* Whether that can be expected to work here. */
bool tg_cuda_is_present(void);

#endif
