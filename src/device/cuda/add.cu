/* Decoding frames and adding them to vectors: a warp takes a group of 512 elements, through all frames. */
#include "device/cuda/received.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32, AT_ONCE = TG_MAX_NARROW_FRAMES;

/* Element r of lane t: row 16 (t / 16) + r of the packed lane t % 16. */
__device__ __forceinline__ u32 decoded_place(u32 t, u32 r) { return 256 * (t / 16) + TG_LANES * r + t % 16; }

/* The lane's 16 codes of a whole group. */
__device__ __forceinline__ void unpack_group(const u32 *group, u32 width, u32 (&code)[16])
{
    const u32 t = lane_id(), bit = 16 * width * (t / 16), mask = (1u << width) - 1;
    const u32 *next = group + TG_LANES * (bit / 32) + t % 16;
    u64 pending = (u64)*next >> (bit % 32);
    u32 pending_count = 32 - bit % 32;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        if (pending_count < width) {
            next += TG_LANES;
            pending |= (u64)*next << pending_count;
            pending_count += 32;
        }
        code[r] = (u32)pending & mask;
        pending >>= width;
        pending_count -= width;
    }
}

/* The values of one frame in this group. False if one of them cannot be what it is. */
__device__ __forceinline__ bool decode_group(const dense_frame &f, u32 group, float (&value)[16])
{
    const u32 t = lane_id(), first = group * TG_GROUP;
    const bool whole = f.count - first >= TG_GROUP;
    const u32 last = whole ? first + TG_GROUP - 1 : f.count - 1;
    if (f.kind != PLAIN && whole && first / f.bucket == last / f.bucket) {
        const u32 bucket = first / f.bucket;
        const u32 *scale = (const u32 *)f.scales + (u64)bucket * (f.affine ? 2 : 1);
        u32 code[16];
        unpack_group((const u32 *)(f.codes + (u64)group * (TG_GROUP / 8) * f.width), f.width, code);
        const tg_quantiser q = f.kind == SIGNS ? tg_quantiser{} : quantiser_at(f, bucket);
        const float mean = tg_bits_float(*scale);
#pragma unroll
        for (u32 r = 0; r < 16; r++)
            value[r] = f.kind == SIGNS ? (code[r] ? mean : -mean) : tg_value_of(&q, code[r]);
        return scale_is_sound(f, f.affine ? 0 : 1, scale[0]) && (!f.affine || scale_is_sound(f, 1, scale[1]));
    }
    bool sound = whole || f.kind == PLAIN || padding_is_zero(f);
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 i = first + decoded_place(t, r);
        value[r] = i < f.count ? value_at(f, i) : 0;
        if (f.kind == PLAIN)
            sound = sound && is_finite(value[r]);
        else if (i < f.count)
            sound = sound && scale_is_sound(f, 1, ((const u32 *)f.scales)[(f.affine ? 2 : 1) * (i / f.bucket) + (f.affine ? 1 : 0)]) &&
                    (!f.affine || scale_is_sound(f, 0, ((const u32 *)f.scales)[2 * (i / f.bucket)]));
    }
    return sound;
}

__global__ void __launch_bounds__(THREADS) add_groups(const __grid_constant__ addition a)
{
    const u32 group = blockIdx.x * WARPS + threadIdx.x / 32, t = lane_id();
    if ((u64)group * TG_GROUP >= a.out.count)
        return;
    float sum[16], value[16];
    const u32 first = group * TG_GROUP;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u64 i = first + decoded_place(t, r);
        sum[r] = !a.fresh && i < a.out.count ? element_at(a.out.data, a.out.dtype, i) : 0;
    }
    bool sound = true;
    for (u32 k = 0; k < a.frame_count; k++) {
        sound = decode_group(a.frames[k], group, value) && sound;
        const bool sets = a.fresh && k == 0;
#pragma unroll
        for (u32 r = 0; r < 16; r++)
            sum[r] = sets ? a.weight * value[r] : sum[r] + a.weight * value[r];
    }
    if (!__all_sync(FULL, sound)) {
        if (t == 0)
            atomicOr(&a.result->bad, 1u);
        return;
    }
    u32 limited = 0;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u64 i = first + decoded_place(t, r);
        if (i < a.out.count)
            store_element(a.out.data, a.out.dtype, i, a.scale != 1 ? a.scale * sum[r] : sum[r], &limited);
    }
}

static void complete_add(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_add_job *job = (tg_add_job *)p->of;
    job->status = cuda->failure != cudaSuccess ? TG_UNAVAILABLE : seen->bad ? TG_CORRUPT : TG_OK;
}

/* Frames from `done` on to `out`. */
static bool add_some(tg_cuda *cuda, const tg_add_job *job, size_t done, u32 n, const tg_tensor *out, control *c)
{
    tg_frame headers[AT_ONCE];
    if (!job->infos)
        fetch_headers(cuda, job->frames + done, n, job->on_device, headers);
    addition a = {.frame_count = n,
                  .weight = job->weight,
                  .scale = done + n == job->frame_count ? job->scale : 1,
                  .fresh = job->fresh && done == 0,
                  .out = *out,
                  .result = c};
    for (u32 k = 0; k < n; k++) {
        tg_frame_info info;
        u8 *payload;
        if (job->infos)
            info = job->infos[done + k];
        else if (tg_frame_read(headers[k], &info, NULL) != TG_OK)
            return false;
        if (!can_read(&info) || info.count != out->count ||
            !receive(cuda, job->frames[done + k], job->on_device, &info, &payload, &a.frames[k]))
            return false;
    }
    if (out->count > 0 && !tg_cuda_add_fast(cuda, &a))
        LAUNCH(add_groups, (unsigned)((out->count - 1) / (WARPS * TG_GROUP) + 1), THREADS, 0, cuda->stream, a);
    return true;
}

static void add(tg_cuda *cuda, tg_add_job *job)
{
    const bool wide = job->out.dtype != TG_FLOAT32 && job->frame_count > AT_ONCE;
    const tg_tensor sum = {job->wide, job->out.count, TG_FLOAT32}, *out = wide ? &sum : &job->out;
    size_t room = 0;
    for (size_t i = 0; i < job->frame_count; i++)
        room += frame_room(job->frames[i]);
    if (!tg_cuda_arena(cuda, room)) {
        job->status = TG_OUT_OF_MEMORY;
        return;
    }
    bool sound = true;
    control *c = tg_cuda_slot(cuda, {complete_add, job, NULL, 0});
    for (size_t done = 0; sound && (done < job->frame_count || (job->fresh && done == 0));) {
        const size_t left = job->frame_count - done;
        const u32 n = left < AT_ONCE ? (u32)left : AT_ONCE;
        sound = add_some(cuda, job, done, n, out, c);
        done += n ? n : 1;
    }
    if (!sound)
        (void)tg_cuda_fine(cuda, cudaMemsetAsync(&c->bad, 1, sizeof c->bad, cuda->stream));
    else if (wide)
        tg_cuda_narrow(&cuda->device, job->wide, &job->out);
}

void tg_cuda_add(tg_device *device, tg_add_job *jobs, size_t count)
{
    const occupied now(device);
    for (size_t i = 0; i < count; i++)
        add(now.cuda, &jobs[i]);
}
