/* What is done with vectors as they are, block by block. */
#include <string.h>

#include "base/bytes.h"
#include "device/cpu/cpu.h"

void tg_cpu_peak(tg_device *device, const float *values, uint64_t count, uint32_t *bits)
{
    *bits = 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        const uint32_t here = tg_cpu_of(device)->kernels->max_magnitude(values + first, tg_block_size(count, first));
        *bits = here > *bits ? here : *bits;
    }
}

void tg_cpu_scale(tg_device *device, float *values, uint64_t count, float factor)
{
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        tg_cpu_of(device)->kernels->set_scaled(values + first, factor, tg_block_size(count, first), values + first);
}

void tg_cpu_add_scaled(tg_device *device, const float *values, uint64_t count, float factor, float *h,
                       uint64_t *limited)
{
    (void)device;
    *limited = 0;
    for (uint64_t i = 0; i < count; i++)
        h[i] = tg_limited(h[i] + factor * values[i], limited);
}

void tg_cpu_sum(tg_device *device, const float *const *values, size_t vectors, float factor, uint64_t count, float *out)
{
    const tg_kernels *k = tg_cpu_of(device)->kernels;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        const size_t n = tg_block_size(count, first);
        float sum[TG_BLOCK];
        k->set_scaled(values[0] + first, 1, n, sum);
        for (size_t v = 1; v < vectors; v++)
            k->add_scaled(values[v] + first, 1, n, sum);
        k->set_scaled(sum, factor, n, out + first);
    }
}

void tg_cpu_drop_nonfinite(tg_device *device, float *values, uint64_t count, uint64_t *dropped)
{
    const tg_kernels *k = tg_cpu_of(device)->kernels;
    *dropped = 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        const size_t n = tg_block_size(count, first);
        float *block = values + first;
        for (size_t i = k->first_nonfinite(block, n); i < n; i += k->first_nonfinite(block + i, n - i)) {
            block[i] = 0;
            ++*dropped;
        }
    }
}

void tg_cpu_narrow(tg_device *device, const float *values, const tg_tensor *out)
{
    for (uint64_t first = 0; first < out->count; first += TG_BLOCK)
        (void)tg_cpu_of(device)->kernels->narrow(out->dtype, values + first, tg_block_size(out->count, first),
                                                 (char *)out->data + first * tg_dtype_size(out->dtype));
}

void tg_cpu_save(tg_device *device, const float *values, uint64_t count, uint8_t *bytes)
{
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        (void)tg_cpu_of(device)->kernels->store(TG_FLOAT32, values + first, tg_block_size(count, first),
                                                bytes + 4 * first);
}

void tg_cpu_load(tg_device *device, tg_load_job *job)
{
    const tg_kernels *k = tg_cpu_of(device)->kernels;
    const float factor = job->factor;
    float block[TG_BLOCK];
    job->finite = true;
    job->largest = 0;
    for (uint64_t first = 0; first < job->count; first += TG_BLOCK) {
        const size_t n = tg_block_size(job->count, first);
        k->load(TG_FLOAT32, job->bytes + 4 * first, n, block);
        job->finite = job->finite && k->first_nonfinite(block, n) == n;
        const float here = factor * tg_bits_float(k->max_magnitude(block, n));
        job->largest = here > job->largest ? here : job->largest;
        float *h = job->h && job->finite ? job->h + first : NULL; /* NULL: only checked */
        for (size_t i = 0; h && i < n; i++)
            h[i] = job->replaces ? factor * block[i] : factor * block[i] + h[i];
    }
}
