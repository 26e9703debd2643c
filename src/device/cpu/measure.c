/* What the bytes of a frame are used for, and the entropy of its levels. */
#include <string.h>

#include "base/numeric.h"
#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

/* Reads a verified frame completely, counting the codes from `first` on. */
static void count_codes(const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info, uint32_t first,
                        tg_walk_scratch *scratch)
{
    tg_reader *reader = &scratch->readers[0];
    memset(scratch->bins, 0, sizeof scratch->bins);
    if (!tg_frame_open(reader, kernels, frame, info))
        return;
    reader->levels.histogram = scratch->bins;
    reader->levels.histogram_first = first;
    for (uint64_t at = 0; at < info->count; at += TG_BLOCK)
        if (!tg_frame_next(reader, tg_block_size(info->count, at), TG_READ_CHECK, 0, NULL))
            return;
}

/* Entropy of all levels in bits. The histogram is made in several passes over the frame, a part of the codes each time,
 * so that any number of levels fits. */
static double entropy_of(const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info, uint32_t levels,
                         uint64_t n, tg_walk_scratch *scratch)
{
    const uint64_t *bins = scratch->bins;
    double bits = 0;
    for (uint32_t first = 0; first <= 2 * levels; first += TG_HISTOGRAM) {
        count_codes(kernels, frame, info, first, scratch);
        for (unsigned i = 0; i < TG_HISTOGRAM; i++)
            if (bins[i] > 0)
                bits += (double)bins[i] * tg_log2((double)n / (double)bins[i]);
    }
    return bits;
}

static void measure(const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info, tg_walk_scratch *scratch,
                    tg_frame_parts *parts)
{
    const tg_reader *reader = &scratch->readers[0];
    if (!tg_frame_open(&scratch->readers[0], kernels, frame, info))
        return; /* cannot happen: it was checked */
    *parts = (tg_frame_parts){.selected = reader->row->sparse ? reader->sparse.positions.listed : info->count,
                              .scale_bytes = reader->levels.scale_bytes,
                              .index_bytes = reader->sparse.positions.bytes};
    parts->value_bytes = info->bytes - TG_HEADER_SIZE - parts->scale_bytes - parts->index_bytes;
    if (reader->levels.width > 0 && reader->levels.shape.count > 0)
        parts->level_entropy = entropy_of(kernels, frame, info, reader->levels.shape.levels, reader->levels.shape.count,
                                          scratch);
}

void tg_cpu_measure(tg_device *device, tg_frame frame, const tg_frame_info *info, tg_frame_parts *parts)
{
    tg_cpu *cpu = tg_cpu_of(device);
    tg_walk_scratch *scratch = tg_scratch_take(&cpu->calls);
    measure(cpu->kernels, frame, info, scratch, parts);
    tg_scratch_give(&cpu->calls, scratch);
}
