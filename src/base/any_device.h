/* Functions of one element that the kernels of every device share: the same source for a CPU and for a card. */
#ifndef TG_BASE_ANY_DEVICE_H
#define TG_BASE_ANY_DEVICE_H

#if defined(__CUDACC__)
#define TG_ANY_DEVICE static __host__ __device__ inline
#else
#define TG_ANY_DEVICE static inline
#endif

/* C and C++ have different words for it. */
#ifdef __cplusplus
#define TG_ALIGNED(bytes) alignas(bytes)
#else
#define TG_ALIGNED(bytes) _Alignas(bytes)
#endif

#endif
