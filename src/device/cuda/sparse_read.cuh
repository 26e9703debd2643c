/* Reading a sparse payload: a block takes a segment, checks every rule, and leaves the positions of its elements. */
#ifndef TG_DEVICE_CUDA_SPARSE_READ_CUH
#define TG_DEVICE_CUDA_SPARSE_READ_CUH

#include "device/cuda/frame.cuh"
#include "device/cuda/select.cuh"
#include "device/cuda/sparse_code.cuh"

constexpr u32 READ_THREADS = 512, READ_WARPS = READ_THREADS / 32;

/* What is found in the payload: all zero where it breaks a rule. */
struct sparse_head {
    u32 selected, log, segments;
    u64 value_bytes;
};

struct reading {
    const u8 *payload;
    u64 size;             /* at least 8 */
    const control *known; /* not NULL: its payload is the size, which is no larger */
    u32 count;
    u32 values, value_size;
    dense_frame levels;               /* for the bound; codes, if they are not packed in the payload, are apart */
    bool coded;                       /* they are not */
    u32 selected_most, segments_most; /* what a payload of this size can have */
    sparse_head *head;
    u32 *positions; /* of all elements */
    u32 *zeros, *lows,
        *bases; /* of Rice blocks: zeros before its quotients, place of its low bits, position before it */
    bool looks_at_values;
    control *result;
};

__device__ __forceinline__ void refuse(const reading &r) { atomicOr(&r.result->bad, (u32)BREAKS_RULE); }

/* Four bytes from anywhere; zeros from `end` on. */
__device__ __forceinline__ u32 word_at(const u8 *p, const u8 *end)
{
    if (end - p >= 8) { /* the words that hold them lie before the end */
        const u32 *w = (const u32 *)((uintptr_t)p & ~(uintptr_t)3);
        return __funnelshift_r(__ldg(w), __ldg(w + 1), 8 * (u32)((uintptr_t)p & 3));
    }
    u32 word = 0;
    for (u32 i = 0; i < 4 && p + i < end; i++)
        word |= (u32)p[i] << (8 * i);
    return word;
}

/* ---- the directory ---- */

__device__ __forceinline__ u32 segment_length(const reading &r, u32 log, u32 segment)
{
    return min(1u << log, r.count - (segment << log));
}

/* False where the first words cannot be right: then nothing else is read. */
__device__ __forceinline__ bool read_head(const reading &r, sparse_head *head)
{
    head->selected = ((const u32 *)r.payload)[0];
    head->log = ((const u32 *)r.payload)[1];
    if (head->log < 12 || head->log > 30 || head->selected > r.count)
        return false;
    head->segments = r.count ? ((r.count - 1) >> head->log) + 1 : 0;
    return 8 * (u64)head->segments + (u64)r.value_size * head->selected <= r.size - 8;
}

/* Of the levels in the payload: where they are. */
__device__ __forceinline__ dense_frame levels_of(const reading &r, const sparse_head &head)
{
    dense_frame f = r.levels;
    u8 *const values = (u8 *)(uintptr_t)r.payload + 8 + 8 * (u64)head.segments;
    set_count(f, head.selected);
    f.codes = r.coded ? f.codes : values;
    f.scales = r.coded ? values : values + codes_size(f);
    return f;
}

/* What comes before a segment. */
struct directory_sums {
    u64 listed, bytes;
};

struct read_shared {
    u32 part[33];
    u32 bad;
    directory_sums sums;
};

/* Adds the entries of segments `from` to `to`, by a block; returns false where one of them cannot be right. */
__device__ __forceinline__ bool add_entries(const reading &r, const sparse_head &head, u32 from, u32 to,
                                            read_shared *here)
{
    const u32 *entries = (const u32 *)(r.payload + 8);
    u64 listed = 0, bytes = 0;
    bool sound = true;
    for (u32 segment = from + threadIdx.x; segment < to; segment += READ_THREADS) {
        const u32 m = entries[2 * segment], stream = entries[2 * segment + 1];
        sound = sound && m <= segment_length(r, head.log, segment) && (m > 0 || stream == 0) && stream >> 30 != 3;
        listed += m;
        bytes += stream & 0x3fffffff;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        listed += __shfl_xor_sync(FULL, listed, d);
        bytes += __shfl_xor_sync(FULL, bytes, d);
    }
    if (lane_id() == 0 && listed + bytes > 0) {
        atomicAdd((unsigned long long *)&here->sums.listed, (unsigned long long)listed);
        atomicAdd((unsigned long long *)&here->sums.bytes, (unsigned long long)bytes);
    }
    return sound;
}

/* The bytes of the values, by a block; false where they cannot be right. Where levels end follows from the sizes of all
 * streams. */
__device__ __forceinline__ bool find_values(const reading &r, sparse_head *head, read_shared *here)
{
    head->value_bytes = (u64)head->selected * r.value_size;
    if (r.values != TG_VALUES_LEVELS)
        return true;
    const u64 behind = r.size - 8 - 8 * (u64)head->segments;
    const bool sound = add_entries(r, *head, 0, head->segments, here);
    __syncthreads();
    const u64 streams = here->sums.bytes;
    __syncthreads();
    if (threadIdx.x == 0)
        here->sums = {0, 0};
    const dense_frame f = levels_of(r, *head);
    const u64 scales = 4 * scale_words(f);
    head->value_bytes = streams <= behind ? behind - streams : 0;
    return sound && streams <= behind && head->selected <= r.selected_most && /* positions have room for no more */
           (r.coded ? head->value_bytes >= scales : head->value_bytes == scales + codes_size(f));
}

/* ---- streams ---- */

/* A segment and its stream. */
struct open_segment {
    u32 m, start, length, size;
    u32 slot; /* of its first Rice block */
    const u8 *stream, *end;
};

/* Whether a rule has been broken: the same answer for all threads. */
__device__ __forceinline__ bool is_broken(read_shared *here)
{
    __syncthreads();
    const bool bad = here->bad;
    __syncthreads();
    return bad;
}

/* Parameters, and where the low bits of each Rice block are; returns where the quotients start, or more than `size`. */
__device__ __forceinline__ u32 read_parameters(const reading &r, const open_segment &s, u32 blocks, read_shared *here)
{
    u64 before = blocks;
    for (u32 first = 0; first < blocks; first += READ_THREADS) {
        const u32 b = first + threadIdx.x;
        u32 low = 0, all;
        if (b < blocks) {
            const u32 gaps = min(s.m - RICE_BLOCK * b, (u32)RICE_BLOCK), parameter = s.stream[b];
            if (parameter > PARAMETER_MOST)
                here->bad = 1;
            low = low_size(gaps, min(parameter, (u32)PARAMETER_MOST));
        }
        const u32 at = block_scan(low, here->part, &all);
        if (b < blocks)
            r.lows[s.slot + b] = (u32)(before + at < s.size ? before + at : s.size);
        before += all;
    }
    return before <= s.size ? (u32)before : s.size + 1;
}

/* Zeros before each one of the quotients, to the place of its position. */
__device__ __forceinline__ void read_ones(const reading &r, const open_segment &s, u32 quotients, read_shared *here)
{
    const u32 bytes = s.size - quotients;
    u32 ones = 0;
    for (u32 first = 0; first < bytes; first += 4 * READ_THREADS) {
        const u32 at = first + 4 * threadIdx.x, left = at < bytes ? bytes - at : 0;
        u32 word = left ? word_at(s.stream + quotients + at, s.end) : 0, total;
        u32 j = ones + block_scan((u32)__popc(word), here->part, &total);
        for (; word && j < s.m; word &= word - 1, j++) {
            const u32 bit = 8 * at + (u32)__ffs((int)word) - 1;
            r.positions[s.start + j] = bit - j;
            if (j == s.m - 1 && bit + 8 < 8 * bytes) /* more padding than there may be */
                here->bad = 1;
        }
        ones += total;
    }
    if (ones != s.m)
        here->bad = 1;
}

__device__ __forceinline__ u32 low_bits(const u8 *from, const u8 *end, u32 gaps, u32 parameter, u32 j)
{
    u32 v;
    if (gaps == RICE_BLOCK) {
        const u32 bit = (j >> 3) * parameter, word = bit >> 5, shift = bit & 31;
        v = word_at(from + 4 * (8 * word + (j & 7)), end) >> shift;
        if (shift + parameter > 32)
            v |= word_at(from + 4 * (8 * (word + 1) + (j & 7)), end) << (32 - shift);
    } else {
        const u32 bit = j * parameter;
        v = word_at(from + (bit >> 3), end) >> (bit & 7);
        if ((bit & 7) + parameter > 32)
            v |= (u32)from[(bit >> 3) + 4] << (32 - (bit & 7));
    }
    return v & ((1u << parameter) - 1);
}

/* What a lane has of a Rice block: the low bits of eight consecutive gaps, and their sum. */
struct low_eight {
    u32 of[EACH_GAP], sum;
};

__device__ __forceinline__ low_eight read_low(const u8 *from, const u8 *end, u32 gaps, u32 parameter)
{
    low_eight low;
    low.sum = 0;
#pragma unroll
    for (u32 q = 0; q < EACH_GAP; q++) {
        const u32 j = EACH_GAP * lane_id() + q;
        low.of[q] = j < gaps && parameter ? low_bits(from, end, gaps, parameter, j) : 0;
        low.sum += low.of[q];
    }
    return low;
}

__device__ __forceinline__ bool short_block_is_padded(const u8 *from, u32 gaps, u32 parameter)
{
    const u32 used = gaps * parameter % 8;
    return gaps == RICE_BLOCK || used == 0 || from[low_size(gaps, parameter) - 1] >> used == 0;
}

/* How far each Rice block goes, to `bases`; and the zeros before it. A warp for each. */
__device__ __forceinline__ void read_spans(const reading &r, const open_segment &s, u32 blocks, read_shared *here)
{
    for (u32 b = threadIdx.x >> 5; b < blocks; b += READ_WARPS) {
        const u32 gaps = min(s.m - RICE_BLOCK * b, (u32)RICE_BLOCK), parameter = s.stream[b];
        const u8 *from = s.stream + r.lows[s.slot + b];
        const u32 sum = warp_sum(read_low(from, s.end, gaps, parameter).sum); /* of 256 below 2^30: may wrap */
        if (lane_id() == 0) {
            const u32 *zeros = r.positions + s.start + RICE_BLOCK * b, before = b ? zeros[-1] : 0;
            const u64 quotients = (u64)(zeros[gaps - 1] - before) << parameter;
            const bool fits = quotients <= s.length && sum <= s.length && quotients + sum + gaps <= s.length;
            if (!fits || !short_block_is_padded(from, gaps, parameter))
                here->bad = 1;
            r.zeros[s.slot + b] = before;
            r.bases[s.slot + b] = fits ? (u32)quotients + sum + gaps : 0;
        }
    }
}

/* The position that each Rice block starts from: the sum of those before. By warp 0. */
__device__ __forceinline__ void read_bases(const reading &r, const open_segment &s, u32 blocks, read_shared *here)
{
    u64 before = 0;
    for (u32 first = 0; first < blocks; first += 32) {
        const u32 b = first + lane_id();
        const u64 own = b < blocks ? r.bases[s.slot + b] : 0;
        u64 scan = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const u64 y = __shfl_up_sync(FULL, scan, d);
            scan += lane_id() >= (u32)d ? y : 0;
        }
        if (b < blocks) {
            if (before + scan > s.length)
                here->bad = 1;
            r.bases[s.slot + b] = (u32)(before + scan - own);
        }
        before += __shfl_sync(FULL, scan, 31);
    }
}

/* All blocks are known to end within the segment, and gaps are not negative: no position needs another look. But the
 * low bits of a block may wrap in their sum, so each lane's are looked at. */
__device__ __forceinline__ void read_places(const reading &r, const open_segment &s, u32 blocks, u32 origin,
                                            read_shared *here)
{
    for (u32 b = threadIdx.x >> 5; b < blocks; b += READ_WARPS) {
        const u32 gaps = min(s.m - RICE_BLOCK * b, (u32)RICE_BLOCK), parameter = s.stream[b];
        const low_eight low = read_low(s.stream + r.lows[s.slot + b], s.end, gaps, parameter);
        const u32 zeros = r.zeros[s.slot + b], scan = warp_scan(low.sum);
        u64 before = (u64)r.bases[s.slot + b] + (u32)(scan - low.sum);
        u32 *positions = r.positions + s.start + RICE_BLOCK * b;
        bool wrong = false;
#pragma unroll
        for (u32 q = 0; q < EACH_GAP; q++) {
            const u32 j = EACH_GAP * lane_id() + q;
            if (j < gaps) {
                before += low.of[q];
                const u64 position = before + ((u64)(positions[j] - zeros) << parameter) + j;
                wrong = wrong || position >= s.length || low.of[q] >= s.length;
                positions[j] = origin + (u32)position;
            }
        }
        if (wrong)
            here->bad = 1;
    }
}

__device__ __forceinline__ void read_rice(const reading &r, const open_segment &s, u32 origin, read_shared *here)
{
    const u32 blocks = (s.m - 1) / RICE_BLOCK + 1;
    if (blocks > s.size) {
        here->bad = 1;
        return;
    }
    const u32 quotients = read_parameters(r, s, blocks, here);
    /* longer quotients than a segment has elements are refused at once, so that bits are counted in 32 bits */
    if (quotients > s.size || s.size - quotients > (s.m + s.length) / 8 + 1)
        here->bad = 1;
    if (is_broken(here))
        return;
    read_ones(r, s, quotients, here);
    if (is_broken(here))
        return;
    read_spans(r, s, blocks, here);
    if (is_broken(here))
        return;
    if (threadIdx.x < 32)
        read_bases(r, s, blocks, here);
    if (!is_broken(here))
        read_places(r, s, blocks, origin, here);
}

/* The next omega number of a stream of `bits` bits; 0 where it ends early, or is larger than any gap. */
__device__ __forceinline__ u32 read_omega(const u8 *stream, u64 bits, u64 *at)
{
    u32 m = 1;
    for (;;) {
        if (*at >= bits)
            return 0;
        if (!(stream[*at >> 3] >> (*at & 7) & 1)) {
            ++*at;
            return m;
        }
        if (m >= 32 || bits - *at < m + 1)
            return 0;
        u32 value = 0;
        for (u32 i = 0; i <= m; i++, ++*at)
            value = value << 1 | (stream[*at >> 3] >> (*at & 7) & 1);
        m = value;
    }
}

/* Runs of 1024 gaps, a thread for each: positions are counted from the run's start at first. */
__device__ __forceinline__ void read_elias(const reading &r, const open_segment &s, u32 origin, read_shared *here)
{
    const u32 runs = (s.m - 1) / ELIAS_RUN + 1, table = 4 * (runs - 1);
    if (table > s.size) {
        here->bad = 1;
        return;
    }
    const u8 *stream = s.stream + table;
    const u64 bits = 8 * (u64)(s.size - table);
    for (u32 run = threadIdx.x; run < runs; run += READ_THREADS) {
        u64 at = run ? word_at(s.stream + 4 * (run - 1), s.end) : 0;
        const u32 end = min(s.m, ELIAS_RUN * (run + 1));
        u64 following = 0;
        bool sound = true;
        for (u32 j = ELIAS_RUN * run; j < end && sound; j++) {
            const u32 number = read_omega(stream, bits, &at);
            sound = number > 0 && number <= s.length && following + number <= s.length;
            following += number;
            r.positions[s.start + j] = (u32)(following - 1);
        }
        if (sound && run < runs - 1)
            sound = at == word_at(s.stream + 4 * run, s.end);
        else if (sound)
            sound = bits - at < 8 && (at == bits || stream[at >> 3] >> (at & 7) == 0);
        if (!sound)
            here->bad = 1;
        r.bases[s.slot + run] = sound ? (u32)following : 0; /* there are four Rice blocks for each run */
    }
    if (is_broken(here))
        return;
    if (threadIdx.x < 32)
        read_bases(r, s, runs, here);
    if (!is_broken(here))
        for (u32 j = threadIdx.x; j < s.m; j += READ_THREADS)
            r.positions[s.start + j] += origin + r.bases[s.slot + j / ELIAS_RUN];
}

__device__ __forceinline__ void read_bitmap(const reading &r, const open_segment &s, u32 origin, read_shared *here)
{
    u32 ones = 0;
    if (s.size != (s.length - 1) / 8 + 1) {
        here->bad = 1;
        return;
    }
    for (u32 first = 0; first < s.size; first += 4 * READ_THREADS) {
        const u32 at = first + 4 * threadIdx.x, left = at < s.size ? s.size - at : 0;
        u32 word = left ? word_at(s.stream + at, s.end) : 0, total;
        u32 j = ones + block_scan((u32)__popc(word), here->part, &total);
        for (; word && j < s.m; word &= word - 1, j++) {
            const u32 position = 8 * at + (u32)__ffs((int)word) - 1;
            if (position >= s.length) /* padding */
                here->bad = 1;
            r.positions[s.start + j] = origin + position;
        }
        ones += total;
    }
    if (ones != s.m)
        here->bad = 1;
}

/* ---- all of it ---- */

__device__ __forceinline__ float value_at(const reading &r, const sparse_head &head, u32 place)
{
    if (r.values == TG_VALUES_LEVELS)
        return value_at(levels_of(r, head), place);
    const u8 *values = r.payload + 8 + 8 * (u64)head.segments;
    const tg_dtype dtype = r.values == TG_VALUES_FP32   ? TG_FLOAT32
                           : r.values == TG_VALUES_FP16 ? TG_FLOAT16
                                                        : TG_BFLOAT16;
    return element_at(values, dtype, place);
}

__device__ __forceinline__ void read_segment(const reading &r, const sparse_head &head, u32 segment,
                                             const directory_sums &before, read_shared *here)
{
    const u32 *entry = (const u32 *)(r.payload + 8) + 2 * segment, origin = segment << head.log, mode = entry[1] >> 30;
    open_segment s;
    s.m = entry[0];
    s.size = entry[1] & 0x3fffffff;
    s.start = (u32)before.listed;
    s.length = segment_length(r, head.log, segment);
    s.slot = s.start / RICE_BLOCK + segment;
    s.stream = r.payload + 8 + 8 * (u64)head.segments + head.value_bytes + before.bytes;
    s.end = s.stream + s.size;
    if (s.m == 0)
        return;
    if (mode == MODE_RICE)
        read_rice(r, s, origin, here);
    else if (mode == MODE_ELIAS)
        read_elias(r, s, origin, here);
    else
        read_bitmap(r, s, origin, here);
}

/* The values of a segment must be finite; the largest magnitude. */
__device__ __forceinline__ void look_at_values(const reading &r, const sparse_head &head, u32 segment, u32 start,
                                               read_shared *here)
{
    const u32 m = ((const u32 *)(r.payload + 8))[2 * segment];
    u32 largest = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < m; i += READ_THREADS)
        largest = max(largest, magnitude_key(value_at(r, head, start + i)));
    largest = warp_max(largest);
    if (lane_id() == 0 && largest > 0)
        atomicMax(&r.result->peak, largest);
    if (largest >= INFINITY_KEY)
        here->bad = 1;
}

/* The segments blockIdx.x, blockIdx.x + gridDim.x, ...: every block adds up the directory as far as it needs, and the
 * first one to the end. */
__global__ void __launch_bounds__(READ_THREADS) positions_kernel(reading r)
{
    __shared__ read_shared here;
    sparse_head head;
    if (r.known)
        r.size = r.known->payload;
    const bool readable = read_head(r, &head);
    if (!readable)
        head = {0, 12, 0, 0};
    if (threadIdx.x == 0) {
        here.bad = readable ? 0 : 1;
        here.sums = {0, 0};
    }
    __syncthreads();
    if (readable && !find_values(r, &head, &here))
        here.bad = 1;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *r.head = head;
    const u64 streams = r.size - 8 - 8 * (u64)head.segments - head.value_bytes;
    u32 added = 0;
    for (u32 segment = blockIdx.x; segment < head.segments; segment += gridDim.x) {
        __syncthreads();
        const bool sound = add_entries(r, head, added, segment, &here);
        added = segment;
        __syncthreads();
        const directory_sums before = here.sums;
        const u32 *entry = (const u32 *)(r.payload + 8) + 2 * segment;
        /* what is read and written must lie within */
        if (!sound || before.listed + entry[0] > head.selected || before.bytes + (entry[1] & 0x3fffffff) > streams ||
            entry[0] > segment_length(r, head.log, segment) || (entry[0] == 0 && entry[1] != 0) || entry[1] >> 30 == 3)
            here.bad = 1;
        if (is_broken(&here))
            break;
        if (r.looks_at_values)
            look_at_values(r, head, segment, (u32)before.listed, &here);
        read_segment(r, head, segment, before, &here);
    }
    if (blockIdx.x == 0) { /* all of it adds up */
        __syncthreads();
        const bool sound = add_entries(r, head, added, head.segments, &here);
        __syncthreads();
        if (!sound || here.sums.listed != head.selected || here.sums.bytes != streams)
            here.bad = 1;
    }
    if (is_broken(&here) && threadIdx.x == 0)
        refuse(r);
    wait_for_previous();
}

/* Scales, and what is behind the last packed code. */
__global__ void __launch_bounds__(256) look_at_levels_kernel(reading r)
{
    const sparse_head head = *r.head;
    if (r.result->bad)
        return;
    const dense_frame f = levels_of(r, head);
    look_at_scales(f, 0, scale_words(f), blockIdx.x * 256ull + threadIdx.x, gridDim.x * 256ull, r.result);
}

__global__ void __launch_bounds__(256) add_sparse_kernel(reading r, float weight, bool set, float *out)
{
    const sparse_head head = *r.head;
    if (r.result->bad)
        return;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < head.selected; i += gridDim.x * 256) {
        const float value = weight * value_at(r, head, i);
        float *at = out + r.positions[i];
        *at = set ? value : *at + value;
    }
}

/* ---- feedback ---- */

/* What a frame does to the state of its elements (settle.cu does it for dense frames). */
struct sparse_settling {
    tg_source source;
    const u32 *applied;
    u64 applied_count;
    bool returns, only_checks;
};

__device__ __forceinline__ bool is_listed(const u32 *indices, u64 count, u32 index)
{
    u64 from = 0, to = count;
    while (from < to) {
        const u64 middle = (from + to) / 2;
        if (indices[middle] < index)
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && indices[from] == index;
}

/* Of an update: the rest of every element. */
__global__ void __launch_bounds__(256) rest_kernel(reading r, sparse_settling s)
{
    u32 dropped = 0;
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < r.count; i += gridDim.x * 256ull) {
        const element e = source_at(s.source, i, residual_at(s.source, i), &dropped);
        if (s.only_checks) {
            if (!is_finite(e.rest))
                atomicMax(&r.result->least, ~i);
            continue;
        }
        s.source.residual[i] = e.rest;
        if (s.source.momentum)
            s.source.momentum[i] = e.push;
    }
}

/* What the frame lists is taken off, or given back. */
__global__ void __launch_bounds__(256) settle_sparse_kernel(reading r, sparse_settling s)
{
    const sparse_head head = *r.head;
    u32 limited = 0, dropped = 0;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; !r.result->bad && i < head.selected; i += gridDim.x * 256) {
        const u32 index = r.positions[i];
        const float sent = value_at(r, head, i), h = s.source.residual[index];
        if (s.returns && is_listed(s.applied, s.applied_count, index))
            continue;
        const float before = s.returns || !s.only_checks ? h : source_at(s.source, index, h, &dropped).rest;
        const float after = s.returns ? before + sent : before - sent;
        if (s.only_checks) {
            if (!is_finite(after))
                atomicMax(&r.result->least, ~(u64)index);
            continue;
        }
        s.source.residual[index] = s.returns ? limited_sum(after, &limited) : after;
        if (!s.returns && s.source.momentum)
            s.source.momentum[index] = 0;
    }
    if (limited)
        atomicAdd(&r.result->limited, (u64)limited);
}

#endif
