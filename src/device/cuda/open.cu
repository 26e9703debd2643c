/* Opening a card, its memory, and handing over results. */
#include "device/cuda/later.cuh"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "base/bytes.h"
#include "device/module.h"
}

bool tg_cuda_fine(tg_cuda *cuda, cudaError_t error)
{
    if (error != cudaSuccess && cuda->failure == cudaSuccess) {
        cuda->failure = error;
        cuda->device.failure = cudaGetErrorString(error);
    }
    return error == cudaSuccess;
}

occupied::occupied(tg_device *device) : cuda(tg_cuda_of(device)), before(cuda->ordinal)
{
    (void)pthread_mutex_lock(&cuda->lock);
    (void)cudaGetDevice(&before);
    if (before != cuda->ordinal)
        (void)cudaSetDevice(cuda->ordinal);
}

occupied::~occupied()
{
    (void)tg_cuda_fine(cuda, cudaPeekAtLastError()); /* of launches */
    if (before != cuda->ordinal)
        (void)cudaSetDevice(before);
    (void)pthread_mutex_unlock(&cuda->lock);
}

/* ---- results ---- */

enum { UPLOADS = 512 << 10 };

/* The results of all operations so far, to memory that the host reads while the card goes on; their slots are zero
 * again. When `mark` has the number of this wait, all of it is there. */
__global__ void __launch_bounds__(256)
    hand_over(control *slots, control *seen, u32 words, volatile u64 *mark, u64 number)
{
    u64 *from = (u64 *)(void *)slots, *to = (u64 *)(void *)seen;
    for (u32 i = threadIdx.x; i < words; i += 256) {
        to[i] = from[i];
        from[i] = 0;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *mark = number;
}

static_assert(sizeof(control) % 8 == 0, "slots are handed over in words of 8 bytes");

/* Waits for the last mark. The stream is asked too now and then: where a card is lost, the mark never comes. */
static void wait_for_mark(tg_cuda *cuda)
{
    const u64 number = cuda->marks;
    constexpr int LOOKS = 1 << 14;
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) {
        for (int i = 0; i < LOOKS; i++)
            if (__atomic_load_n(cuda->mark, __ATOMIC_ACQUIRE) == number)
                return;
        state = cudaStreamQuery(cuda->stream);
    }
    if (state == cudaSuccess && __atomic_load_n(cuda->mark, __ATOMIC_ACQUIRE) != number) /* it was not launched */
        state = cudaPeekAtLastError() != cudaSuccess ? cudaPeekAtLastError() : cudaErrorUnknown;
    (void)tg_cuda_fine(cuda, state);
}

/* It is finished, because its report is there. */
void tg_cuda_send(tg_cuda *cuda, void *to, const void *frame, size_t bytes)
{
    cuda->copying = true;
    (void)tg_cuda_fine(cuda, cudaMemcpyAsync(to, frame, bytes, cudaMemcpyDeviceToHost, cuda->copies));
}

/* Until all frames that were sent are there; what they were made in may be used again, unless others follow them. */
static void wait_for_copies(tg_cuda *cuda)
{
    if (!cuda->copying)
        return;
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->copies));
    cuda->copying = false;
    cuda->waits += cuda->used == 0;
}

/* Until all results are with the host, but for frames, which are on their way. */
static void take_reports(tg_cuda *cuda)
{
    const unsigned used = cuda->used;
    if (!cuda->busy && used == 0)
        return;
    LAUNCH(hand_over, 1, 256, 0, cuda->stream, cuda->slots, cuda->seen, (u32)(used * sizeof(control) / 8), cuda->mark,
           ++cuda->marks);
    wait_for_mark(cuda);
    cuda->busy = false;
    cuda->used = 0;
    /* What an operation does when its results are there may put more on the stream, but takes no slots. */
    const u64 waits = cuda->waits;
    for (unsigned i = 0; i < used; i++)
        cuda->waiting[i].complete(cuda, &cuda->waiting[i], &cuda->seen[i]);
    cuda->waits = waits + !cuda->copying; /* also where one has waited: the frames behind it were still to be sent */
    cuda->busy = false;                   /* what they have put there is for the card alone */
    cuda->uploaded = 0;
    const unsigned again = cuda->again_count;
    cuda->again_count = 0;
    for (unsigned i = 0; i < again; i++) {
        tg_cuda_add_slowly(cuda, cuda->again[i]);
        tg_cuda_settle(cuda);
    }
}

void tg_cuda_settle(tg_cuda *cuda)
{
    take_reports(cuda);
    wait_for_copies(cuda);
}

void tg_cuda_remember(tg_cuda *cuda, const u8 *header, const tg_frame_info *info)
{
    seen_header *place = &cuda->expected[info->count * 0x9e3779b97f4a7c15ull >> 58];
    memcpy(place->bytes, header, TG_HEADER_SIZE);
    place->info = *info;
}

bool tg_cuda_expect(const tg_cuda *cuda, u64 count, size_t size, u8 *header, tg_frame_info *info)
{
    const seen_header *place = &cuda->expected[count * 0x9e3779b97f4a7c15ull >> 58];
    if (place->bytes[0] == 0 || place->info.count != count || size <= TG_HEADER_SIZE)
        return false;
    memcpy(header, place->bytes, TG_HEADER_SIZE);
    *info = place->info;
    info->bytes = size;
    tg_store64(header + 32, size - TG_HEADER_SIZE);
    return true;
}

control *tg_cuda_slot(tg_cuda *cuda, const pending &what)
{
    if (cuda->used == SLOTS)
        tg_cuda_settle(cuda);
    cuda->waiting[cuda->used] = what;
    cuda->busy = true;
    return &cuda->slots[cuda->used++];
}

const void *tg_cuda_upload(tg_cuda *cuda, const void *array, size_t bytes)
{
    if (cuda->later)
        return tg_cuda_store(cuda, array, bytes);
    const size_t at = cuda->uploaded, room = (bytes + 15) / 16 * 16;
    if (room > UPLOADS - at)
        return NULL;
    memcpy(cuda->upload_from + at, array, bytes);
    tg_cuda_copy(cuda, cuda->upload_to + at, cuda->upload_from + at, bytes, cudaMemcpyHostToDevice);
    cuda->uploaded += room;
    return cuda->upload_to + at;
}

static void wait_for_results(tg_device *device)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda);
}

static void wait_for_reports(tg_device *device)
{
    const occupied now(device);
    take_reports(now.cuda);
}

static void wait_for_frames(tg_device *device)
{
    const occupied now(device);
    wait_for_copies(now.cuda);
}

static void finish(tg_device *device)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    (void)tg_cuda_fine(now.cuda, cudaStreamSynchronize(now.cuda->stream));
}

/* ---- memory ---- */

bool tg_cuda_arena(tg_cuda *cuda, size_t bytes)
{
    cuda->arena_used = 0;
    if (bytes <= cuda->arena_size)
        return true;
    if (cuda->rounds > 0 && cuda->arena_size > 0) { /* a graph may have it */
        if (cuda->retired_count == RETIRED)
            return false;
        cuda->retired[cuda->retired_count++] = cuda->arena;
    } else {
        (void)cudaStreamSynchronize(cuda->stream); /* what is on the stream may still read it */
        (void)cudaFree(cuda->arena);
    }
    cuda->arena = NULL;
    cuda->arena_size = 0;
    const size_t size = bytes + bytes / 4;
    if (cudaMalloc(&cuda->arena, size) != cudaSuccess) {
        (void)cudaGetLastError();
        cuda->arena = NULL;
        return false;
    }
    cuda->arena_size = size;
    return true;
}

u8 *tg_cuda_take(tg_cuda *cuda, size_t bytes)
{
    u8 *at = cuda->arena + cuda->arena_used;
    cuda->arena_used += arena_room(bytes);
    return at;
}

void tg_cuda_copy(tg_cuda *cuda, void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    cuda->busy = true;
    if (bytes > 0)
        (void)tg_cuda_fine(cuda, cudaMemcpyAsync(to, from, bytes, kind, cuda->stream));
}

static void *allocate(tg_device *device, size_t bytes, unsigned place)
{
    (void)place;
    const occupied now(device);
    void *memory = NULL;
    const cudaError_t error = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation)
        (void)cudaGetLastError();
    else
        (void)tg_cuda_fine(now.cuda, error);
    return error == cudaSuccess ? memory : NULL;
}

static void release(tg_device *device, void *memory)
{
    if (!memory)
        return;
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    (void)cudaStreamSynchronize(now.cuda->stream);
    (void)cudaFree(memory);
}

static void copy_in(tg_device *device, void *to, const void *from, size_t bytes)
{
    const occupied now(device);
    tg_cuda_copy(now.cuda, to, from, bytes, cudaMemcpyHostToDevice);
}

static void copy_out(tg_device *device, void *to, const void *from, size_t bytes)
{
    const occupied now(device);
    tg_cuda_copy(now.cuda, to, from, bytes, cudaMemcpyDeviceToHost);
}

static void copy(tg_device *device, void *to, const void *from, size_t bytes)
{
    const occupied now(device);
    if (bytes > 0)
        (void)tg_cuda_fine(now.cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, now.cuda->stream));
}

static void clear(tg_device *device, void *memory, size_t bytes)
{
    const occupied now(device);
    if (bytes > 0)
        (void)tg_cuda_fine(now.cuda, cudaMemsetAsync(memory, 0, bytes, now.cuda->stream));
}

static void *allocate_shared(tg_device *device, size_t bytes)
{
    const occupied now(device);
    void *memory = NULL;
    const cudaError_t error = cudaMallocHost(&memory, bytes > 0 ? bytes : 1);
    if (error == cudaErrorMemoryAllocation)
        (void)cudaGetLastError();
    else
        (void)tg_cuda_fine(now.cuda, error);
    return error == cudaSuccess ? memory : NULL;
}

static void release_shared(tg_device *device, void *memory)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda); /* a frame may be on its way there */
    (void)cudaStreamSynchronize(now.cuda->stream);
    (void)cudaFreeHost(memory);
}

static bool is_shared(const tg_device *, const void *memory)
{
    cudaPointerAttributes what;
    if (cudaPointerGetAttributes(&what, memory) == cudaSuccess)
        return what.type == cudaMemoryTypeHost || what.type == cudaMemoryTypeManaged;
    (void)cudaGetLastError();
    return false;
}

/* ---- what is done in host memory ---- */

static void measure(tg_device *device, tg_frame frame, const tg_frame_info *info, tg_frame_parts *parts)
{
    tg_device *host = tg_cuda_of(device)->host;
    host->operations->measure(host, frame, info, parts);
}

/* ---- opening ---- */

static void dispose(tg_cuda *cuda)
{
    (void)cudaFree(cuda->slots);
    (void)cudaFree(cuda->arrivals);
    (void)cudaFreeHost(cuda->seen);
    (void)cudaFreeHost(cuda->headers);
    (void)cudaFreeHost(cuda->directory);
    (void)cudaFreeHost(cuda->upload_from);
    (void)cudaFree(cuda->upload_to);
    (void)cudaFree(cuda->arena);
    for (u32 i = 0; i < cuda->retired_count; i++)
        (void)cudaFree(cuda->retired[i]);
    tg_cuda_free_branches(cuda);
    tg_cuda_free_batch(cuda->batch);
    free(cuda->carrier);
    if (cuda->copies)
        (void)cudaStreamDestroy(cuda->copies);
    (void)cudaFree(cuda->later_slots);
    (void)cudaFree(cuda->stored_to);
    (void)cudaFreeHost((void *)(uintptr_t)cuda->mark);
    tg_device_free(cuda->host);
    (void)pthread_mutex_destroy(&cuda->lock);
    free(cuda);
}

static void close_cuda(tg_device *device)
{
    tg_cuda *cuda = tg_cuda_of(device);
    finish(device);
    int before = cuda->ordinal;
    const int ordinal = cuda->ordinal;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(ordinal);
    dispose(cuda);
    if (before != ordinal)
        (void)cudaSetDevice(before);
}

static const tg_operations operations = {.close = close_cuda,
                                         .wait = wait_for_results,
                                         .wait_for_reports = wait_for_reports,
                                         .wait_for_frames = wait_for_frames,
                                         .finish = finish,
                                         .allocate = allocate,
                                         .release = release,
                                         .copy_in = copy_in,
                                         .copy_out = copy_out,
                                         .copy = copy,
                                         .clear = clear,
                                         .allocate_shared = allocate_shared,
                                         .release_shared = release_shared,
                                         .is_shared = is_shared,
                                         .make_encoder = tg_cuda_make_encoder,
                                         .free_encoder = tg_cuda_free_encoder,
                                         .encoder_fits = tg_cuda_encoder_fits,
                                         .encode = tg_cuda_encode,
                                         .encode_later = tg_cuda_encode_later,
                                         .check = tg_cuda_check,
                                         .add = tg_cuda_add,
                                         .can_add_later = tg_cuda_can_add_later,
                                         .add_later = tg_cuda_add_later,
                                         .reserve = tg_cuda_reserve,
                                         .measure = measure,
                                         .compensate = tg_cuda_compensate,
                                         .update = tg_cuda_update,
                                         .return_frame = tg_cuda_return_frame,
                                         .first_nonfinite = tg_cuda_first_nonfinite,
                                         .peak = tg_cuda_peak,
                                         .scale = tg_cuda_scale,
                                         .add_scaled = tg_cuda_add_scaled,
                                         .sum = tg_cuda_sum,
                                         .drop_nonfinite = tg_cuda_drop_nonfinite,
                                         .narrow = tg_cuda_narrow,
                                         .save = tg_cuda_save,
                                         .load = tg_cuda_load,
                                         .norm = tg_cuda_norm,
                                         .make_list_workspace = tg_cuda_make_list_workspace,
                                         .free_list_workspace = tg_cuda_free_list_workspace,
                                         .add_lists = tg_cuda_add_lists,
                                         .sum_lists = tg_cuda_sum_lists,
                                         .spread_list = tg_cuda_spread_list,
                                         .cut_list = tg_cuda_cut_list};

/* The card's number: "cuda" is the one that this thread uses. -1 if the name is not one. */
static int ordinal_of(const char *name)
{
    int ordinal = 0;
    const char *digits = strchr(name, ':');
    if (!digits)
        return cudaGetDevice(&ordinal) == cudaSuccess ? ordinal : -1;
    if (*++digits == '\0')
        return -1;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9' || ordinal > 1000)
            return -1;
        ordinal = 10 * ordinal + (*digits - '0');
    }
    return ordinal;
}

enum { FIRST_ARENA = 20 << 20 }; /* enough for the sums of any norm */

/* All that a device needs; false if there is no memory for it. */
static bool furnish(tg_cuda *made, void *stream, tg_error *error)
{
    int processors = 1;
    made->stream = (cudaStream_t)stream; /* NULL is CUDA's default stream */
    int major = 0;
    (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, made->ordinal);
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, made->ordinal);
    made->overlaps = major >= 9;
#if CUDART_VERSION >= 12010
    int driver = 0;
    made->long_arguments = cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12010;
#endif
    made->processors = (unsigned)processors;
    return tg_device_open("cpu", NULL, &made->host, error) == TG_OK &&
           cudaMalloc(&made->slots, SLOTS * sizeof(control)) == cudaSuccess &&
           cudaMalloc(&made->arrivals, (BRANCHES + 1) * ARRIVALS * sizeof(u32)) == cudaSuccess &&
           cudaMemsetAsync(made->arrivals, 0, (BRANCHES + 1) * ARRIVALS * sizeof(u32), made->stream) == cudaSuccess &&
           cudaMallocHost(&made->seen, SLOTS * sizeof(control)) == cudaSuccess &&
           cudaMallocHost(&made->upload_from, UPLOADS) == cudaSuccess &&
           cudaMalloc(&made->upload_to, UPLOADS) == cudaSuccess &&
           cudaMallocHost(&made->headers, SLOTS * SEEN_BYTES) == cudaSuccess &&
           cudaMallocHost(&made->mark, sizeof *made->mark) == cudaSuccess && (*made->mark = 0, true) &&
           tg_cuda_make_branches(made) && (made->batch = tg_cuda_make_batch()) &&
           (made->carrier = malloc(tg_cuda_carrier_room())) &&
           cudaStreamCreateWithFlags(&made->copies, cudaStreamNonBlocking) == cudaSuccess &&
           cudaMalloc(&made->later_slots, LATER_SLOTS * sizeof(control)) == cudaSuccess &&
           cudaMalloc(&made->stored_to, STORES) == cudaSuccess &&
           cudaMemsetAsync(made->slots, 0, SLOTS * sizeof(control), made->stream) == cudaSuccess &&
           cudaMemsetAsync(made->later_slots, 0, LATER_SLOTS * sizeof(control), made->stream) == cudaSuccess &&
           tg_cuda_arena(made, FIRST_ARENA);
}

static tg_status open(const char *name, void *stream, tg_device **device, tg_error *error)
{
    int count = 0, before = 0;
    (void)cudaGetDeviceCount(&count);
    const int ordinal = ordinal_of(name);
    if (ordinal < 0 || ordinal >= count)
        return tg_fail(error, TG_UNKNOWN_DEVICE, "device '%.40s': use cuda, or cuda:0 to cuda:%d", name, count - 1);
    tg_cuda *made = (tg_cuda *)calloc(1, sizeof *made);
    if (!made)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a device handle");
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(ordinal);
    made->device.operations = &operations;
    made->ordinal = ordinal;
    (void)snprintf(made->device.name, sizeof made->device.name, "cuda:%d", ordinal);
    pthread_mutexattr_t kind;
    (void)pthread_mutexattr_init(&kind);
    (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&made->lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
    const bool furnished = furnish(made, stream, error);
    const cudaError_t why = cudaGetLastError();
    if (!furnished)
        dispose(made);
    if (before != ordinal)
        (void)cudaSetDevice(before);
    const bool is_full = why == cudaSuccess || why == cudaErrorMemoryAllocation;
    if (!furnished)
        return tg_fail(error, is_full ? TG_OUT_OF_MEMORY : TG_UNAVAILABLE, "device %.40s cannot be opened: %.100s",
                       name, cudaGetErrorString(why));
    *device = &made->device;
    return tg_succeed(error);
}

static const char *missing(void)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return cudaGetErrorString(error);
    }
    return count > 0 ? NULL : "this machine has no card for CUDA";
}

extern "C" __attribute__((visibility("default")))
const tg_device_module tg_module_of_cuda = {TG_VERSION_TEXT, TG_DEVICE_LAYOUT, missing, open};
