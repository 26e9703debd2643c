/* A card that is emulated on a CPU, so that the sources of src/device/cuda can be tested where there is none. It takes
 * the place of CUDA's header. A CUDA block runs on one CPU thread, with a fiber for each CUDA thread; blocks run one
 * after the other. What is put on a stream runs when somebody waits for that stream, or for an event of it, so that a
 * wait that is missing shows; and sometimes when another stream is waited for. Memory of the card is closed to the host
 * at all other times, and is full of garbage when it is new. */
#ifndef TESTS_CUDA_RUNTIME_H
#define TESTS_CUDA_RUNTIME_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#define __global__ static
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static
#define __grid_constant__
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
static inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline ulonglong2 make_ulonglong2(unsigned long long a, unsigned long long b) { return {a, b}; }

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;

/* ---- the emulator ---- */

namespace emulator
{
void enqueue(cudaStream_t stream, std::function<void()> work);
void run(dim3 grid, dim3 block, const std::function<void()> &kernel);
/* What each lane of `mask` brought, after all of them have. */
const uint64_t *gather(unsigned mask, uint64_t mine);
void barrier();
bool barrier_or(bool mine);
unsigned lane();
char *dynamic_shared();
template <class T> uint64_t bits(T t)
{
    uint64_t v = 0;
    static_assert(sizeof t <= sizeof v);
    memcpy(&v, &t, sizeof t);
    return v;
}
template <class T> T from(uint64_t v)
{
    T t;
    memcpy(&t, &v, sizeof t);
    return t;
}
template <class F, class... A> void launch(cudaStream_t stream, F *kernel, dim3 grid, dim3 block, A... arguments)
{
    enqueue(stream, [=] { run(grid, block, [=] { kernel(arguments...); }); });
}
} // namespace emulator

/* Arguments are converted to the kernel's own types when it runs, and copied when it is launched. */
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    ((void)(shared), emulator::launch(stream, &kernel, dim3(grid), dim3(block), __VA_ARGS__))
#define DYNAMIC_SHARED(name) char *name = emulator::dynamic_shared()

static inline void __syncthreads() { emulator::barrier(); }
static inline int __syncthreads_or(int p) { return emulator::barrier_or(p != 0); }
static inline void __syncwarp(unsigned mask = ~0u) { (void)emulator::gather(mask, 0); }

template <class T> static T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
    const int lane = (int)emulator::lane();
    return emulator::from<T>(emulator::gather(mask, emulator::bits(v))[(lane & ~(width - 1)) | (from & (width - 1))]);
}
template <class T> static T __shfl_xor_sync(unsigned mask, T v, int other, int = 32)
{
    const int lane = (int)emulator::lane();
    return emulator::from<T>(emulator::gather(mask, emulator::bits(v))[lane ^ other]);
}
template <class T> static T __shfl_up_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = (int)emulator::lane();
    return emulator::from<T>(emulator::gather(mask, emulator::bits(v))[(lane & (width - 1)) < by ? lane : lane - by]);
}
template <class T> static T __shfl_down_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = (int)emulator::lane();
    return emulator::from<T>(
        emulator::gather(mask, emulator::bits(v))[(lane & (width - 1)) + by < width ? lane + by : lane]);
}
template <class F> static unsigned emulator_reduce(unsigned mask, unsigned v, F f)
{
    const uint64_t *all = emulator::gather(mask, v);
    unsigned result = 0, any = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) {
            result = any ? f(result, (unsigned)all[i]) : (unsigned)all[i];
            any = 1;
        }
    return result;
}
static inline unsigned __reduce_add_sync(unsigned m, unsigned v)
{
    return emulator_reduce(m, v, [](unsigned a, unsigned b) { return a + b; });
}
static inline unsigned __reduce_max_sync(unsigned m, unsigned v)
{
    return emulator_reduce(m, v, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
static inline unsigned __reduce_min_sync(unsigned m, unsigned v)
{
    return emulator_reduce(m, v, [](unsigned a, unsigned b) { return a < b ? a : b; });
}
static inline unsigned __reduce_or_sync(unsigned m, unsigned v)
{
    return emulator_reduce(m, v, [](unsigned a, unsigned b) { return a | b; });
}
static inline unsigned __ballot_sync(unsigned mask, int p)
{
    const uint64_t *all = emulator::gather(mask, p != 0);
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        result |= (mask >> i & 1) ? (unsigned)(all[i] & 1) << i : 0;
    return result;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }
static inline unsigned __activemask() { return ~0u; }

/* One thread at a time runs, and only collective operations pass on: so these are atomic. */
template <class T, class U> static T atomicAdd(T *p, U v)
{
    const T old = *p;
    *p = (T)(old + (T)v);
    return old;
}
template <class T, class U> static T atomicSub(T *p, U v)
{
    const T old = *p;
    *p = (T)(old - (T)v);
    return old;
}
template <class T, class U> static T atomicOr(T *p, U v)
{
    const T old = *p;
    *p = old | (T)v;
    return old;
}
template <class T, class U> static T atomicAnd(T *p, U v)
{
    const T old = *p;
    *p = old & (T)v;
    return old;
}
template <class T, class U> static T atomicMax(T *p, U v)
{
    const T old = *p;
    if ((T)v > old)
        *p = (T)v;
    return old;
}
template <class T, class U> static T atomicMin(T *p, U v)
{
    const T old = *p;
    if ((T)v < old)
        *p = (T)v;
    return old;
}
template <class T, class U> static T atomicExch(T *p, U v)
{
    const T old = *p;
    *p = (T)v;
    return old;
}
template <class T, class U, class V> static T atomicCAS(T *p, U c, V v)
{
    const T old = *p;
    if (old == (T)c)
        *p = (T)v;
    return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) { (void)emulator::gather(1u << emulator::lane(), 0); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s)
{
    return (unsigned)((((uint64_t)hi << 32) | lo) >> (s & 31));
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s)
{
    return (unsigned)(((((uint64_t)hi << 32) | lo) << (s & 31)) >> 32);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    const uint64_t v = ((uint64_t)b << 32) | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)((v >> (8 * ((s >> (4 * i)) & 7))) & 255) << (8 * i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= ((x >> i) & 1u) << (31 - i);
    return r;
}
static inline unsigned __float_as_uint(float x) { return (unsigned)emulator::bits(x); }
static inline int __float_as_int(float x) { return (int)emulator::bits(x); }
static inline float __uint_as_float(unsigned u) { return emulator::from<float>(u); }
static inline float __int_as_float(int u) { return emulator::from<float>((unsigned)u); }
static inline long long __double_as_longlong(double x) { return (long long)emulator::bits(x); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline int __float2int_rn(float a) { return (int)rintf(a); }
template <class T> static T __ldcs(const T *p) { return *p; }
template <class T> static T __ldg(const T *p) { return *p; }
template <class T> static T __ldcg(const T *p) { return *p; }
template <class T> static void __stcs(T *p, T v) { *p = v; }
template <class T> static void __stcg(T *p, T v) { *p = v; }
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a > b ? a : b; }

/* ---- the host's side ---- */

typedef int cudaError_t;
enum {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600,
    cudaErrorUnknown = 999
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum { cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrMaxSharedMemoryPerBlockOptin
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};

cudaError_t cudaMalloc(void **memory, size_t bytes);
template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return cudaMalloc((void **)memory, bytes);
}
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
template <class T> static inline cudaError_t cudaMallocHost(T **memory, size_t bytes)
{
    return cudaMallocHost((void **)memory, bytes);
}
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
#define CUDART_VERSION 12010
#define MANY_TOGETHER 64
static inline cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
static inline const char *cudaGetErrorString(cudaError_t) { return "emulated error"; }
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int)
{
    *value = what == cudaDevAttrMultiProcessorCount ? 4 : what == cudaDevAttrComputeCapabilityMajor ? 9 : 227 << 10;
    return cudaSuccess;
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute, int) { return cudaSuccess; }

#endif
