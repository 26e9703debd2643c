/* A card as a device. Operations are put on the stream; what they tell the host lies in the control block, one slot for
 * each result, and is handed over by `wait`: one kernel writes it to the host's memory. */
#ifndef TG_DEVICE_CUDA_DEVICE_CUH
#define TG_DEVICE_CUDA_DEVICE_CUH

#include <pthread.h>

#include "device/cuda/runtime.cuh"

extern "C" {
#include "base/status.h"
#include "codec/header.h"
#include "codec/levels.h"
#include "device/device.h"
}

/* What the kernels of one operation leave for the host. All zero when the operation begins. */
struct control {
    u32 nonfinite;        /* a value was not finite */
    u32 bad;              /* a frame breaks a rule of the format */
    u32 checksum;         /* of a frame */
    u32 peak;             /* bits of the largest magnitude */
    u64 least;            /* ~index of the first element that was looked for: 0 where there was none */
    u64 limited, dropped; /* elements */
    u64 payload;          /* bytes, where only the card knows them */
    u64 selected;
    u32 layout;
    u32 ticket; /* of blocks that have come to an end */
    double sum;
    u32 spare[2];
};

/* What `bad` says. */
enum : u32 { BREAKS_RULE = 1, NO_MEMORY = 2, OTHER_HEADER = 4 };

struct tg_cuda;

/* An operation whose results are not with the host yet. `of` is what `complete` knows it to be. */
struct pending {
    void (*complete)(tg_cuda *cuda, const pending *p, const control *seen);
    void *of, *more;
    u64 number;
};

#ifndef MANY_TOGETHER /* tests have fewer */
#define MANY_TOGETHER 256
#endif
enum {
    SLOTS = 256,
    EXPECTED = 64,
    LATER_SLOTS = MANY_TOGETHER,
    BATCH_MOST = MANY_TOGETHER, /* jobs that are encoded together */
    STORES = 512 << 10,
    RETIRED = 32,
    ARRIVALS = 64 << 10,
    BRANCHES = 32
};
/* Of a frame on the card, the host reads its header and the first bytes behind it. */
constexpr size_t SEEN_BYTES = TG_HEADER_SIZE + 16;

/* A header that was seen, or made, for a vector of so many elements: the next frame of such a vector probably has the
 * same one, up to what changes from step to step. */
struct seen_header {
    u8 bytes[TG_HEADER_SIZE];
    tg_frame_info info;
};

struct tg_cuda {
    tg_device device; /* must be the first field */
    tg_device *host;  /* for what lies in host memory anyway */
    int ordinal;
    unsigned processors;
    bool overlaps; /* LAUNCH_BESIDE */
    cudaStream_t stream;
    pthread_mutex_t lock; /* recursive: handles of several threads may share the device */
    control *slots;       /* on the card, SLOTS of them */
    u32 *arrivals;    /* counters of checksum.cu, ARRIVALS for the stream and for each branch: 0 between its kernels */
    control *seen;    /* the host's copy, in pinned memory */
    u64 *mark, marks; /* beside it: how many times results have come there; and how many times they will have */
    u8 *directory;    /* pinned memory for what the host reads of listed levels that are on the card */
    size_t directory_room;
    u8 *headers; /* pinned memory for the headers of SLOTS frames that are on the card */
    pending waiting[SLOTS];
    unsigned used;
    bool busy;           /* something was put on the stream since the last wait */
    cudaStream_t copies; /* frames go to the host on this one, so that the card codes the next ones meanwhile */
    bool copying;        /* some are on their way */
    /* Memory on the card for what comes from the host: frames and lists. It is made when it is first needed, and again
     * where more is needed than there was. */
    u8 *arena;
    size_t arena_size, arena_used;
    u8 *retired[RETIRED]; /* that a captured graph may still use */
    u32 retired_count;
    /* Descriptions of many jobs on their way to the card: pinned memory, and where they go. Both are used from the
     * start again after each wait. */
    u8 *upload_from, *upload_to;
    size_t uploaded;
    /* Of jobs that are done later: slots and arrays that every call uses from the start again, because its work is
     * behind that of the one before. */
    bool later; /* such jobs are being put on the stream */
    control *later_slots;
    u8 *stored_to;
    size_t stored;
    tg_status *verdicts_to[LATER_SLOTS];
    u32 ending_count;
    bool long_arguments; /* kernels may have more than 4096 bytes of them */
    void *carrier;       /* room for them: see later.cu */
    struct batch *batch; /* of jobs that are being encoded: see encode.cu */
    u64 rounds;          /* such calls so far */
    /* Streams beside that of the device, for jobs of one call that do not depend on each other. */
    cudaStream_t branches[BRANCHES], trunk;
    cudaEvent_t forked, joined[BRANCHES];
    bool branched;
    u32 branch;                     /* 0: the stream itself; else one more than its number */
    u32 branches_used;              /* a bit for each */
    seen_header expected[EXPECTED]; /* by their counts */
    tg_add_job *again[SLOTS];       /* whose frames were not what was expected */
    unsigned again_count;
    u64 waits;           /* so far, for everything: what was made before the last one has been handed over */
    cudaError_t failure; /* the first that was not out of memory: nothing works after it */
};

static inline tg_cuda *tg_cuda_of(tg_device *device) { return (tg_cuda *)(void *)device; }

/* While this lives, the device belongs to this thread, whose current card it is. */
struct occupied {
    tg_cuda *cuda;
    int before;
    explicit occupied(tg_device *device);
    ~occupied();
};

/* Remembers a failure. */
bool tg_cuda_fine(tg_cuda *cuda, cudaError_t error);
/* A slot of the control block for an operation; what is to be done when its results are there. May wait for earlier
 * ones. */
control *tg_cuda_slot(tg_cuda *cuda, const pending &what);
/* Until all results are with the host. */
void tg_cuda_settle(tg_cuda *cuda);
/* Sends a frame to the host: by what is done when its report is there, and by nothing else. */
void tg_cuda_send(tg_cuda *cuda, void *to, const void *frame, size_t bytes);

/* The arena, empty, with room for so many bytes in pieces of 256; false if there is no memory. */
bool tg_cuda_arena(tg_cuda *cuda, size_t bytes);
static inline size_t arena_room(size_t bytes) { return (bytes + 255) / 256 * 256 + 256; }
/* A part of it. */
u8 *tg_cuda_take(tg_cuda *cuda, size_t bytes);
void tg_cuda_copy(tg_cuda *cuda, void *to, const void *from, size_t bytes, cudaMemcpyKind kind);

/* Remembers the header of a frame on the card. Then what is expected of one of so many elements and bytes: false if
 * nothing is. */
void tg_cuda_remember(tg_cuda *cuda, const u8 *header, const tg_frame_info *info);
bool tg_cuda_expect(const tg_cuda *cuda, u64 count, size_t size, u8 *header, tg_frame_info *info);

/* A copy of an array on the card, until the next wait; NULL if there is no room for it. */
const void *tg_cuda_upload(tg_cuda *cuda, const void *array, size_t bytes);

/* ---- the operations, each in a file named for what it does ---- */

tg_status tg_cuda_make_encoder(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                               tg_error *error);
void tg_cuda_free_encoder(tg_device *device, tg_encoder *encoder);
bool tg_cuda_encoder_fits(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec);
void tg_cuda_encode(tg_device *device, tg_encode_job *jobs, size_t count);
void tg_cuda_encode_later(tg_device *device, const tg_encode_job *jobs, size_t count);

void tg_cuda_check(tg_device *device, tg_check_job *jobs, size_t count);
void tg_cuda_add(tg_device *device, tg_add_job *jobs, size_t count);
tg_status tg_cuda_can_add_later(const tg_device *device, const tg_add_later_job *job, tg_error *error);
void tg_cuda_add_later(tg_device *device, const tg_add_later_job *jobs, size_t count);
bool tg_cuda_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames);
/* What encoding needs of a device, at opening and closing. */
struct batch *tg_cuda_make_batch(void);
void tg_cuda_free_batch(struct batch *batch);
/* Without expecting anything of frames. */
void tg_cuda_add_slowly(tg_cuda *cuda, tg_add_job *job);
void tg_cuda_compensate(tg_device *device, const tg_source *source, float *u);
void tg_cuda_update(tg_device *device, tg_settle_job *job);
void tg_cuda_return_frame(tg_device *device, tg_settle_job *job);

void tg_cuda_first_nonfinite(tg_device *device, const tg_source *source, uint64_t *index);
void tg_cuda_peak(tg_device *device, const float *values, uint64_t count, uint32_t *bits);
void tg_cuda_scale(tg_device *device, float *values, uint64_t count, float factor);
void tg_cuda_add_scaled(tg_device *device, const float *values, uint64_t count, float factor, float *h,
                        uint64_t *limited);
void tg_cuda_sum(tg_device *device, const float *const *values, size_t vectors, float factor, uint64_t count,
                 float *out);
void tg_cuda_drop_nonfinite(tg_device *device, float *values, uint64_t count, uint64_t *dropped);
void tg_cuda_narrow(tg_device *device, const float *values, const tg_tensor *out);
void tg_cuda_save(tg_device *device, const float *values, uint64_t count, uint8_t *bytes);
void tg_cuda_load(tg_device *device, tg_load_job *job);
void tg_cuda_norm(tg_device *device, const tg_tensor *tensors, size_t count, tg_norm_of what, double *norms);

tg_list_workspace *tg_cuda_make_list_workspace(tg_device *device, uint64_t longest, uint64_t most, uint64_t together);
void tg_cuda_free_list_workspace(tg_device *device, tg_list_workspace *workspace);
void tg_cuda_add_lists(tg_device *device, tg_list_job *jobs, size_t count);
void tg_cuda_sum_lists(tg_device *device, tg_sum_job *jobs, size_t count);
void tg_cuda_spread_list(tg_device *device, const tg_list *list, uint64_t first, uint64_t count, float *out);
void tg_cuda_cut_list(tg_device *device, const tg_list *list, uint32_t parts, uint32_t *indices);

#endif
