/* Memory for long vectors that are read and written again and again. */
#ifndef TG_BASE_VECTOR_MEMORY_H
#define TG_BASE_VECTOR_MEMORY_H

#include <stddef.h>

/* Memory that is aligned to cache lines and not touched yet; NULL if there is none. Long vectors are on large pages
 * where the system has them: this needs 512 times fewer address translations, and saves a tenth of the time of a
 * selection with feedback (docs/log/cpu-kernels.md).
 *
 * Vectors that are used together should have different places, 0 to 3. A place is an offset within a page: on many
 * processors a load waits for an earlier store to the same offset of another page. All places differ from where other
 * allocators tend to put vectors, which is at the start of a page or close behind it. */
void *tg_vector_make(size_t bytes, unsigned place);
void tg_vector_free(void *vector);

#endif
