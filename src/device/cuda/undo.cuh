/* The way back of a dense codec that has met a value that is not finite. */
#ifndef TG_DEVICE_CUDA_UNDO_CUH
#define TG_DEVICE_CUDA_UNDO_CUH

#include "device/cuda/dense.cuh"

struct undoing {
    tg_source source;  /* without a residual: there is nothing to do */
    dense_frame frame; /* what has been sent */
    const u8 *marks;   /* of each group, whether it was committed; where there is no undo buffer */
};

static inline undoing undoing_of(const dense_job *job)
{
    const bool needs = job->source.residual && job->checks && !job->moves;
    return needs ? undoing{job->source, job->frame, job->marks} : undoing{};
}

/* The residual becomes what it was: exactly where there is an undo buffer, else up to rounding, for the groups that
 * were committed. By thread number `start` of `step`. */
__device__ __forceinline__ void undo(const undoing &u, u32 nonfinite, u64 start, u64 step)
{
    if (!(nonfinite & FOUND_ENCODING) || (nonfinite & FOUND_MEASURING))
        return;
    tg_source s = u.source;
    take_side(s);
    u32 limited = 0; /* only by rounding, so it is not reported */
    for (u64 i = start; i < s.count; i += step) {
        if (s.undo) {
            s.residual[i] = s.undo[i];
        } else if (u.marks[i / TG_GROUP]) {
            const float rest = s.residual[i] + value_at(u.frame, (u32)i);
            s.residual[i] = limited_sum(rest - element_at(s.gradient, s.dtype, i), &limited);
        }
    }
}

#endif
