/* Laboratory of the coded layouts: what each kernel takes, beside a copy, whether the bytes are the CPU's, and whether
 * the codes come back.
 *
 *     make build/libtersegrad.a && mkdir -p build/dev
 *     nvcc -arch=sm_90 -std=c++20 -O3 -fmad=false -Isrc -Iinclude -D_POSIX_C_SOURCE=200809L -o build/dev/coding \
 *         dev/cuda/coding.cu src/device/cuda/sparse.cu build/libtersegrad.a -lpthread -ldl
 *     build/dev/coding [-c] [ELEMENTS]      -c: also compares with the CPU
 */
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "device/cuda/coding.cu"

extern "C" {
#include "base/random.h"
#include "kernels/kernels.h"
}

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

/* ---- codes ---- */

/* Levels of a normal distribution, in words of whole codes (of 2, 4 or 8 bits): where in a group they are does not
 * matter here. */
__global__ void fill_codes(u32 *words, u64 n, u32 width, u32 levels, float sigma)
{
    const tg_hash_key key = {1, 77};
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < (n * width + 31) / 32; i += gridDim.x * 256ull) {
        u32 word = 0;
        for (u32 k = 0; k < 32 / width && (i * 32) / width + k < n; k++) {
            const u32 at = (u32)(i * 32 / width + k);
            const float a = ((float)(tg_hash(key, 2 * at) >> 8) + 0.5f) * 0x1p-24f;
            const float b = (float)(tg_hash(key, 2 * at + 1) >> 8) * 0x1p-24f;
            const float q = rintf(sigma * sqrtf(-2 * logf(a)) * cospif(2 * b)), s = (float)levels;
            word |= (u32)(fmaxf(fminf(q, s), -s) + s) << (width * k);
        }
        words[i] = word;
    }
}

/* ---- time ---- */

struct laps {
    std::vector<cudaEvent_t> events;
    std::vector<const char *> names;
    void operator()(const char *name)
    {
        cudaEvent_t e;
        MUST(cudaEventCreate(&e));
        MUST(cudaEventRecord(e));
        events.push_back(e);
        names.push_back(name);
    }
    void print()
    {
        MUST(cudaEventSynchronize(events.back()));
        for (size_t i = 1; i < events.size(); i++) {
            float ms;
            MUST(cudaEventElapsedTime(&ms, events[i - 1], events[i]));
            printf(" %s %.0f", names[i], 1000 * ms);
        }
        printf("\n");
    }
};

template <class F> static double microseconds(F &&work, int times)
{
    cudaEvent_t from, to;
    float ms;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    work();
    MUST(cudaEventRecord(from));
    for (int i = 0; i < times; i++)
        work();
    MUST(cudaEventRecord(to));
    MUST(cudaEventSynchronize(to));
    MUST(cudaEventElapsedTime(&ms, from, to));
    return 1000.0 * ms / times;
}

/* The first try of the prefix layout, kernel by kernel. */
static void stage_prefix(const coding &c, void *workspace, tg_coded *coded, laps *lap)
{
    const prefix_job &p = c.prefix;
    const u64 parts = (p.bytes + PREFIX_PART - 1) / PREFIX_PART, chunks = prefix_chunks(p.bytes, PREFIX_LEAST_LOG);
    const u32 number = p.bytes >= PREFIX_SAMPLED ? 0 : 1;
    (*lap)("start");
    LAUNCH(begin_coding_kernel, blocks_for(c.zero_bytes / 4096, 264), 256, 0, 0, (u32 *)workspace, c.zero_bytes / 4,
           coded, tg_coded{0, 0, 0}, &c.listed.control->count);
    (*lap)("begin");
    LAUNCH(prefix_code_kernel, blocks_for(parts, COUNTING_BLOCKS), PREFIX_THREADS, 0, 0, p, number);
    (*lap)("count and code");
    LAUNCH(prefix_write_kernel, blocks_for(chunks, MOST_BLOCKS), PREFIX_THREADS, 0, 0, p, number);
    (*lap)("write");
    write_entropy(0, c);
    (*lap)("empty kernels");
}

/* ---- the CPU ---- */

static bool same_as_cpu(const tg_levels_shape *shape, const std::vector<u8> &packed, const std::vector<u8> &payload,
                        u32 layout)
{
    const u64 scales = scale_bytes(shape);
    std::vector<u8> work(tg_levels_code_workspace(shape) + 64), made(tg_levels_bound(shape) + 64);
    memcpy(work.data(), packed.data(), packed.size());
    memcpy(made.data(), payload.data(), scales);
    tg_job job = {};
    job.kernels = tg_kernels_at(0);
    job.payload = made.data();
    const u64 size = (u64)(tg_levels_code(&job, shape, work.data()) - made.data());
    return size == payload.size() && job.layout == layout && memcmp(made.data(), payload.data(), size) == 0;
}

/* ---- one shape ---- */

static void measure(u64 n, u32 levels, float sigma, tg_coding how, bool compare, double copy)
{
    tg_levels_shape shape = {};
    shape.count = n;
    shape.levels = levels;
    shape.bucket = 512;
    shape.coding = how;
    const u32 width = tg_code_width(levels);
    const size_t size = (size_t)tg_packed_size(n, width), room = tg_cuda_coding_workspace(&shape);
    const size_t bound = tg_levels_bound(&shape) + 64, scales = (size_t)scale_bytes(&shape);
    u8 *packed, *back, *workspace, *payload, *reading;
    tg_coded *coded, seen;
    control *result, checked;
    MUST(cudaMalloc(&packed, size + 64));
    MUST(cudaMalloc(&back, size + 64));
    MUST(cudaMalloc(&workspace, room));
    MUST(cudaMalloc(&payload, bound));
    MUST(cudaMalloc(&coded, sizeof *coded));
    MUST(cudaMalloc(&result, sizeof *result));
    MUST(cudaMemset(payload, 0, bound));
    LAUNCH(fill_codes, 2048, 256, 0, 0, (u32 *)packed, n, width, levels, sigma);
    tg_cuda_code_levels(0, &shape, packed, workspace, payload, coded, result);
    MUST(cudaMemcpy(&seen, coded, sizeof seen, cudaMemcpyDefault));
    std::vector<u8> made(seen.size), codes(size), returned(size);
    MUST(cudaMemcpy(made.data(), payload, made.size(), cudaMemcpyDefault));
    MUST(cudaMemcpy(codes.data(), packed, size, cudaMemcpyDefault));
    printf("%llu elements, %u levels, sigma %.2f, coding %d: layout %u, %llu bytes, workspace %zu",
           (unsigned long long)n, levels, sigma, (int)how, seen.layout, (unsigned long long)seen.size, room);
    if (compare)
        printf(same_as_cpu(&shape, codes, made, seen.layout) ? ", as on the CPU" : ", NOT AS ON THE CPU");
    const double encode = microseconds(
        [&] { tg_cuda_code_levels(0, &shape, packed, workspace, payload, coded, result); }, 20);
    printf("; encode %.0f us;", encode);
    if (seen.layout == TG_LAYOUT_PREFIX) {
        laps lap;
        stage_prefix(lay_out(&shape, packed, workspace, payload, coded), workspace, coded, &lap);
        lap.print();
    }
    if (seen.layout != TG_LAYOUT_PACKED) {
        MUST(cudaMalloc(&reading,
                        tg_cuda_expand_workspace(&shape, seen.layout, made.data() + scales, seen.size - scales)));
        MUST(cudaMemset(result, 0, sizeof *result));
        const double decode = microseconds(
            [&] {
                tg_cuda_expand_levels(0, &shape, seen.layout, made.data() + scales, payload + scales,
                                      seen.size - scales, back, reading, result);
            },
            20);
        MUST(cudaMemcpy(&checked, result, sizeof checked, cudaMemcpyDefault));
        MUST(cudaMemcpy(returned.data(), back, size, cudaMemcpyDefault));
        printf("  expand %.0f us, %.2f of copy%s%s\n", decode, (double)(size + seen.size) / (decode * 1e-6) / copy,
               checked.bad ? ", REFUSED" : "", returned == codes ? ", the same codes" : ", OTHER CODES");
        MUST(cudaFree(reading));
    }
    for (void *memory :
         {(void *)packed, (void *)back, (void *)workspace, (void *)payload, (void *)coded, (void *)result})
        MUST(cudaFree(memory));
}

int main(int argc, char **argv)
{
    const bool compare = argc > 1 && strcmp(argv[1], "-c") == 0;
    const u64 n = argc > 1 + compare ? strtoull(argv[1 + compare], NULL, 10) : 138000000;
    u8 *a, *b;
    const size_t bytes = 4 * n;
    MUST(cudaMalloc(&a, bytes));
    MUST(cudaMalloc(&b, bytes));
    const double copy = 2.0 * (double)bytes /
                        (1e-6 * microseconds([&] { MUST(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDefault, 0)); }, 20));
    printf("copy %.2f TB/s\n", copy * 1e-12);
    MUST(cudaFree(a));
    MUST(cudaFree(b));
    measure(n, 7, 2.2f, TG_CODING_ENTROPY, compare, copy);  /* 4 bits, as with norm=max */
    measure(n, 7, 0.31f, TG_CODING_ENTROPY, compare, copy); /* as with norm=l2: rANS */
    measure(n, 127, 40.0f, TG_CODING_ENTROPY, compare, copy);
    measure(n, 1, 0.5f, TG_CODING_ENTROPY, compare, copy);
    measure(n, 7, 0.31f, TG_CODING_ELIAS, compare, copy);
    measure(n, 7, 0.12f, TG_CODING_ENTROPY, compare, copy); /* levels that may be listed */
    return 0;
}
