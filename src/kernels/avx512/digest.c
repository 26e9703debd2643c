/* XXH3 compiled for AVX-512. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#define XXH_INLINE_ALL
#include "xxhash.h"

uint64_t tg_avx512_digest(const uint8_t *bytes, size_t n) { return XXH3_64bits(bytes, n); }

#endif
