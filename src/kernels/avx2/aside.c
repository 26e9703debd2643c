/* Copying past the caches: such stores need not read what they overwrite, and push nothing out. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

enum { LINE = 64 };

void tg_avx2_set_aside(const void *from, size_t size, void *to)
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

/* Stores past the caches are in no order with others until then. */
void tg_avx2_aside_is_set(void) { _mm_sfence(); }

#endif
