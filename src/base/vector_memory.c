/* Asks for large pages where the system has such a call; otherwise ordinary ones. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/vector_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { LARGE_PAGE = 1 << 21, LONG = 4 * LARGE_PAGE, LINE = 64, PLACE = 9 * LINE };

void *tg_vector_make(size_t bytes, unsigned place)
{
    const size_t offset = (place + 1) * (size_t)PLACE;
    void *base = NULL;
    bytes += bytes == 0; /* else what is returned would point behind the memory, and count as leaked */
    if (bytes > SIZE_MAX - offset || posix_memalign(&base, bytes < LONG ? LINE : LARGE_PAGE, bytes + offset) != 0)
        return NULL;
#if defined(MADV_HUGEPAGE)
    if (bytes >= LONG)
        (void)madvise(base, bytes + offset, MADV_HUGEPAGE); /* only a hint */
#endif
    char *vector = (char *)base + offset;
    memcpy(vector - sizeof base, &base, sizeof base);
    return vector;
}

void tg_vector_free(void *vector)
{
    void *base;
    if (!vector)
        return;
    memcpy(&base, (char *)vector - sizeof base, sizeof base);
    free(base);
}
