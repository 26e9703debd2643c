/* Memory for long vectors that are streamed through again and again. */
#ifndef TG_BASE_VECTOR_H
#define TG_BASE_VECTOR_H

#include <stddef.h>

/* Aligned to cache lines, and not touched; NULL if there is none. Long ones are on large pages where the system has
 * them: a stream then needs 512 times fewer address translations, which is a tenth of the time of a selection with
 * feedback (docs/log/cpu-kernels.md).
 *
 * Vectors that are streamed through together should have different places, 0 to 3, which are places within a page: a
 * load from one waits for a store to another that has the same place in its page. All are different from where others'
 * vectors tend to start, which is at a page or close behind it. */
void *tg_vector_make(size_t bytes, unsigned place);
void tg_vector_free(void *vector);

#endif
