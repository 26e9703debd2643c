/* Index streams, Rice block by Rice block (docs/format.md, 6): a warp takes a block of up to 256 gaps, however many of
 * them a segment has. sparse_streams.cuh has the kernel that writes those of a whole vector. */
#ifndef TG_DEVICE_CUDA_SPARSE_WRITE_CUH
#define TG_DEVICE_CUDA_SPARSE_WRITE_CUH

#include "device/cuda/sparse_code.cuh"
#include "device/cuda/sparse_gather.cuh"

/* Words of a block's bits: 256 omega codes of at most 43 bits are the longest. */
constexpr u32 IMAGE_WORDS = 352;

/* What is known of a Rice block: its parameter, the bits of its quotients (at most 768) and of its omega codes. */
__device__ __forceinline__ u32 block_info(u32 parameter, u32 quotients, u32 omega)
{
    return parameter | quotients << 5 | omega << 16;
}
__device__ __forceinline__ u32 info_parameter(u32 info) { return info & 31; }
__device__ __forceinline__ u32 info_quotients(u32 info) { return info >> 5 & 2047; }
__device__ __forceinline__ u32 info_omega(u32 info) { return info >> 16; }

/* A warp's block. */
struct rice_block {
    u32 origin, length; /* of the segment: its first element and its elements */
    u32 m, blocks;      /* likewise: selected elements, and Rice blocks */
    u32 b, r;           /* which block this is, and its gaps */
    u32 first;          /* its first selected element, of all */
};

/* What comes before a block in its segment, and what is known of it. */
struct block_place {
    u8 *stream;           /* of the segment */
    u32 low, low_all;     /* bytes of low bits before this block, and of the whole segment */
    u32 quotients, omega; /* bits before it */
    u32 info, previous;   /* block_info, and that of the block before; b > 0 */
};

/* Eight consecutive gaps for each lane; 0 past the end. */
__device__ __forceinline__ void load_gaps(const writing &w, const rice_block &block, u32 gaps[EACH_GAP])
{
    const u32 lane = threadIdx.x & 31, *at = w.s.indices + block.first + EACH_GAP * lane;
    u32 before = block.origin - 1;
    if (EACH_GAP * lane < block.r && (block.b > 0 || lane > 0))
        before = at[-1];
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++) {
        const bool in = EACH_GAP * lane + q < block.r;
        const u32 index = in ? at[q] : 0;
        gaps[q] = in ? index - before - 1 : 0;
        before = index;
    }
}

/* ---- weighing ---- */

__device__ __forceinline__ u32 omega_length(u32 m)
{
    return 32 - __clz((int)m) + (m >= 2) + 2 * (m >= 4) + 3 * (m >= 16) + (m >= 256) + 4 * (m >= 65536);
}

__device__ __forceinline__ u32 sum_of_quotients(const u32 gaps[EACH_GAP], u32 parameter)
{
    u32 sum = 0;
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++)
        sum += gaps[q] >> parameter;
    return warp_sum(sum);
}

/* tg_rice_choose: the lowest parameter of those that give the fewest bits. *quotients: the sum of quotients then. */
__device__ __forceinline__ u32 choose_parameter(const u32 gaps[EACH_GAP], u32 r, u32 *quotients)
{
    const u32 mean = sum_of_quotients(gaps, 0) / r;
    u32 parameter = mean < 2 ? 0 : min(31 - (u32)__clz((int)mean), (u32)PARAMETER_MOST);
    u32 sum = sum_of_quotients(gaps, parameter);
    bool lowered = false;
    for (; parameter > 0; parameter--) {
        const u32 below = sum_of_quotients(gaps, parameter - 1);
        if (below > sum + r)
            break;
        sum = below;
        lowered = true;
    }
    for (; !lowered && parameter < PARAMETER_MOST; parameter++) {
        const u32 above = sum_of_quotients(gaps, parameter + 1);
        if (above + r >= sum)
            break;
        sum = above;
    }
    *quotients = sum;
    return parameter;
}

/* What a warp's block comes to: block_info. */
__device__ __forceinline__ u32 weigh_block(const u32 gaps[EACH_GAP], u32 r)
{
    u32 quotients, omega = 0;
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++)
        omega += EACH_GAP * lane_id() + q < r ? omega_length(gaps[q] + 1) : 0;
    omega = warp_sum(omega);
    const u32 parameter = choose_parameter(gaps, r, &quotients);
    return block_info(parameter, quotients + r, omega);
}

/* The sums of some blocks: bytes of low bits, bits of quotients, bits of omega codes. */
struct block_sums {
    u32 low, quotients, omega;
};

/* The mode and the bytes of a segment of m selected elements. */
__device__ __forceinline__ uint2 choose_mode(u32 m, u32 length, const block_sums &sums)
{
    const u32 rice = (m + RICE_BLOCK - 1) / RICE_BLOCK + sums.low + (sums.quotients + 7) / 8,
              elias = elias_table(m) + (sums.omega + 7) / 8, bitmap = (length - 1) / 8 + 1;
    if (m == 0)
        return make_uint2(MODE_RICE, 0);
    if (rice <= elias && rice <= bitmap)
        return make_uint2(MODE_RICE, rice);
    return elias <= bitmap ? make_uint2(MODE_ELIAS, elias) : make_uint2(MODE_BITMAP, bitmap);
}

/* ---- writing ---- */

__device__ __forceinline__ void or_bits(u32 *image, u32 bit, u32 value)
{
    const u32 word = bit >> 5, shift = bit & 31;
    if (value << shift)
        atomicOr(&image[word], value << shift);
    if (shift && value >> (32 - shift))
        atomicOr(&image[word + 1], value >> (32 - shift));
}

/* Bytes of a warp's image to anywhere: in words where the place has them. One word more than that is read. */
__device__ __forceinline__ void copy_image(u8 *to, const u32 *image, u32 bytes)
{
    const u32 lane = threadIdx.x & 31, head = min((u32)(-(intptr_t)to & 3), bytes), words = (bytes - head) / 4;
    for (u32 i = lane; i < words; i += 32)
        ((u32 *)(to + head))[i] = __funnelshift_r(image[i], image[i + 1], 8 * head);
    if (lane < head)
        to[lane] = (u8)(image[0] >> (8 * lane));
    const u32 i = head + 4 * words + lane;
    if (i < bytes)
        to[i] = (u8)(image[i / 4] >> (8 * (i & 3)));
}

__device__ __forceinline__ void clear_image(u32 *image, u32 words)
{
    __syncwarp();
    for (u32 i = threadIdx.x & 31; i < words; i += 32)
        image[i] = 0;
    __syncwarp();
}

/* The gap of the selected element at a place, which is not the first of its segment. */
__device__ __forceinline__ u32 gap_at(const writing &w, u32 place)
{
    return w.s.indices[place] - w.s.indices[place - 1] - 1;
}

/* A byte that two blocks share is written by the second, which needs the last bits of the first: those of at most 7 of
 * its 256 gaps. */
__device__ __forceinline__ u32 last_quotient_bits(const writing &w, const rice_block &block, u32 parameter, u32 bits)
{
    u32 tail = 0;
    int at = (int)bits - 1;
    for (u32 place = block.first - 1; at >= 0; place--) {
        tail |= 1u << at;
        const u32 quotient = gap_at(w, place) >> parameter;
        at -= quotient < 8 ? (int)quotient + 1 : 8;
    }
    return tail;
}

/* The omega code of m, first bit lowest; m < 2^31. */
__device__ __forceinline__ u64 omega_code(u32 m, u32 *length)
{
    u64 code = 0;
    u32 bits = 1;
    while (m > 1) {
        const u32 digits = 32 - (u32)__clz((int)m);
        code = code << digits | __brev(m) >> (32 - digits);
        bits += digits;
        m = digits - 1;
    }
    *length = bits;
    return code;
}

__device__ __forceinline__ u32 last_omega_bits(const writing &w, const rice_block &block, u32 bits)
{
    u64 tail = 0;
    int at = (int)bits;
    for (u32 place = block.first - 1; at > 0; place--) {
        u32 length;
        const u64 code = omega_code(gap_at(w, place) + 1, &length);
        at -= (int)length;
        tail |= at >= 0 ? code << at : code >> -at;
    }
    return (u32)tail & ((1u << bits) - 1);
}

/* The image of a bit stream from its bit `at` on, of which this block has `bits`: its whole bytes, and the last one if
 * no block follows. */
__device__ __forceinline__ void copy_bits(const rice_block &block, u8 *stream, u32 at, u32 bits, const u32 *image)
{
    const bool ends = block.b == block.blocks - 1;
    __syncwarp();
    copy_image(stream + at / 8, image, (at + bits + (ends ? 7 : 0)) / 8 - at / 8);
}

/* The low bits of a whole block: word k of lane l. */
__device__ __forceinline__ void pack_lanes(const u32 *gaps, u32 parameter, u32 *image)
{
    const u32 mask = (1u << parameter) - 1;
    for (u32 i = threadIdx.x & 31; i < 8 * parameter; i += 32) {
        const u32 k = i >> 3, l = i & 7;
        u32 word = 0;
        for (u32 row = 32 * k / parameter; row * parameter < 32 * k + 32 && row < 32; row++) {
            const u32 low = gaps[9 * row + l] & mask;
            const int shift = (int)(row * parameter) - (int)(32 * k);
            word |= shift >= 0 ? low << shift : low >> -shift;
        }
        image[i] = word;
    }
}

struct write_shared {
    u32 gaps[RICE_BLOCK / 8 * 9]; /* a place is left free after every eight */
    u32 image[IMAGE_WORDS + 2];
};

/* Of a block's image in mode Rice: low bits first, and from here on the quotients. One word more than there are bits is
 * read of each. */
constexpr u32 QUOTIENTS_AT = 8 * PARAMETER_MOST + 2, RICE_IMAGE = QUOTIENTS_AT + 3 * RICE_BLOCK / 32 + 3;
static_assert(RICE_IMAGE <= IMAGE_WORDS + 2, "both fit");

/* Low bits and quotients of a block, before it is known where they go. */
__device__ __forceinline__ void make_rice(const writing &w, const rice_block &block, const block_place &place,
                                          const u32 gaps[EACH_GAP], write_shared *here)
{
    const u32 lane = lane_id(), parameter = info_parameter(place.info), shared = place.quotients & 7;
    u32 *quotients = here->image + QUOTIENTS_AT, sum = 0;
    clear_image(here->image, RICE_IMAGE);
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++) {
        here->gaps[9 * lane + q] = gaps[q];
        sum += gaps[q] >> parameter;
    }
    __syncwarp();
    if (block.r == RICE_BLOCK)
        pack_lanes(here->gaps, parameter, here->image);
    else if (parameter)
        for (u32 q = 0; q < EACH_GAP; q++)
            if (EACH_GAP * lane + q < block.r)
                or_bits(here->image, (EACH_GAP * lane + q) * parameter, gaps[q] & ((1u << parameter) - 1));
    u32 at = shared + warp_scan(sum) - sum + EACH_GAP * lane;
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++)
        if (EACH_GAP * lane + q < block.r) {
            at += gaps[q] >> parameter;
            atomicOr(&quotients[at >> 5], 1u << (at & 31));
            at++;
        }
    if (lane == 0 && shared && block.b > 0)
        atomicOr(&quotients[0], last_quotient_bits(w, block, info_parameter(place.previous), shared));
}

__device__ __forceinline__ void put_rice(const rice_block &block, const block_place &place, write_shared *here)
{
    const u32 parameter = info_parameter(place.info);
    if (lane_id() == 0)
        place.stream[block.b] = (u8)parameter;
    __syncwarp();
    copy_image(place.stream + block.blocks + place.low, here->image, low_size(block.r, parameter));
    copy_bits(block, place.stream + block.blocks + place.low_all, place.quotients, info_quotients(place.info),
              here->image + QUOTIENTS_AT);
    __syncwarp();
}

__device__ __forceinline__ void write_elias(const writing &w, const rice_block &block, const block_place &place,
                                            const u32 gaps[EACH_GAP], write_shared *here)
{
    const u32 lane = lane_id(), shared = place.omega & 7;
    u32 sum = 0;
    clear_image(here->image, IMAGE_WORDS + 2);
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++)
        sum += EACH_GAP * lane + q < block.r ? omega_length(gaps[q] + 1) : 0;
    u32 at = shared + warp_scan(sum) - sum;
    for (u32 q = 0; q < EACH_GAP; q++)
        if (EACH_GAP * lane + q < block.r) {
            u32 length;
            const u64 code = omega_code(gaps[q] + 1, &length);
            or_bits(here->image, at, (u32)code);
            if (code >> 32)
                or_bits(here->image, at + 32, (u32)(code >> 32));
            at += length;
        }
    if (lane == 0 && shared && block.b > 0)
        atomicOr(&here->image[0], last_omega_bits(w, block, shared));
    if (lane < 4 && block.b > 0 && block.b % (ELIAS_RUN / RICE_BLOCK) == 0)
        place.stream[block.b - ELIAS_RUN / RICE_BLOCK + lane] = (u8)(place.omega >> (8 * lane));
    copy_bits(block, place.stream + elias_table(block.m), place.omega, info_omega(place.info), here->image);
    __syncwarp();
}

/* The bytes of a bitmap are divided among the segment's warps, and those of a warp among its lanes. */
__device__ __forceinline__ void write_bitmap(const writing &w, const rice_block &block, u8 *stream)
{
    const u32 bytes = (block.length - 1) / 8 + 1, lanes = 32 * block.blocks, lane = 32 * block.b + (threadIdx.x & 31);
    const u32 from = (u32)((u64)bytes * lane / lanes), to = (u32)((u64)bytes * (lane + 1) / lanes);
    const u32 start = block.first - RICE_BLOCK * block.b, end = start + block.m;
    u32 low = start, high = end;
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (w.s.indices[middle] - block.origin < 8 * from)
            low = middle + 1;
        else
            high = middle;
    }
    for (u32 byte = from; byte < to; byte++) {
        u32 bits = 0;
        for (; low < end && (w.s.indices[low] - block.origin) / 8 == byte; low++)
            bits |= 1u << ((w.s.indices[low] - block.origin) & 7);
        stream[byte] = (u8)bits;
    }
}

/* By one thread, when all of it is known. */
__device__ __forceinline__ void report(const writing &w)
{
    const select_control *c = w.s.control;
    w.result->selected = c->selected;
    w.result->limited = c->saturated;
    w.result->dropped = c->dropped;
    w.result->nonfinite = c->nonfinite;
}

__global__ void report_kernel(writing w) { report(w); }

/* ---- the residual, where gathering does not complete it ---- */

/* Residual and momentum of every element, when what is selected is known. */
__global__ void __launch_bounds__(256) commit_kernel(selecting s)
{
    begin(s);
    const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (s.control->nonfinite || i >= s.count)
        return;
    const element e = source_element(s, (u32)i);
    s.from.residual[i] = e.rest;
    if (s.from.momentum)
        s.from.momentum[i] = e.push;
}

/* What was sent is taken off. With alpha unlike beta that may overflow. Of levels it is known only now, also where the
 * rest is u. */
__global__ void __launch_bounds__(256) settle_kernel(writing w)
{
    begin(w.s);
    const select_control *c = w.s.control;
    const u32 place = blockIdx.x * 256 + threadIdx.x;
    if (c->nonfinite || place >= c->selected)
        return;
    const u32 index = w.s.indices[place];
    const bool as_levels = w.values == TG_VALUES_LEVELS && !w.to_list;
    if (as_levels)
        set_count(w.levels, c->selected);
    if (as_levels && w.s.commits) {
        w.s.rest[index] = w.as_they_are[place] - value_at(w.levels, place);
        return;
    }
    const u8 *values = w.payload + c->values_at;
    const tg_dtype dtype = w.values == TG_VALUES_FP32   ? TG_FLOAT32
                           : w.values == TG_VALUES_FP16 ? TG_FLOAT16
                                                        : TG_BFLOAT16;
    const float sent = as_levels       ? value_at(w.levels, place)
                       : w.as_they_are ? w.as_they_are[place]
                                       : element_at(values, dtype, place);
    u32 limited = 0;
    w.s.from.residual[index] = limited_sum(w.s.from.residual[index] - sent, &limited);
    if (limited)
        atomicAdd(&w.s.control->saturated, 1ull);
    if (w.s.from.momentum)
        w.s.from.momentum[index] = 0;
}

#endif
