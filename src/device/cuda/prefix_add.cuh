/* The prefix layout (docs/format.md, 4.5), read and added at once: what is behind one step of a warp's streams is whole
 * groups, or half a group, which are added while they are in shared memory. The sums are fetched before. */
#ifndef TG_DEVICE_CUDA_PREFIX_ADD_CUH
#define TG_DEVICE_CUDA_PREFIX_ADD_CUH

#include "device/cuda/addend.cuh"
#include "device/cuda/prefix_decode.cuh"

template <u32 WIDTH, bool FRESH> struct prefix_adding {
    /* Of 256 bytes: groups, or one part of a group; and what a lane has of each, four elements at a time. */
    static constexpr u32 GROUPS = WIDTH == 2 ? 2 : 1, PARTS = WIDTH == 8 ? 2 : 4;
    static constexpr u32 ELEMENTS = 2048 / WIDTH, IN_GROUP = ELEMENTS / GROUPS;
    static constexpr bool FETCHES = !FRESH && GROUPS == 1; /* there are not registers enough for two groups */
    fast_frame frame;
    float weight, scale;
    float *out;

    struct held {
        float4 sum[FETCHES ? PREFIX_TOGETHER : 1][PARTS];
        float radius[PREFIX_TOGETHER][GROUPS];
    };

    /* Whether the whole group is there, of which this is an element. */
    static __device__ __forceinline__ bool is_whole(const prefix_reading &p, u64 first)
    {
        return (first | (TG_GROUP - 1)) < p.count;
    }

    __device__ __forceinline__ float4 fetch_part(u64 first, u32 part) const
    {
        return __ldcs((const float4 *)(out + first + 128 * part + 4 * lane_id()));
    }

    __device__ __forceinline__ void fetch(const prefix_reading &p, u64 at, u64 apart, held *h) const
    {
#pragma unroll
        for (u32 i = 0; i < PREFIX_TOGETHER; i++)
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                const u64 first = (at + i * apart) * (8 / WIDTH) + g * IN_GROUP;
                h->radius[i][g] = first < p.count ? __ldg(frame.scales + first / TG_GROUP) : 0;
#pragma unroll
                for (u32 part = 0; FETCHES && part < PARTS; part++)
                    if (is_whole(p, first))
                        h->sum[i][part] = fetch_part(first, part);
            }
    }

    __device__ __forceinline__ float sum_of(float before, float value) const
    {
        const float sum = FRESH ? value : before + value;
        return scale != 1 ? scale * sum : sum;
    }

    /* Lane t has elements 128 r + 4 t to + 3: row 8 r + t / 4 of the packed lanes 4 (t % 4) to + 3. */
    __device__ __forceinline__ void put_group(u64 first, const u32 *words, const tg_quantiser &q,
                                              const float4 *sums) const
    {
        const u32 t = lane_id();
#pragma unroll
        for (u32 r = 0; r < PARTS; r++) {
            const u32 bit = (8 * r + t / 4) * WIDTH;
            const uint4 w = *(const uint4 *)(words + TG_LANES * (bit / 32) + 4 * (t % 4));
            const u32 word[4] = {w.x, w.y, w.z, w.w};
            float4 sum = FETCHES ? sums[r] : FRESH ? float4{} : fetch_part(first, r);
            float *s = (float *)&sum;
#pragma unroll
            for (u32 c = 0; c < 4; c++)
                s[c] = sum_of(s[c], addend(frame, q, weight, word[c] >> (bit % 32) & ((1u << WIDTH) - 1)));
            __stcs((float4 *)(out + first + 128 * r + 4 * t), sum);
        }
    }

    /* The rest of a vector, as far as it is in these bytes: a plain bit stream. */
    __device__ __forceinline__ void put_rest(const prefix_reading &p, u64 first, const u8 *bytes,
                                             const tg_quantiser &q) const
    {
        for (u32 i = lane_id(); i < IN_GROUP && first + i < p.count; i += 32) {
            const u32 code = bytes[i * WIDTH / 8] >> (i * WIDTH % 8) & ((1u << WIDTH) - 1);
            const float before = FRESH ? 0 : out[first + i];
            out[first + i] = sum_of(before, addend(frame, q, weight, code));
        }
    }

    __device__ __forceinline__ void put(const prefix_reading &p, u64 at, u64 apart, const held &h,
                                        const u8 (*stage)[PREFIX_STAGE]) const
    {
        bool sound = true;
#pragma unroll
        for (u32 i = 0; i < PREFIX_TOGETHER; i++)
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                const u64 first = (at + i * apart) * (8 / WIDTH) + g * IN_GROUP;
                const float radius = h.radius[i][g];
                const tg_quantiser q = tg_quantiser_from(frame.levels, 0, radius, false);
                const u8 *bytes = stage[i] + g * (IN_GROUP * WIDTH / 8);
                if (first >= p.count)
                    continue;
                if (tg_float_bits(radius) >= TG_INFINITY_BITS)
                    sound = false;
                else if (is_whole(p, first))
                    put_group(first, (const u32 *)bytes, q, h.sum[FETCHES ? i : 0]);
                else
                    put_rest(p, first, bytes, q);
            }
        if (!sound && lane_id() == 0)
            atomicOr(p.bad, 1u);
    }
};

#endif
