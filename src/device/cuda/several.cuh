/* Several jobs in one launch: a block finds its job in an array on the card, and copies it to where it is near. */
#ifndef TG_DEVICE_CUDA_SEVERAL_CUH
#define TG_DEVICE_CUDA_SEVERAL_CUH

#include "device/cuda/runtime.cuh"

/* The job that a block belongs to: the last whose first block, first_of(job), is not behind it. By every warp. */
template <class Job, class First>
__device__ __forceinline__ u32 job_of_block(const Job *jobs, u32 count, u32 block, First &&first_of)
{
    u32 begun = 0;
    for (u32 i = lane_id(); i < count; i += 32)
        begun += first_of(jobs[i]) <= block;
    return warp_sum(begun) - 1;
}

/* By all threads of a block; they wait for each other. */
template <class Job> __device__ __forceinline__ void copy_job(Job *to, const Job *from)
{
    static_assert(sizeof(Job) % 8 == 0, "jobs are copied in words of 8 bytes");
    for (u32 i = threadIdx.x; i < sizeof(Job) / 8; i += blockDim.x)
        memcpy((char *)(void *)to + 8 * i, (const char *)(const void *)from + 8 * i, 8);
    __syncthreads();
}

#endif
