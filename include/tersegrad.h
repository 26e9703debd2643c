/* SPDX-License-Identifier: Apache-2.0
 *
 * tersegrad.h - make the gradients of distributed training small.
 *
 * A vector of floats goes in, a small checksummed frame comes out, and any machine turns that frame back into the same
 * bits. The header climbs: read part 1 to 4 and you can write a correct program; parts 5 and 6 are for training loops;
 * parts 7 and 8 do the whole step of many workers for you.
 *
 *     1  Status and errors            how anything can fail, and how it says so
 *     2  Tensors, specs, codecs       what is compressed, and how that is written down
 *     3  Devices and codec handles    where the work is done, and all the memory it will ever need
 *     4  Encode, verify, decode       one vector <-> one frame
 *     5  Feedback                     what compression left out is sent later
 *     6  Stability                    when feedback would run away
 *     7  Transports                   bytes between ranks: threads of a process, or MPI
 *     8  Reducing                     gradients of all ranks in, their mean out, the same bits everywhere
 *
 * The shortest useful program (every call returns a tg_status that must be looked at):
 *
 *     tg_spec_parse("qsgd:levels=7,bucket=512", &spec, &error);
 *     tg_device_open("cpu", NULL, &device, &error);
 *     tg_codec_create(device, &spec, count, &codec, &error);
 *     frame = malloc(tg_frame_bound(codec, count));
 *     tg_encode(codec, &gradient, &options, frame, tg_frame_bound(codec, count), &report, &error);
 *     ... send report.bytes bytes ...
 *     tg_decode_add(device, frames, peers, 1.0f, 0, &sum, &error);
 *
 * Contract of every function here:
 *  - The caller owns all buffers. Handles are made by _create or _open and given back by _free; _free(NULL) is legal.
 *  - Nothing allocates after _create; nothing prints, exits, reads the environment or keeps global state.
 *  - On any status but TG_OK the outputs are as they were before the call. The exceptions are named where they occur.
 *  - A `tg_error *` may be NULL. Given, it receives one sentence that names the thing, the value and what to do.
 *  - A handle serves one call at a time. Different handles may be used from different threads, and any number of
 *    handles may share one device.
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

/* The version of the library that is running, "0.1.0"; TG_VERSION_TEXT is the one that was compiled against. */
TG_API const char *tg_version(void);

/* ================================================================================================================
 * 1  Status and errors
 * ================================================================================================================ */

typedef enum tg_status {
    TG_OK = 0,
    TG_INVALID_ARGUMENT,  /* a null pointer, a length or a number that the function cannot take */
    TG_INVALID_SPEC,      /* a spec text or spec fields that no codec accepts */
    TG_UNKNOWN_CODEC,     /* a codec name or a frame's codec number that this library does not have */
    TG_UNKNOWN_DEVICE,    /* a device name that this library does not have, or this machine cannot run */
    TG_UNKNOWN_VERSION,   /* a frame of a format version that this library does not read */
    TG_OUT_OF_MEMORY,     /* only from _create, _open and _parse */
    TG_BUFFER_TOO_SMALL,  /* the frame buffer is smaller than tg_frame_bound says it must be */
    TG_SHAPE_MISMATCH,    /* counts that ought to be equal are not */
    TG_NOT_A_FRAME,       /* the magic number is missing */
    TG_TRUNCATED,         /* the bytes end before the frame does, or go on after it */
    TG_CHECKSUM_MISMATCH, /* the bytes are not those that were written */
    TG_CORRUPT,           /* the checksum holds or is absent, but the contents break a rule of the format */
    TG_NONFINITE,         /* an infinity or a NaN in the input, or in a sum with a residual */
    TG_UNSTABLE,          /* error feedback over this codec would diverge; see part 6 */
    TG_UNAVAILABLE,       /* an optional part that is not on this machine, or not for this process: MPI */
    TG_EXCHANGE,          /* an exchange between ranks failed, and they may not know the same any more: stop */
    TG_SKIPPED,           /* no rank applied this step; what was sent is in the residuals again: go on */
    TG_LAYOUT_MISMATCH,   /* another rank, or a saved state, has other tensors, specs or options than this reducer */
    TG_BAD_RESIDUAL,      /* a residual, or dgc's momentum, holds an infinity or a NaN: reset or restore the feedback */
    TG_STATUS_COUNT
} tg_status;

/* A few words for a status: "checksum mismatch". Never NULL, for any value. */
TG_API const char *tg_status_text(tg_status status);

/* Where a function leaves its sentence. Empty when it succeeded. */
typedef struct tg_error {
    char message[256];
} tg_error;

/* ================================================================================================================
 * 2  Tensors, specs, codecs
 * ================================================================================================================ */

typedef enum tg_dtype { TG_FLOAT32 = 0, TG_FLOAT16 = 1, TG_BFLOAT16 = 2 } tg_dtype;

/* Bytes of one element; 0 for a value that is not a tg_dtype. */
TG_API size_t tg_dtype_size(tg_dtype dtype);

/* A flat vector in memory that the device can reach (host memory for "cpu"). No alignment beyond the element's own is
 * needed. Functions that take a `const tg_tensor *` as input only read `data`; as output they write it. */
typedef struct tg_tensor {
    void *data;
    uint64_t count;
    tg_dtype dtype;
} tg_tensor;

/* The most elements one tensor may have. */
#define TG_MAX_COUNT UINT32_C(0xffffffff)

/* Which codec, with which parameters: twelve bytes of plain data, the same that a frame's header carries. Make one with
 * tg_spec_parse; compare with memcmp; copy freely. docs/format.md says what each field holds. */
typedef struct tg_spec {
    uint8_t codec;
    uint8_t choices;
    uint16_t levels;
    uint32_t bucket;
    uint32_t amount;
} tg_spec;

/* Text to spec: "name" or "name:key=value,key=value". Keys that are left out take their defaults. Examples:
 *
 *     none                                              the vector as it is
 *     fp16                                              rounded to nearest even; overflow saturates and is counted
 *     qsgd:levels=7,bucket=512,norm=max,coding=packed   4 bits an element
 *     terngrad:clip=2.5                                 -1, 0, +1 times the bucket's largest magnitude
 *     topk:density=0.001                                the largest thousandth, as float32
 *     topk:k=1000,values=levels,levels=7                top-k, then quantised
 *
 * Refuses unknown names and keys, keys given twice, values out of range and keys that another key makes meaningless,
 * and names the key, the value and the range. */
TG_API TG_MUST_CHECK tg_status tg_spec_parse(const char *text, tg_spec *spec, tg_error *error);

/* Spec to text, every parameter written out; parsing the text gives the same twelve bytes. Room enough: TG_SPEC_TEXT.
 */
#define TG_SPEC_TEXT 192
TG_API TG_MUST_CHECK tg_status tg_spec_print(const tg_spec *spec, char *text, size_t capacity, tg_error *error);

/* How many elements a sparsifier aims at for a vector of this count: max(1, floor(density * count)), or k, never more
 * than count, and 0 for an empty vector. Exact integer arithmetic. For other codecs, count. */
TG_API uint64_t tg_spec_selected(const tg_spec *spec, uint64_t count);

/* One parameter of a codec, for help texts and forms. */
typedef struct tg_parameter_info {
    const char *name;    /* "levels" */
    const char *range;   /* "1...32767", "l2|max" */
    char standard[24];   /* the default, as text; "" where there is none */
    const char *summary; /* one line */
} tg_parameter_info;

#define TG_MAX_PARAMETERS 8
typedef struct tg_codec_info {
    uint8_t id;
    bool sparse;         /* sends chosen elements, with their indices */
    bool unbiased;       /* the expectation of what is decoded is the input */
    bool wants_feedback; /* without feedback (part 5) it loses a part of the gradient for good */
    const char *name;    /* "qsgd" */
    const char *summary; /* one line */
    size_t parameter_count;
    tg_parameter_info parameters[TG_MAX_PARAMETERS];
} tg_codec_info;

/* The table of codecs: ask for index 0, 1, ... until the answer is not TG_OK. */
TG_API TG_MUST_CHECK tg_status tg_codec_list(size_t index, tg_codec_info *info);

/* ================================================================================================================
 * 3  Devices and codec handles
 * ================================================================================================================ */

/* Where the work is done. "cpu" picks the fastest kernels this machine can run; "cpu/scalar" is the plain C definition
 * that all others must equal byte for byte. "cpu:threads=4", "cpu/avx2:threads=4" share the work of each call out among
 * that many threads, the caller's own among them: 1 (the default) to 256, or 0 for one for each processor that the
 * process may use. They are started here, sleep while there is nothing to do, take no signals, and end with the device;
 * vectors of less than 131072 elements are not worth waking them. No byte depends on their number. Several callers may
 * share them. In a child after fork there are none, and the caller does everything. A call takes up to 512 KiB of the
 * caller's stack. `stream` is for devices that have streams and NULL for the others. */
typedef struct tg_device tg_device;
TG_API TG_MUST_CHECK tg_status tg_device_open(const char *name, void *stream, tg_device **device, tg_error *error);
TG_API void tg_device_free(tg_device *device);

/* The kernels that were picked and the threads, as a name that tg_device_open takes: "cpu/scalar",
 * "cpu/avx2:threads=4". */
TG_API const char *tg_device_name(const tg_device *device);

/* The devices that this machine can run, without threads: ask for index 0, 1, ... until NULL. */
TG_API const char *tg_device_list(size_t index);

/* A codec with the workspace for vectors of up to max_count elements. It must not outlive its device. Those that are
 * not sparse also reserve room for what TG_NONFINITE_REJECT puts back, up to a frame's bytes, touched where it is used.
 */
typedef struct tg_codec tg_codec;
TG_API TG_MUST_CHECK tg_status tg_codec_create(tg_device *device, const tg_spec *spec, uint64_t max_count,
                                               tg_codec **codec, tg_error *error);
TG_API void tg_codec_free(tg_codec *codec);
TG_API const tg_spec *tg_codec_spec(const tg_codec *codec);

/* ================================================================================================================
 * 4  Encode, verify, decode
 * ================================================================================================================ */

/* The identity of the random numbers of one encode call. Every element's number is a function of these four and of the
 * element's index: give each (step, tensor, rank) of a run its own, and runs can be repeated to the bit. An element
 * gets 16 random bits, which leaves a bias of at most 2^-17 of a level. */
typedef struct tg_draw {
    uint64_t seed;
    uint64_t step;
    uint32_t tensor;
    uint32_t rank;
} tg_draw;

/* What to do about infinities and NaN in the input (also those that arise where input and residual are added). A
 * residual that holds one already is TG_BAD_RESIDUAL whatever the policy. */
typedef enum tg_nonfinite {
    /* Refuse it: TG_NONFINITE names the first index; frame buffer and residual are as they were. */
    TG_NONFINITE_REJECT = 0,
    /* Drop it: as if that element of the input were 0, and count it in the report. */
    TG_NONFINITE_ZERO,
    /* Keep nothing for that. One that turns up still gives TG_NONFINITE and no frame; the frame buffer may then hold
     * anything, and the residual is put back to rounding. */
    TG_NONFINITE_TRUST
} tg_nonfinite;

/* All zero is the default: seed 0, reject, with checksum. */
typedef struct tg_encode_options {
    tg_draw draw;
    tg_nonfinite nonfinite;
    bool no_checksum;
} tg_encode_options;

typedef struct tg_encode_report {
    size_t bytes;       /* of the finished frame */
    uint64_t selected;  /* elements sent: the sparsifiers' number, else count */
    uint64_t saturated; /* values limited to the largest float16 or bfloat16 */
    uint64_t dropped;   /* non-finite values that TG_NONFINITE_ZERO took out */
} tg_encode_report;

/* The most bytes a frame of `count` elements can take; the buffer must have them, so that no encoder ever checks for
 * room. 0 if count is more than the handle was made for. */
TG_API size_t tg_frame_bound(const tg_codec *codec, uint64_t count);

/* One vector to one frame. `options` and `report` may be NULL. */
TG_API TG_MUST_CHECK tg_status tg_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options,
                                         void *frame, size_t capacity, tg_encode_report *report, tg_error *error);

/* A frame as it lies in memory, from a peer that may be broken or hostile. */
typedef struct tg_frame {
    const void *data;
    size_t size;
} tg_frame;

typedef struct tg_frame_info {
    tg_spec spec;
    tg_dtype dtype; /* of the vector that was encoded */
    uint64_t count;
    uint64_t bytes; /* header and payload */
    tg_draw draw;
    unsigned version;
    unsigned layout; /* how levels are coded: 0 packed, 1 Elias sparse, 2 Elias dense, 3 entropy, 4 entropy sparse, 5
                        prefix */
    bool has_checksum;
} tg_frame_info;

/* The word for tg_frame_info.layout: "packed". Never NULL. */
TG_API const char *tg_layout_text(unsigned layout);

/* Read and check the header alone: cheap, and no promise about the payload. */
TG_API TG_MUST_CHECK tg_status tg_frame_read(tg_frame frame, tg_frame_info *info, tg_error *error);

/* Check everything: header, checksum, every rule of the format. `info` may be NULL. May take as long as decoding
 * info->count elements: where the count is known, compare it first with what tg_frame_read says. */
TG_API TG_MUST_CHECK tg_status tg_frame_verify(tg_device *device, tg_frame frame, tg_frame_info *info, tg_error *error);

/* What a frame spends its bytes on, for reports and benchmarks: verifies, then counts. */
typedef struct tg_frame_parts {
    uint64_t selected;    /* elements sent */
    uint64_t scale_bytes; /* scales of buckets */
    uint64_t index_bytes; /* a sparsifier's indices, with their directory */
    uint64_t value_bytes; /* everything else: values, or levels with their tables */
    double level_entropy; /* bits: the Shannon entropy of the levels times their number; 0 for codecs without levels */
} tg_frame_parts;
TG_API TG_MUST_CHECK tg_status tg_frame_measure(tg_device *device, tg_frame frame, tg_frame_parts *parts,
                                                tg_error *error);

/* For `flags`: the caller has had TG_OK from tg_frame_verify for these very bytes, so they are not verified again.
 * Memory is safe even where that is untrue, but then a bad frame may leave a part of its values in the output. */
#define TG_VERIFIED 1u

/* Frames to vector, in one pass over the output, which must have the frames' count and may have any dtype:
 *
 *     tg_decode      out  =       weight * v0 + weight * v1 + ...
 *     tg_decode_add  out  = out + weight * v0 + weight * v1 + ...
 *
 * in the order given, each product and sum rounded to float32; a 16-bit output is narrowed once, at the end, to nearest
 * even, limited to the largest finite value. Every frame is verified before anything is written, and one bad frame
 * leaves the output untouched; the error names it by its place. Frames may differ in codec. Any number of frames may
 * be given for a float32 output, and up to TG_MAX_NARROW_FRAMES for a 16-bit one (sum in float32 beyond that). */
#define TG_MAX_NARROW_FRAMES 16
TG_API TG_MUST_CHECK tg_status tg_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight,
                                         unsigned flags, const tg_tensor *out, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count,
                                             float weight, unsigned flags, const tg_tensor *out, tg_error *error);

/* ================================================================================================================
 * 5  Feedback
 * ================================================================================================================
 *
 * What a codec leaves out of one step is kept, in float32, and added to the next. With residual h, gradient g, codec C:
 *
 *     u = g + alpha * h          is compressed and sent
 *     h = (beta * h + g) - sent  remains
 *
 *   none   alpha = 0, beta = 0 with nothing kept; tg_encode does the same
 *   ef     alpha = beta = 1: classical error feedback; then h = u - sent
 *   ecq    alpha and beta of the ECQ-SGD paper
 *   dgc    momentum correction for sparsifiers: m = momentum * m + clip(g), h = h + m, send C(h); what was sent leaves
 *          h, and m is cleared there. clip limits the L2 norm of g; 0 means no clipping
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

/* "none", "ef", "ecq:alpha=0.2,beta=0.9", "dgc:momentum=0.9,clip=1". Up to nine decimals. Printing gives the canonical
 * text, and parsing that gives the same spec. */
TG_API TG_MUST_CHECK tg_status tg_feedback_parse(const char *text, tg_feedback_spec *spec, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_feedback_print(const tg_feedback_spec *spec, char *text, size_t capacity,
                                                 tg_error *error);

/* The residual of one tensor on one rank, all zero at first, for use with one codec spec. An `ef` or `ecq` pairing with
 * an L2 quantiser whose residual would diverge (lambda >= 1, see part 6) is refused with TG_UNSTABLE unless `insist`.
 * `dgc` is for sparsifiers only. It must not outlive its device. Takes 4 bytes an element, dgc 8, and 4 more if
 * TG_NONFINITE_REJECT is used. */
typedef struct tg_feedback tg_feedback;
TG_API TG_MUST_CHECK tg_status tg_feedback_create(tg_device *device, const tg_feedback_spec *spec, const tg_spec *codec,
                                                  uint64_t count, bool insist, tg_feedback **feedback, tg_error *error);
TG_API void tg_feedback_free(tg_feedback *feedback);

/* The residual itself, `count` floats, and dgc's momentum or NULL: to be read for a checkpoint, and written to restore
 * one. They belong to the handle. */
TG_API float *tg_feedback_residual(tg_feedback *feedback);
TG_API float *tg_feedback_momentum(tg_feedback *feedback);

/* Compensate, encode and update the residual in one go. As tg_encode otherwise; on an error the residual is exactly as
 * it was (to rounding, under TG_NONFINITE_TRUST). TG_BAD_RESIDUAL names an element of the residual or the momentum that
 * is not finite. */
TG_API TG_MUST_CHECK tg_status tg_encode_with_feedback(tg_codec *codec, tg_feedback *feedback,
                                                       const tg_tensor *gradient, const tg_encode_options *options,
                                                       void *frame, size_t capacity, tg_encode_report *report,
                                                       tg_error *error);

/* The same in three steps, with the same bytes, for whoever needs u: compensate writes u to a float32 tensor and
 * changes nothing else; the caller encodes u; update takes the frame and the same gradient, and moves the residual on.
 * The gradient and u must be finite. Where the new residual would overflow, update gives TG_NONFINITE and changes
 * nothing. */
TG_API TG_MUST_CHECK tg_status tg_feedback_compensate(tg_feedback *feedback, const tg_tensor *gradient,
                                                      const tg_tensor *u, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_feedback_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame,
                                                  tg_error *error);

/* A frame that was sent but not applied goes back: h = h + sent, wholly where `applied` is NULL, else only at the
 * indices that are not among the `applied_count` increasing ones in `applied`. After an `ef` step returned wholly, h is
 * u again (to the bit for sparsifiers with fp32 values). Momentum that dgc cleared stays cleared. Indices beyond the
 * residual are TG_INVALID_ARGUMENT; a sum that overflows is TG_NONFINITE; either changes nothing. */
TG_API TG_MUST_CHECK tg_status tg_feedback_return(tg_feedback *feedback, tg_frame frame, const uint32_t *applied,
                                                  size_t applied_count, tg_error *error);

/* Forget everything: residual, momentum, statistics. */
TG_API void tg_feedback_reset(tg_feedback *feedback);

/* How the residual behaves. A healthy one settles: its norm stays within a few times the gradient's divided by the
 * density, and growth hovers about 1. One that diverges shows growth above 1 step after step. */
typedef struct tg_stats {
    uint64_t steps;     /* encode calls that succeeded */
    uint64_t bytes;     /* of their frames */
    uint64_t saturated; /* summed over them, as in the report */
    uint64_t dropped;
    double gradient_norm;   /* L2, of the last gradient; beyond 2^20 elements both norms are estimates */
    double residual_norm;   /* L2, after the last step */
    double residual_peak;   /* the largest residual_norm so far */
    double residual_growth; /* mean ratio of a step's residual_norm to the one before, over about the last 32 steps; 0
                               before the second step */
} tg_stats;
TG_API TG_MUST_CHECK tg_status tg_feedback_stats(const tg_feedback *feedback, tg_stats *stats, tg_error *error);

/* ================================================================================================================
 * 6  Stability
 * ================================================================================================================
 *
 * A codec with E|C(u) - u|^2 <= gamma |u|^2 keeps the residual bounded under (alpha, beta) if
 * lambda = alpha^2 gamma + (beta - alpha)^2 < 1. The condition is sufficient, not necessary. For L2 quantisers gamma is
 * close to what happens, and plain error feedback with gamma > 1 does diverge; for max-norm quantisers it is a worst
 * case far from what data give, so there it is information.
 */
typedef struct tg_stability {
    double gamma;  /* the bound on the codec's relative squared error, for vectors of this count */
    double lambda; /* alpha^2 gamma + (beta - alpha)^2; 0 for feedback none, and momentum is not considered */
    bool binding;  /* lambda >= 1 over an L2 quantiser: tg_feedback_create refuses unless the caller insists */
} tg_stability;
TG_API TG_MUST_CHECK tg_status tg_stability_of(const tg_spec *codec, const tg_feedback_spec *feedback, uint64_t count,
                                               tg_stability *stability, tg_error *error);

/* ================================================================================================================
 * 7  Transports
 * ================================================================================================================
 *
 * A transport moves bytes between `world` ranks and knows nothing of what they mean. Every rank starts the same
 * exchanges in the same order; several may be under way. Whoever drives a reducer by tg_reduce only makes and frees
 * one.
 */
typedef struct tg_transport tg_transport;

/* Ranks are threads of this process: fills transports[0 ... world-1], one for each thread. */
TG_API TG_MUST_CHECK tg_status tg_transport_local(uint32_t world, tg_transport **transports, tg_error *error);

/* Ranks are the processes that an MPI launcher started. `module` is "openmpi" or "mpich", whichever launcher that was:
 * then the module is looked for beside the library (LIBDIR/tersegrad/mpi-NAME.so); or a path with a slash in it.
 * TG_UNAVAILABLE where the module or its MPI is not installed. One for a process; MPI is initialised unless it is
 * already, and then finalised when this is freed. */
TG_API TG_MUST_CHECK tg_status tg_transport_mpi(const char *module, tg_transport **transport, tg_error *error);

TG_API const char *tg_transport_name(const tg_transport *transport); /* "local", "mpi" */
TG_API uint32_t tg_transport_rank(const tg_transport *transport);
TG_API uint32_t tg_transport_world(const tg_transport *transport);

/* This rank gives up: no exchange will complete any more, on any rank, and those that wait get TG_EXCHANGE. Under MPI
 * the launcher ends the job with this exit status (1 ... 255). Freeing a transport while others use it is the same. */
TG_API void tg_transport_abort(tg_transport *transport, int exit_status);
TG_API void tg_transport_free(tg_transport *transport);

/* One exchange, as plain data. Arrays have `world` entries; those of the own rank are not looked at. Under
 * TG_ALL_GATHER every rank gets the same bytes (all entries of `send` are equal), under TG_ALL_TO_ALL its own. How much
 * will come is not known beforehand: `capacity` bounds it, and `received` says it afterwards. */
typedef enum tg_exchange_kind { TG_ALL_GATHER = 0, TG_ALL_TO_ALL = 1 } tg_exchange_kind;

typedef struct tg_exchange {
    tg_exchange_kind kind;
    uint32_t world;
    const void *const *send;
    const size_t *send_size;
    void *const *receive;
    const size_t *capacity;
    size_t *received;
} tg_exchange;

/* Start returns at once; until wait has returned for it, the exchange and its buffers must stay as they are. `timeout`
 * is in seconds, 0 for ever. After a failure the transport is of no more use. */
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

/* One tensor; its place in the list is its number. The name is for messages, and is copied. */
typedef struct tg_reducer_tensor {
    const char *name;
    uint64_t count;
    tg_dtype dtype;
    tg_spec codec;
    tg_feedback_spec feedback;
    bool insist; /* on feedback that would diverge, see part 5 */
} tg_reducer_tensor;

typedef enum tg_algorithm {
    TG_AUTO = 0, /* by sizes and world; tg_reducer_stats says which it became */
    TG_GATHER,   /* every frame to every rank: least latency, volume grows with the world */
    TG_SHARD     /* each rank sums and re-encodes its part of the index space: volume does not grow */
} tg_algorithm;

/* The word for an algorithm: "gather". Never NULL, for any value. */
TG_API const char *tg_algorithm_text(tg_algorithm algorithm);

/* A gradient that is not finite, on any rank, never enters a residual and is never applied; nor is a sum of finite ones
 * that overflows. These are not the numbers of tg_nonfinite: one in the place of the other is refused. */
typedef enum tg_nonfinite_step {
    TG_NONFINITE_STOP = 0,  /* every rank gets TG_NONFINITE, with the tensor's name and the rank */
    TG_NONFINITE_SKIP = 16, /* every rank gets TG_SKIPPED */
    TG_NONFINITE_DROP = 17  /* such elements, and such sums, count as 0 */
} tg_nonfinite_step;

/* From this step on, sparsifiers send this share (those that were given a density, not a k). */
typedef struct tg_density_change {
    uint64_t from_step;
    double density;
} tg_density_change;

/* All zero is the default. Every rank must give the same. */
typedef struct tg_reducer_options {
    tg_algorithm algorithm;
    tg_nonfinite_step nonfinite;
    uint64_t seed;                     /* of all draws */
    uint64_t min_size;                 /* tensors of fewer elements travel as they are */
    uint64_t warmup;                   /* so do all tensors in the steps below this one */
    const tg_density_change *schedule; /* in the order of steps */
    size_t schedule_count;
    uint32_t depth; /* reductions that may be under way at once: 0 and 1 mean one, 2 double buffering */
    uint64_t chunk; /* elements of a message, where larger tensors are cut; 0: chosen */
    double timeout; /* of an exchange in tg_reduce, in seconds; 0: for ever */
} tg_reducer_options;

/* Everything that reducing will need, for this rank. It must not outlive its device. */
typedef struct tg_reducer tg_reducer;
TG_API TG_MUST_CHECK tg_status tg_reducer_create(tg_device *device, uint32_t rank, uint32_t world,
                                                 const tg_reducer_tensor *tensors, size_t tensor_count,
                                                 const tg_reducer_options *options, tg_reducer **reducer,
                                                 tg_error *error);
/* Not while its exchanges are under way: finish them, or give the transport up first. */
TG_API void tg_reducer_free(tg_reducer *reducer);

/* Reduces gradients[0 ... tensor_count-1], of the counts and dtypes of the list. On TG_SKIPPED and TG_NONFINITE, which
 * every rank gets alike, they are as they were, and they are also in the residuals, so do not give them again. Not in
 * the residuals are tensors without feedback, and messages (of `chunk` elements) with a value that is not finite: the
 * caller has them, or they are lost. On TG_EXCHANGE other ranks may have applied the step: go back to a checkpoint.
 * Steps need not be consecutive. */
TG_API TG_MUST_CHECK tg_status tg_reduce(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                         uint64_t step, tg_error *error);

/* The same in two halves: start compresses and sends, finish waits and leaves the mean. Between them the caller may
 * compute, and with depth 2 start the next one, for other gradient buffers. Finish in the order of starting. */
typedef struct tg_reduction tg_reduction;
TG_API TG_MUST_CHECK tg_status tg_reduce_start(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                               uint64_t step, tg_reduction **reduction, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_finish(tg_reduction *reduction, tg_transport *transport, tg_error *error);

/* The machine inside, for those who bring their own transport (torch.distributed, a simulator):
 *
 *     begin; until next gives TG_OK and no exchange while none is outstanding:
 *         an exchange: start it              none: wait for the oldest outstanding one, and feed it
 *     end, which says whether the step was applied.
 *
 * Next compresses as it goes, so coding overlaps the wire. Exchanges belong to the reduction; feed them in the order
 * they came. A rank that finds something wrong still takes part to the end, so that all ranks skip alike. If an
 * exchange fails, abandon: what was sent returns to the residuals. End and abandon give the reduction back. */
TG_API TG_MUST_CHECK tg_status tg_reduce_begin(tg_reducer *reducer, const tg_tensor *gradients, uint64_t step,
                                               tg_reduction **reduction, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_next(tg_reduction *reduction, tg_exchange **exchange, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_feed(tg_reduction *reduction, tg_exchange *exchange, tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_end(tg_reduction *reduction, tg_error *error);
TG_API void tg_reduce_abandon(tg_reduction *reduction);

/* Gradients that become ready one by one, as in a backward pass: begin with NULL, then give each tensor once, in any
 * order, between calls of next and feed:
 *
 *     tg_reduce_begin(reducer, NULL, step, &reduction, &error);
 *     tg_reduce_ready(reduction, i, &gradient, &error);       this rank has it; the mean is left in its place by end
 *     tg_reduce_absent(reduction, i, &out, &error);           this rank has none in this step
 *
 * Next hands out a message when all its tensors are given, in the order of the list on every rank: so list tensors in
 * the order in which they become ready. No exchange from next then means that nothing can be started now: give more
 * tensors, or feed an exchange. End refuses while tensors are missing. Bits and bytes do not depend on when or in which
 * order tensors are given.
 *
 * An absent tensor counts as zero in the mean, which is still divided by the number of ranks, and its residual waits.
 * `out` receives the mean where another rank has the tensor, and is left alone where none has; it may be NULL. Between
 * the last feed and end, tg_reduce_present says whether some rank has it. (A sparsifier with values other than fp32
 * leaves an owner's error of a mean in that rank's residual, also where the tensor is absent there.) */
TG_API TG_MUST_CHECK tg_status tg_reduce_ready(tg_reduction *reduction, size_t index, const tg_tensor *gradient,
                                               tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_absent(tg_reduction *reduction, size_t index, const tg_tensor *out,
                                                tg_error *error);
TG_API TG_MUST_CHECK tg_status tg_reduce_present(const tg_reduction *reduction, size_t index, bool *present,
                                                 tg_error *error);

/* This rank's residuals and counters as checksummed bytes, between steps. With a NULL buffer, only the size. */
TG_API TG_MUST_CHECK tg_status tg_reducer_save(const tg_reducer *reducer, void *buffer, size_t capacity, size_t *size,
                                               tg_error *error);

/* Takes a state back. One, saved by this rank of a world of this size: the run goes on to the bit. After a change of
 * the world from P to Q, rank r loads those of ranks r, r+Q, r+2Q, ... of P, in this order, and a rank that has none
 * loads nothing (count 0): residuals are added and scaled by Q/P, which keeps what they will move the mean by. Other
 * tensors: TG_LAYOUT_MISMATCH names one. */
typedef struct tg_state {
    const void *data;
    size_t size;
} tg_state;
TG_API TG_MUST_CHECK tg_status tg_reducer_load(tg_reducer *reducer, const tg_state *states, size_t count,
                                               tg_error *error);

/* Multiplies all residuals and momenta of this rank, for when the loss scale of mixed precision changes: gradients of
 * another scale follow. Every rank must do the same, between steps. Refused where the factor is not positive and
 * finite, or a residual would overflow; then none has changed. */
TG_API TG_MUST_CHECK tg_status tg_reducer_scale(tg_reducer *reducer, float factor, tg_error *error);

/* Since creation, or the loaded state's; on this rank. */
typedef struct tg_reducer_stats {
    tg_algorithm algorithm;    /* what TG_AUTO became */
    uint64_t applied, skipped; /* steps */
    uint64_t bytes_sent;       /* over the wire, a copy to each peer counted, with message headers */
    uint64_t bytes_received;
    uint64_t frame_bytes;        /* of this rank's compressed gradients, once */
    uint64_t float32_bytes;      /* of those gradients, 4 bytes an element */
    uint64_t ring_bytes;         /* what a float32 ring all-reduce would have sent from this rank */
    double ratio;                /* float32_bytes / frame_bytes; 0 before the first step */
    uint64_t dense_parts;        /* sums that travelled dense because that was smaller than sparse */
    uint64_t saturated, dropped; /* as in tg_encode_report; of gradients, and of sums that were made here; also
                                    residuals limited to the largest float32 where what was not applied returned */
    double residual_norm;        /* over all tensors, after the last step, without owners' second ones; estimated as in
                                    tg_stats */
    double residual_growth;      /* likewise */
    double encode_seconds;       /* compensating, compressing */
    double exchange_seconds;     /* waiting in tg_reduce for bytes */
    double verify_seconds;       /* checking what came */
    double decode_seconds;       /* summing, scaling, and settling residuals */
} tg_reducer_stats;
TG_API TG_MUST_CHECK tg_status tg_reducer_stats_of(const tg_reducer *reducer, tg_reducer_stats *stats, tg_error *error);

/* Of one tensor, by its place in the list. Without feedback, norms are 0, and a loaded state starts anew. */
TG_API TG_MUST_CHECK tg_status tg_reducer_tensor_stats(const tg_reducer *reducer, size_t index, tg_stats *stats,
                                                       tg_error *error);
/* Copies this rank's residual of one tensor; `count` is the tensor's. Refused for a tensor that keeps none. */
TG_API TG_MUST_CHECK tg_status tg_reducer_residual_read(const tg_reducer *reducer, size_t index, float *out,
                                                        uint64_t count, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
