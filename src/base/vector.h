/* Memory for long vectors that are streamed through again and again. */
#ifndef TG_BASE_VECTOR_H
#define TG_BASE_VECTOR_H

#include <stddef.h>

/* Zeroed, and aligned to cache lines; NULL if there is none. Long ones are on large pages where the system has them: a stream then needs
 * 512 times fewer address translations, which is a tenth of the time of a selection with feedback (docs/performance.md). */
void *tg_vector_zeros(size_t bytes);
void tg_vector_free(void *vector);

#endif
