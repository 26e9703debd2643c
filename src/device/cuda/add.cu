/* Decoding frames and adding them to vectors: a warp takes a group of 512 elements, through all frames. */
#include "device/cuda/checksum.cuh"
#include "device/cuda/later.cuh"
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
            sound = sound &&
                    scale_is_sound(f, 1,
                                   ((const u32 *)f.scales)[(f.affine ? 2 : 1) * (i / f.bucket) + (f.affine ? 1 : 0)]) &&
                    (!f.affine || scale_is_sound(f, 0, ((const u32 *)f.scales)[2 * (i / f.bucket)]));
    }
    return sound;
}

__global__ void __launch_bounds__(THREADS) add_groups(const __grid_constant__ addition a)
{
    const u32 group = blockIdx.x * WARPS + threadIdx.x / 32, t = lane_id();
    if ((u64)group * TG_GROUP >= a.out.count)
        return;
    const u32 bad = *(volatile u32 *)&a.result->bad; /* found by what came before: nothing is added */
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
            atomicOr(&a.result->bad, (u32)BREAKS_RULE);
        return;
    }
    if (bad)
        return;
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
    job->status = cuda->failure != cudaSuccess ? TG_UNAVAILABLE
                  : seen->bad == NO_MEMORY     ? TG_OUT_OF_MEMORY
                  : seen->bad                  ? TG_CORRUPT
                                               : TG_OK;
}

/* What is known of up to AT_ONCE frames from `done` on; `known` are headers of all of the job's, or NULL. False if the
 * card cannot add one of them to this output. */
static bool look_at(tg_cuda *cuda, const tg_add_job *job, const tg_frame *known, size_t done, u32 n,
                    tg_frame_info *infos)
{
    tg_frame headers[AT_ONCE];
    if (!job->checks && !known)
        tg_cuda_fetch_headers(cuda, job->frames + done, n, job->on_device, headers);
    for (u32 k = 0; k < n; k++) {
        if (job->checks)
            infos[k] = job->checks[done + k].info;
        else if (tg_frame_read(known ? known[done + k] : headers[k], &infos[k], NULL) != TG_OK)
            return false;
        if (!can_read(&infos[k], false) || infos[k].count != job->out.count)
            return false;
    }
    return true;
}

static void launch_addition(tg_cuda *cuda, const addition *a)
{
    if (a->out.count > 0 && !tg_cuda_add_fast(cuda, a))
        LAUNCH(add_groups, (unsigned)((a->out.count - 1) / (WARPS * TG_GROUP) + 1), THREADS, 0, cuda->stream, *a);
}

/* Dense frames from `done` on to `out`. */
static tg_status add_dense(tg_cuda *cuda, const tg_add_job *job, size_t done, u32 n, const tg_frame_info *infos,
                           float scale, const tg_tensor *out, control *c)
{
    addition a = {.frame_count = n,
                  .weight = job->weight,
                  .scale = scale,
                  .fresh = job->fresh && done == 0,
                  .out = *out,
                  .result = c};
    for (u32 k = 0; k < n; k++) {
        u8 *payload;
        if (!receive(cuda, job->frames[done + k], job->on_device, &infos[k], &payload, &a.frames[k]))
            return TG_CORRUPT;
        if (tg_cuda_adds_coded(cuda, &infos[0], &a)) {
            tg_cuda_add_coded(cuda, job->frames[done], &infos[0], &a);
            return TG_OK;
        }
        expand(cuda, job->frames[done + k], job->on_device, &infos[k], &a.frames[k], c);
    }
    launch_addition(cuda, &a);
    return TG_OK;
}

/* ---- where some frames are sparse: one frame after the other to a sum in float32 ---- */

static bool any_sparse(const tg_frame_info *infos, u32 n)
{
    bool any = false;
    for (u32 k = 0; k < n; k++)
        any = any || is_sparse(&infos[k]);
    return any;
}

static tg_status add_one(tg_cuda *cuda, const tg_add_job *job, size_t which, const tg_frame_info *info,
                         const tg_tensor *sum, control *c)
{
    sparse_frame f = {};
    u8 *workspace;
    const bool sets = job->fresh && which == 0;
    if (!is_sparse(info))
        return add_dense(cuda, job, which, 1, info, 1, sum, c);
    if (!receive_sparse(cuda, job->frames[which], job->on_device, info, &f, &workspace))
        return TG_CORRUPT;
    if (sets)
        (void)tg_cuda_fine(cuda, cudaMemsetAsync(sum->data, 0, 4 * (size_t)sum->count, cuda->stream));
    tg_cuda_sparse_add(cuda, &f, workspace, job->weight, sets, (float *)sum->data, c);
    return TG_OK;
}

/* Frames from `done` on; the last of all are followed by scaling. */
static tg_status add_in_turn(tg_cuda *cuda, const tg_add_job *job, size_t done, u32 n, const tg_frame_info *infos,
                             const tg_tensor *out, control *c)
{
    size_t room = out->dtype == TG_FLOAT32 ? 0 : arena_room(4 * (size_t)out->count);
    for (u32 k = 0; k < n; k++)
        room += frame_room(job->frames[done + k]) +
                reading_room(cuda, job->frames[done + k], job->on_device, &infos[k]);
    if (!tg_cuda_arena(cuda, room))
        return TG_OUT_OF_MEMORY;
    tg_tensor sum = *out;
    if (out->dtype != TG_FLOAT32) {
        sum = tg_tensor{tg_cuda_take(cuda, 4 * (size_t)out->count), out->count, TG_FLOAT32};
        const tg_source as_it_is = {.gradient = out->data, .dtype = out->dtype, .count = out->count};
        if (!(job->fresh && done == 0))
            tg_cuda_compensate(&cuda->device, &as_it_is, (float *)sum.data);
    }
    for (u32 k = 0; k < n; k++)
        if (add_one(cuda, job, done + k, &infos[k], &sum, c) != TG_OK)
            return TG_CORRUPT;
    if (done + n == job->frame_count && job->scale != 1)
        tg_cuda_scale(&cuda->device, (float *)sum.data, sum.count, job->scale);
    if (out->dtype != TG_FLOAT32)
        tg_cuda_narrow(&cuda->device, (const float *)sum.data, out);
    return TG_OK;
}

/* ---- all of them ---- */

/* Up to AT_ONCE frames from `done` on to `out`. */
static tg_status add_some(tg_cuda *cuda, const tg_add_job *job, const tg_frame *known, size_t done, u32 n,
                          const tg_tensor *out, control *c)
{
    tg_frame_info infos[AT_ONCE];
    size_t room = 0;
    if (!look_at(cuda, job, known, done, n, infos))
        return TG_CORRUPT;
    if (any_sparse(infos, n))
        return add_in_turn(cuda, job, done, n, infos, out, c);
    for (u32 k = 0; k < n; k++)
        room += frame_room(job->frames[done + k]) +
                reading_room(cuda, job->frames[done + k], job->on_device, &infos[k]);
    if (!tg_cuda_arena(cuda, room))
        return TG_OUT_OF_MEMORY;
    return add_dense(cuda, job, done, n, infos, done + n == job->frame_count ? job->scale : 1, out, c);
}

/* ---- frames on the card whose headers are what was expected ---- */

constexpr u32 TOGETHER = 8;

/* What is known of the frames of a job before they have been looked at. */
struct expectation {
    checksum_job sums[TOGETHER];
    dense_frame dense[TOGETHER];
    sparse_frame sparse[TOGETHER];
    u8 *workspace[TOGETHER];
};

/* Whether the kernels for these frames can be chosen before anything is known of them. */
static bool can_expect(tg_cuda *cuda, const tg_add_job *job, expectation *x, size_t *room)
{
    const bool lists = job->out.dtype == TG_FLOAT32 && !job->fresh && job->scale == 1;
    if (!job->on_device || job->frame_count == 0 || job->frame_count > TOGETHER || job->out.count == 0)
        return false;
    *room = 0;
    for (size_t k = 0; k < job->frame_count; k++) {
        const tg_frame frame = job->frames[k];
        tg_frame_info *info = &job->checks[k].info;
        if ((uintptr_t)frame.data % 16 != 0 || job->checks[k].wants_peak ||
            !tg_cuda_expect(cuda, job->out.count, frame.size, x->sums[k].header, info) || !can_read(info, true) ||
            (is_sparse(info) ? !lists
                             : !tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &x->dense[k]) ||
                                   x->dense[k].kind == PLAIN) ||
            is_sparse(info) != is_sparse(&job->checks[0].info))
            return false;
        *room += reading_room(cuda, frame, true, info) + arena_room(tg_cuda_digests_room(frame.size));
    }
    return true;
}

/* Where the parts of a frame are, whose header is expected to say `info`. False if it is not as long as it must be. */
static bool divide(tg_cuda *cuda, tg_frame frame, const tg_frame_info *info, bool verified, size_t k, expectation *x)
{
    checksum_job *sum = &x->sums[k];
    u8 *payload = (u8 *)(uintptr_t)frame.data + TG_HEADER_SIZE;
    sum->payload = payload;
    sum->size = frame.size - TG_HEADER_SIZE;
    sum->digests = (u64 *)(void *)tg_cuda_take(cuda, tg_cuda_digests_room(frame.size));
    sum->has_checksum = info->has_checksum && !verified;
    sum->header_at = (const u8 *)frame.data;
    sum->must_match = sum->has_checksum || !info->has_checksum;
    tg_header_set_checksum(sum->header, 0);
    if (is_sparse(info))
        return receive_sparse(cuda, frame, true, info, &x->sparse[k], &x->workspace[k]);
    if (!receive(cuda, frame, true, info, &payload, &x->dense[k]))
        return false;
    sum->looked_at = x->dense[k];
    sum->words = verified ? 0 : tg_cuda_scale_words(&x->dense[k]);
    return true;
}

static void complete_expected(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_add_job *job = (tg_add_job *)p->of;
    const bool lost = cuda->failure != cudaSuccess;
    if (!lost && (seen->bad & OTHER_HEADER || (seen->bad && !job->checks[0].header_only))) {
        cuda->again[cuda->again_count++] = job; /* and then it is said what is wrong */
        return;
    }
    for (size_t k = 0; k < job->frame_count; k++)
        job->checks[k].status = lost ? TG_UNAVAILABLE : TG_OK;
    job->status = lost ? TG_UNAVAILABLE : seen->bad ? TG_CORRUPT : TG_OK;
}

static void add_lists(tg_cuda *cuda, expectation *x, bool verified, size_t frames, float weight, float *out, control *c)
{
    x->sparse[0].beside = !verified; /* then its checksum is what was put on the stream last */
    for (size_t k = 0; k < frames; k++) {
        if (verified)
            tg_cuda_sparse_find(cuda, &x->sparse[k], x->workspace[k], c);
        else
            tg_cuda_sparse_check(cuda, &x->sparse[k], x->workspace[k], c);
    }
    for (size_t k = 0; k < frames; k++)
        tg_cuda_sparse_put(cuda, &x->sparse[k], x->workspace[k], weight, out, c);
}

/* Checks and adds without waiting in between; the kernels add nothing where a check has failed. False if these frames
 * cannot be treated so. */
static bool add_expected(tg_cuda *cuda, tg_add_job *job)
{
    expectation x = {};
    size_t room;
    if (!can_expect(cuda, job, &x, &room) || !tg_cuda_arena(cuda, room))
        return false;
    for (size_t k = 0; k < job->frame_count; k++)
        if (!divide(cuda, job->frames[k], &job->checks[k].info, job->checks[k].header_only, k, &x))
            return false;
    control *c = tg_cuda_slot(cuda, {complete_expected, job, NULL, 0});
    addition a = {.frame_count = (u32)job->frame_count,
                  .weight = job->weight,
                  .scale = job->scale,
                  .fresh = job->fresh,
                  .out = job->out,
                  .result = c};
    const bool sparse = is_sparse(&job->checks[0].info);
    for (size_t k = 0; k < job->frame_count; k++) {
        x.sums[k].result = c;
        a.frames[k] = x.dense[k];
    }
    const bool at_once = !sparse && job->checks[0].header_only && tg_cuda_adds_coded(cuda, &job->checks[0].info, &a);
    for (size_t k = 0; k < job->frame_count && !sparse && !at_once; k++)
        expand(cuda, job->frames[k], true, &job->checks[k].info, &x.dense[k], c);
    tg_cuda_checksum(cuda, x.sums, job->frame_count, false);
    if (sparse)
        add_lists(cuda, &x, job->checks[0].header_only, job->frame_count, job->weight, (float *)job->out.data, c);
    else if (at_once)
        tg_cuda_add_coded(cuda, job->frames[0], &job->checks[0].info, &a);
    else
        launch_addition(cuda, &a);
    return true;
}

/* ---- any frames ---- */

static void add_checked(tg_cuda *cuda, tg_add_job *job, const tg_frame *known)
{
    const bool wide = job->out.dtype != TG_FLOAT32 && job->frame_count > AT_ONCE;
    const tg_tensor sum = {job->wide, job->out.count, TG_FLOAT32}, *out = wide ? &sum : &job->out;
    tg_status status = TG_OK;
    control *c = tg_cuda_slot(cuda, {complete_add, job, NULL, 0});
    for (size_t done = 0; status == TG_OK && (done < job->frame_count || (job->fresh && done == 0));) {
        const size_t left = job->frame_count - done;
        const u32 n = left < AT_ONCE ? (u32)left : AT_ONCE;
        status = add_some(cuda, job, known, done, n, out, c);
        done += n ? n : 1;
    }
    if (status != TG_OK)
        (void)tg_cuda_fine(cuda, cudaMemsetAsync(&c->bad, status == TG_CORRUPT ? 1 : (int)NO_MEMORY, 1, cuda->stream));
    else if (wide)
        tg_cuda_narrow(&cuda->device, job->wide, &job->out);
}

void tg_cuda_add_slowly(tg_cuda *cuda, tg_add_job *job)
{
    bool sound = true;
    if (job->checks) {
        tg_cuda_check(&cuda->device, job->checks, job->frame_count);
        tg_cuda_settle(cuda);
        for (size_t k = 0; k < job->frame_count; k++)
            sound = sound && job->checks[k].status == TG_OK;
    }
    if (sound)
        add_checked(cuda, job, NULL);
    else
        job->status = TG_CORRUPT;
}

/* Jobs of frames on the card that have been checked: their headers are fetched together. Returns how many were done. */
static size_t add_checked_jobs(tg_cuda *cuda, tg_add_job *jobs, size_t count)
{
    tg_frame frames[SLOTS], headers[SLOTS];
    size_t many = 0, n = 0;
    for (; many < count && jobs[many].on_device && !jobs[many].checks && jobs[many].frame_count <= SLOTS - n; many++)
        for (size_t k = 0; k < jobs[many].frame_count; k++)
            frames[n++] = jobs[many].frames[k];
    if (many > 0)
        tg_cuda_fetch_headers(cuda, frames, n, true, headers);
    n = 0;
    for (size_t i = 0; i < many; n += jobs[i++].frame_count)
        add_checked(cuda, &jobs[i], headers + n);
    return many;
}

void tg_cuda_add(tg_device *device, tg_add_job *jobs, size_t count)
{
    const occupied now(device);
    for (size_t i = 0; i < count; i++) {
        const size_t many = add_checked_jobs(now.cuda, jobs + i, count - i);
        if (many > 0)
            i += many - 1;
        else if (!jobs[i].checks || !add_expected(now.cuda, &jobs[i]))
            tg_cuda_add_slowly(now.cuda, &jobs[i]);
    }
}

/* ---- frames that are added later ---- */

struct sizes {
    const u8 *headers[TOGETHER];
    u64 most[TOGETHER];
    control *known[TOGETHER]; /* get the sizes of payloads */
    control *result;
};

/* The sizes that sparse frames have, which their headers tell. */
__global__ void find_sizes(const __grid_constant__ sizes s)
{
    const u32 k = threadIdx.x;
    const u64 size = *(const u64 *)(s.headers[k] + 32);
    const bool fits = size >= 8 && size <= s.most[k];
    if (!fits)
        atomicOr(&s.result->bad, (u32)OTHER_HEADER);
    s.known[k]->payload = fits ? size : 8;
}

static size_t room_of(const tg_add_later_job *job)
{
    size_t room = 0;
    for (size_t k = 0; k < job->frame_count; k++)
        room += reading_room(NULL, job->frames[k], true, job->like) +
                arena_room(tg_cuda_digests_room(job->frames[k].size));
    return room;
}

static tg_status refuse_later(const tg_cuda *cuda, const tg_add_later_job *job, tg_error *error)
{
    dense_frame f;
    const bool sparse = is_sparse(job->like);
    if (!can_read(job->like, true) || (sparse && job->out.dtype != TG_FLOAT32) ||
        (!sparse &&
         (!tg_cuda_dense_frame(&job->like->spec, job->like->dtype, job->like->count, NULL, &f) || f.kind == PLAIN)))
        return tg_fail(error, TG_UNAVAILABLE, "device %s cannot add such frames of %s later; use tg_decode_add",
                       cuda->device.name, tg_codec_row_of(job->like->spec.codec)->name);
    if (room_of(job) > cuda->arena_size)
        return tg_fail(error, TG_OUT_OF_MEMORY,
                       "adding these frames takes %zu bytes of device %s; reserve them first with tg_device_reserve",
                       room_of(job), cuda->device.name);
    return TG_OK;
}

static bool put_later(tg_cuda *cuda, const tg_add_later_job *job)
{
    expectation x = {};
    sizes s = {};
    const bool sparse = is_sparse(job->like);
    for (size_t k = 0; k < job->frame_count; k++) {
        tg_frame_info info = *job->like;
        info.bytes = job->frames[k].size;
        tg_header_write(&info, x.sums[k].header);
        if (!divide(cuda, job->frames[k], job->like, job->verified, k, &x))
            return false;
    }
    control *c = s.result = tg_cuda_later_verdict(cuda, job->status_to);
    addition a = {
        .frame_count = (u32)job->frame_count, .weight = job->weight, .scale = 1, .out = job->out, .result = c};
    for (size_t k = 0; k < job->frame_count; k++) {
        x.sums[k].result = c;
        a.frames[k] = x.dense[k];
        if (!sparse)
            continue;
        s.headers[k] = (const u8 *)job->frames[k].data;
        s.most[k] = job->frames[k].size - TG_HEADER_SIZE;
        s.known[k] = tg_cuda_later_verdict(cuda, NULL);
        x.sums[k].known = x.sparse[k].known = s.known[k];
    }
    if (sparse)
        LAUNCH(find_sizes, 1, (u32)job->frame_count, 0, cuda->stream, s);
    const bool at_once = !sparse && job->verified && tg_cuda_adds_coded(cuda, job->like, &a);
    for (size_t k = 0; k < job->frame_count && !sparse && !at_once; k++)
        expand(cuda, job->frames[k], true, job->like, &x.dense[k], c);
    tg_cuda_checksum(cuda, x.sums, job->frame_count, false);
    if (sparse)
        add_lists(cuda, &x, job->verified, job->frame_count, job->weight, (float *)job->out.data, c);
    else if (at_once)
        tg_cuda_add_coded(cuda, job->frames[0], job->like, &a);
    else
        launch_addition(cuda, &a);
    return true;
}

/* A frame that is too short for what it should be: nothing of it is read. */
__global__ void refuse_later_kernel(tg_status *status_to) { *status_to = TG_LAYOUT_MISMATCH; }

tg_status tg_cuda_can_add_later(const tg_device *device, const tg_add_later_job *job, tg_error *error)
{
    return refuse_later((const tg_cuda *)device, job, error);
}

void tg_cuda_add_later(tg_device *device, const tg_add_later_job *jobs, size_t count)
{
    const occupied now(device);
    tg_cuda *cuda = now.cuda;
    for (size_t done = 0; done < count;) {
        tg_cuda_begin_later(cuda);
        cuda->arena_used = 0;
        for (; done < count && cuda->ending_count + 1 + TOGETHER <= LATER_SLOTS; done++) {
            if (room_of(&jobs[done]) > cuda->arena_size - cuda->arena_used) { /* behind those that have it now */
                tg_cuda_join(cuda);
                cuda->arena_used = 0;
            }
            if (count > 1)
                tg_cuda_branch(cuda, (u32)(done % BRANCHES));
            if (!put_later(cuda, &jobs[done]))
                LAUNCH(refuse_later_kernel, 1, 1, 0, cuda->stream, jobs[done].status_to);
        }
        tg_cuda_join(cuda);
        tg_cuda_end_adding(cuda);
    }
}

/* ---- memory for frames ---- */

bool tg_cuda_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames)
{
    const occupied now(device);
    tg_frame_info info = {};
    info.spec = *spec;
    info.count = count;
    const size_t bound = TG_HEADER_SIZE + tg_codec_row_of(spec->codec)->bound(spec, count);
    const tg_frame frame = {NULL, bound};
    size_t most = 0;
    for (unsigned layout = 0; layout < TG_LAYOUTS; layout++) {
        info.layout = layout;
        const size_t room = can_read(&info, true) ? reading_room(now.cuda, frame, true, &info) : 0;
        most = room > most ? room : most;
    }
    const size_t each = frame_room(frame) + most + arena_room(tg_cuda_digests_room(bound));
    tg_cuda_settle(now.cuda);
    return tg_cuda_arena(now.cuda, frames * each);
}
