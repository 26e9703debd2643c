/* Large pages, asked for where the system has such a call; else ordinary ones. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/vector.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { LARGE_PAGE = 1 << 21, LONG = 4 * LARGE_PAGE, LINE = 64 };

/* A vector starts so far behind the start of a page. Other vectors start at a page or close behind it, and a store to one that has the same
 * place in its page as a load from the other makes the load wait. */
enum { OFFSET = 9 * LINE };

void *tg_vector_zeros(size_t bytes)
{
    void *base = NULL;
    if (bytes > SIZE_MAX - OFFSET || posix_memalign(&base, bytes < LONG ? LINE : LARGE_PAGE, bytes + OFFSET) != 0)
        return NULL;
#if defined(MADV_HUGEPAGE)
    if (bytes >= LONG)
        (void)madvise(base, bytes + OFFSET, MADV_HUGEPAGE); /* only a wish */
#endif
    return memset((char *)base + OFFSET, 0, bytes);
}

void tg_vector_free(void *vector)
{
    if (vector)
        free((char *)vector - OFFSET);
}
