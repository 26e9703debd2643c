/* Copying with non-temporal stores, which bypass the caches: they need not read the lines that they overwrite, and
 * evict nothing. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

enum { LINE = 64 };

void tg_avx2_copy_nontemporal(const void *from, size_t size, void *to)
{
    const char *source = from;
    char *target = to;
    size_t done = -(uintptr_t)target % LINE;
    done = done < size ? done : size;
    memcpy(target, source, done);
    for (; done + LINE <= size; done += LINE) {
        const __m256i low = tg_load_bits(source + done), high = tg_load_bits(source + done + LINE / 2);
        _mm256_stream_si256((__m256i *)(void *)(target + done), low);
        _mm256_stream_si256((__m256i *)(void *)(target + done + LINE / 2), high);
    }
    memcpy(target + done, source + done, size - done);
}

/* Until this fence, non-temporal stores are not ordered with other stores. */
void tg_avx2_nontemporal_fence(void) { _mm_sfence(); }

#endif
