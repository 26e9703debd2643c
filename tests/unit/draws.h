/* What the tests of the coders share: random numbers that are the same everywhere, damage done to streams with them,
 * and fingerprints of bytes that must never change. */
#ifndef TG_TESTS_UNIT_DRAWS_H
#define TG_TESTS_UNIT_DRAWS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 */
static inline uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline size_t draw_below(uint64_t *seed, size_t limit) { return (size_t)(draw(seed) % limit); }

/* In [0, 1). */
static inline double draw_unit(uint64_t *seed) { return (double)(draw(seed) >> 11) / 9007199254740992.0; }

/* A copy with nothing around it, so that the sanitizers see the first byte read outside. */
static inline uint8_t *exact_copy(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

/* A damaged copy: one to four flipped bits, new bytes, cuts or additions. *size is updated; free the result. */
static inline uint8_t *damaged_copy(const uint8_t *bytes, size_t *size, uint64_t *seed)
{
    enum { ADDED = 16 };
    uint8_t *work = malloc(*size + ADDED);
    memcpy(work, bytes, *size);
    const size_t room = *size + ADDED;
    for (size_t times = 1 + draw_below(seed, 4); times > 0; times--) {
        switch (*size == 0 ? 3 : draw_below(seed, 4)) {
        case 0: {
            uint8_t *at = work + draw_below(seed, *size);
            *at = (uint8_t)(*at ^ 1u << draw_below(seed, 8));
            break;
        }
        case 1:
            work[draw_below(seed, *size)] = (uint8_t)(draw_below(seed, 3) == 0 ? 0xff : draw(seed));
            break;
        case 2:
            *size -= draw_below(seed, 4) < *size ? draw_below(seed, 2) : 0;
            break;
        default:
            if (*size < room)
                work[(*size)++] = (uint8_t)draw(seed);
        }
    }
    uint8_t *copy = exact_copy(work, *size);
    free(work);
    return copy;
}

/* FNV-1a over 64 bits. */
static inline uint64_t fingerprint(const uint8_t *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
