/* CUDA's own header, included here and nowhere else, and the few names that all kernels use. Tests compile the same
 * sources for a CPU, with a header of this name that emulates a card (tests/cuda). */
#ifndef TG_DEVICE_CUDA_RUNTIME_CUH
#define TG_DEVICE_CUDA_RUNTIME_CUH

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

/* The library's headers use C's names, which <stdatomic.h> gives C++ only from C++23 on. */
using std::atomic_int;
using std::atomic_uint_fast64_t;

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64; /* as CUDA's atomics want it */

#define FULL 0xffffffffu /* all lanes of a warp */

#ifndef LAUNCH
#define LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
/* The only argument is at a place, and need not be on the stack. */
#define LAUNCH_WITH(kernel, grid, block, stream, argument) launch_with(kernel, grid, block, stream, argument)
template <class Argument>
static inline void launch_with(void (*kernel)(Argument), unsigned grid, unsigned block, cudaStream_t stream,
                               Argument *argument)
{
    void *arguments[] = {argument};
    (void)cudaLaunchKernel((const void *)kernel, dim3(grid), dim3(block), arguments, 0, stream);
}
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#define LAUNCH_BESIDE(may, kernel, grid, block, stream, ...) \
    launch_beside(may, kernel, grid, block, stream, __VA_ARGS__)
/* A kernel that may start when all blocks of the one before it have called let_next_begin, or have ended. It must call
 * wait_for_previous before it needs what that one leaves, or else at its end: what follows comes after both. Cards
 * before sm_90 cannot do that. */
template <class... Formal, class... Actual>
static inline void launch_beside(bool may, void (*kernel)(Formal...), unsigned grid, unsigned block,
                                 cudaStream_t stream, Actual... arguments)
{
    cudaLaunchAttribute beside = {};
    beside.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    beside.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(block);
    config.stream = stream;
    config.attrs = &beside;
    config.numAttrs = may ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(arguments)...);
}
#else
#define LAUNCH_WITH(kernel, grid, block, stream, argument) LAUNCH(kernel, grid, block, 0, stream, *(argument))
#if !defined(LAUNCH_BESIDE)
#define LAUNCH_BESIDE(may, kernel, grid, block, stream, ...) \
    do {                                                     \
        (void)(may);                                         \
        LAUNCH(kernel, grid, block, 0, stream, __VA_ARGS__); \
    } while (0)
#endif
#endif

__device__ __forceinline__ void let_next_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- what a warp does together ---- */

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & 31; }

__device__ __forceinline__ u32 warp_max(u32 x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(FULL, x);
#else
    for (int d = 16; d > 0; d /= 2) {
        const u32 y = __shfl_xor_sync(FULL, x, d);
        x = x > y ? x : y;
    }
    return x;
#endif
}

__device__ __forceinline__ u32 warp_sum(u32 x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(FULL, x);
#else
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(FULL, x, d);
    return x;
#endif
}

/* Counts over a warp, added to a number of the control block. */
__device__ __forceinline__ void warp_count(u64 *counter, u32 mine)
{
    const u32 all = warp_sum(mine);
    if (all > 0 && lane_id() == 0)
        atomicAdd(counter, (u64)all);
}

/* Blocks of `threads` threads for so many threads, at most `most`: the kernel goes on with steps of the grid. */
static inline unsigned grid_for(u64 work, unsigned threads, u64 most)
{
    const u64 blocks = (work + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

#endif
