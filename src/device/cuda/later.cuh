/* Jobs that are done later, and perhaps more than once, where a graph is replayed: what depends on the step is read
 * from the card, and reports are written by it. */
#ifndef TG_DEVICE_CUDA_LATER_CUH
#define TG_DEVICE_CUDA_LATER_CUH

#include "device/cuda/device.cuh"

extern "C" {
#include "base/random.h"
}

constexpr u32 PURPOSES = 3; /* of random numbers: a hash key for each */

/* Takes the residual where it is now. */
__device__ __forceinline__ void take_side(tg_source &s)
{
    if (!s.side || !__ldg(s.side))
        return;
    float *before = s.residual;
    s.residual = s.other;
    s.undo = s.undo ? before : NULL;
}

/* Room on the card for the hash keys of a job. */
static inline size_t tg_cuda_drawn_room(void) { return PURPOSES * sizeof(tg_hash_key); }
/* Makes them, from a draw whose step is on the card. */
void tg_cuda_draw(tg_cuda *cuda, const tg_draw *draw, const uint64_t *step, tg_hash_key *drawn);

/* What the card reports of a job. `bytes`: of the frame, or 0: the result has those of the payload. `selected`: or
 * AS_COUNTED: the result has them. */
#define AS_COUNTED UINT64_MAX
struct later_report {
    tg_encode_report *to; /* or NULL: the host asks for the result */
    u32 *side;            /* that becomes the other one; or NULL */
    u64 bytes, selected;
};

/* Writes it, and the result is zero again. By a warp. */
__device__ __forceinline__ void report_later(const later_report &r, control *result)
{
    if (lane_id() == 0) {
        const bool damaged = result->least != 0, fails = damaged || result->nonfinite != 0;
        r.to->status = damaged ? TG_BAD_RESIDUAL : fails ? TG_NONFINITE : TG_OK;
        r.to->bytes = fails ? 0 : (size_t)(r.bytes ? r.bytes : TG_HEADER_SIZE + result->payload);
        r.to->selected = fails ? 0 : r.selected == AS_COUNTED ? result->selected : r.selected;
        r.to->saturated = fails ? 0 : result->limited;
        r.to->dropped = fails ? 0 : result->dropped;
        if (r.side && !fails)
            *r.side ^= 1;
    }
    __syncwarp();
    for (u32 i = lane_id(); i < sizeof(control) / 8; i += 32)
        ((u64 *)(void *)result)[i] = 0;
}

/* The result of the next job, whose report the last kernel of the job will write (checksum.cu). */
control *tg_cuda_later_slot(tg_cuda *cuda);
/* Around the jobs of a call, of which there are up to LATER_SLOTS. */
void tg_cuda_begin_later(tg_cuda *cuda);
void tg_cuda_end_later(tg_cuda *cuda);
/* The same for frames that are added: `status_to` gets the verdict; or NULL, of a slot that only hands numbers on. */
control *tg_cuda_later_verdict(tg_cuda *cuda, tg_status *status_to);
void tg_cuda_end_adding(tg_cuda *cuda);
/* What is put on the stream from now on goes to this branch, a number below BRANCHES, behind what is on the stream; and
 * the stream goes on when all branches have come to an end. */
void tg_cuda_branch(tg_cuda *cuda, u32 which);
void tg_cuda_join(tg_cuda *cuda);
/* At opening and closing. */
bool tg_cuda_make_branches(tg_cuda *cuda);
void tg_cuda_free_branches(tg_cuda *cuda);
/* A copy of an array on the card that the stream makes, without memory of the host that must stay. */
const void *tg_cuda_store(tg_cuda *cuda, const void *array, size_t bytes);
size_t tg_cuda_carrier_room(void); /* bytes of tg_cuda.carrier */

#endif
