/* A group of 512 elements whose codes have 2, 4 or 8 bits, shared out so that a lane has whole words of the packed
 * layout (docs/format.md, 4.1), one behind the other, with all of their codes. Nothing is exchanged to pack or to
 * unpack them, and both elements that share a hash are in the same lane. */
#ifndef TG_DEVICE_CUDA_LEVELS_CUH
#define TG_DEVICE_CUDA_LEVELS_CUH

#include "device/cuda/runtime.cuh"

extern "C" {
#include "kernels/quantiser.h"
}

/* Lane t has word number `word` of the packed lanes from `lane` on, ACROSS of them, with DOWN codes each: element (i,
 * c) is in row DOWN * word + i of the packed lane lane + c. Rows of a lane are TG_LANES elements apart. */
template <u32 WIDTH> struct level_lane {
    static constexpr u32 ACROSS = WIDTH / 2, DOWN = 32 / WIDTH, WIDE = TG_LANES / ACROSS;
    u32 word, lane;
    __device__ __forceinline__ explicit level_lane(u32 t) : word(t / WIDE), lane(ACROSS * (t % WIDE)) {}
    /* Of the lane's element (i, c), within the group. */
    __device__ __forceinline__ u32 place(u32 i, u32 c) const { return TG_LANES * (DOWN * word + i) + lane + c; }
    /* Of its first word. */
    __device__ __forceinline__ u32 word_place() const { return TG_LANES * word + lane; }
    /* f(i, c) for all elements of a lane. */
    template <class F> static __device__ __forceinline__ void each(F f)
    {
#pragma unroll
        for (u32 i = 0; i < DOWN; i++)
#pragma unroll
            for (u32 c = 0; c < ACROSS; c++)
                f(i, c);
    }
};

/* N floats that lie side by side, on 4 N bytes. */
template <u32 N> struct side_by_side;
template <> struct side_by_side<1> {
    typedef float type;
};
template <> struct side_by_side<2> {
    typedef float2 type;
};
template <> struct side_by_side<4> {
    typedef float4 type;
};

/* N words or floats. No hints: where some lines are to leave the cache first and others are not, as with the vectors
 * that are streamed and the codes between them, a card writes more slowly than where it is told nothing
 * (docs/log/cuda.md). */
template <u32 N> __device__ __forceinline__ void load_side_by_side(const void *from, void *to)
{
    const typename side_by_side<N>::type x = *(const typename side_by_side<N>::type *)from;
    memcpy(to, &x, sizeof x);
}

template <u32 N> __device__ __forceinline__ void store_side_by_side(void *to, const void *from)
{
    typename side_by_side<N>::type x;
    memcpy(&x, from, sizeof x);
    *(typename side_by_side<N>::type *)to = x;
}

/* Whether rows can be read and written ACROSS elements at a time. */
static inline bool has_aligned_rows(const void *vector, u32 width) { return (uintptr_t)vector % (2 * width) == 0; }

/* A lane's elements, (i, c) at [i][c], of the group that begins at `vector`. WHOLE: all of it exists, and rows are
 * aligned; else n elements do, and the others are 0. */
template <u32 WIDTH, bool WHOLE>
__device__ __forceinline__ void read_rows(const float *vector, u32 n, float (&x)[32 / WIDTH][WIDTH / 2])
{
    const level_lane<WIDTH> l(lane_id());
    if constexpr (WHOLE) {
#pragma unroll
        for (u32 i = 0; i < l.DOWN; i++)
            load_side_by_side<WIDTH / 2>(vector + l.place(i, 0), x[i]);
    } else {
        level_lane<WIDTH>::each([&](u32 i, u32 c) { x[i][c] = l.place(i, c) < n ? vector[l.place(i, c)] : 0; });
    }
}

template <u32 WIDTH, bool WHOLE>
__device__ __forceinline__ void write_rows(float *vector, u32 n, const float (&x)[32 / WIDTH][WIDTH / 2])
{
    const level_lane<WIDTH> l(lane_id());
    if constexpr (WHOLE) {
#pragma unroll
        for (u32 i = 0; i < l.DOWN; i++)
            store_side_by_side<WIDTH / 2>(vector + l.place(i, 0), x[i]);
    } else {
        level_lane<WIDTH>::each([&](u32 i, u32 c) {
            if (l.place(i, c) < n)
                vector[l.place(i, c)] = x[i][c];
        });
    }
}

/* Within -bound and bound, where a zero keeps its sign. */
__device__ __forceinline__ float limited(float x, float bound)
{
#if defined(__CUDA_ARCH__)
    return fmaxf(fminf(x, bound), -bound); /* -0 is less than +0 here */
#else
    return tg_limit_to(x, bound);
#endif
}

/* A code, which is in the lower bits of a word that has 0x4B000000 above it, less the levels: without converting. */
__device__ __forceinline__ float level_of(u32 word, float zero) { return __uint_as_float(word) - zero; }
__device__ __forceinline__ float zero_of(u32 levels) { return 8388608.0f + (float)levels; }

#endif
