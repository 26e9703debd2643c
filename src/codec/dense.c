/* One pass: source, codec, residual. */
#include "codec/dense.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/ranges.h"

size_t tg_dense_unit(uint32_t bucket)
{
    enum { COMFORTABLE = 512 };
    return bucket > COMFORTABLE && TG_BLOCK % bucket == 0 ? bucket : COMFORTABLE;
}

/* One call of tg_dense_encode, for all threads. */
typedef struct pass {
    tg_job *job;
    const tg_dense_steps *steps;
    const void *shape;
    tg_ranges ranges;
    uint64_t *done; /* of each range: elements before this one are committed */
    atomic_bool nonfinite;
    atomic_uint_fast64_t saturated, dropped;
} pass;

/* The job as one thread has it. */
static tg_job job_of(const pass *p, tg_dense_scratch *scratch)
{
    tg_job job = *p->job;
    job.pool = NULL;
    job.scratch = scratch;
    job.saturated = job.dropped = 0;
    return job;
}

/* Puts the residual of what has been committed of a range back to rounding. */
static void undo_range(void *of, size_t part)
{
    const pass *p = of;
    tg_dense_scratch scratch;
    tg_job job = job_of(p, &scratch);
    const uint64_t end = p->done[part];
    for (uint64_t first = tg_range_first(&p->ranges, part); first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        p->steps->replay(&job, p->shape, first, n, scratch.sent);
        tg_source_undo(&job.source, job.kernels, first, n, scratch.sent, &scratch.block);
    }
}

/* The gradient of one block as float32: where it lies, or widened. */
static const float *gradient_at(tg_job *job, uint64_t first, size_t n)
{
    const tg_source *source = &job->source;
    if (source->dtype == TG_FLOAT32)
        return (const float *)source->gradient + first;
    float *wide = job->scratch->block.push;
    job->kernels->widen(source->dtype, (const char *)source->gradient + first * tg_dtype_size(source->dtype), n, wide);
    return wide;
}

static bool compose(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t first, size_t n)
{
    tg_dense_scratch *scratch = job->scratch;
    const bool feedback = job->source.residual != NULL;
    const float *u = scratch->block.u;
    size_t dropped = 0;
    const float *as_it_lies = (const float *)job->source.gradient + first;
    if (job->source.dtype != TG_FLOAT32 || job->source.drop_nonfinite)
        dropped = tg_source_read(&job->source, job->kernels, first, n, &scratch->block);
    else if (feedback)
        job->kernels->compensate(as_it_lies, job->source.residual + first, job->source.alpha, job->source.beta, n,
                                 scratch->block.u, scratch->block.rest);
    else
        u = as_it_lies;
    /* Codecs meet every u, but with alpha different from beta the rest may overflow where u does not. */
    if (feedback && job->check_finite && job->source.alpha != job->source.beta &&
        job->kernels->first_nonfinite(scratch->block.rest, n) < n)
        return false;
    float *sent = job->sent ? job->sent + first : feedback ? scratch->sent : NULL;
    if (!steps->block(job, shape, first, n, u, sent))
        return false;
    if (feedback)
        tg_source_commit(&job->source, job->kernels, first, n, &scratch->block, sent);
    job->dropped += dropped;
    return true;
}

/* Encodes one block; *done counts its elements. False where a value is not finite. */
static bool encode_block(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t first, size_t n, size_t *done)
{
    const bool fusible = steps->fused && !job->sent; /* a fused kernel stops before what is not finite, be it u or rest */
    const float *gradient = fusible && n == TG_BLOCK ? gradient_at(job, first, n) : NULL;
    while (*done < n) {
        size_t here = gradient ? steps->fused(job, shape, first + *done, n - *done, gradient + *done) : 0;
        if (here == 0) {
            here = steps->unit < n - *done ? steps->unit : n - *done;
            if (!compose(job, steps, shape, first + *done, here))
                return false;
        }
        *done += here;
    }
    return true;
}

/* Where the bits of an element begin. */
static uint64_t byte_of(const tg_dense_steps *steps, uint64_t element) { return steps->start + element * steps->bits / 8; }

static uint64_t chunk_from(uint64_t byte) { return (byte + TG_CHUNK - 1) / TG_CHUNK; }

static void digest_chunk(const tg_job *job, uint64_t chunk)
{
    job->digests.of[chunk] = job->kernels->digest(job->payload + chunk * TG_CHUNK, TG_CHUNK);
}

static void encode_range(void *of, size_t part)
{
    pass *p = of;
    tg_dense_scratch scratch;
    tg_job job = job_of(p, &scratch);
    const bool digests = job.digests.of && p->steps->bits > 0;
    const uint64_t start = tg_range_first(&p->ranges, part), end = tg_range_end(&p->ranges, part);
    uint64_t chunk = chunk_from(byte_of(p->steps, start)); /* the first that lies in the range as a whole */
    p->done[part] = start;
    for (uint64_t first = start; first < end && !atomic_load_explicit(&p->nonfinite, memory_order_relaxed); first += TG_BLOCK) {
        size_t done = 0;
        if (!encode_block(&job, p->steps, p->shape, first, tg_block_size(end, first), &done))
            atomic_store(&p->nonfinite, true);
        p->done[part] = first + done;
        for (; digests && (chunk + 1) * TG_CHUNK <= byte_of(p->steps, first + done); chunk++)
            digest_chunk(&job, chunk);
    }
    atomic_fetch_add(&p->saturated, job.saturated);
    atomic_fetch_add(&p->dropped, job.dropped);
}

/* The chunks that no range has as a whole; then all of those that the elements fill are known. */
static void digest_seams(const pass *p)
{
    tg_job *job = p->job;
    if (!job->digests.of || p->steps->bits == 0)
        return;
    job->digests.from = (size_t)chunk_from(p->steps->start);
    job->digests.to = (size_t)(byte_of(p->steps, p->ranges.count) / TG_CHUNK);
    for (size_t part = 1; part < p->ranges.parts; part++) {
        const uint64_t seam = byte_of(p->steps, tg_range_first(&p->ranges, part));
        if (seam % TG_CHUNK != 0 && seam / TG_CHUNK >= job->digests.from && seam / TG_CHUNK < job->digests.to)
            digest_chunk(job, seam / TG_CHUNK);
    }
}

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape)
{
    uint64_t done[TG_MAX_RANGES];
    pass p = {.job = job, .steps = steps, .shape = shape, .done = done};
    p.ranges = tg_ranges_of(job->pool, job->source.count, TG_BLOCK);
    tg_parallel(job->pool, p.ranges.parts, encode_range, &p);
    if (p.nonfinite) {
        if (job->source.residual)
            tg_parallel(job->pool, p.ranges.parts, undo_range, &p);
        return TG_NONFINITE;
    }
    digest_seams(&p);
    job->saturated += p.saturated;
    job->dropped += p.dropped;
    job->selected = job->source.count;
    return TG_OK;
}
