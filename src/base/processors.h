/* What this machine has to compute with. */
#ifndef TG_BASE_PROCESSORS_H
#define TG_BASE_PROCESSORS_H

#include <stddef.h>

/* Processors that this process may run on; 1 where the system does not say. */
unsigned tg_processors(void);

/* Bytes of the largest cache; 32 MiB where the system does not say. */
size_t tg_largest_cache(void);

#endif
