/* Verifying frames: the header, the checksum, and what the payload says. */
#include "frame/verify.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "codec/peak.h"
#include "codec/sparse.h"
#include "frame/checksum.h"
#include "frame/decode.h"
#include "frame/device.h"

/* A frame under inspection. */
typedef struct inspection {
    tg_frame_info info;
    tg_reader reader;
    bool is_open; /* the payload begins as it should */
    bool is_seen; /* its values have been looked at */
    atomic_bool broken;
} inspection;

/* Not the whole of it: a reader is large, and opening one clears what it needs. */
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

/* Whether all that the reader will come to keeps the rules. Plain values have no other rule than to be finite: one look
 * at them serves for the peak, too. */
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

static tg_status check_payload(const tg_device *device, inspection *i, uint32_t *peak, tg_error *error)
{
    if (!i->is_open || !is_sound(i, device->pool, peak))
        return tg_fail(error, TG_CORRUPT, "the payload of this %s frame breaks a rule of the format",
                       tg_codec_row_of(i->info.spec.codec)->name);
    return tg_succeed(error);
}

/* ---- the bytes ---- */

/* Plain values, which lie in the payload one after the other, as they are digested. */
static void look_at_values(void *of, size_t first, size_t n)
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

/* Header and checksum: the bytes are those that were written. */
static tg_status check_bytes(const tg_device *device, tg_frame frame, const uint32_t *peak, inspection *i,
                             tg_error *error)
{
    tg_status status = tg_frame_read(frame, &i->info, error);
    if (status != TG_OK)
        return status;
    i->is_open = tg_frame_open(&i->reader, device->kernels, frame, &i->info);
    if (!i->info.has_checksum)
        return TG_OK;
    const uint8_t *bytes = frame.data;
    const tg_look look = {look_at_values, i};
    i->is_seen = i->is_open && i->reader.row->plain && !(peak && tg_plain_peak_sees_all(&i->reader));
    const uint32_t computed = tg_checksum(device->kernels, device->pool, bytes, bytes + TG_HEADER_SIZE,
                                          frame.size - TG_HEADER_SIZE, NULL, i->is_seen ? &look : NULL);
    if (computed != tg_header_checksum(bytes))
        return tg_fail(error, TG_CHECKSUM_MISMATCH,
                       "the checksum is %08" PRIx32 " and the bytes give %08" PRIx32 ": the frame was damaged",
                       tg_header_checksum(bytes), computed);
    return TG_OK;
}

/* ---- all of it ---- */

tg_status tg_frame_check(const tg_device *device, tg_frame frame, tg_frame_info *info, uint32_t *peak, tg_error *error)
{
    inspection i;
    begin(&i);
    tg_status status = check_bytes(device, frame, peak, &i, error);
    if (status == TG_OK)
        status = check_payload(device, &i, peak, error);
    *info = i.info;
    return status;
}

tg_status tg_frames_check(const tg_device *device, const tg_frame *frames, size_t frame_count, unsigned flags,
                          uint64_t count, tg_error *error)
{
    const bool verified = flags & TG_VERIFIED;
    for (size_t f = 0; f < frame_count; f++) {
        inspection i;
        begin(&i);
        tg_error why = {""};
        tg_status status = verified ? tg_frame_read(frames[f], &i.info, &why)
                                    : check_bytes(device, frames[f], NULL, &i, &why);
        /* Counts before contents: a few bytes may stand for four billion elements, and take as long. */
        if (status == TG_OK && i.info.count != count)
            return tg_fail(error, TG_SHAPE_MISMATCH, "frame %zu has %" PRIu64 " elements and the output %" PRIu64, f,
                           i.info.count, count);
        if (status == TG_OK && !verified)
            status = check_payload(device, &i, NULL, &why);
        if (status != TG_OK)
            return tg_fail(error, status, "frame %zu: %s", f, why.message);
    }
    return TG_OK;
}

uint32_t tg_frame_peak(const tg_device *device, tg_frame frame)
{
    tg_frame_info info;
    tg_reader reader;
    if (tg_frame_read(frame, &info, NULL) != TG_OK || !tg_frame_open(&reader, device->kernels, frame, &info))
        return TG_INFINITY_BITS; /* cannot be: it was checked */
    return reader.row->peak(&reader, device->pool, info.count);
}

tg_status tg_frame_verify(tg_device *device, tg_frame frame, tg_frame_info *info, tg_error *error)
{
    if (!device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_frame_verify needs a device");
    tg_frame_info read;
    tg_fp_mode before = tg_fp_enter();
    tg_status status = tg_frame_check(device, frame, &read, NULL, error);
    tg_fp_leave(before);
    if (status == TG_OK && info)
        *info = read;
    return status;
}
