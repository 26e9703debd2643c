/* Decoding frames and adding them to vectors. */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

bool tg_frame_open(tg_reader *reader, const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info)
{
    memset(reader, 0, sizeof *reader);
    reader->kernels = kernels;
    reader->row = tg_codec_row_of(info->spec.codec);
    reader->step = reader->grain = TG_BLOCK;
    tg_payload payload = tg_frame_payload(frame, info);
    return reader->row->open(reader, &payload);
}

/* Adds the next block of all frames with the fused kernel, if all of them are packed levels. */
static bool add_packed(const tg_kernels *k, tg_reader *readers, size_t frame_count, size_t n, tg_storing how,
                       float weight, float *sum)
{
    tg_levels_decoding next[TG_MAX_NARROW_FRAMES];
    if (!k->decode_levels || n != TG_BLOCK || frame_count == 0)
        return false;
    for (size_t i = 0; i < frame_count; i++)
        if (!readers[i].row->packed || !readers[i].row->packed(&readers[i], &next[i]))
            return false;
    k->decode_levels(next, frame_count, n, how, weight, sum);
    for (size_t i = 0; i < frame_count; i++)
        readers[i].levels.position += n;
    return true;
}

/* Up to TG_MAX_NARROW_FRAMES frames that are added in one pass. */
typedef struct addition {
    tg_cpu *cpu;
    tg_walk_scratch *opened; /* with readers of all frames */
    size_t frame_count;
    float weight;
    bool fresh;  /* the first frame sets the output */
    float scale; /* the sum is multiplied by it at the end */
    const tg_tensor *out;
    tg_storing how;   /* for frames whose values are stored while they are decoded */
    bool nontemporal; /* sparse frames: the output is made block by block, with non-temporal stores */
    uint64_t step;
    tg_ranges ranges;
    atomic_bool broken;
} addition;

static void scale_in_place(const tg_kernels *k, float scale, size_t n, float *values)
{
    for (size_t first = 0; first < n; first += TG_BLOCK)
        k->set_scaled(values + first, scale, tg_block_size(n, first), values + first);
}

/* Adds the next n elements, the first of which is `first`, of all frames; in `block`, unless it can be done in the
 * output itself. */
static bool add_step(const addition *b, tg_reader *readers, size_t frame_count, uint64_t first, size_t n, float *block)
{
    const tg_kernels *k = b->cpu->kernels;
    const tg_dtype dtype = b->out->dtype;
    char *elements = (char *)b->out->data + first * tg_dtype_size(dtype);
    float *sum = block;
    if (dtype == TG_FLOAT32 && !b->nontemporal)
        sum = (float *)b->out->data + first;
    else if (!b->fresh)
        k->widen(dtype, elements, n, sum);
    if (b->fresh && !b->nontemporal && (frame_count == 0 || readers[0].row->sparse))
        memset(sum, 0, n * sizeof *sum);
    const bool fused = add_packed(k, readers, frame_count, n, b->how, b->weight, sum);
    for (size_t i = 0; !fused && i < frame_count; i++)
        if (!tg_frame_next(&readers[i], n, b->fresh && i == 0 ? TG_READ_SET : TG_READ_ADD, b->weight, sum))
            return false;
    if (b->scale != 1)
        scale_in_place(k, b->scale, n, sum);
    if (dtype != TG_FLOAT32)
        (void)k->narrow(dtype, sum, n, elements);
    else if (b->nontemporal)
        k->copy_nontemporal(sum, n * sizeof *sum, elements);
    return true;
}

/* Adds a range, with readers that have been opened and that this thread has for itself. */
static void add_with(addition *b, size_t part, tg_walk_scratch *own)
{
    tg_reader *readers = own->readers;
    tg_touched *touched = &own->touched;
    touched->block = own->block;
    touched->count = TG_BLOCK;
    const size_t frame_count = b->frame_count;
    const uint64_t start = tg_range_first(&b->ranges, part), end = tg_range_end(&b->ranges, part);
    for (size_t i = 0; i < frame_count; i++) {
        readers[i].sparse.touched = b->nontemporal ? touched : NULL;
        tg_reader_seek(&readers[i], start);
    }
    for (uint64_t first = start; first < end && !atomic_load_explicit(&b->broken, memory_order_relaxed);
         first += b->step) {
        if (b->nontemporal)
            tg_touched_clear(touched);
        if (!add_step(b, readers, frame_count, first, tg_reader_step(end, first, b->step), own->block))
            atomic_store(&b->broken, true);
    }
    if (b->nontemporal || b->how == TG_SET_NONTEMPORAL)
        b->cpu->kernels->nontemporal_fence();
}

static void add_range(void *of, size_t part)
{
    addition *b = of;
    if (b->ranges.parts == 1) {
        add_with(b, part, b->opened);
        return;
    }
    tg_walk_scratch *own = tg_scratch_take(&b->cpu->parts);
    memcpy(own->readers, b->opened->readers, b->frame_count * sizeof *own->readers);
    add_with(b, part, own);
    tg_scratch_give(&b->cpu->parts, own);
}

static tg_status add_frames(tg_cpu *cpu, tg_walk_scratch *scratch, const tg_frame *frames, size_t frame_count,
                            float weight, bool fresh, float scale, uint64_t among, const tg_tensor *out)
{
    tg_reader *readers = scratch->readers;
    addition b = {
        cpu, scratch, frame_count, weight, fresh, scale, out, .how = fresh ? TG_SET : TG_ADD, .step = TG_BLOCK};
    uint64_t grain = TG_BLOCK;
    bool all_sparse = true;
    for (size_t i = 0; i < frame_count; i++) {
        if (tg_frame_read(frames[i], &scratch->infos[i], NULL) != TG_OK ||
            !tg_frame_open(&readers[i], cpu->kernels, frames[i], &scratch->infos[i]))
            return TG_CORRUPT;
        if (out->dtype == TG_FLOAT32)
            b.step = i == 0 || readers[i].step < b.step ? readers[i].step : b.step;
        if (readers[i].grain == 0 || grain == 0)
            grain = 0;
        else
            grain = readers[i].grain > grain ? readers[i].grain : grain;
        all_sparse = all_sparse && readers[i].row->sparse;
    }
    if (frame_count == 1 && readers[0].row->sparse && !fresh && scale == 1 && out->dtype == TG_FLOAT32)
        b.step = TG_LONG_SPARSE_STEP;
    /* Non-temporal stores need not read the lines that they overwrite; but output that fits the cache is better left
     * there. */
    if (fresh && out->dtype == TG_FLOAT32 && among >= cpu->cache / sizeof(float)) {
        b.nontemporal = all_sparse;
        b.step = all_sparse ? TG_BLOCK : b.step;
        b.how = scale == 1 ? TG_SET_NONTEMPORAL : TG_SET;
    }
    b.ranges = tg_reader_ranges(cpu->pool, out->count, grain);
    tg_parallel(cpu->pool, b.ranges.parts, add_range, &b);
    return b.broken ? TG_CORRUPT : TG_OK;
}

/* Any number of frames, some at a time. */
static tg_status add_all(tg_cpu *cpu, const tg_add_job *job, uint64_t among, const tg_tensor *out)
{
    tg_walk_scratch *scratch = tg_scratch_take(&cpu->calls);
    tg_status status = TG_OK;
    for (size_t done = 0; status == TG_OK && (done < job->frame_count || (job->fresh && done == 0));) {
        const size_t left = job->frame_count - done, n = left < TG_MAX_NARROW_FRAMES ? left : TG_MAX_NARROW_FRAMES;
        const bool last = n == left;
        status = add_frames(cpu, scratch, job->frames + done, n, job->weight, job->fresh && done == 0,
                            last ? job->scale : 1, last ? among : 0, out);
        done += n ? n : 1;
    }
    tg_scratch_give(&cpu->calls, scratch);
    return status;
}

static tg_status add(tg_cpu *cpu, const tg_add_job *job)
{
    const tg_tensor *out = &job->out;
    if (out->dtype == TG_FLOAT32 || job->frame_count <= TG_MAX_NARROW_FRAMES)
        return add_all(cpu, job, job->among, out);
    const tg_tensor sum = {job->wide, out->count, TG_FLOAT32};
    tg_status status = add_all(cpu, job, 0, &sum);
    for (uint64_t first = 0; status == TG_OK && first < out->count; first += TG_BLOCK)
        (void)cpu->kernels->narrow(out->dtype, job->wide + first, tg_block_size(out->count, first),
                                   (char *)out->data + first * tg_dtype_size(out->dtype));
    return status;
}

/* Checks the frames of a job that asks for it. */
static bool are_sound(tg_device *device, const tg_add_job *job)
{
    bool sound = true;
    if (job->checks)
        tg_cpu_check(device, job->checks, job->frame_count);
    for (size_t i = 0; job->checks && i < job->frame_count; i++)
        sound = sound && job->checks[i].status == TG_OK;
    return sound;
}

void tg_cpu_add(tg_device *device, tg_add_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        jobs[i].status = are_sound(device, &jobs[i]) ? add(tg_cpu_of(device), &jobs[i]) : TG_CORRUPT;
}
