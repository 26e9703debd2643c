/* Checking frames: the header, the checksum, and what the payload says. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "codec/peak.h"
#include "codec/sparse.h"
#include "device/cpu/checksum.h"
#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

/* A frame that is being checked. */
typedef struct inspection {
    tg_frame_info info;
    tg_reader reader;
    bool is_open; /* the payload could be opened */
    bool is_seen; /* its values have been checked */
    atomic_bool broken;
} inspection;

/* Does not clear the whole struct: a reader is large, and opening it sets what it needs. */
static void begin(inspection *i)
{
    memset(&i->info, 0, sizeof i->info);
    i->is_open = i->is_seen = false;
    atomic_init(&i->broken, false);
}

/* ---- the payload ---- */

typedef struct walking {
    inspection *inspected;
    tg_ranges ranges;
} walking;

static void walk_range(void *of, size_t part)
{
    walking *w = of;
    tg_reader reader = w->inspected->reader;
    const uint64_t end = tg_range_end(&w->ranges, part), step = reader.row->sparse ? TG_LONG_SPARSE_STEP : reader.step;
    bool sound = true;
    uint64_t first = tg_range_first(&w->ranges, part);
    tg_reader_seek(&reader, first);
    for (; first < end && sound && !atomic_load_explicit(&w->inspected->broken, memory_order_relaxed); first += step)
        sound = tg_frame_next(&reader, tg_reader_step(end, first, step), TG_READ_CHECK, 0, NULL);
    if (!sound || (first >= end && !reader.row->done(&reader)))
        atomic_store(&w->inspected->broken, true);
}

/* Reads everything and writes nothing. */
static void walk(inspection *i, tg_pool *pool)
{
    walking w = {.inspected = i, .ranges = tg_reader_ranges(pool, i->info.count, i->reader.grain)};
    tg_parallel(pool, w.ranges.parts, walk_range, &w);
}

/* Whether everything that the reader will read is valid. The only rule for plain values is that they are finite, and
 * finding their peak checks this too. */
static bool is_sound(inspection *i, tg_pool *pool, uint32_t *peak)
{
    if (peak)
        *peak = i->reader.row->peak(&i->reader, pool, i->info.count);
    if (peak && tg_plain_peak_sees_all(&i->reader))
        return *peak < TG_INFINITY_BITS;
    if (i->reader.walk && !i->is_seen)
        walk(i, pool);
    return !i->broken;
}

static tg_status check_payload(const tg_cpu *cpu, inspection *i, uint32_t *peak, tg_error *error)
{
    if (!i->is_open || !is_sound(i, cpu->pool, peak))
        return tg_fail(error, TG_CORRUPT, "the payload of this %s frame breaks a rule of the format",
                       tg_codec_row_of(i->info.spec.codec)->name);
    return tg_succeed(error);
}

/* ---- the bytes ---- */

/* Checks plain values while their bytes are digested. */
static void visit_values(void *of, size_t first, size_t n)
{
    inspection *i = of;
    const size_t size = tg_dtype_size(i->reader.plain.dtype);
    tg_reader reader = i->reader;
    tg_reader_seek(&reader, first / size);
    for (size_t left = n / size, here; left > 0; left -= here) {
        here = left < TG_BLOCK ? left : TG_BLOCK;
        if (!tg_frame_next(&reader, here, TG_READ_CHECK, 0, NULL))
            atomic_store(&i->broken, true);
    }
}

/* Checks header and checksum. */
static tg_status check_bytes(const tg_cpu *cpu, tg_frame frame, const uint32_t *peak, inspection *i, tg_error *error)
{
    tg_status status = tg_frame_read(frame, &i->info, error);
    if (status != TG_OK)
        return status;
    i->is_open = tg_frame_open(&i->reader, cpu->kernels, frame, &i->info);
    if (!i->info.has_checksum)
        return TG_OK;
    const uint8_t *bytes = frame.data;
    const tg_visitor visitor = {visit_values, i};
    i->is_seen = i->is_open && i->reader.row->plain && !(peak && tg_plain_peak_sees_all(&i->reader));
    const uint32_t computed = tg_checksum(cpu->kernels, cpu->pool, bytes, bytes + TG_HEADER_SIZE,
                                          frame.size - TG_HEADER_SIZE, NULL, i->is_seen ? &visitor : NULL);
    if (computed != tg_header_checksum(bytes))
        return tg_fail(error, TG_CHECKSUM_MISMATCH,
                       "checksum mismatch: the header has %08" PRIx32 ", the bytes give %08" PRIx32
                       "; the frame is damaged",
                       tg_header_checksum(bytes), computed);
    return TG_OK;
}

/* ---- all of it ---- */

static tg_status check_count(const tg_check_job *job, tg_error *error)
{
    if (job->count != TG_ANY_COUNT && job->info.count != job->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "it has %" PRIu64 " elements instead of %" PRIu64, job->info.count,
                       job->count);
    return TG_OK;
}

/* Of a frame whose payload has been checked. */
static void check_header(const tg_cpu *cpu, tg_check_job *job)
{
    tg_reader reader;
    job->status = tg_frame_read(job->frame, &job->info, &job->error);
    if (job->status == TG_OK)
        job->status = check_count(job, &job->error);
    if (job->status != TG_OK || !job->wants_peak)
        return;
    job->peak = tg_frame_open(&reader, cpu->kernels, job->frame, &job->info)
                    ? reader.row->peak(&reader, cpu->pool, job->info.count)
                    : TG_INFINITY_BITS; /* cannot happen: it was checked */
}

/* Compares counts before it checks contents: a few bytes may stand for four billion elements, and take as long to
 * check. */
static void check(const tg_cpu *cpu, tg_check_job *job)
{
    inspection i;
    uint32_t *peak = job->wants_peak ? &job->peak : NULL;
    begin(&i);
    job->status = check_bytes(cpu, job->frame, peak, &i, &job->error);
    job->info = i.info;
    if (job->status == TG_OK)
        job->status = check_count(job, &job->error);
    if (job->status == TG_OK)
        job->status = check_payload(cpu, &i, peak, &job->error);
    const bool lists = job->status == TG_OK && tg_codec_row_of(job->info.spec.codec)->sparse;
    job->selected = lists ? tg_load32((const uint8_t *)job->frame.data + TG_HEADER_SIZE) : 0;
}

void tg_cpu_check(tg_device *device, tg_check_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].header_only)
            check_header(tg_cpu_of(device), &jobs[i]);
        else
            check(tg_cpu_of(device), &jobs[i]);
    }
}
