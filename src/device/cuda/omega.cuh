/* Elias omega numbers below 2^32 on the card (docs/format.md, 4.2), and a checked reader of bit streams. */
#ifndef TG_DEVICE_CUDA_OMEGA_CUH
#define TG_DEVICE_CUDA_OMEGA_CUH

#include "device/cuda/runtime.cuh"

__device__ __forceinline__ u32 binary_digits(u32 m) { return 32 - (u32)__clz((int)m); }

__device__ __forceinline__ u32 omega_length(u32 m)
{
    u32 length = 1;
    for (; m > 1; m = binary_digits(m) - 1)
        length += binary_digits(m);
    return length;
}

/* The code of m, first bit lowest: at most 43 bits. */
__device__ __forceinline__ u64 omega_code(u32 m, u32 *length)
{
    u64 code = 0;
    u32 bits = 1;
    while (m > 1) {
        const u32 digits = binary_digits(m);
        code = code << digits | __brev(m) >> (32 - digits);
        bits += digits;
        m = digits - 1;
    }
    *length = bits;
    return code;
}

/* Adds up to 64 bits to words that are zeros there. */
__device__ __forceinline__ void add_bits(u32 *words, u32 at, u64 bits)
{
    const u32 shift = at & 31, low = (u32)bits, high = (u32)(bits >> 32);
    u32 *const word = words + at / 32;
    const u32 middle = __funnelshift_l(low, high, shift), last = shift ? high >> (32 - shift) : 0;
    atomicOr(word, low << shift);
    if (middle)
        atomicOr(word + 1, middle);
    if (last)
        atomicOr(word + 2, last);
}

/* A stream of `size` bits that is read by one thread. Nothing from `end` on is touched; what lies between the stream's
 * end and that is seen by `peek`, but a number that reaches there is refused. */
struct bit_stream {
    const u8 *in, *end;
    u64 size, position;

    /* At least 33 bits. */
    __device__ __forceinline__ u64 peek() const
    {
        const u8 *const at = in + position / 8;
        const u32 *const words = (const u32 *)((uintptr_t)at & ~(uintptr_t)3);
        const u32 skip = 8 * (u32)((uintptr_t)at & 3) + (u32)(position & 7);
        const u32 a = (const u8 *)words < end ? words[0] : 0, b = (const u8 *)(words + 1) < end ? words[1] : 0;
        const u32 c = (const u8 *)(words + 2) < end ? words[2] : 0;
        return ((u64)__funnelshift_r(b, c, skip) << 32 | __funnelshift_r(a, b, skip));
    }
    __device__ __forceinline__ bool skip(u32 bits)
    {
        const bool there = bits <= size - position;
        position = there ? position + bits : size;
        return there;
    }
    /* What is left is fewer than 8 bits, all zeros. */
    __device__ __forceinline__ bool is_done() const
    {
        return size - position < 8 && (position % 8 == 0 || in[position / 8] >> position % 8 == 0);
    }
};

/* False for what does not fit 32 bits: no number of a frame is as large. */
__device__ __forceinline__ bool omega_read(bit_stream &s, u32 *m)
{
    u64 bits = s.peek();
    u32 value = 1, used = 0;
    while (bits & 1) {
        if (value > 31)
            return false;
        const u32 digits = value + 1;
        value = __brev((u32)bits) >> (32 - digits);
        bits >>= digits;
        used += digits;
    }
    *m = value;
    return s.skip(used + 1);
}

#endif
