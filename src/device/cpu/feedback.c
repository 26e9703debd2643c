/* Feedback step by step: compensating, updating the state after a frame was sent, and returning a frame. */
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

/* One of the three steps, for all threads. */
typedef struct pass {
    tg_cpu *cpu;
    const tg_source *source;
    tg_ranges ranges;
    float *u;                 /* compensate */
    const tg_settle_job *job; /* update, return */
    const tg_reader *opened;  /* its frame */
    atomic_uint_fast64_t overflow, limited;
} pass;

static void compensate_range(void *of, size_t part)
{
    const pass *p = of;
    tg_source_block block;
    const uint64_t end = tg_range_end(&p->ranges, part);
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        (void)tg_source_read(p->source, p->cpu->kernels, first, n, &block);
        memcpy(p->u + first, block.u, n * sizeof(float));
    }
}

void tg_cpu_compensate(tg_device *device, const tg_source *source, float *u)
{
    tg_cpu *cpu = tg_cpu_of(device);
    pass p = {.cpu = cpu, .source = source, .ranges = tg_ranges_of(cpu->pool, source->count, TG_BLOCK), .u = u};
    tg_parallel(cpu->pool, p.ranges.parts, compensate_range, &p);
}

/* Decoded values are never NaN, so a NaN marks the elements that a sparse frame does not list. */
static const uint32_t not_sent = UINT32_C(0x7fc00000);

static void read_sent(tg_reader *reader, size_t n, float *sent)
{
    for (size_t i = 0; i < n; i++)
        sent[i] = tg_bits_float(not_sent);
    (void)tg_frame_next(reader, n, TG_READ_SET, 1, sent); /* cannot fail: the frame was checked */
}

static bool was_sent(float sent) { return tg_float_bits(sent) != not_sent; }

/* Scratch of this thread, with a reader of the frame at the start of a range. */
static tg_walk_scratch *scratch_at(const pass *p, size_t part)
{
    tg_walk_scratch *scratch = tg_scratch_take(&p->cpu->parts);
    scratch->readers[0] = *p->opened;
    tg_reader_seek(&scratch->readers[0], tg_range_first(&p->ranges, part));
    return scratch;
}

/* Divides a checked frame among threads. */
static void run_with_frame(tg_device *device, tg_settle_job *job, tg_part *range)
{
    pass p = {.cpu = tg_cpu_of(device), .source = &job->source, .job = job};
    tg_walk_scratch *scratch = tg_scratch_take(&p.cpu->calls);
    tg_reader *reader = &scratch->readers[0];
    tg_frame_info info;
    if (tg_frame_read(job->frame, &info, NULL) == TG_OK && tg_frame_open(reader, p.cpu->kernels, job->frame, &info)) {
        p.opened = reader;
        p.ranges = tg_reader_ranges(p.cpu->pool, info.count, reader->grain);
        atomic_store(&p.overflow, info.count);
        tg_parallel(p.cpu->pool, p.ranges.parts, range, &p);
        job->overflow = atomic_load(&p.overflow);
        job->limited = atomic_load(&p.limited);
    } /* else cannot happen: it was checked */
    tg_scratch_give(&p.cpu->calls, scratch);
}

/* Finds overflow in the sums of the n elements from `first` on. */
static void find_overflow(pass *p, uint64_t first, size_t n, const float *sums)
{
    const size_t at = p->cpu->kernels->first_nonfinite(sums, n);
    uint_fast64_t lowest = atomic_load(&p->overflow);
    while (at < n && first + at < lowest && !atomic_compare_exchange_weak(&p->overflow, &lowest, first + at)) {}
}

static void update_range(void *of, size_t part)
{
    pass *p = of;
    tg_walk_scratch *scratch = scratch_at(p, part);
    tg_source_block *block = &scratch->source;
    float *sent = scratch->block;
    const uint64_t end = tg_range_end(&p->ranges, part);
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        (void)tg_source_read(p->source, p->cpu->kernels, first, n, block);
        read_sent(&scratch->readers[0], n, sent);
        for (size_t i = 0; i < n; i++) {
            if (p->source->momentum && was_sent(sent[i]))
                block->push[i] = 0;
            if (!was_sent(sent[i]))
                sent[i] = 0;
        }
        if (!p->job->only_checks) {
            tg_source_commit(p->source, p->cpu->kernels, first, n, block, sent);
            continue;
        }
        p->cpu->kernels->subtract(block->rest, sent, n, sent);
        find_overflow(p, first, n, sent);
    }
    tg_scratch_give(&p->cpu->parts, scratch);
}

void tg_cpu_update(tg_device *device, tg_settle_job *job) { run_with_frame(device, job, update_range); }

/* The first place in a list of increasing indices whose index is at least `limit`. */
static size_t first_from(const uint32_t *indices, size_t count, uint64_t limit)
{
    size_t from = 0, to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Adds what was sent of the n elements from `first` on. */
static void return_block(pass *p, uint64_t first, size_t n, const float *sent)
{
    float *residual = p->source->residual + first;
    uint64_t limited = 0;
    for (size_t i = 0; i < n; i++)
        if (was_sent(sent[i]))
            residual[i] = tg_limited(residual[i] + sent[i], &limited);
    if (limited > 0)
        atomic_fetch_add(&p->limited, limited);
}

static void return_range(void *of, size_t part)
{
    pass *p = of;
    tg_walk_scratch *scratch = scratch_at(p, part);
    float *sent = scratch->block;
    const uint64_t start = tg_range_first(&p->ranges, part), end = tg_range_end(&p->ranges, part);
    const uint32_t *applied = p->job->applied;
    const size_t applied_count = applied ? p->job->applied_count : 0;
    size_t next = first_from(applied, applied_count, start);
    for (uint64_t first = start; first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        read_sent(&scratch->readers[0], n, sent);
        for (; next < applied_count && applied[next] < first + n; next++)
            sent[applied[next] - first] = tg_bits_float(not_sent);
        if (!p->job->only_checks) {
            return_block(p, first, n, sent);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            sent[i] = was_sent(sent[i]) ? p->source->residual[first + i] + sent[i] : 0;
        find_overflow(p, first, n, sent);
    }
    tg_scratch_give(&p->cpu->parts, scratch);
}

void tg_cpu_return_frame(tg_device *device, tg_settle_job *job) { run_with_frame(device, job, return_range); }
