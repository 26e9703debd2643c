/* XXH3 compiled for AVX-512. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/machine.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* On AMD's processors AVX-512 is slower here: a whole fp16 frame takes a tenth longer. */
uint64_t tg_avx512_digest(const uint8_t *bytes, size_t n)
{
    return tg_is_amd() ? tg_avx2_digest(bytes, n) : XXH3_64bits(bytes, n);
}

#endif
