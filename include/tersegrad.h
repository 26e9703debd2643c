/* SPDX-License-Identifier: Apache-2.0
 *
 * tersegrad.h - gradient compression for distributed training.
 *
 * A vector of floats is encoded to a small, checksummed frame, and any machine decodes this frame to the same bits.
 * The header is in order of use: with parts 1 to 4 you can write a correct program; parts 5 and 6 are for training
 * loops; parts 7 and 8 run the whole step of many workers.
 *
 *     1  Status and errors            how functions report failures
 *     2  Tensors, specs, codecs       what is compressed, and how
 *     3  Devices and codec handles    where the work is done, and all memory that it needs
 *     4  Encode, verify, decode       one vector <-> one frame
 *     5  Feedback                     what compression left out is sent later
 *     6  Stability                    when feedback diverges
 *     7  Transports                   bytes between ranks: threads of a process, MPI, or NCCL between cards
 *     8  Reducing                     gradients of all ranks in, their mean out, the same bits on every rank
 *
 * The shortest useful program (every call returns a tg_status that must be checked):
 *
 *     tg_spec_parse("qsgd:levels=7,bucket=512", &spec, &error);
 *     tg_device_open("cpu", NULL, &device, &error);
 *     tg_codec_create(device, &spec, count, &codec, &error);
 *     frame = malloc(tg_frame_bound(codec, count));
 *     tg_encode(codec, &gradient, &options, frame, tg_frame_bound(codec, count), &report, &error);
 *     ... send report.bytes bytes ...
 *     tg_decode_add(device, frames, peers, 1.0f, 0, &sum, &error);
 *
 * These rules hold for every function:
 *
 *  - The caller owns all buffers. Handles come from _create or _open and are released by _free; _free(NULL) is fine.
 *  - Nothing allocates after _create, except that a card's memory for frames grows to the largest call where
 *    tg_device_reserve has not been asked for it; nothing prints, exits, reads the environment or has global state.
 *  - Buffers that a call writes must not overlap its other buffers. A frame buffer that overlaps the input, or an
 *    output that overlaps a frame, is refused with TG_INVALID_ARGUMENT. Other overlaps may give wrong data.
 *  - On every status except TG_OK the outputs are unchanged. Exceptions are stated at the function.
 *  - A `tg_error *` may be NULL. Otherwise it receives one sentence that says what is wrong and what to do.
 *  - A handle may be used by one call at a time. Different handles may be used by different threads, and any number
 *    of handles may share one device.
 *  - The same spec, draw, input and residual give the same bytes on every device and every machine.
 */
#ifndef TERSEGRAD_H
#define TERSEGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_VERSION_MAJOR 0
#define TG_VERSION_MINOR 1
#define TG_VERSION_PATCH 0
#define TG_VERSION_TEXT "0.1.0"

#if defined(__GNUC__)
#define TG_API __attribute__((visibility("default")))
#define TG_MUST_CHECK __attribute__((warn_unused_result))
#else
#define TG_API
#define TG_MUST_CHECK
#endif

/* The version of the library at run time, "0.1.0"; TG_VERSION_TEXT is the version it was compiled against. */
TG_API const char *tg_version(void);

/* ================================================================================================================
 * 1  Status and errors
 * ================================================================================================================ */

typedef enum tg_status {
    TG_OK = 0,
    TG_INVALID_ARGUMENT,  /* a null pointer, or a length or number that the function does not accept */
    TG_INVALID_SPEC,      /* a spec text or spec fields that are not valid for any codec */
    TG_UNKNOWN_CODEC,     /* a codec name, or a codec number in a frame, that this library does not have */
    TG_UNKNOWN_DEVICE,    /* a device name that this library does not have, or that this machine cannot run */
    TG_UNKNOWN_VERSION,   /* a frame of a format version that this library cannot read */
    TG_OUT_OF_MEMORY,     /* no memory; encoding on a CPU never returns it */
    TG_BUFFER_TOO_SMALL,  /* the frame buffer is smaller than tg_frame_bound */
    TG_SHAPE_MISMATCH,    /* element counts that must be equal differ */
    TG_NOT_A_FRAME,       /* the bytes do not start with the magic number of a frame */
    TG_TRUNCATED,         /* the bytes end before the frame does */
    TG_CHECKSUM_MISMATCH, /* the checksum does not match: the bytes were changed */
    TG_CORRUPT,           /* the checksum matches or is absent, but the contents break a rule of the format */
    TG_NONFINITE,         /* an infinity or a NaN in the input, or in a sum with a residual */
    TG_UNSTABLE,          /* error feedback with this codec would diverge; see part 6 */
    TG_UNAVAILABLE,       /* what this machine, process or device does not have: MPI, a card, a codec on a card */
    TG_EXCHANGE,          /* an exchange between ranks failed, and ranks may have different states: stop */
    TG_SKIPPED,           /* no rank applied this step; what was sent is back in the residuals: continue */
    TG_LAYOUT_MISMATCH,   /* another rank or a saved state has other tensors, specs or options than this reducer; a
                             frame is another one than tg_decode_call says */
    TG_BAD_RESIDUAL,      /* a residual, or dgc's momentum, holds an infinity or a NaN: reset or restore the feedback */
    TG_TRAILING_BYTES,    /* the bytes go on after the frame has ended */
    TG_STATUS_COUNT
} tg_status;

/* A short text for a status: "checksum mismatch". Never NULL, for any value. */
TG_API const char *tg_status_text(tg_status status);

/* Receives the error message of a function; empty after success. */
typedef struct tg_error {
    char message[256];
} tg_error;

/* ================================================================================================================
 * 2  Tensors, specs, codecs
 * ================================================================================================================ */

typedef enum tg_dtype { TG_FLOAT32 = 0, TG_FLOAT16 = 1, TG_BFLOAT16 = 2 } tg_dtype;

/* Bytes of one element; 0 for an invalid value. */
TG_API size_t tg_dtype_size(tg_dtype dtype);

/* A flat vector in the memory of the device that works on it (see part 3). It needs only the alignment of its elements.
 * Functions that take a `const tg_tensor *` as input only read `data`; as output they write it. */
typedef struct tg_tensor {
    void *data;
    uint64_t count;
    tg_dtype dtype;
} tg_tensor;

/* The largest number of elements of a tensor. */
#define TG_MAX_COUNT UINT32_C(0xffffffff)

/* A codec and its parameters: twelve bytes of plain data, the same that a frame's header contains. Make specs with
 * tg_spec_parse; compare them with memcmp; copy them freely. docs/format.md defines the fields. */
typedef struct tg_spec {
    uint8_t codec;
    uint8_t choices;
    uint16_t levels;
    uint32_t bucket;
    uint32_t amount;
} tg_spec;

/* Text to spec: "name" or "name:key=value,key=value". Keys that are not given have their defaults. Examples:
 *
 *     none                                              the values themselves
 *     fp16                                              rounded to nearest even; overflow saturates and is counted
 *     qsgd:levels=7,bucket=512,norm=max,coding=packed   4 bits per element
 *     terngrad:clip=2.5                                 -1, 0, +1 times the bucket's largest magnitude
 *     topk:density=0.001                                the largest thousandth, as float32
 *     topk:k=1000,values=levels,levels=7                top-k, then quantised
 *
 * Unknown names and keys, repeated keys, values out of range and keys that have no effect are refused; the message
 * has the key, the value and the allowed range. */
TG_API TG_MUST_CHECK tg_status tg_spec_parse(const char *text, tg_spec *spec, tg_error *error);

/* Spec to text, with every parameter; parsing the text gives the same twelve bytes. TG_SPEC_TEXT bytes are always
 * enough. */
#define TG_SPEC_TEXT 192
TG_API TG_MUST_CHECK tg_status tg_spec_print(const tg_spec *spec, char *text, size_t capacity, tg_error *error);

/* How many elements a sparsifier selects in a vector of this count: max(1, floor(density * count)) or k, at most count,
 * and 0 for an empty vector. Exact integer arithmetic. Threshold selectors select about as many. For other codecs,
 * count. */
TG_API uint64_t tg_spec_selected(const tg_spec *spec, uint64_t count);

/* One parameter of a codec, for help texts and user interfaces. */
typedef struct tg_parameter_info {
    const char *name;    /* "levels" */
    const char *range;   /* "1...32767", "l2|max" */
    char standard[24];   /* the default, as text; "" if there is none */
    const char *summary; /* one line */
} tg_parameter_info;

#define TG_MAX_PARAMETERS 8
typedef struct tg_codec_info {
    uint8_t id;
    bool sparse;         /* a sparsifier: sends selected elements, with their indices */
    bool unbiased;       /* the expected value of what is decoded is the input */
    bool wants_feedback; /* biased: use it with feedback (part 5), or a part of the gradient is lost */
    const char *name;    /* "qsgd" */
    const char *summary; /* one line */
    size_t parameter_count;
    tg_parameter_info parameters[TG_MAX_PARAMETERS];
} tg_codec_info;

/* The table of codecs: call with index 0, 1, ... until the status is not TG_OK. */
TG_API TG_MUST_CHECK tg_status tg_codec_list(size_t index, tg_codec_info *info);

/* ================================================================================================================
 * 3  Devices and codec handles
 * ================================================================================================================ */

/* Where the work is done. `name` is one of:
 *
 *     "cpu"                   the fastest kernels that this machine can run
 *     "cpu/scalar"            the plain C definition; all others give the same bytes
 *     "cpu:threads=4", "cpu/avx2:threads=4"    several threads per call, the caller's own included
 *     "cuda", "cuda:1"        an NVIDIA card: the calling thread's current one, or the one of this number. It needs the
 *                             module libtersegrad_cuda.so beside the library, and the driver; TG_UNAVAILABLE says what
 *                             is missing. Sparsifiers of 2^31 elements and more are TG_UNAVAILABLE there too
 *
 * `threads` is 1 (the default) to 256, or 0 for one per processor that the process may use. Threads are started
 * here, sleep while there is no work, block all signals, and end with the device. Vectors of less than 131072
 * elements use the caller's thread only. No byte depends on the number of threads. Several callers may share them.
 * In a child after fork the caller does everything. No call uses more than 96 KiB of a thread's stack. `stream` is for
 * devices that have streams, and NULL for others: a cudaStream_t, of which NULL is CUDA's default stream. */
typedef struct tg_device tg_device;
TG_API TG_MUST_CHECK tg_status tg_device_open(const char *name, void *stream, tg_device **device, tg_error *error);
TG_API void tg_device_free(tg_device *device);

/* The kernels and threads in use, as a name that tg_device_open accepts: "cpu/scalar", "cpu/avx2:threads=4". */
TG_API const char *tg_device_name(const tg_device *device);

/* The devices that this machine can run, without threads: call with index 0, 1, ... until NULL. */
TG_API const char *tg_device_list(size_t index);

/* Where things lie, and when they are done. The data of a tensor lie in the memory of the device of the handle it is
 * used with: for "cpu" that is host memory, whoever allocated it; for a card, memory that the card can reach.
 * Residuals, momentum and workspace belong to their handles and lie there too. Frames, messages and saved states, and
 * everything else that is passed by pointer (reports, errors, lists of frames, lists of indices), lie in host memory,
 * unless an option says that frames stay on the device.
 * The library touches device memory only by operations of the device, and a caller whose program runs on the host reads
 * and writes it by tg_device_copy_in and tg_device_copy_out, or by the means of the device itself.
 *
 * Operations on device memory take place in the order of the calls, on the stream that the device was opened with: a
 * tensor that earlier work on that stream writes may be given to a call at once, and what a call writes to a tensor may
 * be used by later work on that stream at once. A call returns when its results in host memory are there (the status,
 * the report, the frame, the sums' verdict) and its inputs in host memory have been read, so it may wait for the work
 * before it on the stream; it does not wait for what it writes to device memory. Work on other streams, or on the host,
 * needs tg_device_wait first, which returns when everything is done. "cpu" has no stream: every call is done when it
 * returns. A report can be read when its call has returned; of calls that do not wait (part 5), after tg_device_wait.
 *
 * A card copies frames that are in host memory to memory of its own, which the device keeps: the first call that needs
 * more of it than all before, and than was reserved, allocates it (an exception to the rule above), and
 * TG_OUT_OF_MEMORY says where there is none. Frames may stay on the card: see tg_encode_options.on_device and
 * TG_ON_DEVICE. On a CPU these have no effect. A frame on a card should begin at a multiple of 16; else it is copied.
 * After a card has failed every call that needs it returns TG_UNAVAILABLE, and what it was to write is undefined: free
 * its handles. */

/* Memory of the device, for tensors; NULL data for 0 bytes is legal everywhere. */
TG_API TG_MUST_CHECK tg_status tg_device_allocate(tg_device *device, size_t bytes, void **memory, tg_error *error);
TG_API void tg_device_release(tg_device *device, void *memory);
TG_API TG_MUST_CHECK tg_status tg_device_copy_in(tg_device *device, void *memory, const void *host, size_t bytes,
                                                 tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_device_copy_out(tg_device *device, void *host, const void *memory, size_t bytes,
                                                  tg_error *error);

/* Allocates now what a card needs to read up to `frames` frames of this spec, of up to `count` elements, in one call.
 */
TG_API TG_MUST_CHECK tg_status tg_device_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames,
                                                 tg_error *error);

/* Host memory that the device can write too, for the results of calls that do not wait (part 5). */
TG_API TG_MUST_CHECK tg_status tg_device_allocate_shared(tg_device *device, size_t bytes, void **memory,
                                                         tg_error *error);
TG_API void tg_device_release_shared(tg_device *device, void *memory);

/* From one place in the device's memory to another. */
TG_API TG_MUST_CHECK tg_status tg_device_copy(tg_device *device, void *to, const void *from, size_t bytes,
                                              tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_device_wait(tg_device *device, tg_error *error);

/* A codec with the workspace for vectors of up to max_count elements. It must not outlive its device. Codecs that are
 * not sparsifiers also reserve an undo buffer for TG_NONFINITE_REJECT of up to the size of a frame, which takes memory
 * only when it is used. */
typedef struct tg_codec tg_codec;
TG_API TG_MUST_CHECK tg_status tg_codec_create(tg_device *device, const tg_spec *spec, uint64_t max_count,
                                               tg_codec **codec, tg_error *error);
TG_API void tg_codec_free(tg_codec *codec);
TG_API const tg_spec *tg_codec_spec(const tg_codec *codec);

/* ================================================================================================================
 * 4  Encode, verify, decode
 * ================================================================================================================ */

/* Identifies the random numbers of one encode call. The random number of an element is a function of these four fields
 * and of the element's index: give each (step, tensor, rank) of a run its own, and runs can be repeated to the bit. An
 * element uses 16 random bits, which leaves a bias of at most 2^-17 of a level. */
typedef struct tg_draw {
    uint64_t seed;
    uint64_t step;
    uint32_t tensor;
    uint32_t rank;
} tg_draw;

/* What to do about infinities and NaN in the input (also those that arise where input and residual are added). The
 * library keeps residuals and momenta finite. One that is not, because its memory was damaged, is TG_BAD_RESIDUAL
 * whatever the policy. */
typedef enum tg_nonfinite {
    /* Refuse the input: TG_NONFINITE, and the message has the first index. Frame buffer and residual are unchanged. */
    TG_NONFINITE_REJECT = 0,
    /* Replace such elements of the input by 0, and count them in the report. */
    TG_NONFINITE_ZERO,
    /* The caller promises finite input, and no undo buffer is used. A non-finite value still gives TG_NONFINITE and no
     * frame, but then the frame buffer is undefined, and the residual is restored only up to rounding. */
    TG_NONFINITE_TRUST
} tg_nonfinite;

/* All zero is the default: seed 0, reject, with checksum. */
typedef struct tg_encode_options {
    tg_draw draw;
    tg_nonfinite nonfinite;
    bool no_checksum;
    bool on_device; /* the frame buffer is device memory, and the frame stays there; after an error it is undefined */
} tg_encode_options;

/* The result of an encode call. It is filled in whether the call succeeds or not: where `status` is not TG_OK, it is
 * what the call returned, and all else is 0. */
typedef struct tg_encode_report {
    tg_status status;
    size_t bytes;       /* of the finished frame */
    uint64_t selected;  /* elements sent: those that a sparsifier selected, otherwise count */
    uint64_t saturated; /* values limited to the largest float16 or bfloat16, or residuals to the largest float32 */
    uint64_t dropped;   /* non-finite values that TG_NONFINITE_ZERO replaced */
} tg_encode_report;

/* The most bytes that a frame of `count` elements can take. The frame buffer must have this size, so encoders never
 * check for room. 0 if count is more than the codec was created for. */
TG_API size_t tg_frame_bound(const tg_codec *codec, uint64_t count);

/* One vector to one frame. `options` and `report` may be NULL. */
TG_API TG_MUST_CHECK tg_status tg_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options,
                                         void *frame, size_t capacity, tg_encode_report *report, tg_error *error);

/* The bytes of a frame, which may be damaged or hostile. */
typedef struct tg_frame {
    const void *data;
    size_t size;
} tg_frame;

typedef struct tg_frame_info {
    tg_spec spec;
    tg_dtype dtype; /* of the encoded vector */
    uint64_t count;
    uint64_t bytes; /* header and payload */
    tg_draw draw;
    unsigned version;
    /* how levels are coded: 0 packed, 1 Elias sparse, 2 Elias dense, 3 entropy, 4 entropy sparse, 5 prefix */
    unsigned layout;
    bool has_checksum;
} tg_frame_info;

/* The name of tg_frame_info.layout: "packed". Never NULL. */
TG_API const char *tg_layout_text(unsigned layout);

/* Reads and checks the header only: cheap, and says nothing about the payload. */
TG_API TG_MUST_CHECK tg_status tg_frame_read(tg_frame frame, tg_frame_info *info, tg_error *error);

/* Checks everything: header, checksum, every rule of the format. `info` may be NULL. This can take as long as decoding
 * info->count elements: where the count is known, compare it first with that of tg_frame_read. */
TG_API TG_MUST_CHECK tg_status tg_frame_verify(tg_device *device, tg_frame frame, tg_frame_info *info, tg_error *error);

/* What the bytes of a frame are used for, for reports and benchmarks. Verifies the frame first. */
typedef struct tg_frame_parts {
    uint64_t selected;    /* elements sent */
    uint64_t scale_bytes; /* scales of buckets */
    uint64_t index_bytes; /* indices of a sparsifier, with their directory */
    uint64_t value_bytes; /* everything else: values, or levels with their tables */
    double level_entropy; /* bits: the Shannon entropy of the levels times their number; 0 for codecs without levels */
} tg_frame_parts;
TG_API TG_MUST_CHECK tg_status tg_frame_measure(tg_device *device, tg_frame frame, tg_frame_parts *parts,
                                                tg_error *error);

/* For `flags`: tg_frame_verify has returned TG_OK for these very bytes, so they are not verified again. Memory safety
 * does not depend on it, but if it is not true, a bad frame may leave some of its values in the output. */
#define TG_VERIFIED 1u
/* Likewise: the frames are device memory, as tg_encode_options.on_device leaves them. Of their device alone. */
#define TG_ON_DEVICE 2u

/* Frames to vector, in one pass over the output, which must have the frames' count and may have any dtype:
 *
 *     tg_decode      out  =       weight * v0 + weight * v1 + ...
 *     tg_decode_add  out  = out + weight * v0 + weight * v1 + ...
 *
 * in the given order, with each product and each sum rounded to float32. An element that a sparse frame does not list
 * is left as it is, or is +0 where that frame is the first of tg_decode, whatever the sign of the weight. A 16-bit
 * output is rounded once, at the end, to nearest even, and limited to the largest finite value. All frames are verified
 * before anything is written: one bad frame leaves the output unchanged, and the error message has its position in the
 * list. Frames may have different codecs. A float32 output takes any number of frames, a 16-bit one up to
 * TG_MAX_NARROW_FRAMES (for more, sum in float32). */
#define TG_MAX_NARROW_FRAMES 16
TG_API TG_MUST_CHECK tg_status tg_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight,
                                         unsigned flags, const tg_tensor *out, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count,
                                             float weight, unsigned flags, const tg_tensor *out, tg_error *error);

/* ================================================================================================================
 * 5  Feedback
 * ================================================================================================================
 *
 * What a codec leaves out of one step is kept in a residual, in float32, and added to the next step. With residual h,
 * gradient g and codec C:
 *
 *     u = g + alpha * h          is compressed; sent = C(u)
 *     h = (beta * h + g) - sent  is the new residual
 *
 *   none   no residual: alpha = beta = 0; the same as tg_encode
 *   ef     alpha = beta = 1: classical error feedback, h = u - sent
 *   ecq    alpha and beta of the ECQ-SGD paper
 *   dgc    momentum correction for sparsifiers: m = momentum * m + clip(g), h = h + m, sent = C(h); then sent is
 *          subtracted from h, and m is cleared where an element was sent. clip limits the L2 norm of g; 0 is off
 */

typedef enum tg_feedback_kind {
    TG_FEEDBACK_NONE = 0,
    TG_FEEDBACK_EF,
    TG_FEEDBACK_ECQ,
    TG_FEEDBACK_DGC
} tg_feedback_kind;

typedef struct tg_feedback_spec {
    tg_feedback_kind kind;
    float alpha;    /* 0 ... 1 */
    float beta;     /* 0 ... 1 */
    float momentum; /* 0 ... 1, below 1 */
    float clip;     /* 0 (off) ... 1000000 */
} tg_feedback_spec;

/* Text to feedback spec and back: "none", "ef", "ecq:alpha=0.2,beta=0.9", "dgc:momentum=0.9,clip=1e-3". Numbers have up
 * to 15 digits. Printing gives the canonical text, and parsing that text gives the same spec, to the bit. */
TG_API TG_MUST_CHECK tg_status tg_feedback_parse(const char *text, tg_feedback_spec *spec, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_feedback_print(const tg_feedback_spec *spec, char *text, size_t capacity,
                                                 tg_error *error);

/* The residual of one tensor on one rank, zero at first, for one codec spec. TG_UNSTABLE: `ef` or `ecq` with an L2
 * quantiser would diverge (lambda >= 1, see part 6); set `insist` to use it anyway. `dgc` is for sparsifiers only. The
 * handle must not outlive its device. It takes 4 bytes per element (dgc 8), and 4 more if TG_NONFINITE_REJECT is used.
 */
typedef struct tg_feedback tg_feedback;
TG_API TG_MUST_CHECK tg_status tg_feedback_create(tg_device *device, const tg_feedback_spec *spec, const tg_spec *codec,
                                                  uint64_t count, bool insist, tg_feedback **feedback, tg_error *error);
TG_API void tg_feedback_free(tg_feedback *feedback);

/* The residual, and dgc's momentum, as they are between calls: elements `first` to first + count - 1 copied to host
 * memory, for a checkpoint, or from it, to restore one. Feedback keeps them in device memory, so there is no pointer to
 * them. Write takes finite values only, and otherwise changes nothing: TG_NONFINITE names the first that is not. */
typedef enum tg_feedback_part { TG_RESIDUAL = 0, TG_MOMENTUM = 1 } tg_feedback_part;
TG_API TG_MUST_CHECK tg_status tg_feedback_read(tg_feedback *feedback, tg_feedback_part part, uint64_t first,
                                                uint64_t count, float *values, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_feedback_write(tg_feedback *feedback, tg_feedback_part part, uint64_t first,
                                                 uint64_t count, const float *values, tg_error *error);

/* Compensates, encodes and updates the residual in one pass. Otherwise as tg_encode; after an error the residual is
 * unchanged (up to rounding under TG_NONFINITE_TRUST). TG_BAD_RESIDUAL: memory was damaged, and the message has an
 * element of the residual or the momentum that is not finite; under TG_NONFINITE_ZERO such elements are 0 afterwards,
 * and all else, the frame and the report's numbers too, is as if the call had succeeded. */
TG_API TG_MUST_CHECK tg_status tg_encode_with_feedback(tg_codec *codec, tg_feedback *feedback,
                                                       const tg_tensor *gradient, const tg_encode_options *options,
                                                       void *frame, size_t capacity, tg_encode_report *report,
                                                       tg_error *error);

/* The same in three steps, with the same bytes, for callers that need u: compensate writes u to a float32 tensor and
 * changes nothing else; the caller encodes u; update takes the frame and the same gradient, and updates the residual.
 * The gradient and u must be finite. u may take the place of a float32 gradient; any other overlap is refused. Where
 * the new residual would overflow, update returns TG_NONFINITE and changes nothing. */
TG_API TG_MUST_CHECK tg_status tg_feedback_compensate(tg_feedback *feedback, const tg_tensor *gradient,
                                                      const tg_tensor *u, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_feedback_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame,
                                                  tg_error *error);

/* Returns a frame that was sent but not applied to the residual: h = h + sent. With `applied`, an increasing list of
 * `applied_count` indices, only the elements that are not in the list; NULL means that nothing was applied. After an
 * `ef` step that was returned completely, h is u again (to the bit for sparsifiers with fp32 values). Momentum that dgc
 * cleared stays cleared. An index beyond the residual is TG_INVALID_ARGUMENT, a sum that overflows is TG_NONFINITE;
 * both change nothing. */
TG_API TG_MUST_CHECK tg_status tg_feedback_return(tg_feedback *feedback, tg_frame frame, const uint32_t *applied,
                                                  size_t applied_count, tg_error *error);

/* Clears everything: residual, momentum, statistics. */
TG_API void tg_feedback_reset(tg_feedback *feedback);

/* How the residual develops. Normally it settles: its norm stays within a few times the gradient's norm divided by the
 * density, and growth is about 1. If it diverges, growth is above 1 step after step. */
typedef struct tg_stats {
    uint64_t steps;     /* encode calls that succeeded */
    uint64_t bytes;     /* of their frames */
    uint64_t saturated; /* sum over these calls, as in the report */
    uint64_t dropped;
    double gradient_norm; /* L2 norm of the last gradient; both norms are estimates beyond 2^20 elements */
    double residual_norm; /* L2 norm after the last step */
    double residual_peak; /* the largest residual_norm so far */
    /* mean ratio of residual_norm to that of the step before, over about the last 32 steps; 0 before the second step */
    double residual_growth;
} tg_stats;
TG_API TG_MUST_CHECK tg_status tg_feedback_stats(const tg_feedback *feedback, tg_stats *stats, tg_error *error);

/* ---- Calls that do not wait ----
 *
 * On a card every function above waits until its report is there. Those below put their work on the device's stream and
 * return; they neither wait nor allocate, so they can also be captured in a CUDA graph, and replayed with it. Invalid
 * arguments are the function's status, and then nothing has been put on the stream. The result of the work is written
 * to a place that the caller keeps, in memory from tg_device_allocate_shared (on a card: any pinned
 * host memory); it is there after an event of the stream behind the call, or after tg_device_wait, and is written
 * again by each replay. Pointers and sizes are those of the call: what must stay as it is while a graph can be
 * replayed are the handles, the tensors, the frames and the reports, but not the arrays of calls. While a stream is
 * captured no other function of the library may be called for its device, and replays of graphs of one device take
 * place one after the other. "cpu" has done everything when the function returns. */

/* One vector to one frame, which stays in device memory: a frame in host memory is refused on a card. */
typedef struct tg_encode_call {
    tg_codec *codec;
    tg_feedback *feedback; /* NULL: none */
    tg_tensor gradient;
    tg_encode_options options; /* with on_device */
    const uint64_t *step;      /* in device memory: taken for options.draw.step when the work is done. Or NULL */
    void *frame;
    size_t capacity;
    tg_encode_report *report;
} tg_encode_call;

/* tg_encode, or tg_encode_with_feedback, for each of several vectors, which a card takes together in a few launches
 * where it has kernels for that. All codecs have the same device; a codec may be given several times, a feedback once.
 * Sparse vectors are encoded beside each other where each has a codec of its own. Where report->status is TG_NONFINITE,
 * the residual is what it was (up to rounding under TG_NONFINITE_TRUST) and the frame is undefined. A damaged residual
 * gives TG_BAD_RESIDUAL under TG_NONFINITE_ZERO only, with the meaning that it has after tg_encode_with_feedback; under
 * the other policies it gives TG_NONFINITE, as a bad gradient does. tg_feedback_stats does not count these calls. dgc
 * with clipping is refused, because the host needs the norm. */
TG_API TG_MUST_CHECK tg_status tg_encode_later(const tg_encode_call *calls, size_t count, tg_error *error);

/* tg_decode_add of frames in device memory, each at a multiple of 16. All are such frames as `like` says: its spec,
 * dtype, count, layout and has_checksum, so the info of any one of them describes all. The size of a
 * frame is the frame's; but of a sparsifier's it may also be more, such as tg_frame_bound, so that a graph can be
 * replayed with frames of other sizes. *status will be TG_OK; or TG_LAYOUT_MISMATCH where a frame is not like that, or
 * longer, and TG_CORRUPT where one is damaged: then the output is what it was. */
#define TG_MAX_LATER_FRAMES 8
typedef struct tg_decode_call {
    const tg_frame *frames;
    size_t frame_count; /* 1 to TG_MAX_LATER_FRAMES */
    const tg_frame_info *like;
    float weight;
    bool verified; /* as TG_VERIFIED */
    tg_tensor out;
    tg_status *status;
} tg_decode_call;

/* For each of several outputs, which must not overlap. TG_UNAVAILABLE where a card cannot do that: for `none`, `fp16`
 * and `bf16`, for listed levels, for sparse frames to outputs of 16 bits, and for those whose values are coded levels.
 * TG_OUT_OF_MEMORY where more memory is needed than tg_device_reserve has been asked for. */
TG_API TG_MUST_CHECK tg_status tg_decode_add_later(tg_device *device, const tg_decode_call *calls, size_t count,
                                                   tg_error *error);

/* ================================================================================================================
 * 6  Stability
 * ================================================================================================================
 *
 * A codec with E|C(u) - u|^2 <= gamma |u|^2 keeps the residual bounded under (alpha, beta) if
 * lambda = alpha^2 gamma + (beta - alpha)^2 < 1. The condition is sufficient, not necessary. For L2 quantisers gamma is
 * close to the real error, and plain error feedback with gamma > 1 does diverge. For max-norm quantisers gamma is a
 * worst case far from the error of real data, so there lambda is only information.
 */
typedef struct tg_stability {
    double gamma;  /* bound of the codec's relative squared error, for vectors of this count */
    double lambda; /* alpha^2 gamma + (beta - alpha)^2; 0 for feedback none; momentum is not considered */
    bool binding;  /* lambda >= 1 with an L2 quantiser: tg_feedback_create refuses unless `insist` is set */
} tg_stability;
TG_API TG_MUST_CHECK tg_status tg_stability_of(const tg_spec *codec, const tg_feedback_spec *feedback, uint64_t count,
                                               tg_stability *stability, tg_error *error);

/* ================================================================================================================
 * 7  Transports
 * ================================================================================================================
 *
 * A transport moves bytes between `world` ranks and does not know what they mean. Every rank starts the same exchanges
 * in the same order; several may be in progress. With tg_reduce, a program only creates and frees a transport.
 */
typedef struct tg_transport tg_transport;

/* Ranks are threads of this process: fills transports[0 ... world-1], one for each thread. */
TG_API TG_MUST_CHECK tg_status tg_transport_local(uint32_t world, tg_transport **transports, tg_error *error);

/* The same, but exchanges take the time that they would take on a network, so that one machine shows what it would be
 * like: every host has one link, which moves `bits_per_second` each way at once, packets' headers included, and what
 * has passed the links of both hosts is there after the latency. A message is sent once both ranks have started the
 * exchange; messages on a link follow each other. tg_transport_wait returns when all of an exchange is there, and that
 * time does not count against its timeout. Messages between ranks of one host take no time of their own. */
typedef struct tg_link {
    double bits_per_second;       /* 1e3 ... 1e15 */
    double latency_seconds;       /* 0 ... 1000 */
    const uint32_t *host_of_rank; /* of each rank, below `world`; NULL: every rank is a host of its own */
} tg_link;
TG_API TG_MUST_CHECK tg_status tg_transport_local_link(uint32_t world, const tg_link *link, tg_transport **transports,
                                                       tg_error *error);

/* Ranks are the processes that an MPI launcher started. `module` is NULL for the MPI that this process has loaded, as
 * every program has that is linked with MPI; or "openmpi" or "mpich", whichever launcher that was. Its module is looked
 * for beside the library (LIBDIR/tersegrad/mpi-NAME.so). Or it is the path of a module, with a slash in it.
 * TG_UNAVAILABLE where the module or its MPI is not installed, where NULL is given and no MPI is loaded, and where the
 * process has loaded another MPI than the module's. A module that is not the launcher's gives every process a world of
 * its own: compare tg_transport_world with the number of processes. Create at most one per process; MPI is initialised
 * unless it is already, and then finalised when this is freed. */
TG_API TG_MUST_CHECK tg_status tg_transport_mpi(const char *module, tg_transport **transport, tg_error *error);

/* Ranks are those of a communicator of the caller, who has initialised MPI: `communicator` points to the MPI_Comm. It
 * is duplicated, so all its ranks call this together, and may be freed afterwards. */
TG_API TG_MUST_CHECK tg_status tg_transport_mpi_on(const char *module, const void *communicator,
                                                   tg_transport **transport, tg_error *error);

/* Ranks are those of `over`, each with a card of its own: what lies in device memory goes from card to card by NCCL,
 * and everything else over `over`, which is used until this is freed, and freed after it. All ranks call this together,
 * each with its card the current one of the calling thread, and with the stream that its device was opened with:
 * exchanges follow what is on it, and what is put on it after tg_transport_wait has what came. NCCL has a stream of its
 * own, so that work on that of the device goes on meanwhile. `library` is the path of NCCL, with a slash in it, or NULL
 * for the libnccl.so.2 that this process has loaded or the system finds. It needs the module nccl.so beside the library
 * (LIBDIR/tersegrad/nccl.so). TG_UNAVAILABLE says what is missing, on every rank; and where two ranks have the same
 * card, which NCCL refuses. `timeout` is for joining, in seconds, 0 for no limit. */
TG_API TG_MUST_CHECK tg_status tg_transport_nccl(const char *library, tg_transport *over, void *stream, double timeout,
                                                 tg_transport **transport, tg_error *error);

TG_API const char *tg_transport_name(const tg_transport *transport); /* "local", "mpi", "nccl" */
TG_API uint32_t tg_transport_rank(const tg_transport *transport);
TG_API uint32_t tg_transport_world(const tg_transport *transport);

/* Whether it takes exchanges whose buffers lie in device memory: "nccl" does. */
TG_API bool tg_transport_on_device(const tg_transport *transport);

/* This rank aborts: no exchange will complete any more, on any rank, and those that wait get TG_EXCHANGE. Under MPI the
 * launcher ends the job with this exit status (1 ... 255). Freeing a transport that other ranks still use has the same
 * effect. */
TG_API void tg_transport_abort(tg_transport *transport, int exit_status);
TG_API void tg_transport_free(tg_transport *transport);

/* One exchange, as plain data. Arrays have `world` entries; those of the own rank are ignored, but under
 * TG_ALL_MINIMUM. Under TG_ALL_GATHER every rank gets the same bytes (all entries of `send` are equal), under
 * TG_ALL_TO_ALL each gets its own. The size of what will be received is not known in advance: `capacity` limits it, and
 * `received` has it afterwards.
 *
 * Not every pair of ranks needs to exchange something: TG_NO_MESSAGE as send_size[p] says that nothing is sent to rank
 * p, not even an empty message, and as capacity[p] that nothing comes from it (received[p] is left as it is). Both
 * sides must say the same, and what goes one way does not depend on what goes the other. A rank that exchanges nothing
 * with anybody still starts the exchange, so that all ranks count alike. */
#define TG_NO_MESSAGE SIZE_MAX
/* As received[p], of a transport that does not tell how much has come: the message says itself where it ends. */
#define TG_UNKNOWN_SIZE (SIZE_MAX - 1)
typedef enum tg_exchange_kind {
    TG_ALL_GATHER = 0,
    TG_ALL_TO_ALL = 1,
    /* Not bytes, but the least of integers: every rank gives 64-bit ones below 2^63 as send[0], send_size[0] bytes of
     * them, and gets the least that any rank gave in each place as receive[0], and received[0] is their size. It is for
     * back ends that have such a collective (tg_reducer_options.minimum); the transports here refuse it. */
    TG_ALL_MINIMUM = 2
} tg_exchange_kind;

typedef struct tg_exchange {
    tg_exchange_kind kind;
    uint32_t world;
    const void *const *send;
    const size_t *send_size;
    void *const *receive;
    const size_t *capacity;
    size_t *received;
    /* `send` and `receive` lie in device memory. Only for transports that take it (tg_transport_on_device). Here what
     * comes from rank p is exactly capacity[p] bytes, or TG_NO_MESSAGE: both sides know beforehand, and `received` is
     * not written. These exchanges and all others are two sequences: ranks start each in one order, but not in one
     * order together. */
    bool on_device;
} tg_exchange;

/* Start returns at once; until wait has returned, the exchange and its buffers must not be changed. `timeout` is in
 * seconds, 0 for no limit. After a failure the transport cannot be used any more. */
TG_API TG_MUST_CHECK tg_status tg_transport_start(tg_transport *transport, tg_exchange *exchange, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_transport_wait(tg_transport *transport, tg_exchange *exchange, double timeout,
                                                 tg_error *error);

/* ================================================================================================================
 * 8  Reducing
 * ================================================================================================================
 *
 * One step of all ranks: feedback, encode, exchange, verify, decode-add in rank order, one scaling. The mean is left in
 * the gradient's place, the same bits on every rank.
 *
 *     tg_reducer_create(device, rank, world, tensors, n, NULL, &reducer, &error);      on every rank
 *     for each step: tg_reduce(reducer, transport, gradients, step, &error);
 *
 * Either every rank applies a step or none does: docs/collectives.md says how they agree, and gives steps and bytes.
 */

/* One tensor; its position in the list is its number. The name is used in messages, and is copied. */
typedef struct tg_reducer_tensor {
    const char *name;
    uint64_t count;
    tg_dtype dtype;
    tg_spec codec;
    tg_feedback_spec feedback;
    bool insist; /* accept feedback that would diverge, see part 5 */
    /* TG_SCATTER only: world + 1 of them, from 0 to count, not decreasing. The part of rank r is the elements from
     * boundaries[r] to boundaries[r+1] - 1, perhaps none. They are copied. NULL: count * r / world, rounded down. */
    const uint64_t *boundaries;
} tg_reducer_tensor;

typedef enum tg_algorithm {
    TG_AUTO = 0, /* chosen by sizes and world; tg_reducer_stats has the result */
    TG_GATHER,   /* every rank gets every frame: lowest latency, volume grows with the world */
    TG_SHARD,    /* each rank sums and encodes its part of the index space: volume does not grow */
    /* The first half of it, a reduce-scatter: each rank is left with the mean of its own part of every tensor (see
     * tg_reducer_tensor.boundaries), and the rest of its gradients is unchanged. TG_AUTO never chooses it. */
    TG_SCATTER
} tg_algorithm;

/* The name of an algorithm: "gather". Never NULL, for any value. */
TG_API const char *tg_algorithm_text(tg_algorithm algorithm);

/* What to do when a gradient on any rank is not finite, or a sum of finite gradients overflows. Such values never enter
 * a residual and are never applied. The numbers differ from those of tg_nonfinite, so that a mix-up is refused. */
typedef enum tg_nonfinite_step {
    TG_NONFINITE_STOP = 0,  /* every rank gets TG_NONFINITE; the message has the tensor's name and the rank */
    TG_NONFINITE_SKIP = 16, /* every rank gets TG_SKIPPED */
    TG_NONFINITE_DROP = 17  /* such elements, and such sums, count as 0 */
} tg_nonfinite_step;

/* From this step on, sparsifiers have this density (if they were given a density and not k). */
typedef struct tg_density_change {
    uint64_t from_step;
    double density;
} tg_density_change;

/* Whether steps may be sent uncompressed because that is faster, as `none`. */
typedef enum tg_bypass {
    TG_BYPASS_OFF = 0,
    /* Ranks tell each other with their verdicts how long reductions take, try both ways, and use the faster one, all
     * of them in the same steps. What is in residuals is sent with the first dense step. Refused with feedback dgc. */
    TG_BYPASS_AUTO,
    TG_BYPASS_REPLAY /* at the reductions of bypass_changes: the same bits as the run that they are the log of */
} tg_bypass;

/* All zero is the default. Every rank must pass the same. */
typedef struct tg_reducer_options {
    tg_algorithm algorithm;
    tg_nonfinite_step nonfinite;
    uint64_t seed;                     /* seed of all random numbers */
    uint64_t min_size;                 /* tensors with fewer elements are sent uncompressed */
    uint64_t warmup;                   /* all tensors are sent uncompressed in the steps below this one */
    const tg_density_change *schedule; /* in increasing order of steps */
    size_t schedule_count;
    uint32_t depth;          /* reductions that may be in progress at once: 0 and 1 mean one, 2 is double buffering */
    uint64_t batch_elements; /* elements that are sent in one exchange: larger tensors are cut; 0: 2^20, or fewer under
                              * gather where those of all ranks would take more than 512 MiB */
    double timeout;          /* of an exchange in tg_reduce, in seconds; 0: no limit */
    /* Of each rank, the host that it runs on: any numbers below `world`, in any order. They are copied. Where a host
     * has several ranks, gather and shard have two levels: ranks of a host add up their gradients as they are, and only
     * hosts exchange what is compressed (docs/collectives.md, 14). TG_SCATTER, bypass, and dgc with a clip are refused
     * then. NULL: every rank is a host of its own. */
    const uint32_t *host_of_rank;
    tg_bypass bypass;
    const uint64_t *bypass_changes; /* TG_BYPASS_REPLAY: what tg_reducer_bypass_log has given */
    size_t bypass_change_count;
    /* Frames never leave the memory of the device: for transports that take it. Each message goes in two exchanges: its
     * head from host to host, which says how many bytes of frames follow, then these from device to device (see
     * tg_exchange.on_device). Hosts with several ranks in host_of_rank are refused then. */
    bool on_device;
    /* Ranks agree on a step's outcome by one TG_ALL_MINIMUM exchange, instead of messages in rounds: for programs that
     * carry out the exchanges themselves, with a collective of their own for it; on all ranks or on none, because where
     * they differ they wait for each other until the time-out. tg_reduce refuses it. */
    bool minimum;
} tg_reducer_options;

/* All memory that reducing needs on this rank. It must not outlive its device. For a card, room for messages is pinned
 * host memory, up to the size of the gradients as float32, as far as there is so much. */
typedef struct tg_reducer tg_reducer;
TG_API TG_MUST_CHECK tg_status tg_reducer_create(tg_device *device, uint32_t rank, uint32_t world,
                                                 const tg_reducer_tensor *tensors, size_t tensor_count,
                                                 const tg_reducer_options *options, tg_reducer **reducer,
                                                 tg_error *error);

/* Not while its exchanges are in progress: finish them or abort the transport first. */
TG_API void tg_reducer_free(tg_reducer *reducer);

/* Where hosts have several ranks, these read each other's gradients in shared memory instead of sending them; `shared`,
 * unless it is NULL, says whether they do. They are sent as messages where the transport has no such memory (MPI has it
 * on Linux), a rank's device is not the CPU, or the policy is to drop what is not finite. Results are the same. Every
 * rank calls it once, between reductions. It allocates the shared memory. */
TG_API TG_MUST_CHECK tg_status tg_reducer_share_memory(tg_reducer *reducer, tg_transport *transport, bool *shared,
                                                       tg_error *error);

/* Then: where the gradient of a float32 tensor need not be copied, because others can read it there. It is the
 * reducer's, and has `count` elements; those of the next tensor in the list follow. NULL where ranks send each other
 * messages, and with a depth above 1. */
TG_API float *tg_reducer_gradient_memory(const tg_reducer *reducer, size_t index);

/* Replaces gradients[0 ... tensor_count-1], which have the counts and dtypes of the list, by their mean over all ranks.
 * Step numbers need not be consecutive.
 *
 * TG_SKIPPED and TG_NONFINITE: every rank gets the same status. The gradients are unchanged, and they are also in the
 * residuals, so do not pass them again. Not in the residuals are tensors without feedback, and batches (of
 * `batch_elements`) with a value that is not finite: the caller still has these, or they are lost.
 *
 * TG_EXCHANGE: other ranks may have applied the step: restart from a checkpoint. */
TG_API TG_MUST_CHECK tg_status tg_reduce(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                         uint64_t step, tg_error *error);

/* The same in two halves: start compresses and sends, finish waits and writes the mean. In between the caller may
 * compute, and with depth 2 start the next reduction, for other gradient buffers. Finish in the order of the starts. */
typedef struct tg_reduction tg_reduction;
TG_API TG_MUST_CHECK tg_status tg_reduce_start(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                               uint64_t step, tg_reduction **reduction, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_finish(tg_reduction *reduction, tg_transport *transport, tg_error *error);

/* The same step by step, for callers with their own transport (torch.distributed, a simulator):
 *
 *     begin
 *     repeat: next
 *         it returns an exchange: start it
 *         it returns none: wait for the oldest exchange in progress, and feed it; leave the loop if there is none
 *     end, which tells whether the step was applied
 *
 * next compresses one message at a time, so compression overlaps communication; under gather a card goes on with the
 * one after it. Exchanges belong to the reduction; feed them in the order in which they were returned. A rank on which
 * something fails still takes part to the end, so that all ranks skip the step together. If an exchange fails, call
 * abandon: what was compressed goes back to the residuals. The reduction is released by end or abandon. */
TG_API TG_MUST_CHECK tg_status tg_reduce_begin(tg_reducer *reducer, const tg_tensor *gradients, uint64_t step,
                                               tg_reduction **reduction, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_next(tg_reduction *reduction, tg_exchange **exchange, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_feed(tg_reduction *reduction, tg_exchange *exchange, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_end(tg_reduction *reduction, tg_error *error);
TG_API void tg_reduce_abandon(tg_reduction *reduction);

/* For gradients that become ready one by one, as in a backward pass: begin with NULL, then pass each tensor once, in
 * any order, between calls of next and feed:
 *
 *     tg_reduce_begin(reducer, NULL, step, &reduction, &error);
 *     tg_reduce_ready(reduction, i, &gradient, &error);     this rank has the tensor; end replaces it by the mean
 *     tg_reduce_absent(reduction, i, &out, &error);         this rank does not have it in this step
 *
 * next returns a message when all its tensors have been passed, in the order of the list on every rank: so list tensors
 * in the order in which they become ready. If next returns no exchange, nothing can be started now: pass more tensors,
 * or feed an exchange. end fails while tensors are missing. The result does not depend on when or in which order
 * tensors are passed.
 *
 * An absent tensor counts as zero in the mean, which is still divided by the number of ranks, and its residual is
 * unchanged. `out` receives the mean if another rank has the tensor, and is unchanged if none has; it may be NULL.
 * Between the last feed and end, tg_reduce_present tells whether any rank has it. (With a sparsifier whose values are
 * not fp32, the owner's error of a mean stays in that rank's residual, even where the tensor is absent.) */
TG_API TG_MUST_CHECK tg_status tg_reduce_ready(tg_reduction *reduction, size_t index, const tg_tensor *gradient,
                                               tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_absent(tg_reduction *reduction, size_t index, const tg_tensor *out,
                                                tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_present(const tg_reduction *reduction, size_t index, bool *present,
                                                 tg_error *error);

/* This rank's residuals and counters as checksummed bytes; call it between steps. With a NULL buffer it returns only
 * the size. */
TG_API TG_MUST_CHECK tg_status tg_reducer_save(const tg_reducer *reducer, void *buffer, size_t capacity, size_t *size,
                                               tg_error *error);

/* Loads saved states:
 *
 *  - One state, saved by this rank of a world of this size: the run continues to the bit.
 *  - After the world has changed from P to Q ranks, rank r loads the states of ranks r, r+Q, r+2Q, ... of P, in this
 *    order; a rank for which there is none loads nothing (count 0). Residuals are added and scaled by Q/P, so that
 *    their effect on the mean is the same.
 *  - States of other tensors are refused: TG_LAYOUT_MISMATCH, and the message names a tensor.
 *  - With TG_BYPASS_REPLAY, so is a state in whose reductions so far something else was decided than the log says.
 */
typedef struct tg_state {
    const void *data;
    size_t size;
} tg_state;
TG_API TG_MUST_CHECK tg_status tg_reducer_load(tg_reducer *reducer, const tg_state *states, size_t count,
                                               tg_error *error);

/* Multiplies all residuals and momenta of this rank, for when the loss scale of mixed precision changes and gradients
 * of another scale follow. Every rank must do the same, between steps. Refused if the factor is not positive and
 * finite, or if a residual would overflow; then nothing has changed. */
TG_API TG_MUST_CHECK tg_status tg_reducer_scale(tg_reducer *reducer, float factor, tg_error *error);

/* The reductions, counted from 0, at which TG_BYPASS_AUTO has changed how steps are sent, so far and of the loaded
 * state: from the first on they are dense, from the second on compressed again. At most 4096; then nothing changes any
 * more. With a NULL list it returns only how many there are. */
TG_API TG_MUST_CHECK tg_status tg_reducer_bypass_log(const tg_reducer *reducer, uint64_t *changes, size_t capacity,
                                                     size_t *count, tg_error *error);

/* What a reduction exchanges, without making a reducer: from the same plan, for any rank of up to a million. It needs
 * no device and no buffers, only the list of pieces; the greeting of the first step is left out. Sizes are those of a
 * step after warm-up, in which every rank has every tensor. Where they depend on the data (sparsifiers, coded levels)
 * they are estimates: as many elements as the spec aims at, spread evenly, and levels as if packed. */
typedef struct tg_description tg_description;

typedef enum tg_exchange_role {
    TG_ROLE_GRADIENTS = 1, /* gather: everybody's frames to everybody */
    TG_ROLE_PARTS,         /* shard: to each owner its parts */
    TG_ROLE_RESULTS,       /* shard: from each owner the mean of its parts */
    TG_ROLE_VERDICT,       /* whether the step can be applied */
    TG_ROLE_RAW,           /* two levels, within hosts: to each owner its parts as they are, uncompressed */
    TG_ROLE_SPREAD         /* two levels, within hosts: from each owner the frames of its share */
} tg_exchange_role;

/* One exchange of a step, as one rank sees it. With two levels, TG_ROLE_RAW and TG_ROLE_SPREAD stay within hosts, and
 * all others but verdicts are between hosts. */
typedef struct tg_described_exchange {
    tg_exchange_role role;
    tg_exchange_kind kind;
    size_t first_tensor, tensor_count;       /* these must be ready before it can be made */
    size_t after;                            /* this one must have been fed before it can be made; SIZE_MAX: none */
    uint32_t peers;                          /* messages that this rank sends, or that it gets if these are more */
    uint64_t bytes_sent, bytes_received;     /* over all peers, with message headers */
    uint64_t largest_sent, largest_received; /* by any rank */
    uint64_t summed;  /* elements of frames that are added up to make it; one of P frames counts P times */
    uint64_t encoded; /* elements that are compressed to make it */
    uint64_t checked; /* elements of the frames that come */
    uint64_t frames;  /* frames that are compressed to make it, and frames that come */
} tg_described_exchange;

typedef struct tg_description_info {
    tg_algorithm algorithm; /* not TG_AUTO */
    size_t exchange_count;  /* they are started in this order, and fed in this order */
    uint64_t applied;       /* elements of frames that are added up after the last exchange */
    bool estimated;         /* some sizes depend on the data */
} tg_description_info;

/* TG_SCATTER is refused. */
TG_API TG_MUST_CHECK tg_status tg_description_create(uint32_t world, const tg_reducer_tensor *tensors,
                                                     size_t tensor_count, const tg_reducer_options *options,
                                                     tg_description **description, tg_error *error);
TG_API void tg_description_free(tg_description *description);
TG_API TG_MUST_CHECK tg_status tg_description_of(const tg_description *description, tg_description_info *info,
                                                 tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_description_exchange(const tg_description *description, uint32_t rank, size_t index,
                                                       tg_described_exchange *exchange, tg_error *error);

/* Counted since creation, or including those of the loaded state; for this rank. */
typedef struct tg_reducer_stats {
    tg_algorithm algorithm;    /* the algorithm in use, which is not TG_AUTO */
    uint64_t applied, skipped; /* steps */
    uint64_t bytes_sent;       /* on the wire, with message headers; a copy to each peer counts, on another host */
    uint64_t bytes_received;
    uint64_t frame_bytes;        /* of this rank's compressed gradients, each counted once */
    uint64_t float32_bytes;      /* of these gradients at 4 bytes per element */
    uint64_t ring_bytes;         /* what a float32 ring all-reduce (TG_SCATTER: reduce-scatter) would have sent */
    double ratio;                /* float32_bytes / frame_bytes; 0 before the first step */
    uint64_t dense_parts;        /* sums that were sent dense because that was smaller than sparse */
    uint64_t saturated, dropped; /* as in tg_encode_report; of gradients, and of sums that were made here; also
                                    residuals limited to the largest float32 where what was not applied returned */
    /* over all tensors, after the last step, without the second residuals of owners; estimated as in tg_stats */
    double residual_norm;
    double residual_growth;  /* likewise */
    double encode_seconds;   /* compensating, compressing */
    double exchange_seconds; /* waiting in tg_reduce for bytes */
    double verify_seconds;   /* checking received frames */
    double decode_seconds;   /* summing, scaling, and updating residuals */
    uint64_t selected;       /* elements in this rank's compressed gradients of the last step */
} tg_reducer_stats;
TG_API TG_MUST_CHECK tg_status tg_reducer_stats_of(const tg_reducer *reducer, tg_reducer_stats *stats, tg_error *error);

/* The same for one tensor, by its position in the list. Without feedback the norms are 0, and a loaded state does not
 * restore the counts. */
TG_API TG_MUST_CHECK tg_status tg_reducer_tensor_stats(const tg_reducer *reducer, size_t index, tg_stats *stats,
                                                       tg_error *error);

/* Copies this rank's residual of one tensor; `count` is the tensor's count. Refused for a tensor without residual. */
TG_API TG_MUST_CHECK tg_status tg_reducer_residual_read(const tg_reducer *reducer, size_t index, float *out,
                                                        uint64_t count, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
