/* Frames whose levels are in a coded layout: packed codes are made or found apart from the frame. */
#ifndef TG_DEVICE_CUDA_CODED_FRAMES_CUH
#define TG_DEVICE_CUDA_CODED_FRAMES_CUH

#include "device/cuda/frame.cuh"

/* ---- writing ---- */

/* Whether a spec asks for more than packed codes; and the memory that this takes in an encoder, besides the frame. */
bool tg_cuda_wants_coding(const tg_spec *spec);
size_t tg_cuda_codes_room(const dense_frame *frame);
size_t tg_cuda_coder_room(const tg_spec *spec, const dense_frame *frame);
/* Codes go to `codes`, and the scales to the payload's start. */
void tg_cuda_place_apart(dense_frame *frame, u8 *codes);
/* When they are there: writes the layout behind the scales, and leaves `payload` and `layout` in the result. */
void tg_cuda_code_frame(tg_cuda *cuda, const tg_spec *spec, const dense_frame *frame, u8 *coder, control *result);

/* ---- reading ---- */

/* Room in the arena that reading takes besides the frame; none if it has packed codes. May wait for the stream where
 * the frame is on the card and has listed levels; `cuda` may be NULL where it has not. */
size_t tg_cuda_expansion_room(tg_cuda *cuda, tg_frame host, bool on_device, const tg_frame_info *info);
/* Whether the scales fit the payload. Then they are found at its start, and codes in the arena. */
bool tg_cuda_find_coded(tg_cuda *cuda, const tg_frame_info *info, u64 size, u8 *payload, dense_frame *frame);
/* Makes these codes. result->bad tells if a rule is broken. */
void tg_cuda_expand_frame(tg_cuda *cuda, tg_frame host, bool on_device, const tg_frame_info *info,
                          const dense_frame *frame, control *result);
/* Of a sparse frame in a coded layout: its values, as a frame of their own, of which there is no header. False if there
 * cannot be any. May wait for the stream where the frame is on the card. */
bool tg_cuda_find_values(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info, tg_frame *values,
                         tg_frame_info *values_info);
/* Adds the one frame of an addition without making codes, where that is faster. It must have been verified:
 * result->bad as before, but some of it may have been added then. */
struct addition;
bool tg_cuda_adds_coded(const tg_cuda *cuda, const tg_frame_info *info, const addition *a);
void tg_cuda_add_coded(tg_cuda *cuda, tg_frame host, const tg_frame_info *info, const addition *a);
/* Whether the card can read a coded layout: blindly, where the host is not to read the directory of listed levels. */
bool tg_cuda_reads_layout(unsigned layout, bool blindly);

#endif
