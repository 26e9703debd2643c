/* The common case, at the speed of memory: float32, buckets of 512, codes of 2, 4 or 8 bits. A warp takes a group at a
 * time; a block takes the groups whose codes fill a leaf, and leaves its digest, so that codes are not read again. */
#include "device/cuda/digest.cuh"
#include "device/cuda/levels.cuh"
#include "device/cuda/scales.cuh"
#include "device/cuda/several.cuh"

/* Sums of squares go through shared memory, of which a block should not have much. As many blocks as an SM has at least
 * leave to a thread the registers that the ordinary way needs, without those of encode_any_group. */
template <norm_kind NORM> constexpr u32 WARPS = NORM == NORM_L2 ? 4 : 8;
template <norm_kind NORM, bool FEEDBACK>
constexpr u32 BLOCKS = (FEEDBACK          ? 24
                        : NORM == NORM_L2 ? 48
                                          : 32) /
                       WARPS<NORM>;

bool tg_cuda_is_fast(const dense_job *job)
{
    const dense_frame &f = job->frame;
    const tg_source &s = job->source;
    const bool group_is_bucket = f.bucket == TG_GROUP || (f.count < TG_GROUP && f.bucket >= f.count);
    return f.kind == LEVELS && !job->known && group_is_bucket && (f.width == 2 || f.width == 4 || f.width == 8) &&
           !f.affine && (job->norm == NORM_MAX || job->norm == NORM_L2) && job->clip == 0 && s.dtype == TG_FLOAT32 &&
           !s.drop_nonfinite && !s.momentum && (!s.residual || s.alpha == s.beta);
}

u64 tg_cuda_digested_leaves(const dense_job *job)
{
    return (u64)(job->frame.count / TG_GROUP) * (TG_GROUP / 8) * job->frame.width / TG_LEAF;
}

/* Element (i, c) of a lane is at [i][c]: level_lane. */
template <u32 WIDTH> struct lane_of_group {
    typedef level_lane<WIDTH> lane;
    float u[lane::DOWN][lane::ACROSS];
    u32 code[lane::DOWN][lane::ACROSS];
};

/* ---- values ---- */

/* Of a job what may be known on the card alone. */
struct present {
    const float *residual;
    float *undo, *next; /* where the residual is saved, or NULL; where the new one goes */
    tg_hash_key key;
    __device__ __forceinline__ explicit present(const dense_job &j)
    {
        const tg_source &s = j.source;
        const bool turned = s.side && __ldg(s.side);
        float *const now = turned ? s.other : s.residual, *const free = s.undo && turned ? s.residual : s.undo;
        residual = now;
        undo = j.moves ? NULL : free;
        next = j.moves ? free : now;
        key = j.drawn ? j.drawn[TG_FOR_ROUNDING] : j.key;
    }
};

/* u; under feedback the old residual is saved where that is asked for. */
template <u32 WIDTH, bool FEEDBACK, bool WHOLE>
__device__ __forceinline__ void read_values(const dense_job &j, const present &p, u32 first, u32 n,
                                            lane_of_group<WIDTH> &g)
{
    const tg_source &s = j.source;
    read_rows<WIDTH, WHOLE>((const float *)s.gradient + first, n, g.u);
    if constexpr (FEEDBACK) {
        float old[32 / WIDTH][WIDTH / 2];
        read_rows<WIDTH, WHOLE>(p.residual + first, n, old);
        if (p.undo)
            write_rows<WIDTH, WHOLE>(p.undo + first, n, old);
        level_lane<WIDTH>::each([&](u32 i, u32 c) { g.u[i][c] = g.u[i][c] + s.alpha * old[i][c]; });
    }
}

/* ---- scales ---- */

/* The sum of squares, in the order of sums: its 64 lanes are shared out by way of `room`, two to a lane of the warp. */
template <u32 WIDTH>
__device__ __forceinline__ float squares(const lane_of_group<WIDTH> &g, float scale1, float scale2, float *room)
{
    const level_lane<WIDTH> l(lane_id());
    const u32 t = lane_id();
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < l.DOWN; i++) {
        float x[l.ACROSS];
#pragma unroll
        for (u32 c = 0; c < l.ACROSS; c++)
            x[c] = summand(TG_SUM_OF_SQUARES, g.u[i][c], scale1, scale2);
        store_side_by_side<l.ACROSS>(room + l.place(i, 0), x);
    }
    __syncwarp();
    float even = 0, odd = 0;
#pragma unroll
    for (u32 m = 0; m < TG_GROUP / TG_SUM_LANES; m++) {
        const float2 x = *(const float2 *)(const void *)(room + TG_SUM_LANES * m + 2 * t);
        even = even + x.x;
        odd = odd + x.y;
    }
    /* Halves first: the lower half of the warp goes on with the even lanes, the upper one with the odd ones. */
    const bool upper = t >= 16;
    float sum = (upper ? odd : even) + __shfl_xor_sync(FULL, upper ? even : odd, 16);
#pragma unroll
    for (int d = 8; d > 0; d /= 2)
        sum = sum + __shfl_xor_sync(FULL, sum, d);
    return sum + __shfl_xor_sync(FULL, sum, 16);
}

template <u32 WIDTH> __device__ __forceinline__ u32 largest_of(const lane_of_group<WIDTH> &g)
{
    u32 bits = 0;
    level_lane<WIDTH>::each(
        [&](u32 i, u32 c) { bits = max(bits, (u32)(tg_float_bits(g.u[i][c]) & TG_MAGNITUDE_MASK)); });
    return warp_max(bits);
}

/* Where sums of squares are not safe. Infinite or NaN if a value is. Elements that do not exist are 0. */
template <u32 WIDTH> __device__ __forceinline__ float careful_radius(const lane_of_group<WIDTH> &g, u32 n, float *room)
{
    const u32 bits = largest_of<WIDTH>(g);
    if (bits == 0 || bits >= TG_INFINITY_BITS)
        return tg_bits_float(bits);
    const int e = tg_exponent_of(bits);
    return radius_of_sum(NORM_L2, (double)squares<WIDTH>(g, tg_first_factor(e), tg_second_factor(e), room), e, n);
}

/* False, and no radius, where sums are not safe. The root of a float is that of a double, rounded twice. */
template <u32 WIDTH, norm_kind NORM>
__device__ __forceinline__ bool quick_radius(const lane_of_group<WIDTH> &g, float *room, float *radius)
{
    if constexpr (NORM == NORM_MAX) {
        *radius = tg_bits_float(largest_of<WIDTH>(g));
        return true;
    } else {
        const float sum = squares<WIDTH>(g, 1, 1, room);
        *radius = __fsqrt_rn(sum);
        return tg_sum_is_safe((double)sum, TG_SUM_OF_SQUARES);
    }
}

/* ---- codes ---- */

/* A number to the nearest integer, plus `offset`, where it is at most `levels` levels of 2^16. */
template <u32 WIDTH> __device__ __forceinline__ u32 fixed_point(float position, u32 levels, u32 offset)
{
    if (WIDTH <= 4) /* it exceeds the outermost level by rounding at most, and then rounds to it */
        return __float_as_uint(position + 12582912.0f) + (offset - 0x4B400000u);
    const float limit = (float)levels * 0x1p16f;
    position = position > -limit ? position : -limit;
    position = position < limit ? position : limit;
    return (u32)__float2int_rn(position) + offset;
}

/* Codes are in the upper halves of words, with what was rounded off below them. */
template <u32 WIDTH>
__device__ __forceinline__ void quantise(const tg_quantiser &q, tg_hash_key key, u32 first, lane_of_group<WIDTH> &g)
{
    const level_lane<WIDTH> l(lane_id());
    const u32 counter = first / 2 + TG_LANES * (l.DOWN / 2 * l.word) + l.lane, offset = q.levels << 16;
#pragma unroll
    for (u32 i = 0; i < l.DOWN; i += 2) {
#pragma unroll
        for (u32 c = 0; c < l.ACROSS; c++) {
            const u32 hash = tg_hash(key, counter + TG_LANES * (i / 2) + c);
            g.code[i][c] = fixed_point<WIDTH>(g.u[i][c] * q.gain, q.levels, offset) + (hash & 0xffff);
            g.code[i + 1][c] = fixed_point<WIDTH>(g.u[i + 1][c] * q.gain, q.levels, offset) + (hash >> 16);
        }
    }
}

/* What is left of u, in its place. LIFTED: q.lift may be something else than 1. */
template <u32 WIDTH, bool LIFTED>
__device__ __forceinline__ void subtract_sent(const tg_quantiser &q, lane_of_group<WIDTH> &g)
{
    const float zero = zero_of(q.levels);
    level_lane<WIDTH>::each([&](u32 i, u32 c) {
        float sent = level_of(__byte_perm(g.code[i][c], 0x4B000000u, 0x7632), zero) * q.unit;
        if (LIFTED)
            sent = sent * q.drop;
        g.u[i][c] = g.u[i][c] - limited(sent, q.radius);
    });
}

template <u32 WIDTH> __device__ __forceinline__ void pack_words(const lane_of_group<WIDTH> &g, u32 (&word)[WIDTH / 2])
{
    constexpr u32 HALF = 16 / WIDTH; /* codes in half a word */
#pragma unroll
    for (u32 c = 0; c < WIDTH / 2; c++) {
        word[c] = 0;
#pragma unroll
        for (u32 i = HALF; i-- > 0;)
            word[c] = (word[c] << WIDTH) + __byte_perm(g.code[i][c], g.code[i + HALF][c], 0x7632);
    }
}

/* Packs the rest of a vector, fewer codes than a group has, as a plain stream of whole words, padded with zeros. `room`
 * is shared memory of this warp alone. */
template <u32 WIDTH>
__device__ __forceinline__ void pack_rest(const lane_of_group<WIDTH> &g, u32 n, u32 *room, u32 *out)
{
    const level_lane<WIDTH> l(lane_id());
    const u32 words = (n * WIDTH + 31) / 32;
    for (u32 k = lane_id(); k < words; k += 32)
        room[k] = 0;
    __syncwarp();
    level_lane<WIDTH>::each([&](u32 i, u32 c) {
        const u32 bit = l.place(i, c) * WIDTH;
        if (l.place(i, c) < n)
            atomicOr(&room[bit / 32], g.code[i][c] >> 16 << (bit % 32));
    });
    __syncwarp();
    for (u32 k = lane_id(); k < words; k += 32)
        out[k] = room[k];
}

/* What the words of this group add to accumulator t of their run of 1024 bytes, in the lanes t < 8. `stripe` is the
 * group's first in the run, whose last is the leaf's if the run ends it. */
template <u32 WIDTH>
__device__ __forceinline__ u64 digest_words(const u32 (&word)[WIDTH / 2], u32 stripe, bool ends_leaf)
{
    const u32 t = lane_id(), n = stripe + t / level_lane<WIDTH>::WIDE;
    const auto key = [&](u32 i) { return secret_at(ends_leaf && n == 15 ? 121 + 8 * i : 8 * (n + i)); };
    [[maybe_unused]] addends a = {0, 0};
    if constexpr (WIDTH == 2) { /* eight bytes of a stripe are with two lanes */
        const u32 got = __shfl_xor_sync(FULL, word[0], 1), i = t % 16 / 2;
        if (t % 2 == 0)
            a.add((u64)got << 32 | word[0], key(i));
        u64 sum = a.own + __shfl_xor_sync(FULL, a.next, 2);
        sum += __shfl_xor_sync(FULL, sum, 16);
        return __shfl_sync(FULL, sum, (int)(2 * (t % 8)));
    } else if constexpr (WIDTH == 4) {
        a.add((u64)word[1] << 32 | word[0], key(t % 8));
        return a.total();
    } else { /* two accumulators: the upper half of the warp goes on with the odd ones */
        const u32 i = 2 * (t % 4);
        const u64 x = (u64)word[1] << 32 | word[0], y = (u64)word[3] << 32 | word[2];
        const u64 even = product(x, key(i)) + y, odd = product(y, key(i + 1)) + x;
        const bool upper = t >= 16;
        u64 sum = (upper ? odd : even) + __shfl_xor_sync(FULL, upper ? even : odd, 16);
        sum += __shfl_xor_sync(FULL, sum, 8);
        sum += __shfl_xor_sync(FULL, sum, 4);
        return __shfl_sync(FULL, sum, (int)(t % 2 * 16 + t % 8 / 2));
    }
}

/* ---- groups and leaves ---- */

/* Shared memory of a block. */
template <u32 WIDTH, norm_kind NORM> struct block_room {
    static constexpr u32 GROUPS = 64 / WIDTH; /* of a leaf */
    u64 sums[GROUPS][8];
    u32 rest[TG_GROUP * WIDTH / 32];
    alignas(16) float squares[NORM == NORM_L2 ? WARPS<NORM> : 1][NORM == NORM_L2 ? TG_GROUP : 1];
};

template <u32 WIDTH, norm_kind NORM> __device__ __forceinline__ float *squares_room(block_room<WIDTH, NORM> &room)
{
    return room.squares[NORM == NORM_L2 ? threadIdx.x / 32 : 0];
}

template <u32 WIDTH> __device__ __forceinline__ u32 *codes_of(const dense_frame &f, u32 group)
{
    return (u32 *)(f.codes + (u64)group * (TG_GROUP / 8) * WIDTH);
}

/* One group by a warp, whatever it is: the sum of its words for the digest. What encode_group leaves to it is rare, and
 * has not been changed yet. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__device__ __noinline__ u64 encode_any_group(const dense_job &j, u32 which, u32 stripe, bool ends_leaf,
                                             block_room<WIDTH, NORM> &room)
{
    const present p(j);
    const dense_frame &f = j.frame;
    const u32 first = which * TG_GROUP, n = f.count - first < TG_GROUP ? f.count - first : TG_GROUP;
    lane_of_group<WIDTH> g;
    float radius;
    read_values<WIDTH, FEEDBACK, false>(j, p, first, n, g);
    if (!quick_radius<WIDTH, NORM>(g, squares_room(room), &radius))
        radius = careful_radius<WIDTH>(g, n, squares_room(room));
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
    level_lane<WIDTH>::each([&](u32 i, u32 c) { g.u[i][c] = g.u[i][c] * q.lift; }); /* exact, and taken back exactly */
    quantise<WIDTH>(q, p.key, first, g);
    if constexpr (FEEDBACK) {
        level_lane<WIDTH>::each([&](u32 i, u32 c) { g.u[i][c] = g.u[i][c] * q.drop; });
        subtract_sent<WIDTH, true>(q, g);
        write_rows<WIDTH, false>(p.next + first, n, g.u);
    }
    if (n < TG_GROUP) {
        pack_rest<WIDTH>(g, n, room.rest, codes_of<WIDTH>(f, which));
        return 0;
    }
    u32 word[WIDTH / 2];
    pack_words<WIDTH>(g, word);
    store_side_by_side<WIDTH / 2>(codes_of<WIDTH>(f, which) + level_lane<WIDTH>(lane_id()).word_place(), word);
    return digest_words<WIDTH>(word, stripe, ends_leaf);
}

/* The same, at the speed of memory where nothing is unusual. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__device__ __forceinline__ u64 encode_group(const dense_job &j, const present &p, u32 which, u32 stripe, bool ends_leaf,
                                            block_room<WIDTH, NORM> &room)
{
    const dense_frame &f = j.frame;
    const u32 first = which * TG_GROUP;
    if (!j.aligned || f.count - first < TG_GROUP)
        return encode_any_group<WIDTH, NORM, FEEDBACK>(j, which, stripe, ends_leaf, room);
    lane_of_group<WIDTH> g;
    float radius;
    read_values<WIDTH, FEEDBACK, true>(j, p, first, TG_GROUP, g);
    const bool safe = quick_radius<WIDTH, NORM>(g, squares_room(room), &radius);
    if (!safe || !(radius == 0 || (radius >= TG_LIFT_BELOW && tg_float_bits(radius) < TG_INFINITY_BITS)))
        return encode_any_group<WIDTH, NORM, FEEDBACK>(j, which, stripe, ends_leaf, room);
    if (lane_id() == 0) {
        ((float *)f.scales)[which] = radius;
        if (j.marks)
            j.marks[which] = true;
    }
    const tg_quantiser q = tg_quantiser_from(f.levels, 0, radius, false);
    quantise<WIDTH>(q, p.key, first, g);
    if constexpr (FEEDBACK) {
        subtract_sent<WIDTH, false>(q, g);
        write_rows<WIDTH, true>(p.next + first, TG_GROUP, g.u);
    }
    u32 word[WIDTH / 2];
    pack_words<WIDTH>(g, word);
    store_side_by_side<WIDTH / 2>(codes_of<WIDTH>(f, which) + level_lane<WIDTH>(lane_id()).word_place(), word);
    return digest_words<WIDTH>(word, stripe, ends_leaf);
}

/* The digest of a leaf from the sums of its groups, by a warp. */
template <u32 GROUPS> __device__ __forceinline__ u64 digest_of_sums(const u64 (*sums)[8])
{
    const u32 i = lane_id() % 8;
    u64 accumulator = first_accumulators[i];
#pragma unroll
    for (u32 run = 0; run < 4; run++) {
#pragma unroll
        for (u32 k = 0; k < GROUPS / 4; k++)
            accumulator += sums[GROUPS / 4 * run + k][i];
        if (run < 3)
            accumulator = scramble(accumulator, secret_at(128 + 8 * i));
    }
    return merged(accumulator, TG_LEAF);
}

/* The groups of a leaf of codes, by a block. */
template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__device__ __forceinline__ void encode_leaf(const dense_job &j, u32 leaf, block_room<WIDTH, NORM> &room)
{
    constexpr u32 GROUPS = room.GROUPS, RUN = GROUPS / 4;
    const u32 t = lane_id();
    const present p(j);
#pragma unroll 1
    for (u32 k = threadIdx.x / 32; k < GROUPS; k += WARPS<NORM>) {
        const u32 which = GROUPS * leaf + k;
        if (which > (j.frame.count - 1) / TG_GROUP)
            break;
        const u64 sum = encode_group<WIDTH, NORM, FEEDBACK>(j, p, which, k % RUN * WIDTH, k / RUN == 3, room);
        if (t < 8)
            room.sums[k][t] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= 32 || (u64)(leaf + 1) * GROUPS * TG_GROUP > j.frame.count)
        return;
    const u64 digest = digest_of_sums<GROUPS>(room.sums);
    if (t == 0)
        j.digests[leaf] = digest;
}

template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__global__ void __launch_bounds__(32 * WARPS<NORM>, BLOCKS<NORM, FEEDBACK>)
    encode_fast(const __grid_constant__ dense_job j)
{
    __shared__ block_room<WIDTH, NORM> room;
    let_next_begin(); /* the checksum, which waits */
    encode_leaf<WIDTH, NORM, FEEDBACK>(j, blockIdx.x, room);
}

template <u32 WIDTH, norm_kind NORM, bool FEEDBACK>
__global__ void __launch_bounds__(32 * WARPS<NORM>, BLOCKS<NORM, FEEDBACK>)
    encode_many(const dense_job *jobs, u32 count)
{
    __shared__ block_room<WIDTH, NORM> room;
    __shared__ dense_job j;
    copy_job(&j, &jobs[job_of_block(jobs, count, blockIdx.x, [](const dense_job &of) { return of.first_block; })]);
    encode_leaf<WIDTH, NORM, FEEDBACK>(j, blockIdx.x - j.first_block, room);
}

/* ---- launches ---- */

static u32 blocks_for(const dense_job *job)
{
    return ((job->frame.count - 1) / TG_GROUP) / (64 / job->frame.width) + 1;
}

/* The job as the kernels want it. */
static dense_job prepared(const dense_job *job)
{
    dense_job made = *job;
    const u32 width = job->frame.width;
    made.aligned = has_aligned_rows(job->source.gradient, width) && has_aligned_rows(job->source.residual, width) &&
                   has_aligned_rows(job->source.undo, width) && has_aligned_rows(job->source.other, width);
    return made;
}

template <u32 WIDTH, norm_kind NORM> static void launch(tg_cuda *cuda, const dense_job &job)
{
    const unsigned grid = blocks_for(&job);
    if (job.source.residual)
        LAUNCH((encode_fast<WIDTH, NORM, true>), grid, 32 * WARPS<NORM>, 0, cuda->stream, job);
    else
        LAUNCH((encode_fast<WIDTH, NORM, false>), grid, 32 * WARPS<NORM>, 0, cuda->stream, job);
}

template <u32 WIDTH> static void launch_norm(tg_cuda *cuda, const dense_job &job)
{
    if (job.norm == NORM_L2)
        launch<WIDTH, NORM_L2>(cuda, job);
    else
        launch<WIDTH, NORM_MAX>(cuda, job);
}

void tg_cuda_fast_encode(tg_cuda *cuda, const dense_job *job)
{
    switch (job->frame.width) {
    case 2:
        launch_norm<2>(cuda, prepared(job));
        break;
    case 4:
        launch_norm<4>(cuda, prepared(job));
        break;
    default:
        launch_norm<8>(cuda, prepared(job));
    }
}

/* ---- many jobs ---- */

template <u32 WIDTH, norm_kind NORM>
static void launch_many(tg_cuda *cuda, const dense_job *jobs, u32 n, u32 blocks, bool feedback)
{
    if (feedback)
        LAUNCH((encode_many<WIDTH, NORM, true>), blocks, 32 * WARPS<NORM>, 0, cuda->stream, jobs, n);
    else
        LAUNCH((encode_many<WIDTH, NORM, false>), blocks, 32 * WARPS<NORM>, 0, cuda->stream, jobs, n);
}

template <u32 WIDTH>
static void launch_many_of(tg_cuda *cuda, const dense_job *first, const dense_job *jobs, u32 n, u32 blocks)
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
void tg_cuda_fast_encode_many(tg_cuda *cuda, dense_job *jobs, size_t count)
{
    for (size_t done = 0, n; done < count; done += n) {
        dense_job *run = jobs + done;
        u32 blocks = 0;
        for (n = 0; done + n < count && same_kernel(&run[0], &run[n]); n++) {
            run[n] = prepared(&run[n]);
            run[n].first_block = blocks;
            blocks += blocks_for(&run[n]);
        }
        const dense_job *there = n > 1 ? (const dense_job *)tg_cuda_upload(cuda, run, n * sizeof *run) : NULL;
        if (!there) {
            tg_cuda_fast_encode(cuda, run);
            n = 1;
        } else if (run->frame.width == 2) {
            launch_many_of<2>(cuda, run, there, (u32)n, blocks);
        } else if (run->frame.width == 4) {
            launch_many_of<4>(cuda, run, there, (u32)n, blocks);
        } else {
            launch_many_of<8>(cuda, run, there, (u32)n, blocks);
        }
    }
}
