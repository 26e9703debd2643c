/* Index streams (docs/format.md, 6): what writing and reading them share. */
#ifndef TG_DEVICE_CUDA_SPARSE_CODE_CUH
#define TG_DEVICE_CUDA_SPARSE_CODE_CUH

#include "device/cuda/runtime.cuh"

enum { MODE_RICE, MODE_ELIAS, MODE_BITMAP };
/* Gaps of a Rice block, of a lane of the warp that has it, and between entries of the table before omega codes. */
constexpr u32 RICE_BLOCK = 256, EACH_GAP = 8, PARAMETER_MOST = 30, ELIAS_RUN = 1024;

/* Bytes of the low bits of a block of r gaps. */
__device__ __forceinline__ u32 low_size(u32 r, u32 parameter) { return (r * parameter + 7) / 8; }
/* Bytes of the table before m omega codes. */
__device__ __forceinline__ u32 elias_table(u32 m) { return m == 0 ? 0 : 4 * ((m - 1) / ELIAS_RUN); }

#endif
