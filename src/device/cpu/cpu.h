/* The CPU as a device: the kernel set for this machine, and threads. Its memory is host memory, and every operation is
 * complete when it returns. */
#ifndef TG_DEVICE_CPU_CPU_H
#define TG_DEVICE_CPU_CPU_H

#include "base/numeric.h"
#include "base/pool.h"
#include "base/scratch.h"
#include "device/device.h"

typedef struct tg_cpu {
    tg_device device; /* must be the first field: a tg_device of this table is cast to this type */
    const tg_kernels *kernels;
    tg_pool *pool; /* NULL for one thread */
    size_t cache;  /* size of the largest cache in bytes */
    /* tg_walk_scratch of calls that read frames, and of threads that work on a part of one. Several threads may use the
     * device at once. */
    tg_scratch calls, parts;
} tg_cpu;

static inline tg_cpu *tg_cpu_of(tg_device *device) { return (tg_cpu *)(void *)device; }
static inline const tg_cpu *tg_cpu_of_const(const tg_device *device) { return (const tg_cpu *)(const void *)device; }

/* Accepts the names "cpu", "cpu/avx2:threads=4". */
tg_status tg_cpu_open(const char *name, void *stream, tg_device **device, tg_error *error);
/* The same with these kernels, whatever comes before the colon; TG_UNAVAILABLE where they lack one. */
tg_status tg_cpu_open_kernels(const tg_kernels *kernels, const char *name, void *stream, tg_device **device,
                              tg_error *error);

/* ---- encode.c ---- */
tg_status tg_cpu_make_encoder(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                              tg_error *error);
void tg_cpu_free_encoder(tg_device *device, tg_encoder *encoder);
bool tg_cpu_encoder_fits(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec);
void tg_cpu_encode(tg_device *device, tg_encode_job *jobs, size_t count);

/* ---- later.c ---- */
void tg_cpu_encode_later(tg_device *device, const tg_encode_job *jobs, size_t count);
tg_status tg_cpu_can_add_later(const tg_device *device, const tg_add_later_job *job, tg_error *error);
void tg_cpu_add_later(tg_device *device, const tg_add_later_job *jobs, size_t count);
bool tg_cpu_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames);

/* ---- check.c, measure.c ---- */
void tg_cpu_check(tg_device *device, tg_check_job *jobs, size_t count);
void tg_cpu_measure(tg_device *device, tg_frame frame, const tg_frame_info *info, tg_frame_parts *parts);

/* ---- add.c ---- */
void tg_cpu_add(tg_device *device, tg_add_job *jobs, size_t count);

/* ---- feedback.c ---- */
void tg_cpu_compensate(tg_device *device, const tg_source *source, float *u);
void tg_cpu_update(tg_device *device, tg_settle_job *job);
void tg_cpu_return_frame(tg_device *device, tg_settle_job *job);

/* ---- norms.c, vectors.c ---- */
void tg_cpu_peak(tg_device *device, const float *values, uint64_t count, uint32_t *bits);
void tg_cpu_scale(tg_device *device, float *values, uint64_t count, float factor);
void tg_cpu_add_scaled(tg_device *device, const float *values, uint64_t count, float factor, float *h,
                       uint64_t *limited);
void tg_cpu_sum(tg_device *device, const float *const *values, size_t vectors, float factor, uint64_t count,
                float *out);
void tg_cpu_drop_nonfinite(tg_device *device, float *values, uint64_t count, uint64_t *dropped);
void tg_cpu_narrow(tg_device *device, const float *values, const tg_tensor *out);
void tg_cpu_save(tg_device *device, const float *values, uint64_t count, uint8_t *bytes);
void tg_cpu_load(tg_device *device, tg_load_job *job);
void tg_cpu_norm(tg_device *device, const tg_tensor *tensors, size_t count, tg_norm_of what, double *norms);

/* ---- lists.c ---- */
/* The first place of a list with an index of at least `limit`. */
size_t tg_cpu_list_place(const tg_list *list, uint64_t limit);
tg_list_workspace *tg_cpu_make_list_workspace(tg_device *device, uint64_t longest, uint64_t most, uint64_t together);
void tg_cpu_free_list_workspace(tg_device *device, tg_list_workspace *workspace);
void tg_cpu_add_lists(tg_device *device, tg_list_job *jobs, size_t count);
void tg_cpu_sum_lists(tg_device *device, tg_sum_job *jobs, size_t count);
void tg_cpu_spread_list(tg_device *device, const tg_list *list, uint64_t first, uint64_t count, float *out);
void tg_cpu_cut_list(tg_device *device, const tg_list *list, uint32_t parts, uint32_t *indices);

#endif
