/* Sparse vectors on a card: everything but header, checksum and copies. */
#ifndef TG_DEVICE_CUDA_SPARSE_H
#define TG_DEVICE_CUDA_SPARSE_H

#include "device/cuda/frame.cuh"

/* The longest vector, because sums over tiles have 31 bits. */
#define TG_CUDA_SPARSE_MOST 0x7fffffffu
/* Whether this device can encode with a spec. */
bool tg_cuda_sparse_has(const tg_spec *spec, uint64_t max_count);

/* Bytes on the card that encoding needs besides the payload; they are prepared once, after they were allocated. */
size_t tg_cuda_sparse_workspace(const tg_spec *spec, uint64_t max_count);
/* And what up to `most` values work in, where they become levels. */
size_t tg_cuda_sparse_levels_workspace(const tg_spec *spec, u64 most);
void tg_cuda_sparse_prepare(tg_cuda *cuda, void *workspace);

/* Whether encoding leaves the new residual in the undo buffer (tg_encode_job.moved), where nothing fails. */
static inline bool tg_cuda_sparse_moves(const tg_source *s)
{
    return s->residual && !s->momentum && s->alpha == s->beta && s->may_move && s->undo;
}

/* The payload of a vector, on 16 bytes, with room for the row's bound and 16 bytes more. `source` is the job's, with
 * the undo buffer and the policy as device/cpu/encode.c sets them. Leaves payload, selected, limited (values that
 * were), dropped, layout and nonfinite in `result`; `drawn`, if not NULL, are the keys of the draw on the card. Where a
 * value was not finite the residual is what it was. */
void tg_cuda_sparse_encode(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           const tg_hash_key *drawn, void *workspace, void *levels, u8 *payload, control *result);

/* Whether random numbers are drawn. */
bool tg_cuda_sparse_draws(const tg_spec *spec);

/* The same of several vectors, which are encoded together when the batch is launched. Joining says false where a vector
 * cannot be one of these: it is not like them, or there are too many. No two may have the same workspace. */
struct sparse_batch;
bool tg_cuda_sparse_joins(const tg_spec *spec, const tg_source *source); /* if it is like the others */
sparse_batch *tg_cuda_sparse_make_batch(void);
void tg_cuda_sparse_free_batch(sparse_batch *batch);
bool tg_cuda_sparse_join(sparse_batch *batch, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                         const tg_hash_key *drawn, void *workspace, u8 *payload, control *result);
void tg_cuda_sparse_launch(tg_cuda *cuda, sparse_batch *batch);

/* Leaves the selection in the workspace in place of a payload: increasing indices, values as they are. */
void tg_cuda_sparse_select(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           void *workspace, control *result);
/* Where. */
void tg_cuda_sparse_lists(const tg_spec *spec, uint64_t count, void *workspace, const u32 **indices,
                          const float **values);

/* The payload of what a list on the card has in a range, as tg_encode_job.selected says; room is for the bound of a
 * list of so many elements, and 16 bytes more. Leaves payload, selected and limited in `result`. */
size_t tg_cuda_sparse_part_workspace(u64 count, u64 most);
void tg_cuda_sparse_encode_part(tg_cuda *cuda, const tg_encode_job *job, void *workspace, void *levels, u8 *payload,
                                control *result);

/* A frame's payload on the card, where it lies on 8 bytes. */
typedef struct sparse_frame {
    const u8 *payload;
    u64 size; /* at least 8 */
    const tg_frame_info *info;
    const control *known; /* not NULL: the size is at most that, and on the card (`payload`) */
    bool beside;          /* what was put on the stream last was its checksum, which needs nothing of what follows */
    /* Of levels that are not packed: the codes that are made of them, and where they are in the frame, as a frame of
     * their own, of which there is no header. */
    dense_frame codes;
    tg_frame coded;
    tg_frame_info coded_info;
    bool on_device; /* that frame is */
} sparse_frame;

/* Whether this device can read such a frame; blindly, where the host reads nothing of one that is on the card. */
bool tg_cuda_sparse_reads(const tg_frame_info *info, bool blindly);
/* Whether its payload can be what its header says: else it must not be read. */
bool tg_cuda_sparse_fits(const tg_frame_info *info, u64 size);
/* Bytes on the card that reading one frame needs, of a payload of this size. `codes`: what is known of levels that are
 * not packed, or NULL. */
size_t tg_cuda_sparse_read_workspace(const tg_frame_info *info, u64 size, const dense_frame *codes);
/* Every rule of the format that the payload can break: result->bad. result->peak gets the largest magnitude. */
void tg_cuda_sparse_check(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result);
/* out = out + weight * values, or with `set` out = weight * values, where the frame has some. result->bad, and nothing
 * added, where it had not been checked after all. */
void tg_cuda_sparse_add(tg_cuda *cuda, const sparse_frame *frame, void *workspace, float weight, bool set, float *out,
                        control *result);
/* The same in two steps, of which the first may be a check: positions are left in the workspace, and what they list is
 * added. */
void tg_cuda_sparse_find(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result);
void tg_cuda_sparse_put(tg_cuda *cuda, const sparse_frame *frame, void *workspace, float weight, float *out,
                        control *result);
/* tg_operations.update, or return_frame; `applied` is on the card. Leaves `least` and `limited`. */
void tg_cuda_sparse_settle(tg_cuda *cuda, const sparse_frame *frame, void *workspace, const tg_settle_job *job,
                           bool returns, const u32 *applied, control *result);

/* ---- positions of a list that another kernel made (sparse_positions.cuh) ---- */

#define POSITIONS_NONE 0xffffffffu

typedef struct positions_job {
    u32 count, most;    /* elements of the vector, not 0; a bound of the listed ones */
    const u32 *indices; /* increasing */
    const u32 *listed;  /* on the card, as all that follows: how many, or POSITIONS_NONE: nothing is written */
    const u64 *values;  /* bytes of what lies between directory and streams */
    u8 *out;            /* on 4 bytes: head and directory; the streams come so many bytes behind them */
    control *result;    /* `payload` gets the bytes of everything */
    const u32 *known;   /* if not NULL, `count` is a bound, and the elements of the vector are here */
} positions_job;

size_t tg_cuda_positions_workspace(u64 count, u64 most);
void tg_cuda_positions_write(cudaStream_t stream, const positions_job *job, void *workspace);

typedef struct positions_frame {
    u32 count, listed, log; /* as the host has read them: not 0, at most `count`, 12 to 30 */
    const u8 *in;           /* head and directory */
    const u8 *streams;
    u64 stream_bytes;
    u32 *positions; /* result: where each of the listed elements is */
} positions_frame;

size_t tg_cuda_positions_read_workspace(const positions_frame *frame);
/* Every rule that head, directory and streams can break: result->bad. */
void tg_cuda_positions_read(cudaStream_t stream, const positions_frame *frame, void *workspace, control *result);

#endif
