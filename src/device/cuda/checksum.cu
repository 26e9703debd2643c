/* Checksums in one pass: warps digest leaves; the block that brings the last leaf of a node digests that; the block
 * that brings the last node, the root, and finishes the frame. */
#include "device/cuda/checksum.cuh"

#include "device/cuda/digest.cuh"
#include "device/cuda/received.cuh"
#include "device/cuda/several.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32 /* 2^3 */, NODE = TG_LEAF / 8, FEW_JOBS = 8;

/* Jobs that are done by one launch: a few of them here, many on the card. Block b belongs to the last job whose first
 * block is not behind it. */
struct checksum_batch {
    u32 count, blocks;
    const checksum_job *many; /* or NULL */
    checksum_job few[FEW_JOBS];
};

static_assert(sizeof(checksum_batch) <= 4000, "they are the arguments of a kernel");

size_t tg_cuda_digests_room(u64 payload)
{
    const u64 leaves = payload / TG_LEAF + 1;
    return (size_t)((leaves + leaves / 256 + 64) * 8);
}

/* ---- the shape of a tree ---- */

/* What is known of a job when its size is. Leaves are shared out to blocks by their numbers, 2^shift to a block. */
struct tree {
    u64 size;
    u32 leaves, digested, shift, first; /* the number of the first block of leaves that is not skipped */
    u32 nodes;                          /* above the leaves; 0 where the root is */
    __device__ __forceinline__ explicit tree(const checksum_job &j)
    {
        size = j.known ? j.known->payload : j.size;
        leaves = j.has_checksum ? (u32)((size + TG_LEAF - 1) / TG_LEAF) : 0;
        digested = j.digested < leaves ? (u32)j.digested : leaves > 0 ? leaves - 1 : 0;
        shift = j.shift;
        first = block_of(digested);
        nodes = leaves > NODE ? (leaves - 1) / NODE + 1 : 0;
    }
    __device__ __forceinline__ u32 block_of(u32 leaf) const { return leaf >> shift; }
    /* Blocks of leaves that bring something to this node. */
    __device__ __forceinline__ u32 blocks_of(u32 node) const
    {
        const u32 from = node * NODE, to = leaves - from < NODE ? leaves : from + NODE, begin = block_of(from);
        return block_of(to - 1) + 1 - (begin > first ? begin : first);
    }
    /* What must come before the root: nodes, or blocks of leaves. */
    __device__ __forceinline__ u32 arrivals_at_root() const
    {
        return nodes > 0 ? nodes : leaves > 0 ? block_of(leaves - 1) + 1 - first : 1;
    }
    __device__ __forceinline__ u64 *digests_above(const checksum_job &j) const
    {
        return j.digests + (leaves + 1ull) / 2 * 2;
    }
};

/* ---- digests ---- */

/* The lane's part of a leaf. */
__device__ __forceinline__ void read_leaf(const u8 *p, uint4 (&d)[8])
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        d[j] = __ldcg((const uint4 *)(p + 512 * j + 16 * lane_id()));
}

static __device__ __noinline__ u64 node_digest(const u64 *digests, u32 count, u32 node)
{
    const u8 *p = (const u8 *)(digests + (u64)node * NODE);
    if (count - node * NODE < NODE)
        return warp_digest(p, 8 * (count - node * NODE));
    uint4 d[8];
    read_leaf(p, d);
    return digest_leaf(d, leaf_lane(lane_id()), lane_id());
}

/* Nodes of `count` digests until there are few enough for the root: where they are, and how many. By a block. */
static __device__ __noinline__ u64 *reduce_to_root(u64 *digests, u32 *count)
{
    while (*count > NODE) {
        const u32 nodes = (*count - 1) / NODE + 1;
        u64 *above = digests + (*count + 1) / 2 * 2;
        for (u32 node = threadIdx.x / 32; node < nodes; node += WARPS) {
            const u64 digest = node_digest(digests, *count, node);
            if (lane_id() == 0)
                above[node] = digest;
        }
        __syncthreads();
        digests = above;
        *count = nodes;
    }
    return digests;
}

/* The checksum from the digests below the root, and the header. By a block; `root` has room for header and a node. Not
 * inline, so that the loop over leaves has the registers that it needs. */
static __device__ __noinline__ void finish_frame(const checksum_job &job, const tree &of, u64 *root)
{
    u8 *header = (u8 *)root;
    u32 count = of.nodes > 0 ? of.nodes : of.leaves;
    const u64 *top = reduce_to_root(of.nodes > 0 ? of.digests_above(job) : job.digests, &count);
    const u32 t = threadIdx.x, written = job.header_at ? ((const u32 *)job.header_at)[15] : 0;
    for (u32 i = t; i < count; i += THREADS)
        root[TG_HEADER_SIZE / 8 + i] = __ldcg(top + i);
    if (t < TG_HEADER_SIZE)
        header[t] = job.header_at && t < 60 ? job.header_at[t] : job.header[t];
    __syncthreads();
    if (job.header_at && t < (job.known ? 32 : 40) && (t < 20 || t >= 24) && header[t] != job.header[t])
        atomicOr(&job.result->bad, (u32)OTHER_HEADER);
    __syncthreads();
    if (t == 0 && job.known) {
        header[7] = (u8)job.known->layout;
        tg_store64(header + 32, job.known->payload);
    }
    if (t == 0 && job.step)
        tg_store64(header + 48, *job.step);
    __syncthreads();
    if (t >= 32)
        return;
    const u32 checksum = job.has_checksum ? (u32)warp_digest(header, TG_HEADER_SIZE + 8 * count) : 0;
    if (t == 0) {
        if (!job.frame)
            job.result->checksum = checksum;
        if (job.header_at && job.must_match && checksum != written)
            atomicOr(&job.result->bad, (u32)BREAKS_RULE);
    }
    if (job.frame && t < TG_HEADER_SIZE / 4)
        ((u32 *)job.frame)[t] = t < 15 ? ((const u32 *)header)[t] : checksum;
}

/* ---- arrivals ---- */

/* Adds what the block has brought to a counter; true for the block that brings the last of `all`, to which what the
 * others have written is visible. The counter is 0 again then. */
__device__ __forceinline__ bool comes_last(u32 *counter, u32 brought, u32 all, bool *shared)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *shared = brought == all || atomicAdd(counter, brought) + brought == all;
        if (*shared) {
            *counter = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return *shared;
}

/* ---- the kernel ---- */

/* Nodes whose leaves have been digested before, a warp each: how many. */
__device__ __forceinline__ u32 digest_nodes(const checksum_job &job, const tree &of, u32 block)
{
    const u32 whole = of.nodes > 0 ? of.digested / NODE : 0, first = block * WARPS, node = first + threadIdx.x / 32;
    if (node < whole) {
        const u64 digest = node_digest(job.digests, of.leaves, node);
        if (lane_id() == 0)
            of.digests_above(job)[node] = digest;
    }
    return first >= whole ? 0 : whole - first < WARPS ? whole - first : WARPS;
}

__device__ __forceinline__ void digest_leaves_of(const checksum_job &job, const tree &of, const leaf_lane &l, u32 first)
{
#pragma unroll 1
    for (u32 leaf = first + threadIdx.x / 32; leaf < first + (1u << of.shift) && leaf < of.leaves; leaf += WARPS) {
        const u8 *at = job.payload + (u64)leaf * TG_LEAF;
        const u64 left = of.size - (u64)leaf * TG_LEAF;
        u64 digest;
        if (leaf < of.digested)
            continue;
        if (left < TG_LEAF) {
            digest = warp_digest(at, left);
            if (job.words > 0)
                look_at_scales_within(job.looked_at, job.words, at, (u32)left, NULL, job.result);
        } else {
            uint4 d[8];
            read_leaf(at, d);
            digest = digest_leaf(d, l, lane_id());
            if (job.words > 0)
                look_at_scales_within(job.looked_at, job.words, at, TG_LEAF, &d, job.result);
        }
        if (lane_id() == 0)
            job.digests[leaf] = digest;
    }
}

/* A block of a job; true where it is the one that finishes the frame. */
__device__ __forceinline__ bool digest_part(const checksum_job &job, const tree &of, const leaf_lane &l, u32 block,
                                            bool *shared)
{
    const u32 all = of.arrivals_at_root();
    if (block < job.node_blocks) {
        const u32 brought = digest_nodes(job, of, block);
        return brought > 0 && comes_last(&job.arrivals[0], brought, all, shared);
    }
    const u32 place = of.first + job.leaf_blocks - 1 - (block - job.node_blocks);
    const u32 first = place << of.shift;
    if (of.leaves == 0)
        return place == of.first;
    if (first >= of.leaves)
        return false;
    digest_leaves_of(job, of, l, first);
    if (of.nodes == 0)
        return comes_last(&job.arrivals[0], 1, all, shared);
    const u32 node = first / NODE;
    if (!comes_last(&job.arrivals[1 + node], 1, of.blocks_of(node), shared))
        return false;
    if (threadIdx.x < 32) {
        const u64 digest = node_digest(job.digests, of.leaves, node);
        if (lane_id() == 0)
            of.digests_above(job)[node] = digest;
    }
    return comes_last(&job.arrivals[0], 1, all, shared);
}

/* Block number `block` of a job. */
__device__ __forceinline__ void digest_block(const checksum_job &job, u32 block)
{
    __shared__ u64 root[TG_HEADER_SIZE / 8 + NODE];
    __shared__ bool shared;
    const leaf_lane l(lane_id()); /* constants, which can be asked for before there is a payload */
    wait_for_previous();
    if (!job.undone.source.residual) /* whose residual this may write */
        let_next_begin();
    const tree of(job);
    const u32 blocks = job.node_blocks + job.leaf_blocks;
    const bool finishes = digest_part(job, of, l, block, &shared);
    if (!job.has_checksum && job.words > 0)
        look_at_scales(job.looked_at, 0, job.words, block * THREADS + threadIdx.x, blocks * THREADS, job.result);
    if (job.undone.source.residual)
        undo(job.undone, job.result->nonfinite, block * THREADS + threadIdx.x, blocks * THREADS);
    if (finishes)
        finish_frame(job, of, root);
    if (job.report.to && comes_last(job.ended, 1, blocks, &shared) && threadIdx.x < 32)
        report_later(job.report, job.result);
}

__global__ void __launch_bounds__(THREADS, 3) digest_frame(const __grid_constant__ checksum_job job)
{
    digest_block(job, blockIdx.x);
}

/* Several: the block's job is copied to where it is near. */
__global__ void __launch_bounds__(THREADS, 3) digest_frames(const __grid_constant__ checksum_batch batch)
{
    __shared__ checksum_job job;
    wait_for_previous();
    const checksum_job *jobs = batch.many ? batch.many : batch.few;
    copy_job(&job,
             &jobs[job_of_block(jobs, batch.count, blockIdx.x, [](const checksum_job &j) { return j.first_block; })]);
    digest_block(job, blockIdx.x - job.first_block);
}

/* ---- launches ---- */

static u64 leaves_of(const checksum_job *j) { return j->has_checksum ? (j->size + TG_LEAF - 1) / TG_LEAF : 0; }
static u64 digested_of(const checksum_job *j)
{
    const u64 leaves = leaves_of(j);
    return j->digested < leaves ? j->digested : leaves > 0 ? leaves - 1 : 0;
}

/* Shares a job out to blocks of 2^shift leaves: the number of its blocks. */
static u32 plan(const tg_cuda *cuda, checksum_job *j, u32 shift)
{
    const u64 leaves = leaves_of(j), digested = digested_of(j);
    j->shift = shift;
    j->leaf_blocks = leaves > 0 ? (u32)(((leaves - 1) >> shift) - (digested >> shift)) + 1
                                : grid_for(j->words + j->undone.frame.count / 64, 16 * THREADS, 2 * cuda->processors);
    j->node_blocks = leaves > NODE ? (u32)((digested / NODE + WARPS - 1) / WARPS) : 0;
    return j->node_blocks + j->leaf_blocks;
}

/* A warp has several leaves where there are many, because the end of a block is waiting. */
static u32 shift_for(const tg_cuda *cuda, const checksum_job *jobs, size_t count)
{
    u64 leaves = 0;
    u32 shift = 3;
    for (size_t i = 0; i < count; i++)
        leaves += leaves_of(&jobs[i]) - digested_of(&jobs[i]);
    while (shift < 5 && leaves >> shift > 4 * cuda->processors)
        shift++;
    return shift;
}

/* Counters of a job: of the root, of nodes, of blocks. */
static u32 counters_of(const checksum_job *j) { return j->has_checksum ? (u32)(j->size / TG_LEAF / NODE) + 3 : 2; }

void tg_cuda_checksum(tg_cuda *cuda, checksum_job *jobs, size_t count, bool follows)
{
    for (size_t done = 0, n; done < count; done += n) {
        checksum_job *some = jobs + done;
        checksum_batch batch = {};
        u32 counters = 0;
        const u32 shift = shift_for(cuda, some, count - done);
        for (n = 0; done + n < count && (n == 0 || counters + counters_of(&some[n]) <= ARRIVALS); n++) {
            some[n].first_block = batch.blocks;
            some[n].arrivals = cuda->arrivals + (size_t)cuda->branch * ARRIVALS + counters;
            counters += counters_of(&some[n]);
            some[n].ended = some[n].arrivals + counters_of(&some[n]) - 1;
            batch.blocks += plan(cuda, &some[n], shift);
        }
        batch.many = n > FEW_JOBS ? (const checksum_job *)tg_cuda_upload(cuda, some, n * sizeof *some) : NULL;
        if (n > FEW_JOBS && !batch.many) { /* no room: fewer at a time */
            n = FEW_JOBS;
            batch.blocks = some[FEW_JOBS].first_block;
        }
        batch.count = (u32)n;
        for (u32 i = 0; !batch.many && i < n; i++)
            batch.few[i] = some[i];
        const bool early = follows && cuda->overlaps && (!batch.many || cuda->later); /* else it follows a copy */
        if (n == 1)
            LAUNCH_BESIDE(early, digest_frame, batch.blocks, THREADS, cuda->stream, some[0]);
        else
            LAUNCH_BESIDE(early, digest_frames, batch.blocks, THREADS, cuda->stream, batch);
        cuda->busy = true;
    }
}
