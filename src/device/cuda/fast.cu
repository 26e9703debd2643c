/* The common case, at the speed of memory: float32, buckets of 512, codes of 2, 4 or 8 bits. A block takes the groups that
 * fill 1024 bytes of codes, a warp each, and leaves the eight sums that the digest of these bytes needs, so that they are
 * not read again. */
#include "device/cuda/digest.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/scales.cuh"

bool tg_cuda_is_fast(const dense_job *job)
{
    const dense_frame &f = job->frame;
    const tg_source &s = job->source;
    return f.kind == LEVELS && f.bucket == TG_GROUP && (f.width == 2 || f.width == 4 || f.width == 8) && !f.affine &&
           (job->norm == NORM_MAX || job->norm == NORM_L2) && job->clip == 0 && s.dtype == TG_FLOAT32 &&
           !s.drop_nonfinite && !s.momentum && (!s.residual || s.alpha == s.beta);
}

u64 tg_cuda_summed_leaves(const dense_job *job)
{
    return (u64)(job->frame.count / TG_GROUP) * (TG_GROUP / 8) * job->frame.width / TG_LEAF;
}

/* A number to the nearest integer, plus `offset`, where it is at most `levels` levels of 2^16. */
template <u32 WIDTH> __device__ __forceinline__ u32 fixed_point(float position, u32 levels, u32 offset)
{
    if (WIDTH <= 4) /* it exceeds the outermost level by rounding at most, and then rounds to it */
        return __float_as_uint(position + 12582912.0f) - 0x4B400000u + offset;
    const float limit = (float)levels * 0x1p16f;
    position = position > -limit ? position : -limit;
    position = position < limit ? position : limit;
    return (u32)__float2int_rn(position) + offset;
}

/* Codes of 4 bits stay in the upper halves of words, with what was rounded off below them, until they are packed. */
template <u32 WIDTH> constexpr u32 UP = WIDTH == 4 ? 16 : 0;

template <u32 WIDTH>
__device__ __forceinline__ void quantise(const tg_quantiser &q, tg_hash_key key, u32 first, const float (&u)[16],
                                         u32 (&code)[16])
{
    const u32 t = lane_id(), counter = (first / 32 + t / 16) * 16 + t % 16, offset = q.levels << 16;
#pragma unroll
    for (u32 m = 0; m < 8; m++) {
        const u32 hash = tg_hash(key, counter + 32 * m);
        code[2 * m] = (fixed_point<WIDTH>(u[2 * m] * q.gain, q.levels, offset) + (hash & 0xffff)) >> (16 - UP<WIDTH>);
        code[2 * m + 1] = (fixed_point<WIDTH>(u[2 * m + 1] * q.gain, q.levels, offset) + (hash >> 16)) >> (16 - UP<WIDTH>);
    }
}

/* Values below 2^-64 are lifted, which is exact: the same for the whole warp, and rare. */
__device__ __forceinline__ void lift(float (&u)[16], float factor)
{
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        u[r] = u[r] * factor;
}

/* The lane's words of a packed group: rows 16 (t / 16) on of lane t % 16. */
template <u32 WIDTH> __device__ __forceinline__ void pack_words(const u32 (&code)[16], u32 (&word)[WIDTH / 2])
{
    const u32 half = lane_id() / 16;
    if constexpr (WIDTH == 4) { /* rows 8k + 2 half, + 1, + 4, + 5 of word k are here, the others 16 lanes away */
        u32 part[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 even = __byte_perm(code[4 * k], code[4 * k + 2], 0x7632),
                      odd = __byte_perm(code[4 * k + 1], code[4 * k + 3], 0x7632);
            part[k] = (even + (odd << 4)) << (8 * half);
        }
        word[0] = (half ? part[2] : part[0]) | __shfl_xor_sync(FULL, half ? part[0] : part[2], 16);
        word[1] = (half ? part[3] : part[1]) | __shfl_xor_sync(FULL, half ? part[1] : part[3], 16);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < WIDTH / 2; k++)
        word[k] = 0;
#pragma unroll
    for (u32 m = 0; m < 4; m++) {
        const u32 near = code[2 * m] | code[2 * m + 1] << WIDTH, far = code[2 * m + 8] | code[2 * m + 9] << WIDTH;
        const u32 kept = half ? far : near, got = __shfl_xor_sync(FULL, half ? near : far, 16);
        const u32 low = half ? got : kept, high = half ? kept : got; /* rows 4m and 4m + 2 of this half */
        word[4 * WIDTH * m / 32] |= low << (4 * WIDTH * m % 32);
        word[(4 * WIDTH * m + 2 * WIDTH) / 32] |= high << ((4 * WIDTH * m + 2 * WIDTH) % 32);
    }
}

/* What the words of this lane add to the accumulators of their run of 1024 bytes: summed over the warp, accumulator
 * t / 2 in lanes t < 16. `stripe` is the first of the lane's, `last` the key of the leaf's last stripe if it is here. */
template <u32 WIDTH>
__device__ __forceinline__ u64 digest_words(const u32 (&word)[WIDTH / 2], u32 stripe, bool ends_leaf)
{
    const u32 t = lane_id(), i = t % 16 / 2, odd = t & 1;
    addends a = {0, 0};
#pragma unroll
    for (u32 k = 0; k + 1 < WIDTH / 2 || k == 0; k += 2) {
        /* eight bytes of a stripe are two lanes' words: even lanes take one stripe, odd ones the next */
        const u32 mine = word[k], next = WIDTH > 2 ? word[WIDTH > 2 ? k + 1 : 0] : 0;
        const u32 got = __shfl_xor_sync(FULL, odd || WIDTH == 2 ? mine : next, 1), n = stripe + k + odd;
        const u64 both = odd ? (u64)next << 32 | got : (u64)got << 32 | mine;
        if (WIDTH > 2 || !odd)
            a.add(both, secret_at(ends_leaf && n == 15 ? 121 + 8 * i : 8 * (n + i)));
    }
    u64 sum = a.own + __shfl_xor_sync(FULL, a.next, 2);
    sum += __shfl_xor_sync(FULL, sum, 1);
    return sum + __shfl_xor_sync(FULL, sum, 16);
}

/* Reads the warp's group: u, and under feedback saves the old residual where that is asked for. */
template <bool FEEDBACK>
__device__ __forceinline__ void read_values(const tg_source &s, bool moves, u32 first, u32 n, float (&u)[16])
{
    const float *g = (const float *)s.gradient + first, *h = s.residual + (FEEDBACK ? first : 0);
    float old[FEEDBACK ? 16 : 1];
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        u[r] = n == TG_GROUP || place_of(lane_id(), r) < n ? __ldcs(g + place_of(lane_id(), r)) : 0;
    if constexpr (!FEEDBACK)
        return;
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        old[FEEDBACK ? r : 0] = n == TG_GROUP || place_of(lane_id(), r) < n ? __ldcs(h + place_of(lane_id(), r)) : 0;
    if (s.undo && !moves) {
#pragma unroll
        for (u32 r = 0; r < 16; r++)
            if (n == TG_GROUP || place_of(lane_id(), r) < n)
                __stcs(s.undo + first + place_of(lane_id(), r), old[FEEDBACK ? r : 0]);
    }
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        u[r] = u[r] + s.alpha * old[FEEDBACK ? r : 0];
}

template <u32 WIDTH>
__device__ __forceinline__ void write_residual(float *residual, const tg_quantiser &q, u32 first, u32 n,
                                               const float (&u)[16], const u32 (&code)[16])
{
    const float zero = 8388608.0f + (float)q.levels;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        /* levels as floats, without converting */
        float sent = (__uint_as_float(code[r] >> UP<WIDTH> | 0x4B000000u) - zero) * q.unit;
        sent = tg_limit_to(sent * q.drop, q.radius);
        if (n == TG_GROUP || place_of(lane_id(), r) < n)
            __stcs(residual + first + place_of(lane_id(), r), u[r] - sent);
    }
}

/* One group by a warp: the sum of its words for the digest. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__device__ __forceinline__ u64 encode_group(const dense_job &j, u32 which, u32 stripe, bool ends_leaf, u32 *room)
{
    const dense_frame &f = j.frame;
    const u32 first = which * TG_GROUP, n = f.count - first < TG_GROUP ? f.count - first : TG_GROUP;
    float u[16];
    u32 code[16], word[WIDTH / 2];
    read_values<FEEDBACK>(j.source, j.moves, first, n, u);
    const float radius = group_radius<NORM>(u, n);
    const bool finite = tg_float_bits(radius) < TG_INFINITY_BITS;
    if (lane_id() == 0) {
        ((float *)f.scales)[which] = radius;
        if (!finite)
            atomicOr(&j.result->nonfinite, (u32)FOUND_ENCODING);
        if (j.marks)
            j.marks[which] = finite;
    }
    if (!finite)
        return 0;
    const tg_quantiser q = tg_quantiser_from(f.levels, 0, radius, false);
    if (q.lift != 1)
        lift(u, q.lift);
    quantise<WIDTH>(q, j.key, first, u, code);
    if (q.lift != 1)
        lift(u, q.drop);
    if (FEEDBACK)
        write_residual<WIDTH>(j.moves ? j.source.undo : j.source.residual, q, first, n, u, code);
    u32 *out = (u32 *)(f.codes + (u64)which * (TG_GROUP / 8) * WIDTH);
    if (n < TG_GROUP) {
#pragma unroll
        for (u32 r = 0; r < 16; r++)
            code[r] >>= UP<WIDTH>;
        pack_rest(code, WIDTH, n, room, out);
        return 0;
    }
    pack_words<WIDTH>(code, word);
#pragma unroll
    for (u32 k = 0; k < WIDTH / 2; k++)
        out[TG_LANES * (lane_id() / 16 * (WIDTH / 2) + k) + lane_id() % 16] = word[k];
    return digest_words<WIDTH>(word, stripe + lane_id() / 16 * (WIDTH / 2), ends_leaf);
}

/* The groups of 1024 bytes of codes, by a block. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__device__ __forceinline__ void encode_run(const dense_job &j, u32 run, u64 (*sums)[8], u32 *room)
{
    constexpr u32 GROUPS = 16 / WIDTH;
    const u32 warp = threadIdx.x / 32, t = lane_id(), which = GROUPS * run + warp;
    if (which <= (j.frame.count - 1) / TG_GROUP) {
        const u64 sum = encode_group<WIDTH, NORM, FEEDBACK>(j, which, warp * WIDTH, run % 4 == 3, room);
        if (t < 16 && t % 2 == 0)
            sums[warp][t / 2] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 8 && (u64)(run + 1) * GROUPS * TG_GROUP <= j.frame.count) {
        u64 sum = 0;
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++)
            sum += sums[g][threadIdx.x];
        j.sums[8 * (u64)run + threadIdx.x] = sum;
    }
}

template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__global__ void __launch_bounds__(512 / WIDTH) encode_fast(const __grid_constant__ dense_job j)
{
    __shared__ u64 sums[16 / WIDTH][8];
    __shared__ u32 room[TG_GROUP * WIDTH / 32];
    encode_run<WIDTH, NORM, FEEDBACK>(j, blockIdx.x, sums, room);
}

/* Block b belongs to the last job whose first block is not behind it. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__global__ void __launch_bounds__(512 / WIDTH) encode_many(const dense_job *jobs, u32 count)
{
    __shared__ u64 sums[16 / WIDTH][8];
    __shared__ u32 room[TG_GROUP * WIDTH / 32];
    __shared__ dense_job j;
    u32 which = 0, end = count;
    while (end - which > 1) {
        const u32 middle = (which + end) / 2;
        if (jobs[middle].first_block <= blockIdx.x)
            which = middle;
        else
            end = middle;
    }
    for (u32 i = threadIdx.x; i < sizeof(dense_job) / 8; i += blockDim.x)
        memcpy((char *)(void *)&j + 8 * i, (const char *)(const void *)&jobs[which] + 8 * i, 8);
    __syncthreads();
    encode_run<WIDTH, NORM, FEEDBACK>(j, blockIdx.x - j.first_block, sums, room);
}

static u32 blocks_for(const dense_job *job)
{
    return ((job->frame.count - 1) / TG_GROUP) / (16 / job->frame.width) + 1;
}

template <u32 WIDTH, norm_kind NORM> static void launch(tg_cuda *cuda, const dense_job *job)
{
    const unsigned grid = blocks_for(job);
    if (job->source.residual)
        LAUNCH((encode_fast<WIDTH, NORM, true>), grid, 512 / WIDTH, 0, cuda->stream, *job);
    else
        LAUNCH((encode_fast<WIDTH, NORM, false>), grid, 512 / WIDTH, 0, cuda->stream, *job);
}

template <u32 WIDTH> static void launch_norm(tg_cuda *cuda, const dense_job *job)
{
    if (job->norm == NORM_L2)
        launch<WIDTH, NORM_L2>(cuda, job);
    else
        launch<WIDTH, NORM_MAX>(cuda, job);
}

void tg_cuda_fast_encode(tg_cuda *cuda, const dense_job *job)
{
    switch (job->frame.width) {
    case 2:
        launch_norm<2>(cuda, job);
        break;
    case 4:
        launch_norm<4>(cuda, job);
        break;
    default:
        launch_norm<8>(cuda, job);
    }
}

/* ---- many jobs ---- */

template <u32 WIDTH, norm_kind NORM> static void launch_many(tg_cuda *cuda, const dense_job *jobs, u32 n, u32 blocks, bool feedback)
{
    if (feedback)
        LAUNCH((encode_many<WIDTH, NORM, true>), blocks, 512 / WIDTH, 0, cuda->stream, jobs, n);
    else
        LAUNCH((encode_many<WIDTH, NORM, false>), blocks, 512 / WIDTH, 0, cuda->stream, jobs, n);
}

template <u32 WIDTH> static void launch_many_of(tg_cuda *cuda, const dense_job *first, const dense_job *jobs, u32 n, u32 blocks)
{
    const bool feedback = first->source.residual != NULL;
    if (first->norm == NORM_L2)
        launch_many<WIDTH, NORM_L2>(cuda, jobs, n, blocks, feedback);
    else
        launch_many<WIDTH, NORM_MAX>(cuda, jobs, n, blocks, feedback);
}

static bool same_kernel(const dense_job *a, const dense_job *b)
{
    return a->frame.width == b->frame.width && a->norm == b->norm && !a->source.residual == !b->source.residual;
}

/* Runs of jobs that the same kernel does. */
void tg_cuda_fast_encode_many(tg_cuda *cuda, const dense_job *jobs, size_t count)
{
    constexpr u32 MOST = 128;
    dense_job run[MOST];
    for (size_t done = 0; done < count;) {
        u32 n = 0, blocks = 0;
        for (; n < MOST && done + n < count && same_kernel(&jobs[done], &jobs[done + n]); n++) {
            run[n] = jobs[done + n];
            run[n].first_block = blocks;
            blocks += blocks_for(&run[n]);
        }
        const dense_job *there = n > 1 ? (const dense_job *)tg_cuda_upload(cuda, run, n * sizeof *run) : NULL;
        if (!there) {
            tg_cuda_dense_encode(cuda, run);
            n = 1;
        } else if (run[0].frame.width == 2) {
            launch_many_of<2>(cuda, run, there, n, blocks);
        } else if (run[0].frame.width == 4) {
            launch_many_of<4>(cuda, run, there, n, blocks);
        } else {
            launch_many_of<8>(cuda, run, there, n, blocks);
        }
        if (there && run[0].source.residual)
            tg_cuda_undo_many(cuda, there, n);
        done += n;
    }
}
