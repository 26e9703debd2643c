/* The values of selected elements as levels (docs/format.md, 4 and 6). Only the card knows how many elements there are:
 * grids and memory are those of a bound. */
#ifndef TG_DEVICE_CUDA_SELECTED_LEVELS_CUH
#define TG_DEVICE_CUDA_SELECTED_LEVELS_CUH

#include "device/cuda/coding.h"
#include "device/cuda/dense.cuh"

struct selected_levels {
    u32 most;
    u32 *count;        /* on the card, as all that follows: how many there are */
    dense_frame frame; /* for the bound: packed codes and scales, each in a place of their own */
    u8 *made;          /* the codes as they are in the frame, */
    tg_coded *coded;   /* and their bytes and layout */
    u64 *size;         /* bytes of all of it in the frame */
    unit *units;
    int *exponents;
    u8 *coder; /* of a coding that is not packed */
};

/* What the levels of up to `most` elements work in, and its division. */
size_t tg_cuda_selected_levels_room(const tg_spec *spec, u64 most);
selected_levels tg_cuda_selected_levels(const tg_spec *spec, u64 most, void *workspace);
/* Makes codes and scales of *count values. `drawn`: the keys of the draw on the card, or NULL. */
void tg_cuda_quantise_selected(tg_cuda *cuda, const tg_spec *spec, const selected_levels *levels, const float *values,
                               const tg_draw *draw, const tg_hash_key *drawn, control *result);
/* Then what the frame has of them: `made`, `coded`, `size`, and the layout of the result. */
void tg_cuda_code_selected(tg_cuda *cuda, const tg_spec *spec, const selected_levels *levels, control *result);

#endif
