/* A device: a table of operations on whole vectors, over memory that nothing else touches. Frames, feedback and
 * reductions are built on this table. They compute with the addresses of tensors, residuals and lists, but never read
 * or write what lies there: it may be on another card.
 *
 * Order: the operations of a device take place one after the other, in the order of the calls, as on a stream. Host
 * memory that an operation is given (jobs, frames, places for numbers) belongs to the device until `wait` returns: then
 * the results are there, and the inputs have been read. Device memory may still be in use then, by operations that
 * come before all later ones. Whoever calls an operation has entered the floating-point mode (base/fpenv.h). */
#ifndef TG_DEVICE_DEVICE_H
#define TG_DEVICE_DEVICE_H

#include "codec/codec.h"

/* Where the next frame begins of those that follow one another in device memory. */
#define TG_FRAME_ALIGNMENT 16u
static inline size_t tg_frame_place(size_t bytes)
{
    return (bytes + TG_FRAME_ALIGNMENT - 1) / TG_FRAME_ALIGNMENT * TG_FRAME_ALIGNMENT;
}

/* What encoding with one spec needs besides the vector: the device's own affair. */
typedef struct tg_encoder tg_encoder;

/* Selected elements in the order of their indices. Indices and values are device memory. The count is the host's, as
 * results are; an operation reads it when it takes place, so that it may be the result of one before it. */
typedef struct tg_list {
    uint32_t *indices;
    float *values;
    size_t count;
} tg_list;

/* What operations on lists work in: the device's own affair. */
typedef struct tg_list_workspace tg_list_workspace;

/* Jobs of one array are independent of each other, except that several may share an encoder, a workspace, an undo
 * buffer, an end, a residual or a wide sum: these take place as if one after the other. */

/* One vector, or a range of it, or elements of it that have been selected already, to one frame. */
typedef struct tg_encode_job {
    tg_encoder *encoder;
    const tg_spec *spec; /* the encoder's, or one of a smaller amount */
    tg_source source;    /* tensor and feedback state, in device memory */
    tg_encode_options options;
    void *frame; /* with room for the bound of the spec */
    /* Where this is not NULL, the frame is made at *end, which is then moved behind it, and `frame` is set to where it
     * lies: frames of several jobs with the same end follow one another without gaps, as in a message. A job without a
     * frame leaves it where it is. With options.on_device, *end is device memory, and frames begin at multiples of 16
     * from where it was at first: it is moved to the next one behind each. */
    uint8_t **end;
    /* A sparsifier's alone: where this is not NULL, the selection is left here, and there is no frame; it is empty
     * where the job fails. It has room for 128 elements more than can be selected. Values are as they were, whatever
     * the spec does to them on the wire. */
    tg_list *list;
    /* A sparsifier's alone: where this is not NULL, what is sent is those of its elements that lie between `first` and
     * first + the source's count, which the frame takes as a vector of its own; the source has no gradient. `sent`, as
     * long as the list, receives in their places what the decoder will see, where that is not the values themselves.
     * The frame has room for a selection of so many elements. */
    const tg_list *selected;
    uint64_t first;
    float *sent;
    /* Of a job that is done later: the step of its draw, in device memory, or NULL; and where its report goes, in
     * memory that host and device share. */
    const uint64_t *step;
    tg_encode_report *report_to;
    /* results; of a job that is done later there are none */
    tg_encode_report report;
    /* The first such element where report.status is TG_NONFINITE, or TG_BAD_RESIDUAL: a residual or momentum was not
     * finite, and TG_NONFINITE_ZERO has made it 0; with that, everything else has been done, so that what the frame or
     * the list holds can be returned. The other policies leave it to the caller to look there. */
    uint64_t nonfinite;
    bool moved; /* the residual is in the source's undo buffer now, which may_move allowed: known before the wait */
} tg_encode_job;

/* One frame to be checked: header, checksum and every rule of the format. */
typedef struct tg_check_job {
    tg_frame frame;
    uint64_t count;   /* the elements that it must have, or TG_ANY_COUNT */
    bool header_only; /* the caller has checked the rest */
    bool wants_peak;
    bool on_device; /* the frame is device memory */
    /* results */
    tg_status status;
    tg_frame_info info; /* where the header can be read */
    uint32_t peak;      /* if wanted: bits of a magnitude that no value exceeds */
    uint64_t selected;  /* of a sparse frame that was checked completely: elements that it lists */
    tg_error error;
} tg_check_job;
#define TG_ANY_COUNT UINT64_MAX

/* Frames added to a vector: out = (out + weight * v0 + weight * v1 + ...) * scale. */
typedef struct tg_add_job {
    const tg_frame *frames;
    size_t frame_count;
    bool on_device; /* the frames are device memory */
    /* A job for each frame, by which they are checked before anything is added; where one fails, nothing is. NULL: they
     * have been checked. Not for more than TG_MAX_NARROW_FRAMES. */
    tg_check_job *checks;
    float weight, scale;
    bool fresh;     /* out is taken as 0 */
    uint64_t among; /* elements that are written before these are read again: many are stored past the caches */
    float *wide;    /* device memory for the sum, where out has 16 bits and more than TG_MAX_NARROW_FRAMES are added */
    tg_tensor out;
    /* result */
    tg_status status; /* TG_CORRUPT where a check failed, or a frame had not been checked after all */
} tg_add_job;

/* Frames that are checked and added later: all are like `like`. */
typedef struct tg_add_later_job {
    const tg_frame *frames; /* device memory */
    size_t frame_count;
    const tg_frame_info *like;
    bool verified;
    float weight;
    tg_tensor out;
    tg_status *status_to;
} tg_add_later_job;

/* What a frame, which has been checked, does to the feedback state of its elements. */
typedef struct tg_settle_job {
    tg_source source; /* of a return: only the residual */
    tg_frame frame;
    bool on_device;          /* the frame is device memory */
    const uint32_t *applied; /* of a return: increasing indices that are left out; NULL: none */
    size_t applied_count;
    bool only_checks; /* nothing is changed, only looked at for overflow */
    /* results */
    uint64_t overflow; /* of a check: the first element that would overflow, or the frame's count */
    uint64_t limited;  /* of a return: elements that did, and became the largest float32 */
} tg_settle_job;

/* A list, or those of its elements that lie between `first` and first + count, added to a vector: h = h + factor *
 * value. */
typedef struct tg_list_job {
    tg_list_workspace *workspace; /* where a frame is applied */
    float *h;
    const tg_list *list;
    uint64_t first, count;
    /* Where this is not NULL, it is what the decoder sees of each value: only what that leaves of the value is added,
     * and the list keeps what the decoder sees. */
    float *sent;
    tg_frame applied; /* a sparse frame of the elements from `first` on: those that it lists are left out; or no data */
    bool on_device;   /* that frame is device memory */
    float factor;
    bool limits; /* what overflows becomes the largest float32; else it is left as it was */
    /* result */
    uint64_t overflows;
} tg_list_job;

/* Sparse frames of one vector, which have been checked, added up in their order, times a factor; and the largest of
 * that. Indices count from `first`. */
typedef struct tg_sum_job {
    tg_list_workspace *workspace;
    const tg_frame *frames; /* those without data are left out */
    size_t frame_count;
    bool on_device; /* the frames are device memory */
    uint64_t first, count;
    float factor;
    bool drops;            /* 0 in the place of what is not finite */
    tg_list *sums;         /* all that some frame lists */
    uint64_t chosen_count; /* how many of these are chosen; of equal magnitudes the first */
    tg_list *chosen;       /* not made where a sum is not finite */
    /* results */
    uint64_t nonfinite; /* index of the first sum that is not finite, or first + count */
    uint64_t dropped;
} tg_sum_job;

/* Floats of a saved state, to a vector: h = factor * value, or added to what is there. */
typedef struct tg_load_job {
    const uint8_t *bytes; /* little-endian float32 */
    uint64_t count;
    float factor;
    bool replaces;
    float *h; /* NULL: only looked at */
    /* results */
    bool finite;
    float largest; /* magnitude, times the factor */
} tg_load_job;

typedef enum tg_norm_of {
    TG_NORM_OF_ALL,   /* the L2 norm of the finite values */
    TG_NORM_ESTIMATED /* the same of up to 2^20 elements; beyond, from a sample */
} tg_norm_of;

typedef struct tg_operations {
    void (*close)(tg_device *device);
    void (*wait)(tg_device *device); /* until host memory is as promised above */
    /* The same in two halves, so that other work is put on the stream in between: until all results are there, while
     * frames that were encoded to host memory are on their way, and nobody may touch these; and until they have come,
     * whatever has been put on the stream since. */
    void (*wait_for_reports)(tg_device *device);
    void (*wait_for_frames)(tg_device *device);
    void (*finish)(tg_device *device); /* until everything is done */

    /* ---- memory ---- */

    /* NULL if there is none. Vectors that are streamed through together should have different places, 0 to 3. */
    void *(*allocate)(tg_device *device, size_t bytes, unsigned place);
    void (*release)(tg_device *device, void *memory);
    void (*copy_in)(tg_device *device, void *to, const void *from_host, size_t bytes);
    void (*copy_out)(tg_device *device, void *to_host, const void *from, size_t bytes);
    void (*copy)(tg_device *device, void *to, const void *from, size_t bytes); /* both in device memory */
    void (*clear)(tg_device *device, void *memory, size_t bytes);
    /* Host memory that the device can write, and copies from and to while others work; and whether a place is in such
     * memory. */
    void *(*allocate_shared)(tg_device *device, size_t bytes);
    void (*release_shared)(tg_device *device, void *memory);
    bool (*is_shared)(const tg_device *device, const void *memory);

    /* ---- frames ---- */

    /* For vectors of up to max_count elements. TG_OUT_OF_MEMORY without a sentence; TG_UNAVAILABLE, with one, where the
     * device does not have this codec. */
    tg_status (*make_encoder)(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                              tg_error *error);
    void (*free_encoder)(tg_device *device, tg_encoder *encoder);
    /* Whether it can be used with this spec, which differs in the amount. */
    bool (*encoder_fits)(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec);
    void (*encode)(tg_device *device, tg_encode_job *jobs, size_t count);
    /* The same for jobs that are done later, whose frames stay on the device: nothing waits or allocates, the jobs have
     * been read when it returns, and a card's stream may be captured. */
    void (*encode_later)(tg_device *device, const tg_encode_job *jobs, size_t count);
    void (*check)(tg_device *device, tg_check_job *jobs, size_t count);
    void (*add)(tg_device *device, tg_add_job *jobs, size_t count);
    /* Whether add_later can do this job: TG_UNAVAILABLE or TG_OUT_OF_MEMORY, with a sentence, if not. */
    tg_status (*can_add_later)(const tg_device *device, const tg_add_later_job *job, tg_error *error);
    /* As encode_later. */
    void (*add_later)(tg_device *device, const tg_add_later_job *jobs, size_t count);
    /* Memory for reading so many frames at once; false if there is none. */
    bool (*reserve)(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames);
    /* What a frame spends its bytes on. It has been checked, and `info` is its header. */
    void (*measure)(tg_device *device, tg_frame frame, const tg_frame_info *info, tg_frame_parts *parts);

    /* ---- feedback ---- */

    /* u of a source. */
    void (*compensate)(tg_device *device, const tg_source *source, float *u);
    /* The state after a frame of u was sent: residual = rest - sent, and the momentum is cleared where something was.
     */
    void (*update)(tg_device *device, tg_settle_job *job);
    /* residual = residual + sent, but for the applied indices. */
    void (*return_frame)(tg_device *device, tg_settle_job *job);

    /* ---- vectors ---- */

    /* The first element whose gradient, u or rest is not finite; the source's count if there is none. */
    void (*first_nonfinite)(tg_device *device, const tg_source *source, uint64_t *index);
    /* Bits of the largest magnitude: TG_INFINITY_BITS or more where a value is not finite. */
    void (*peak)(tg_device *device, const float *values, uint64_t count, uint32_t *bits);
    void (*scale)(tg_device *device, float *values, uint64_t count, float factor);
    /* h = h + factor * values; what overflows becomes the largest float32, and is counted. */
    void (*add_scaled)(tg_device *device, const float *values, uint64_t count, float factor, float *h,
                       uint64_t *limited);
    /* out = values[0] + values[1] + ..., in this order, times the factor; at least one vector, and one element. */
    void (*sum)(tg_device *device, const float *const *values, size_t vectors, float factor, uint64_t count,
                float *out);
    /* 0 in the place of what is not finite, which is counted. */
    void (*drop_nonfinite)(tg_device *device, float *values, uint64_t count, uint64_t *dropped);
    /* Floats to a tensor of any dtype. */
    void (*narrow)(tg_device *device, const float *values, const tg_tensor *out);
    /* Floats to the bytes of a saved state, and back. */
    void (*save)(tg_device *device, const float *values, uint64_t count, uint8_t *bytes);
    void (*load)(tg_device *device, tg_load_job *job);
    void (*norm)(tg_device *device, const tg_tensor *tensors, size_t count, tg_norm_of what, double *norms);

    /* ---- lists ---- */

    /* For vectors of up to `longest` elements, frames that list up to `most` of them, and sums of up to `together`
     * elements. NULL if there is no memory. */
    tg_list_workspace *(*make_list_workspace)(tg_device *device, uint64_t longest, uint64_t most, uint64_t together);
    void (*free_list_workspace)(tg_device *device, tg_list_workspace *workspace);
    void (*add_lists)(tg_device *device, tg_list_job *jobs, size_t count);
    void (*sum_lists)(tg_device *device, tg_sum_job *jobs, size_t count);
    /* A list as the vector of `count` elements from `first` on. */
    void (*spread_list)(tg_device *device, const tg_list *list, uint64_t first, uint64_t count, float *out);
    /* The indices with which the parts begin that a list, which is not empty, falls into: indices[j] = that of element
     * count * j / parts. */
    void (*cut_list)(tg_device *device, const tg_list *list, uint32_t parts, uint32_t *indices);
} tg_operations;

struct tg_device {
    const tg_operations *operations;
    char name[48]; /* as tg_device_open takes it */
    /* Why nothing works any more, or NULL: a card can be lost. Whoever waits looks at it before trusting a result. */
    const char *failure;
    /* It is the host itself: its operations take any memory of the process, also for tensors, and are done when the
     * call returns. */
    bool reads_host;
};

/* TG_UNAVAILABLE, with a sentence, where the device has failed. */
tg_status tg_device_outcome(const tg_device *device, tg_error *error);

#endif
