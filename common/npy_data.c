/* The elements of a .npy file: byte order, narrowing and widening, in place. See npy.h. */
#include "npy.h"

#include <string.h>

static uint64_t load(const uint8_t *at, unsigned size, bool big_endian)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < size; i++)
        bits = bits << 8 | at[big_endian ? i : size - 1 - i];
    return bits;
}

static bool is_big_endian_machine(void)
{
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 0;
}

float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        /* Zero and subnormals: fraction * 2^-24, which float32 holds exactly. */
        float magnitude = (float)fraction * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* From the back to the front: where elements grow, none is overwritten before it was read. */
static void widen_halves(uint8_t *bytes, const struct npy *npy)
{
    memmove(bytes, bytes + npy->data_offset, (size_t)npy->count * 2);
    for (size_t i = (size_t)npy->count; i-- > 0;) {
        float value = half_to_float((uint16_t)load(bytes + 2 * i, 2, npy->big_endian));
        memcpy(bytes + 4 * i, &value, sizeof value);
    }
}

enum npy_type npy_unpack(uint8_t *bytes, const struct npy *npy, bool widen)
{
    const uint8_t *data = bytes + npy->data_offset;
    size_t count = (size_t)npy->count;
    bool is_native = npy->big_endian == is_big_endian_machine();

    if (npy->type == NPY_F8) {
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = load(data + 8 * i, 8, npy->big_endian);
            double wide;
            memcpy(&wide, &bits, sizeof wide);
            float value = (float)wide;
            memcpy(bytes + 4 * i, &value, sizeof value);
        }
        return NPY_F4;
    }
    if (npy->type == NPY_F2 && widen) {
        widen_halves(bytes, npy);
        return NPY_F4;
    }
    memmove(bytes, data, count * npy->type);
    if (!is_native && npy->type == NPY_F4) {
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)load(bytes + 4 * i, 4, npy->big_endian);
            memcpy(bytes + 4 * i, &bits, sizeof bits);
        }
    } else if (!is_native) {
        for (size_t i = 0; i < count; i++) {
            uint16_t bits = (uint16_t)load(bytes + 2 * i, 2, npy->big_endian);
            memcpy(bytes + 2 * i, &bits, sizeof bits);
        }
    }
    return npy->type;
}

/* Whether float32 has the number: whether its digits fit. */
static bool has_float(uint64_t magnitude)
{
    while (magnitude > UINT32_C(1) << 24 && magnitude % 2 == 0)
        magnitude /= 2;
    return magnitude <= UINT32_C(1) << 24;
}

bool npy_integers(const uint8_t *bytes, const struct npy *npy, float *values, uint64_t *where)
{
    const uint8_t *data = bytes + npy->data_offset;
    const uint64_t sign = UINT64_C(0x80) << 8 * (npy->size - 1);
    for (uint64_t i = 0; i < npy->count; i++) {
        const uint64_t bits = load(data + i * npy->size, npy->size, npy->big_endian);
        const bool is_negative = npy->is_signed && (bits & sign) != 0;
        const uint64_t magnitude = is_negative ? (sign << 1) - bits : bits;
        *where = i;
        if (!has_float(magnitude))
            return false;
        values[i] = is_negative ? -(float)magnitude : (float)magnitude;
    }
    return true;
}

void npy_pack(void *values, uint64_t count, enum npy_type type)
{
    if (!is_big_endian_machine())
        return;
    uint8_t *bytes = values;
    for (uint64_t i = 0; i < count; i++, bytes += type) {
        for (unsigned j = 0; j < (unsigned)type / 2; j++) {
            uint8_t low = bytes[j];
            bytes[j] = bytes[type - 1 - j];
            bytes[type - 1 - j] = low;
        }
    }
}
