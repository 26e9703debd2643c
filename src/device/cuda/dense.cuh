/* Encoding with a codec that sends something for every element. */
#ifndef TG_DEVICE_CUDA_DENSE_CUH
#define TG_DEVICE_CUDA_DENSE_CUH

#include "device/cuda/frame.cuh"
#include "device/cuda/later.cuh"

extern "C" {
#include "base/random.h"
}

/* What a unit of a bucket, a block of 4096 elements, brings to its scale. */
struct unit {
    u32 largest;       /* bits of a magnitude */
    float sum, values; /* of squares or magnitudes; of values, for clipping */
    float low, high;
};

enum norm_kind : u32 { NORM_MAX, NORM_L2, NORM_EXTREMES, NORM_MEAN };

struct dense_job {
    tg_source source; /* with an undo buffer where the residual must be restored exactly */
    dense_frame frame;
    norm_kind norm;
    u32 clip; /* thousandths */
    tg_hash_key key;
    const tg_hash_key *drawn; /* not NULL: the key is here */
    const u32 *known; /* not NULL: how many elements there are is here, and the counts are bounds; feedback has none */
    bool moves;       /* the new residual goes to the undo buffer, and its owner takes that for the residual */
    bool checks;      /* values that are not finite have not been dropped */
    unit *units;      /* where buckets have more than one */
    int *exponents;   /* of these buckets, of sums that must be scaled; NO_EXPONENT: none */
    u64 *digests;     /* fast.cu leaves those of the first tg_cuda_digested_leaves here */
    u8 *marks;        /* of each group, whether it was committed; NULL where nobody asks */
    control *result;
    /* set by fast.cu */
    bool aligned;    /* rows of a lane can be read as one */
    u32 first_block; /* of many jobs in one launch */
};
constexpr int NO_EXPONENT = 1 << 20;

/* First of all in every kernel that reads a source or draws. MAY_BE_KNOWN: the job may have `known`. */
template <bool MAY_BE_KNOWN> __device__ __forceinline__ void begin(dense_job &j)
{
    take_side(j.source);
    if (j.drawn)
        j.key = j.drawn[TG_FOR_ROUNDING];
    if (MAY_BE_KNOWN && j.known) {
        set_count(j.frame, *j.known);
        j.source.count = j.frame.count;
    }
}

/* Reasons in control.nonfinite. */
enum { FOUND_ENCODING = 1, FOUND_MEASURING = 2 };

/* Puts it on the stream; what must be undone is left to what comes after it (undo.cuh). */
void tg_cuda_dense_encode(tg_cuda *cuda, const dense_job *job);

/* scales.cu: the scales of all buckets, for those that are not one group. */
void tg_cuda_measure(tg_cuda *cuda, const dense_job *job);
/* Units of a bucket. */
static inline u32 units_in_bucket(const dense_frame *f) { return (f->bucket + TG_BLOCK - 1) / TG_BLOCK; }

/* fast.cu: float32, a scale for each group, codes of 2, 4 or 8 bits, feedback with alpha = beta. Leaves the digests of
 * the leaves that are codes alone. */
bool tg_cuda_is_fast(const dense_job *job);
void tg_cuda_fast_encode(tg_cuda *cuda, const dense_job *job);
/* Many of them, in few launches; some fields of theirs are set. */
void tg_cuda_fast_encode_many(tg_cuda *cuda, dense_job *jobs, size_t count);
u64 tg_cuda_digested_leaves(const dense_job *job);

#endif
