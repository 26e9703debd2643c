/* XXH3 compiled for AVX2. */
#include "kernels/avx2/avx2.h"

#if defined(__AVX2__)

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t tg_avx2_digest(const uint8_t *bytes, size_t n) { return XXH3_64bits(bytes, n); }

#endif
