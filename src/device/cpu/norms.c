/* Norms of vectors. */
#include "base/numeric.h"
#include "device/cpu/cpu.h"
#include "kernels/ranges.h"

/* A vector whose squares are summed. */
typedef struct summand {
    const tg_kernels *kernels;
    const tg_tensor *tensor;
} summand;

/* The finite values of one block of a gradient. Others are dropped or refused later, and must not enter the norm. */
static void finite_block(const summand *s, uint64_t first, size_t n, float *values)
{
    const tg_tensor *t = s->tensor;
    s->kernels->widen(t->dtype, (const char *)t->data + first * tg_dtype_size(t->dtype), n, values);
    for (size_t i = 0; i < n; i++)
        if (!(values[i] - values[i] == 0))
            values[i] = 0;
}

static double squares_of_block(const void *of, uint64_t first, size_t n)
{
    const summand *s = of;
    float values[TG_BLOCK];
    finite_block(s, first, n, values);
    return (double)s->kernels->block_sum(TG_SUM_OF_SQUARES, values, n, 1, 1);
}

/* Where the squares overflow or vanish in float32, they are added in double. */
static double norm_of_all(const tg_cpu *cpu, const tg_tensor *t)
{
    const summand s = {cpu->kernels, t};
    double squares = tg_sum_blocks(cpu->pool, t->count, squares_of_block, &s);
    if (!(squares - squares == 0)) {
        squares = 0;
        for (uint64_t first = 0; first < t->count; first += TG_BLOCK) {
            float values[TG_BLOCK];
            const size_t n = tg_block_size(t->count, first);
            finite_block(&s, first, n, values);
            for (size_t i = 0; i < n; i++)
                squares += (double)values[i] * (double)values[i];
        }
    }
    return tg_sqrt(squares);
}

/* Sum of the squares of n values; values that are not finite were dropped and do not count. */
static double squares_of(const tg_kernels *k, const float *values, size_t n)
{
    const float quick = k->block_sum(TG_SUM_OF_SQUARES, values, n, 1, 1);
    if (quick >= 0x1p-80f && quick - quick == 0)
        return (double)quick;
    double sum = 0; /* too small or too large for float32, or not finite */
    for (size_t i = 0; i < n; i++)
        if (values[i] - values[i] == 0)
            sum += (double)values[i] * (double)values[i];
    return sum;
}

/* Prefetches n elements; they are too far apart for the processor to prefetch them itself. */
static void ask_for(const tg_tensor *tensor, uint64_t first, size_t n)
{
    const char *at = (const char *)tensor->data + first * tg_dtype_size(tensor->dtype);
    for (size_t offset = 0; offset < n * tg_dtype_size(tensor->dtype); offset += 64)
        __builtin_prefetch(at + offset, 0, 2);
}

/* Elements of the block at `first` that count for the statistics, which must cost almost nothing: of more than 2^20
 * elements only the first 64 of every four blocks. Fewer would be cheaper, because each is in another page, but less
 * accurate where layers differ. */
enum { SAMPLE = 64, PLACES = 4 * TG_BLOCK };
static size_t counted(uint64_t count, uint64_t first, size_t n)
{
    if (count <= 1u << 20)
        return n;
    return first % PLACES != 0 ? 0 : n < SAMPLE ? n : SAMPLE;
}

static double counted_squares(const void *of, uint64_t first, size_t n)
{
    enum { AHEAD = 4 };
    const summand *s = of;
    const tg_tensor *t = s->tensor;
    const size_t here = counted(t->count, first, n);
    if (here == 0)
        return 0;
    if (here < n && t->count - first > (AHEAD + 1) * PLACES)
        ask_for(t, first + AHEAD * PLACES, here);
    if (t->dtype == TG_FLOAT32)
        return squares_of(s->kernels, (const float *)t->data + first, here);
    float wide[TG_BLOCK];
    s->kernels->widen(t->dtype, (const char *)t->data + first * tg_dtype_size(t->dtype), here, wide);
    return squares_of(s->kernels, wide, here);
}

static double estimated_norm(const tg_cpu *cpu, const tg_tensor *tensor)
{
    const summand s = {cpu->kernels, tensor};
    const uint64_t count = tensor->count;
    double elements = 0;
    if (count == 0)
        return 0;
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        elements += (double)counted(count, first, tg_block_size(count, first));
    return tg_sqrt(tg_sum_blocks(cpu->pool, count, counted_squares, &s) * ((double)count / elements));
}

void tg_cpu_norm(tg_device *device, const tg_tensor *tensors, size_t count, tg_norm_of what, double *norms)
{
    const tg_cpu *cpu = tg_cpu_of(device);
    for (size_t i = 0; i < count; i++)
        norms[i] = what == TG_NORM_OF_ALL ? norm_of_all(cpu, &tensors[i]) : estimated_norm(cpu, &tensors[i]);
}
