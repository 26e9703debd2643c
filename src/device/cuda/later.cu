/* What jobs that are done later need besides the kernels of others. */
#include "device/cuda/later.cuh"

/* ---- draws ---- */

__global__ void draw_keys(tg_draw draw, const uint64_t *step, tg_hash_key *drawn)
{
    draw.step = *step;
    drawn[threadIdx.x] = tg_hash_key_of(&draw, (tg_purpose)threadIdx.x);
}

void tg_cuda_draw(tg_cuda *cuda, const tg_draw *draw, const uint64_t *step, tg_hash_key *drawn)
{
    LAUNCH(draw_keys, 1, PURPOSES, 0, cuda->stream, *draw, step, drawn);
}

/* ---- arrays, as arguments of a kernel ---- */

/* Of 4096 bytes that all arguments of a kernel may have, or of 32,764 from CUDA 12.1 on. */
constexpr u32 FEW_BYTES = 3968, MANY_BYTES = 32640, CARRIERS = 256;

template <u32 BYTES> struct carried {
    u64 *to;
    u32 words;
    u64 of[BYTES / 8];
};

template <u32 BYTES>
__global__ void __launch_bounds__(CARRIERS) store_argument(const __grid_constant__ carried<BYTES> c)
{
    const u64 *from = c.of;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(from)); /* as memory: constants that differ by thread come one after the other */
#endif
    const u32 i = blockIdx.x * CARRIERS + threadIdx.x;
    if (i < c.words)
        c.to[i] = from[i];
}

size_t tg_cuda_carrier_room(void) { return sizeof(carried<MANY_BYTES>); }

template <u32 BYTES> static void store(tg_cuda *cuda, u8 *to, const u8 *from, size_t bytes)
{
    carried<BYTES> *c = (carried<BYTES> *)cuda->carrier; /* not on the stack, of which there is little */
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < BYTES ? bytes - done : BYTES;
        c->to = (u64 *)(void *)(to + done);
        c->words = (u32)((n + 7) / 8);
        memcpy(c->of, from + done, n);
        LAUNCH_WITH((store_argument<BYTES>), grid_for(c->words, CARRIERS, MANY_BYTES), CARRIERS, cuda->stream, c);
    }
}

const void *tg_cuda_store(tg_cuda *cuda, const void *array, size_t bytes)
{
    const size_t at = cuda->stored, room = (bytes + 15) / 16 * 16;
    if (room > STORES - at)
        return NULL;
#if CUDART_VERSION >= 12010
    if (cuda->long_arguments && bytes > FEW_BYTES)
        store<MANY_BYTES>(cuda, cuda->stored_to + at, (const u8 *)array, bytes);
    else
#endif
        store<FEW_BYTES>(cuda, cuda->stored_to + at, (const u8 *)array, bytes);
    cuda->stored += room;
    return cuda->stored_to + at;
}

/* ---- reports ---- */

control *tg_cuda_later_slot(tg_cuda *cuda) { return &cuda->later_slots[cuda->ending_count++]; }

void tg_cuda_begin_later(tg_cuda *cuda)
{
    cuda->later = true;
    cuda->rounds++;
    cuda->ending_count = 0;
    cuda->stored = 0;
}

void tg_cuda_end_later(tg_cuda *cuda)
{
    cuda->later = false;
    cuda->busy = true;
}

/* ---- verdicts ---- */

struct verdicts {
    control *slots;
    tg_status *to[LATER_SLOTS];
};

__global__ void __launch_bounds__(32) end_adding(const __grid_constant__ verdicts all)
{
    control *c = &all.slots[blockIdx.x];
    if (threadIdx.x == 0 && all.to[blockIdx.x])
        *all.to[blockIdx.x] = c->bad & OTHER_HEADER ? TG_LAYOUT_MISMATCH : c->bad ? TG_CORRUPT : TG_OK;
    __syncwarp();
    for (u32 i = threadIdx.x; i < sizeof(control) / 8; i += 32)
        ((u64 *)(void *)c)[i] = 0;
}

control *tg_cuda_later_verdict(tg_cuda *cuda, tg_status *status_to)
{
    cuda->verdicts_to[cuda->ending_count] = status_to;
    return &cuda->later_slots[cuda->ending_count++];
}

void tg_cuda_end_adding(tg_cuda *cuda)
{
    verdicts all;
    all.slots = cuda->later_slots;
    for (u32 i = 0; i < cuda->ending_count; i++)
        all.to[i] = cuda->verdicts_to[i];
    if (cuda->ending_count > 0)
        LAUNCH(end_adding, cuda->ending_count, 32, 0, cuda->stream, all);
    cuda->later = false;
    cuda->busy = true;
}

/* ---- branches ---- */

bool tg_cuda_make_branches(tg_cuda *cuda)
{
    bool fine = cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming) == cudaSuccess;
    for (u32 i = 0; fine && i < BRANCHES; i++)
        fine = cudaStreamCreateWithFlags(&cuda->branches[i], cudaStreamNonBlocking) == cudaSuccess &&
               cudaEventCreateWithFlags(&cuda->joined[i], cudaEventDisableTiming) == cudaSuccess;
    return fine;
}

void tg_cuda_free_branches(tg_cuda *cuda)
{
    for (u32 i = 0; i < BRANCHES; i++) {
        if (cuda->joined[i])
            (void)cudaEventDestroy(cuda->joined[i]);
        if (cuda->branches[i])
            (void)cudaStreamDestroy(cuda->branches[i]);
    }
    if (cuda->forked)
        (void)cudaEventDestroy(cuda->forked);
}

void tg_cuda_branch(tg_cuda *cuda, u32 which)
{
    if (!cuda->branched) {
        cuda->trunk = cuda->stream;
        cuda->branched = true;
        cuda->branches_used = 0;
        (void)tg_cuda_fine(cuda, cudaEventRecord(cuda->forked, cuda->trunk));
    }
    if (!(cuda->branches_used >> which & 1))
        (void)tg_cuda_fine(cuda, cudaStreamWaitEvent(cuda->branches[which], cuda->forked, 0));
    cuda->branches_used |= 1u << which;
    cuda->stream = cuda->branches[which];
    cuda->branch = which + 1;
}

void tg_cuda_join(tg_cuda *cuda)
{
    if (!cuda->branched)
        return;
    for (u32 i = 0; i < BRANCHES; i++) {
        if (!(cuda->branches_used >> i & 1))
            continue;
        (void)tg_cuda_fine(cuda, cudaEventRecord(cuda->joined[i], cuda->branches[i]));
        (void)tg_cuda_fine(cuda, cudaStreamWaitEvent(cuda->trunk, cuda->joined[i], 0));
    }
    cuda->stream = cuda->trunk;
    cuda->branch = 0;
    cuda->branched = false;
}
