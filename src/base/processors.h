/* The processors and caches of this machine. */
#ifndef TG_BASE_PROCESSORS_H
#define TG_BASE_PROCESSORS_H

#include <stddef.h>

/* Processors that this process may run on; 1 where the system does not tell. */
unsigned tg_processors(void);

/* Bytes of the largest cache; 32 MiB where the system does not tell. */
size_t tg_largest_cache(void);

#endif
