/* Laboratory of quantisers, adding and checksums: what each kernel of src/device/cuda/fast.cu, add_fast.cu and
 * checksum.cu takes when it is launched again and again, as a fraction of a copy that is measured in the same way;
 * beside the least that feedback can take, and feedback's loads and stores with other hints; and whether frames,
 * residual and sums are the CPU's.
 *
 *     make build/libtersegrad.a && mkdir -p build/dev
 *     nvcc -arch=sm_90 -std=c++20 -O3 -fmad=false -Isrc -Iinclude -D_POSIX_C_SOURCE=200809L -o build/dev/dense \
 *         dev/cuda/dense.cu src/device/cuda/{fast,dense,add_fast,checksum,measure,frame}.cu build/libtersegrad.a
 * -lpthread build/dev/dense [-c] [ELEMENTS...]      -c: also compares with the CPU
 */
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device/cuda/checksum.cuh"
#include "device/cuda/received.cuh"

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

/* What the kernels' launchers want of a device, where jobs are few. */
const void *tg_cuda_upload(tg_cuda *, const void *, size_t) { return NULL; }

constexpr u32 PEERS = 4;

__global__ void fill(float *v, u64 n, u32 seed, float scale)
{
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) {
        const tg_hash_key key = {seed, 77};
        const float a = ((float)(tg_hash(key, 2 * (u32)i) >> 8) + 0.5f) * 0x1p-24f,
                    b = (float)(tg_hash(key, 2 * (u32)i + 1) >> 8) * 0x1p-24f;
        v[i] = scale * sqrtf(-2 * logf(a)) * cospif(2 * b);
    }
}

/* ---- the least that feedback can take: h = g + h, with hints ---- */

enum hint { STREAMED, PLAIN_ACCESS, PAST_L1 };

template <hint H> __device__ __forceinline__ float2 read(const float *from)
{
    const float2 *p = (const float2 *)(const void *)from;
    return H == STREAMED ? __ldcs(p) : H == PAST_L1 ? __ldcg(p) : *p;
}

template <hint H> __device__ __forceinline__ void write(float *to, float2 x)
{
    float2 *p = (float2 *)(void *)to;
    if (H == STREAMED)
        __stcs(p, x);
    else if (H == PAST_L1)
        __stcg(p, x);
    else
        *p = x;
}

/* 2048 elements by a block. */
template <hint G, hint H, hint OUT> __global__ void __launch_bounds__(256) least(const float *g, float *h)
{
    const u64 at = blockIdx.x * 2048ull + 2 * threadIdx.x;
    float2 a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = read<G>(g + at + 512 * i);
#pragma unroll
    for (int i = 0; i < 4; i++)
        b[i] = read<H>(h + at + 512 * i);
#pragma unroll
    for (int i = 0; i < 4; i++)
        write<OUT>(h + at + 512 * i, make_float2(a[i].x + b[i].x, a[i].y + b[i].y));
}

/* ---- time ---- */

static double copied; /* bytes in a second */
static int times;

template <class F> static double microseconds(F &&work)
{
    cudaEvent_t from, to;
    float ms;
    double best = 1e12;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    work();
    for (int round = 0; round < 2; round++) {
        MUST(cudaEventRecord(from));
        for (int i = 0; i < times; i++)
            work();
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        MUST(cudaEventElapsedTime(&ms, from, to));
        best = std::min(best, 1000.0 * ms / times);
    }
    return best;
}

template <class F> static void row(const char *name, double bytes, F &&work)
{
    const double us = microseconds(work);
    MUST(cudaGetLastError());
    printf("  %-28s %8.1f us  %.3f\n", name, us, bytes / (us * 1e-6) / copied);
}

/* ---- a vector, its residual, and frames of it ---- */

struct laboratory {
    tg_cuda cuda;
    u32 n;
    u64 payload;
    tg_spec spec;
    float *g, *h, *out;
    u8 *frames[PEERS];
    u64 *digests[PEERS];
    control *result;

    template <class T> static void allocate(T **memory, size_t bytes)
    {
        MUST(cudaMalloc(memory, bytes));
        MUST(cudaMemset(*memory, 0, bytes));
    }
    explicit laboratory(u32 count) : cuda(), n(count)
    {
        cuda.processors = 132;
        if (tg_spec_parse("qsgd:levels=7", &spec, NULL) != TG_OK)
            exit(1);
        dense_frame f;
        (void)tg_cuda_dense_frame(&spec, TG_FLOAT32, n, NULL, &f);
        payload = tg_cuda_dense_size(&f);
        allocate(&cuda.arrivals, ARRIVALS * sizeof(u32));
        for (float **v : {&g, &h, &out})
            allocate(v, 4ull * n);
        for (u32 k = 0; k < PEERS; k++) {
            allocate(&frames[k], TG_HEADER_SIZE + payload + 64);
            allocate(&digests[k], tg_cuda_digests_room(payload));
        }
        allocate(&result, sizeof *result);
        LAUNCH(fill, 2048, 256, 0, 0, g, n, 1, 1.0f);
        LAUNCH(fill, 2048, 256, 0, 0, h, n, 2, 0.7f);
    }
    ~laboratory()
    {
        for (void *memory : {(void *)cuda.arrivals, (void *)g, (void *)h, (void *)out, (void *)result})
            MUST(cudaFree(memory));
        for (u32 k = 0; k < PEERS; k++) {
            MUST(cudaFree(frames[k]));
            MUST(cudaFree(digests[k]));
        }
    }
    tg_draw draw(u32 k) const { return {.seed = 1, .step = 2, .tensor = 3, .rank = k}; }
    dense_frame frame(u32 k) const
    {
        dense_frame f;
        (void)tg_cuda_dense_frame(&spec, TG_FLOAT32, n, frames[k] + TG_HEADER_SIZE, &f);
        return f;
    }
    dense_job job(u32 k, norm_kind norm, bool feedback) const
    {
        const tg_draw d = draw(k);
        dense_job j = {.source = {.gradient = g, .dtype = TG_FLOAT32, .count = n}, .frame = frame(k), .norm = norm};
        if (feedback) {
            j.source.residual = h;
            j.source.alpha = j.source.beta = 1;
        }
        j.key = tg_hash_key_of(&d, TG_FOR_ROUNDING);
        j.checks = true;
        j.digests = digests[k];
        j.result = result;
        return j;
    }
    /* Of a frame that was made by `made`, or, where that is NULL, that was received. */
    checksum_job sum(u32 k, const dense_job *made) const
    {
        checksum_job c = {.payload = frames[k] + TG_HEADER_SIZE,
                          .size = payload,
                          .digests = digests[k],
                          .has_checksum = true,
                          .result = result};
        tg_spec sent = spec;
        if (made && made->norm == NORM_L2)
            (void)!tg_spec_parse("qsgd:levels=7,norm=l2", &sent, NULL);
        const tg_frame_info info = {.spec = sent,
                                    .dtype = TG_FLOAT32,
                                    .count = n,
                                    .bytes = TG_HEADER_SIZE + payload,
                                    .draw = draw(k),
                                    .has_checksum = true};
        tg_header_write(&info, c.header);
        if (made) {
            c.digested = tg_cuda_digested_leaves(made);
            c.frame = frames[k];
        } else {
            c.looked_at = frame(k);
            c.words = tg_cuda_scale_words(&c.looked_at);
        }
        return c;
    }
    addition adding(u32 frame_count) const
    {
        addition a = {
            .frame_count = frame_count, .weight = 0.25f, .scale = 1, .out = {out, n, TG_FLOAT32}, .result = result};
        for (u32 k = 0; k < frame_count; k++)
            a.frames[k] = frame(k);
        return a;
    }
    void encode(u32 k, norm_kind norm, bool feedback)
    {
        const dense_job j = job(k, norm, feedback);
        const checksum_job c = sum(k, &j);
        tg_cuda_fast_encode(&cuda, &j);
        tg_cuda_checksum(&cuda, &c, 1);
    }
    control seen() const
    {
        control c;
        MUST(cudaMemcpy(&c, result, sizeof c, cudaMemcpyDefault));
        return c;
    }
};

/* ---- the CPU ---- */

static std::vector<float> on_host(const float *v, u64 n)
{
    std::vector<float> copy(n);
    MUST(cudaMemcpy(copy.data(), v, 4 * n, cudaMemcpyDefault));
    return copy;
}

static void compare(laboratory &lab, norm_kind norm, bool feedback)
{
    tg_device *cpu;
    tg_codec *codec;
    tg_feedback *state = NULL;
    tg_spec spec;
    const u64 n = lab.n;
    const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    std::vector<float> g = on_host(lab.g, n), h = on_host(lab.h, n), sum = on_host(lab.out, n);
    std::vector<u8> made(TG_HEADER_SIZE + lab.payload + 64), seen(TG_HEADER_SIZE + lab.payload);
    tg_encode_report report = {};
    const tg_encode_options options = {.draw = lab.draw(0)};
    const tg_tensor in = {g.data(), n, TG_FLOAT32}, out = {sum.data(), n, TG_FLOAT32};
    bool fine = tg_spec_parse(norm == NORM_L2 ? "qsgd:levels=7,norm=l2" : "qsgd:levels=7", &spec, NULL) == TG_OK &&
                tg_device_open("cpu", NULL, &cpu, NULL) == TG_OK &&
                tg_codec_create(cpu, &spec, n, &codec, NULL) == TG_OK;
    if (fine && feedback)
        fine = tg_feedback_create(cpu, &ef, &spec, n, true, &state, NULL) == TG_OK &&
               tg_feedback_write(state, TG_RESIDUAL, 0, n, h.data(), NULL) == TG_OK;
    fine = fine &&
           (feedback ? tg_encode_with_feedback(codec, state, &in, &options, made.data(), made.size(), &report, NULL)
                     : tg_encode(codec, &in, &options, made.data(), made.size(), &report, NULL)) == TG_OK;
    lab.encode(0, norm, feedback);
    MUST(cudaMemcpy(seen.data(), lab.frames[0], seen.size(), cudaMemcpyDefault));
    printf("  frame %s", fine && memcmp(made.data(), seen.data(), seen.size()) == 0 ? "as on the CPU" : "DIFFERS");
    if (feedback) {
        fine = fine && tg_feedback_read(state, TG_RESIDUAL, 0, n, h.data(), NULL) == TG_OK;
        printf(", residual %s", fine && on_host(lab.h, n) == h ? "too" : "DIFFERS");
    }
    const tg_frame frame = {made.data(), report.bytes};
    const addition a = lab.adding(1);
    tg_cuda_add_fast(&lab.cuda, &a);
    fine = fine && tg_decode_add(cpu, &frame, 1, 0.25f, 0, &out, NULL) == TG_OK;
    printf(", sum %s\n", fine && on_host(lab.out, n) == sum ? "too" : "DIFFERS");
    tg_feedback_free(state);
    tg_codec_free(codec);
    tg_device_free(cpu);
}

/* ---- rows ---- */

static void encode_rows(laboratory &lab, norm_kind norm, bool feedback)
{
    const dense_job j = lab.job(0, norm, feedback);
    const checksum_job c = lab.sum(0, &j);
    const double bytes = (feedback ? 12.0 : 4.0) * lab.n + (double)lab.payload;
    printf("encode, %s%s\n", norm == NORM_L2 ? "L2" : "max", feedback ? ", feedback" : "");
    row("kernel", bytes, [&] { tg_cuda_fast_encode(&lab.cuda, &j); });
    row("checksum from digests", bytes, [&] { tg_cuda_checksum(&lab.cuda, &c, 1); });
    row("both", bytes, [&] { lab.encode(0, norm, feedback); });
}

static void add_rows(laboratory &lab, u32 frames)
{
    const addition a = lab.adding(frames);
    const double of_frames = frames * (double)lab.payload, bytes = 8.0 * lab.n + of_frames;
    checksum_job c[PEERS];
    for (u32 k = 0; k < frames; k++)
        c[k] = lab.sum(k, NULL);
    printf("frames: %u\n", frames);
    row("checksum", of_frames, [&] { tg_cuda_checksum(&lab.cuda, c, frames); });
    row("add", bytes, [&] { tg_cuda_add_fast(&lab.cuda, &a); });
    row("checksum, add", bytes, [&] {
        tg_cuda_checksum(&lab.cuda, c, frames);
        tg_cuda_add_fast(&lab.cuda, &a);
    });
}

template <hint G, hint H, hint OUT> static void least_row(laboratory &lab, const char *name)
{
    row(name, 12.0 * lab.n, [&] { LAUNCH((least<G, H, OUT>), lab.n / 2048, 256, 0, 0, lab.g, lab.h); });
}

static void measure(u32 n, bool compares)
{
    laboratory lab(n);
    times = n < 50000000 ? 60 : n < 500000000 ? 20 : 5;
    const double us = microseconds([&] { MUST(cudaMemcpyAsync(lab.out, lab.g, 4ull * n, cudaMemcpyDeviceToDevice)); });
    copied = 8.0 * n / (us * 1e-6);
    printf("%u elements: a copy %.1f us, %.2f TB/s\n", n, us, copied * 1e-12);
    for (u32 k = 0; k < PEERS; k++)
        lab.encode(k, NORM_MAX, false);
    for (const norm_kind norm : {NORM_MAX, NORM_L2})
        for (const bool feedback : {false, true}) {
            if (compares)
                compare(lab, norm, feedback);
            encode_rows(lab, norm, feedback);
        }
    for (const u32 frames : {1u, 2u, 4u})
        add_rows(lab, frames);
    printf("h = g + h\n");
    least_row<STREAMED, STREAMED, STREAMED>(lab, "streamed");
    least_row<PLAIN_ACCESS, PLAIN_ACCESS, PLAIN_ACCESS>(lab, "plain");
    least_row<PAST_L1, PAST_L1, PAST_L1>(lab, "past L1");
    least_row<STREAMED, STREAMED, PLAIN_ACCESS>(lab, "streamed, plain stores");
    const control seen = lab.seen();
    if (seen.bad || seen.nonfinite)
        printf("REFUSED: %u %u\n", seen.bad, seen.nonfinite);
}

int main(int argc, char **argv)
{
    bool compares = false, any = false;
    for (int i = 1; i < argc; i++) {
        if (std::string(argv[i]) == "-c") {
            compares = true;
            continue;
        }
        measure((u32)strtoul(argv[i], NULL, 10), compares);
        any = true;
    }
    for (const u32 n : {25600000u, 138000000u})
        if (!any)
            measure(n, compares);
    return 0;
}
