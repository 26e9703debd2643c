/* Little-endian integers and floats on any machine, and the one checked cursor through which every wire integer is
 * read. */
#ifndef TG_BASE_BYTES_H
#define TG_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/any_device.h"

TG_ANY_DEVICE uint16_t tg_load16(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

TG_ANY_DEVICE uint32_t tg_load32(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

TG_ANY_DEVICE uint64_t tg_load64(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint64_t)tg_load32(b) | (uint64_t)tg_load32(b + 4) << 32;
}

TG_ANY_DEVICE void tg_store16(void *p, uint16_t v)
{
    uint8_t *b = (uint8_t *)p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

TG_ANY_DEVICE void tg_store32(void *p, uint32_t v)
{
    uint8_t *b = (uint8_t *)p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
    b[2] = (uint8_t)(v >> 16);
    b[3] = (uint8_t)(v >> 24);
}

TG_ANY_DEVICE void tg_store64(void *p, uint64_t v)
{
    tg_store32(p, (uint32_t)v);
    tg_store32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

TG_ANY_DEVICE uint32_t tg_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TG_ANY_DEVICE float tg_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TG_ANY_DEVICE float tg_load_float(const void *p) { return tg_bits_float(tg_load32(p)); }
TG_ANY_DEVICE void tg_store_float(void *p, float x) { tg_store32(p, tg_float_bits(x)); }

/* Untrusted bytes that are read in order. Every read is checked; after the first that does not fit, `short_read` stays
 * set, reads return zeros, and takes return NULL. */
typedef struct tg_cursor {
    const uint8_t *at;
    size_t left;
    bool short_read;
} tg_cursor;

static inline tg_cursor tg_cursor_over(const void *data, size_t size)
{
    return (tg_cursor){.at = (const uint8_t *)data, .left = size, .short_read = false};
}

/* A pointer to the next `size` bytes, or NULL. The size is a uint64_t, so that it cannot wrap where size_t has 32
 * bits. */
static inline const uint8_t *tg_cursor_take(tg_cursor *c, uint64_t size)
{
    if (c->short_read || size > c->left) {
        c->short_read = true;
        return NULL;
    }
    const uint8_t *bytes = c->at;
    c->at += (size_t)size;
    c->left -= (size_t)size;
    return bytes;
}

static inline uint8_t tg_cursor_u8(tg_cursor *c)
{
    const uint8_t *p = tg_cursor_take(c, 1);
    return p ? *p : 0;
}

static inline uint16_t tg_cursor_u16(tg_cursor *c)
{
    const uint8_t *p = tg_cursor_take(c, 2);
    return p ? tg_load16(p) : 0;
}

static inline uint32_t tg_cursor_u32(tg_cursor *c)
{
    const uint8_t *p = tg_cursor_take(c, 4);
    return p ? tg_load32(p) : 0;
}

/* The last `size` of the bytes that are left, which are then no longer among them; or NULL. */
static inline const uint8_t *tg_cursor_take_last(tg_cursor *c, uint64_t size)
{
    if (c->short_read || size > c->left) {
        c->short_read = true;
        return NULL;
    }
    c->left -= (size_t)size;
    return c->at + c->left;
}

/* Parts of a payload that are padded to 4: the size with the padding, and writing it. */
static inline uint64_t tg_padded(uint64_t size) { return (size + 3) / 4 * 4; }

static inline uint8_t *tg_pad(uint8_t *part, uint64_t size)
{
    for (uint64_t i = size; i < tg_padded(size); i++)
        part[i] = 0;
    return part + tg_padded(size);
}

/* As tg_cursor_take, for a part that is padded to 4; NULL also where the padding is not zero. */
static inline const uint8_t *tg_cursor_take_padded(tg_cursor *c, uint64_t size)
{
    const uint8_t *part = tg_cursor_take(c, size);
    for (uint64_t i = size; i < tg_padded(size); i++)
        if (tg_cursor_u8(c) != 0)
            part = NULL;
    return c->short_read ? NULL : part;
}

/* Whether two ranges of memory have a byte in common. */
static inline bool tg_overlap(const void *a, size_t a_size, const void *b, size_t b_size)
{
    const uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return a_size > 0 && b_size > 0 && (first < second ? second - first < a_size : first - second < b_size);
}

#endif
