/* Laboratory of the sparsifiers: what each kernel takes, beside a copy, and whether the payload is the CPU's.
 *
 *     make build/libtersegrad.a && mkdir -p build/dev
 *     nvcc -arch=sm_90 -std=c++20 -O3 -fmad=false -Isrc -Iinclude -D_POSIX_C_SOURCE=200809L -o build/dev/sparse \
 *         dev/cuda/sparse.cu build/libtersegrad.a -lpthread -ldl
 *     build/dev/sparse [-c] [-s STEPS] [ELEMENTS [SPEC...]]      -c: also compares with the CPU; -s: measures after so
 *         many steps with four gradients in turn
 */
#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "device/cuda/sparse.cu"

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

/* ---- vectors ---- */

enum shape { NORMAL, LAPLACE, LAYERED, EQUAL };
static const char *const shape_names[] = {"normal", "laplace", "layered", "equal"};

__device__ float drawn(shape s, u32 i, u32 seed, u32 n)
{
    const tg_hash_key key = {seed, 77};
    const float a = ((float)(tg_hash(key, 2 * i) >> 8) + 0.5f) * 0x1p-24f,
                b = (float)(tg_hash(key, 2 * i + 1) >> 8) * 0x1p-24f;
    const float normal = sqrtf(-2 * logf(a)) * cospif(2 * b);
    if (s == LAPLACE)
        return b < 0.5f ? logf(a) : -logf(a);
    if (s == LAYERED) /* 64 layers, some of them much larger than the others */
        return normal * exp2f((float)(tg_hash(key, (u32)((u64)i * 64 / n) ^ 0x5555) % 9) - 4);
    return s == EQUAL ? 1.0f : normal;
}

__global__ void fill(float *v, u32 n, shape s, u32 seed, float scale)
{
    for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull)
        v[i] = scale * drawn(s, (u32)i, seed, n);
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

/* Launches as launch_sparse does, with a lap after each kernel. */
static void staged(const writing &w, const guessing &guess, laps *lap)
{
    const selecting &s = w.s;
    const sparse_grids n = grids_of(w, guess);
    (*lap)("start");
    launch_guess(0, s, guess);
    (*lap)("guess");
    LAUNCH(pilot_kernel, n.blocks[PILOTS], PILOT_THREADS, 0, 0, s, guess, n.pilots);
    (*lap)("pilot");
    launch_sift<TG_FLOAT32>(0, s, n.blocks[SIFTS], false);
    (*lap)("sift");
    LAUNCH(cut_kernel, n.blocks[CUTS], CUT_THREADS, 0, 0, s, n.each);
    (*lap)("cut");
    LAUNCH(gather_kernel, n.blocks[GATHERS], TILE_THREADS, 0, 0, w);
    (*lap)("gather");
    LAUNCH(streams_kernel, n.blocks[STREAMS], STREAM_THREADS, 0, 0, w);
    (*lap)("streams");
}

/* ---- the CPU ---- */

static bool same_as_cpu(const tg_spec *spec, tg_source source, const tg_draw *draw, const std::vector<u8> &payload)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    std::vector<char> workspace(row->workspace(spec, source.count, 1) + 64);
    std::vector<u8> made(row->bound(spec, source.count) + 64);
    tg_job job = {};
    job.kernels = tg_kernels_at(0);
    job.spec = spec;
    job.source = source;
    job.draw = *draw;
    job.check_finite = true;
    job.workspace = workspace.data();
    job.payload = made.data();
    return row->encode(&job) == TG_OK && job.payload_size == payload.size() &&
           memcmp(made.data(), payload.data(), payload.size()) == 0;
}

/* ---- one spec ---- */

static void measure(const char *text, u32 n, shape form, bool feedback, bool compare, u32 steps, double copy)
{
    tg_spec spec;
    const tg_draw draw = {.seed = 1, .step = 2, .tensor = 3, .rank = 4};
    if (tg_spec_parse(text, &spec, NULL) != TG_OK)
        return;
    const size_t bound = tg_codec_row_of(spec.codec)->bound(&spec, n) + 64, room = tg_cuda_sparse_workspace(&spec, n);
    float *g, *h, *out;
    u8 *workspace, *payload, *reading_room;
    control *result, seen;
    tg_cuda cuda = {};
    cuda.processors = 132;
    cuda.overlaps = getenv("APART") == NULL;
    MUST(cudaMalloc(&g, 4ull * n));
    MUST(cudaMalloc(&h, 4ull * n));
    MUST(cudaMalloc(&workspace, room));
    MUST(cudaMalloc(&payload, bound));
    MUST(cudaMalloc(&result, sizeof *result));
    tg_cuda_sparse_prepare(&cuda, workspace);
    LAUNCH(fill, 2048, 256, 0, 0, g, n, form, 1, 1.0f);
    LAUNCH(fill, 2048, 256, 0, 0, h, n, form, 2, 0.7f);
    MUST(cudaMemset(result, 0, sizeof *result));
    tg_source source = {.gradient = g, .dtype = TG_FLOAT32, .count = n};
    if (feedback) {
        source.residual = h;
        source.alpha = source.beta = 1;
    }
    std::vector<float> g0, h0;
    if (compare) {
        g0.resize(n);
        h0.resize(n);
        MUST(cudaMemcpy(g0.data(), g, 4ull * n, cudaMemcpyDefault));
        MUST(cudaMemcpy(h0.data(), h, 4ull * n, cudaMemcpyDefault));
    }
    tg_cuda_sparse_encode(&cuda, &spec, &source, &draw, NULL, workspace, NULL, payload, result);
    MUST(cudaMemcpy(&seen, result, sizeof seen, cudaMemcpyDefault));
    select_control control_seen;
    MUST(cudaMemcpy(&control_seen, workspace, sizeof control_seen, cudaMemcpyDefault));
    printf("%s %u %s%s: %llu selected, %llu bytes, again %u", text, n, shape_names[form], feedback ? " ef" : "",
           (unsigned long long)seen.selected, (unsigned long long)seen.payload, control_seen.again);
    if (compare) {
        std::vector<u8> made(seen.payload);
        MUST(cudaMemcpy(made.data(), payload, made.size(), cudaMemcpyDefault));
        tg_source there = source;
        there.gradient = g0.data();
        there.residual = feedback ? h0.data() : NULL;
        printf(same_as_cpu(&spec, there, &draw, made) ? ", as on the CPU" : ", NOT AS ON THE CPU");
        if (feedback) {
            std::vector<float> h1(n);
            MUST(cudaMemcpy(h1.data(), h, 4ull * n, cudaMemcpyDefault));
            printf(memcmp(h1.data(), h0.data(), 4ull * n) == 0 ? ", residual too" : ", RESIDUAL DIFFERS");
        }
    }
    float *more[3];
    u32 turn = 0;
    for (u32 i = 0; i < 3 && steps > 0; i++) {
        MUST(cudaMalloc(&more[i], 4ull * n));
        LAUNCH(fill, 2048, 256, 0, 0, more[i], n, form, 3 + i, 1.0f);
    }
    const auto encode = [&] {
        if (steps > 0)
            source.gradient = turn % 4 == 0 ? g : more[turn % 4 - 1];
        turn++;
        tg_cuda_sparse_encode(&cuda, &spec, &source, &draw, NULL, workspace, NULL, payload, result);
    };
    for (u32 i = 0; i < steps; i++)
        encode();
    u32 again = 0;
    for (u32 i = 0; i < steps / 8; i++) {
        encode();
        MUST(cudaMemcpy(&control_seen, workspace, sizeof control_seen, cudaMemcpyDefault));
        again += control_seen.again > 0;
    }
    const double whole = microseconds(encode, 20);
    if (steps > 0)
        printf(", again %u of %u", again, steps / 8);
    for (u32 i = 0; i < 3 && steps > 0; i++)
        MUST(cudaFree(more[i]));
    source.gradient = g;
    const double bytes = (feedback ? 12.0 : 4.0) * n + (double)seen.payload;
    printf("; %.0f us, %.2f of copy;", whole, bytes / (whole * 1e-6) / copy);
    sparse_plan plan = plan_of(&spec, n, &draw, NULL);
    const writing w = sparse_writing(&plan, &source, workspace, payload, result, false);
    laps lap;
    staged(w, plan.guess, &lap);
    lap.print();
    MUST(cudaMemcpy(&seen, result, sizeof seen, cudaMemcpyDefault));
    const tg_frame_info info = {.spec = spec, .dtype = TG_FLOAT32, .count = n, .bytes = 64 + seen.payload};
    const sparse_frame frame = {payload, seen.payload, &info};
    MUST(cudaMalloc(&reading_room, tg_cuda_sparse_read_workspace(&info, seen.payload, NULL)));
    MUST(cudaMalloc(&out, 4ull * n));
    MUST(cudaMemset(result, 0, sizeof *result));
    const double check = microseconds([&] { tg_cuda_sparse_check(&cuda, &frame, reading_room, result); }, 20);
    const double add = microseconds([&] { tg_cuda_sparse_add(&cuda, &frame, reading_room, 1, false, out, result); },
                                    20);
    MUST(cudaMemcpy(&seen, result, sizeof seen, cudaMemcpyDefault));
    printf("    read: check %.0f us, positions + add %.0f us%s\n", check, add, seen.bad ? ", REFUSED" : "");
    for (void *memory :
         {(void *)g, (void *)h, (void *)out, (void *)workspace, (void *)payload, (void *)reading_room, (void *)result})
        MUST(cudaFree(memory));
}

static double copy_speed(u32 n)
{
    float *from, *to;
    MUST(cudaMalloc(&from, 4ull * n));
    MUST(cudaMalloc(&to, 4ull * n));
    const double us = microseconds([&] { MUST(cudaMemcpyAsync(to, from, 4ull * n, cudaMemcpyDeviceToDevice)); }, 20);
    MUST(cudaFree(from));
    MUST(cudaFree(to));
    return 8.0 * n / (us * 1e-6);
}

int main(int argc, char **argv)
{
    int at = 1;
    const bool compare = at < argc && std::string(argv[at]) == "-c";
    at += compare;
    const u32 steps = at + 1 < argc && std::string(argv[at]) == "-s" ? (u32)atoi(argv[at + 1]) : 0;
    at += steps > 0 ? 2 : 0;
    const u32 n = at < argc ? (u32)strtoul(argv[at++], NULL, 10) : 138000000;
    const double copy = copy_speed(n);
    printf("copy: %.2f TB/s\n", copy * 1e-12);
    std::vector<const char *> specs(argv + (at < argc ? at : argc), argv + argc);
    if (specs.empty())
        specs = {"topk:density=0.01", "topk:density=0.001", "gaussiank:density=0.01", "trimk:density=0.01",
                 "dgck:density=0.01", "sidco:density=0.01", "randk:density=0.01"};
    for (const char *spec : specs)
        for (const shape form : {NORMAL, LAPLACE, LAYERED, EQUAL})
            measure(spec, n, form, true, compare, steps, copy);
    return 0;
}
