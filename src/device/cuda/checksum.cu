/* Leaves by all warps of the card; nodes and root by the block of a frame that ends last, or, where there are many nodes,
 * by a larger block of their own. */
#include "device/cuda/checksum.cuh"

#include "device/cuda/digest.cuh"
#include "device/cuda/received.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32, MANY = 1024, NODE = TG_LEAF / 8, NODES_OF_FEW = 5 * WARPS,
              FEW_JOBS = 8, MANY_JOBS = 128;

/* Jobs that are done by one launch: a few of them here, many on the card. Block b belongs to the last job whose first
 * block is not behind it. */
struct checksum_batch {
    u32 count, blocks;
    bool roots_apart;
    const checksum_job *many; /* or NULL */
    checksum_job few[FEW_JOBS];
};

__device__ __forceinline__ const checksum_job &job_at(const checksum_batch &batch, u32 i)
{
    return batch.many ? batch.many[i] : batch.few[i];
}

size_t tg_cuda_digests_room(u64 payload)
{
    const u64 leaves = payload / TG_LEAF + 1;
    return (size_t)((leaves + leaves / 256 + 64) * 8);
}

__device__ __forceinline__ u64 size_of(const checksum_job &j) { return j.known ? j.known->payload : j.size; }

__device__ __forceinline__ u64 leaf_digest(const u8 *p, u64 size, const leaf_lane &l)
{
    if (size < TG_LEAF)
        return warp_digest(p, size);
    uint4 d[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        d[j] = __ldcg((const uint4 *)(p + 512 * j + 16 * lane_id()));
    return digest_leaf(d, l, lane_id());
}

/* Four leaves from their sums, eight lanes each. */
__device__ __forceinline__ void digest_quad(const checksum_job &job, u64 quad)
{
    const u32 i = lane_id() & 7;
    const u64 leaf = 4 * quad + lane_id() / 8;
    u64 accumulator = first_accumulators[i];
#pragma unroll
    for (int run = 0; run < 4; run++) {
        accumulator += leaf < job.summed ? __ldcg(job.sums + 32 * leaf + 8 * run + i) : 0;
        if (run < 3)
            accumulator = scramble(accumulator, secret_at(128 + 8 * i));
    }
    const u64 digest = merged(accumulator, TG_LEAF);
    if (i == 0 && leaf < job.summed)
        job.digests[leaf] = digest;
}

/* Nodes of digests until there are few enough for the root: where they are, and how many. */
static __device__ __noinline__ u64 *reduce_to_root(u64 *digests, u64 *count)
{
    const leaf_lane l(lane_id());
    while (*count > NODE) {
        const u64 nodes = (*count + NODE - 1) / NODE;
        u64 *above = digests + (*count + 1) / 2 * 2;
        for (u64 node = threadIdx.x / 32; node < nodes; node += blockDim.x / 32) {
            const u64 left = *count - node * NODE;
            const u64 digest = leaf_digest((const u8 *)(digests + node * NODE), 8 * (left < NODE ? left : NODE), l);
            if (lane_id() == 0)
                above[node] = digest;
        }
        __syncthreads();
        digests = above;
        *count = nodes;
    }
    return digests;
}

/* The checksum from the digests of all leaves, and the header. By a block; `root` has room for header and a node. Not
 * inline, so that the loop over leaves has the registers that it needs. */
static __device__ __noinline__ void finish_frame(const checksum_job &job, u64 *root)
{
    u64 count = (size_of(job) + TG_LEAF - 1) / TG_LEAF;
    u8 *header = (u8 *)root;
    const u32 written = job.header_at ? ((const u32 *)job.header_at)[15] : 0;
    if (threadIdx.x < TG_HEADER_SIZE)
        header[threadIdx.x] = job.header_at && threadIdx.x < 60 ? job.header_at[threadIdx.x] : job.header[threadIdx.x];
    __syncthreads();
    if (job.header_at && threadIdx.x < 40 && (threadIdx.x < 20 || threadIdx.x >= 24) &&
        header[threadIdx.x] != job.header[threadIdx.x])
        atomicOr(&job.result->bad, (u32)OTHER_HEADER);
    if (threadIdx.x == 0 && job.known) {
        header[7] = (u8)job.known->layout;
        tg_store64(header + 32, job.known->payload);
    }
    u32 checksum = 0;
    if (job.has_checksum) {
        const u64 *top = reduce_to_root(job.digests, &count);
        for (u32 i = threadIdx.x; i < count; i += blockDim.x)
            root[TG_HEADER_SIZE / 8 + i] = __ldcg(top + i);
        __syncthreads();
        if (threadIdx.x < 32)
            checksum = (u32)warp_digest(header, TG_HEADER_SIZE + 8 * count);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        if (!job.frame)
            job.result->checksum = checksum;
        if (job.header_at && job.must_match && checksum != written)
            atomicOr(&job.result->bad, (u32)BREAKS_RULE);
        tg_store32(header + 60, checksum);
    }
    __syncthreads();
    if (job.frame && threadIdx.x < TG_HEADER_SIZE)
        job.frame[threadIdx.x] = header[threadIdx.x];
}

/* True for the block of a job that comes last; what the others have written is visible to it. */
__device__ __forceinline__ bool ends_job(const checksum_job &job, u32 blocks, bool *shared)
{
    if (blocks > 1) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            *shared = atomicAdd(&job.result->ended[job.turn], 1u) == blocks - 1;
            if (*shared)
                job.result->ended[job.turn] = 0;
        }
    } else if (threadIdx.x == 0) {
        *shared = true;
    }
    __syncthreads();
    const bool last = *shared;
    if (last)
        __threadfence();
    return last;
}

__global__ void __launch_bounds__(THREADS) digest_leaves(const __grid_constant__ checksum_batch batch)
{
    __shared__ u64 root[TG_HEADER_SIZE / 8 + NODE];
    __shared__ bool last;
    u32 which = 0, end = batch.count;
    while (end - which > 1) {
        const u32 middle = (which + end) / 2;
        if (job_at(batch, middle).first_block <= blockIdx.x)
            which = middle;
        else
            end = middle;
    }
    const checksum_job &job = job_at(batch, which);
    const u32 block = blockIdx.x - job.first_block;
    const u32 blocks = (which + 1 < batch.count ? job_at(batch, which + 1).first_block : batch.blocks) - job.first_block;
    const u64 size = size_of(job), leaves = job.has_checksum ? (size + TG_LEAF - 1) / TG_LEAF : 0;
    const u64 summed = job.has_checksum ? job.summed : 0, quads = (summed + 3) / 4;
    if (job.words > 0)
        look_at_scales(job.looked_at, job.words, block * THREADS + threadIdx.x, blocks * THREADS, job.result);
    /* from the last one on: it was written last, and may be in the cache still */
    const leaf_lane l(lane_id());
    for (u64 c = block * WARPS + threadIdx.x / 32; c < leaves - summed + quads; c += blocks * WARPS) {
        if (c >= leaves - summed) {
            digest_quad(job, c - (leaves - summed));
            continue;
        }
        const u64 leaf = leaves - 1 - c, left = size - leaf * TG_LEAF;
        const u64 digest = leaf_digest(job.payload + leaf * TG_LEAF, left < TG_LEAF ? left : TG_LEAF, l);
        if (lane_id() == 0)
            job.digests[leaf] = digest;
    }
    if (!batch.roots_apart && ends_job(job, blocks, &last))
        finish_frame(job, root);
}

__global__ void __launch_bounds__(MANY) digest_root(const __grid_constant__ checksum_batch batch)
{
    __shared__ u64 root[TG_HEADER_SIZE / 8 + NODE];
    finish_frame(job_at(batch, blockIdx.x), root);
}

static void launch(tg_cuda *cuda, const checksum_batch &batch)
{
    LAUNCH(digest_leaves, batch.blocks, THREADS, 0, cuda->stream, batch);
    if (batch.roots_apart)
        LAUNCH(digest_root, batch.count, MANY, 0, cuda->stream, batch);
    cuda->busy = true;
}

void tg_cuda_checksum(tg_cuda *cuda, const checksum_job *jobs, size_t count)
{
    checksum_job many[MANY_JOBS];
    for (size_t done = 0, n; done < count; done += n) {
        checksum_batch batch = {};
        n = count - done < MANY_JOBS ? count - done : MANY_JOBS;
        for (u32 i = 0; i < n; i++) {
            many[i] = jobs[done + i];
            many[i].first_block = batch.blocks;
            const u64 leaves = many[i].size / TG_LEAF + 1 - many[i].summed + (many[i].summed + 3) / 4;
            batch.roots_apart |= many[i].has_checksum && many[i].size > (u64)NODES_OF_FEW * NODE * TG_LEAF;
            batch.blocks += many[i].has_checksum ? grid_for(leaves, WARPS, 8 * cuda->processors)
                                                 : grid_for(many[i].words, 16 * THREADS, 2 * cuda->processors);
        }
        batch.count = (u32)n;
        batch.many = n > FEW_JOBS ? (const checksum_job *)tg_cuda_upload(cuda, many, n * sizeof *many) : NULL;
        if (n > FEW_JOBS && !batch.many) { /* no room: fewer at a time */
            n = batch.count = FEW_JOBS;
            batch.blocks = many[FEW_JOBS].first_block;
        }
        for (u32 i = 0; !batch.many && i < n; i++)
            batch.few[i] = many[i];
        launch(cuda, batch);
    }
}
