/* What is done with vectors as they are. A thread takes every element that is a grid's step from its own. */
#include "device/cuda/device.cuh"
#include "device/cuda/element.cuh"

constexpr u32 THREADS = 256;
#define STEPS(i, count) \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (count); i += (u64)gridDim.x * blockDim.x)

static unsigned grid_of(const tg_cuda *cuda, u64 count) { return grid_for(count, THREADS, 16 * cuda->processors); }

/* ---- first that is not finite ---- */

__global__ void find_nonfinite(tg_source s, control *c)
{
    u32 dropped = 0;
    STEPS(i, s.count)
    {
        const element e = source_at(s, i, residual_at(s, i), &dropped);
        if (!e.finite) { /* the thread's first, and it need not go on */
            atomicMax(&c->least, ~(u64)i);
            break;
        }
    }
}

static void complete_index(tg_cuda *, const pending *p, const control *seen)
{
    *(uint64_t *)p->of = seen->least ? ~seen->least : p->number;
}

void tg_cuda_first_nonfinite(tg_device *device, const tg_source *source, uint64_t *index)
{
    const occupied now(device);
    tg_source s = *source;
    s.drop_nonfinite = false;
    control *c = tg_cuda_slot(now.cuda, {complete_index, index, NULL, s.count});
    LAUNCH(find_nonfinite, grid_of(now.cuda, s.count), THREADS, 0, now.cuda->stream, s, c);
}

/* ---- magnitudes and factors ---- */

__global__ void find_peak(const float *values, u64 count, control *c)
{
    u32 largest = 0;
    STEPS(i, count) largest = max(largest, (u32)(tg_float_bits(values[i]) & TG_MAGNITUDE_MASK));
    largest = warp_max(largest);
    if (lane_id() == 0)
        atomicMax(&c->peak, largest);
}

static void complete_peak(tg_cuda *, const pending *p, const control *seen) { *(uint32_t *)p->of = seen->peak; }

void tg_cuda_peak(tg_device *device, const float *values, uint64_t count, uint32_t *bits)
{
    const occupied now(device);
    control *c = tg_cuda_slot(now.cuda, {complete_peak, bits, NULL, 0});
    LAUNCH(find_peak, grid_of(now.cuda, count), THREADS, 0, now.cuda->stream, values, count, c);
}

__global__ void multiply(float *values, u64 count, float factor) { STEPS(i, count) values[i] = factor * values[i]; }

void tg_cuda_scale(tg_device *device, float *values, uint64_t count, float factor)
{
    const occupied now(device);
    LAUNCH(multiply, grid_of(now.cuda, count), THREADS, 0, now.cuda->stream, values, count, factor);
}

/* ---- sums ---- */

__global__ void add_multiple(const float *values, u64 count, float factor, float *h, control *c)
{
    u32 limited = 0;
    STEPS(i, count) h[i] = limited_sum(h[i] + factor * values[i], &limited);
    warp_count(&c->limited, limited);
}

static void complete_limited(tg_cuda *, const pending *p, const control *seen) { *(uint64_t *)p->of = seen->limited; }

void tg_cuda_add_scaled(tg_device *device, const float *values, uint64_t count, float factor, float *h,
                        uint64_t *limited)
{
    const occupied now(device);
    control *c = tg_cuda_slot(now.cuda, {complete_limited, limited, NULL, 0});
    LAUNCH(add_multiple, grid_of(now.cuda, count), THREADS, 0, now.cuda->stream, values, count, factor, h, c);
}

struct vectors {
    const float *of[64];
};

/* out = (first ? 0 : out) + the vectors in order, times the factor at the end. */
__global__ void add_vectors(vectors v, u32 n, bool first, bool last, float factor, u64 count, float *out)
{
    STEPS(i, count)
    {
        float sum = first ? -0.0f : out[i]; /* to which even -0 is added without a change */
        for (u32 k = 0; k < n; k++)
            sum = sum + 1.0f * v.of[k][i];
        out[i] = last ? factor * sum : sum;
    }
}

void tg_cuda_sum(tg_device *device, const float *const *values, size_t count_of, float factor, uint64_t count,
                 float *out)
{
    const occupied now(device);
    for (size_t done = 0; done == 0 || done < count_of;) {
        vectors v = {};
        const size_t left = count_of - done, n = left < 64 ? left : 64;
        for (size_t i = 0; i < n; i++)
            v.of[i] = values[done + i];
        LAUNCH(add_vectors, grid_of(now.cuda, count), THREADS, 0, now.cuda->stream, v, (u32)n, done == 0, n == left,
               factor, count, out);
        done += n > 0 ? n : 1;
    }
}

/* ---- elements ---- */

__global__ void drop_bad(float *values, u64 count, control *c)
{
    u32 dropped = 0;
    STEPS(i, count)
    {
        if (!is_finite(values[i])) {
            values[i] = 0;
            dropped++;
        }
    }
    warp_count(&c->dropped, dropped);
}

static void complete_dropped(tg_cuda *, const pending *p, const control *seen) { *(uint64_t *)p->of = seen->dropped; }

void tg_cuda_drop_nonfinite(tg_device *device, float *values, uint64_t count, uint64_t *dropped)
{
    const occupied now(device);
    control *c = tg_cuda_slot(now.cuda, {complete_dropped, dropped, NULL, 0});
    LAUNCH(drop_bad, grid_of(now.cuda, count), THREADS, 0, now.cuda->stream, values, count, c);
}

__global__ void narrow_values(const float *values, tg_tensor out)
{
    u32 limited = 0;
    STEPS(i, out.count) store_element(out.data, out.dtype, i, values[i], &limited);
}

void tg_cuda_narrow(tg_device *device, const float *values, const tg_tensor *out)
{
    const occupied now(device);
    LAUNCH(narrow_values, grid_of(now.cuda, out->count), THREADS, 0, now.cuda->stream, values, *out);
}

__global__ void compensate_values(tg_source s, float *u)
{
    u32 dropped = 0;
    STEPS(i, s.count) u[i] = source_at(s, i, residual_at(s, i), &dropped).u;
}

void tg_cuda_compensate(tg_device *device, const tg_source *source, float *u)
{
    const occupied now(device);
    LAUNCH(compensate_values, grid_of(now.cuda, source->count), THREADS, 0, now.cuda->stream, *source, u);
}

/* ---- saved states: the host looks at the bytes, because it has them ---- */

void tg_cuda_save(tg_device *device, const float *values, uint64_t count, uint8_t *bytes)
{
    const occupied now(device); /* cards are little-endian, and so are hosts that have one */
    tg_cuda_copy(now.cuda, bytes, values, (size_t)count * sizeof(float), cudaMemcpyDeviceToHost);
}

__global__ void load_values(const float *values, u64 count, float factor, bool replaces, float *h)
{
    STEPS(i, count) h[i] = replaces ? factor * values[i] : factor * values[i] + h[i];
}

void tg_cuda_load(tg_device *device, tg_load_job *job)
{
    constexpr u64 at_once = 1 << 22;
    const occupied now(device);
    tg_cuda *cuda = now.cuda;
    tg_load_job look = *job;
    look.h = NULL;
    cuda->host->operations->load(cuda->host, &look);
    job->finite = look.finite;
    job->largest = look.largest;
    const size_t most = (size_t)(job->count < at_once ? job->count : at_once);
    if (!job->h || !job->finite)
        return;
    if (!tg_cuda_arena(cuda, arena_room(most * sizeof(float)))) { /* cannot happen: the first arena has room for this */
        (void)tg_cuda_fine(cuda, cudaErrorMemoryAllocation);
        return;
    }
    for (u64 first = 0; first < job->count; first += at_once) {
        const u64 n = job->count - first < at_once ? job->count - first : at_once;
        tg_cuda_copy(cuda, cuda->arena, job->bytes + 4 * first, (size_t)n * 4, cudaMemcpyHostToDevice);
        LAUNCH(load_values, grid_of(cuda, n), THREADS, 0, cuda->stream, (const float *)cuda->arena, n, job->factor,
               job->replaces, job->h + first);
    }
}

/* ---- lists ---- */
