/* One pass over the source: encodes, and updates the residual. */
#include "codec/dense.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/machine.h"
#include "kernels/ranges.h"

size_t tg_dense_unit(uint32_t bucket)
{
    enum { COMFORTABLE = 512 };
    return bucket > COMFORTABLE && TG_BLOCK % bucket == 0 ? bucket : COMFORTABLE;
}

/* How far a range has come: elements before `done` are committed, and what lay in the place of the codes of those
 * before `kept` is kept. */
typedef struct progress {
    uint64_t done, kept;
} progress;

/* One call of tg_dense_encode, for all threads. */
typedef struct pass {
    tg_job *job;
    const tg_dense_steps *steps;
    const void *shape;
    tg_ranges ranges;
    bool known_finite;  /* all elements that remain to be encoded are known to be finite */
    progress *progress; /* of each range */
    atomic_bool nonfinite;
    atomic_uint_fast64_t saturated, dropped;
} pass;

/* A thread's own copy of the job. */
static tg_job job_of(const pass *p, tg_dense_scratch *scratch)
{
    tg_job job = *p->job;
    job.pool = NULL;
    job.scratch = scratch;
    job.saturated = job.dropped = 0;
    if (p->known_finite) {
        job.check_finite = false;
        job.kept = NULL;
        job.source.kept = NULL;
    }
    return job;
}

/* The byte in which the code of an element begins. */
static uint64_t byte_of(const tg_dense_steps *steps, uint64_t element)
{
    return steps->start + element * steps->bits / 8;
}

/* ---- the way back, where a value is not finite ---- */

/* Keeps the bytes of the payload from `from` to `to`, if they are to be put back. */
static void keep_payload(const tg_job *job, uint64_t from, uint64_t to)
{
    if (job->kept)
        job->kernels->set_aside(job->payload + from, (size_t)(to - from), job->kept + from);
}

static void restore_payload(const tg_job *job, uint64_t from, uint64_t to)
{
    if (job->kept)
        memcpy(job->payload + from, job->kept + from, (size_t)(to - from));
}

/* The end of the codes of the elements before this one, where a group or the vector ends. */
static uint64_t byte_after(const tg_dense_steps *steps, uint64_t element)
{
    return steps->start + (element * steps->bits + 7) / 8;
}

/* The codes of the elements before `end` may be written. */
static void keep_codes(const tg_job *job, const tg_dense_steps *steps, progress *at, uint64_t end)
{
    if (at->kept < end) {
        keep_payload(job, byte_of(steps, at->kept), byte_after(steps, end));
        at->kept = end;
    }
}

/* Puts back what has been committed of a range: exactly if it was kept, else the residual to rounding. */
static void undo_range(void *of, size_t part)
{
    const pass *p = of;
    tg_dense_scratch scratch;
    tg_job job = job_of(p, &scratch);
    const uint64_t start = tg_range_first(&p->ranges, part), end = p->progress[part].done;
    for (uint64_t first = start; job.source.residual && !job.source.kept && first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        p->steps->replay(&job, p->shape, first, n, scratch.sent);
        tg_source_undo(&job.source, job.kernels, first, n, scratch.sent, &scratch.block);
    }
    if (job.source.kept)
        tg_source_restore(&job.source, start, end);
    restore_payload(&job, byte_of(p->steps, start), byte_after(p->steps, p->progress[part].kept));
}

/* ---- encoding ---- */

/* The gradient of one block as float32: a pointer into it, or a converted copy. */
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
    /* Codecs check every u, but with alpha different from beta the rest may overflow where u does not. */
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

/* How many elements' codes are kept at once before a fused kernel writes them: those of a whole block take a fifth of A
 * longer, from memory. */
enum { SAVED_AT_ONCE = 1024 };

/* Encodes one block, from at->done on. False where a value is not finite. */
static bool encode_block(tg_job *job, const tg_dense_steps *steps, const void *shape, size_t n, progress *at)
{
    const bool fusible = steps->fused && !job->sent; /* a fused kernel stops before a u or a rest that is not finite */
    const uint64_t first = at->done, end = first + n;
    const float *gradient = fusible && n == TG_BLOCK ? gradient_at(job, first, n) : NULL;
    while (at->done < end) {
        const size_t left = (size_t)(end - at->done);
        size_t here = 0;
        if (gradient) {
            here = job->kept && steps->unit <= SAVED_AT_ONCE && left > SAVED_AT_ONCE ? SAVED_AT_ONCE : left;
            keep_codes(job, steps, at, at->done + here);
            here = steps->fused(job, shape, at->done, here, gradient + (at->done - first));
        }
        if (here == 0) {
            here = steps->unit < left ? steps->unit : left;
            tg_source_keep(&job->source, job->kernels, at->done, here);
            keep_codes(job, steps, at, at->done + here);
            if (!compose(job, steps, shape, at->done, here))
                return false;
        }
        at->done += here;
    }
    return true;
}

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
    progress at = {start, start};
    while (at.done < end && !atomic_load_explicit(&p->nonfinite, memory_order_relaxed)) {
        if (!encode_block(&job, p->steps, p->shape, tg_block_size(end, at.done), &at))
            atomic_store(&p->nonfinite, true);
        const uint64_t ready = byte_of(p->steps, at.done) / TG_CHUNK;
        if (digests && (at.done == end || chunk + tg_digested_at_once() <= ready))
            for (; chunk < ready; chunk++)
                digest_chunk(&job, chunk);
    }
    if (job.kept || job.source.kept)
        job.kernels->aside_is_set();
    p->progress[part] = at;
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

/* A vector that fits the caches is looked through in less time than wide codes are kept (docs/log/cpu-kernels.md). */
static bool checks_first(const tg_job *job, const tg_dense_steps *steps)
{
    enum { MOST = 1 << 21, WIDE = 16 };
    return job->kept && steps->bits >= WIDE && job->source.count <= MOST;
}

/* Before the pass over all elements: computes scales, and finds out whether all values are finite where that is cheaper
 * in advance. False if one is not. */
static bool prepare(pass *p)
{
    tg_job *job = p->job;
    if (checks_first(job, p->steps)) {
        p->known_finite = true;
        if (tg_source_first_nonfinite(&job->source, job->kernels, job->pool) < job->source.count)
            return false;
    }
    if (p->steps->measure) {
        if (!tg_each_bucket(job, p->steps->bucket, p->steps->measure, p->shape))
            return false;
        /* Every u has been checked. With alpha different from beta the rest may overflow where u does not. */
        p->known_finite = p->known_finite || job->source.alpha == job->source.beta;
    }
    return true;
}

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape)
{
    progress ranges_at[TG_MAX_RANGES];
    pass p = {.job = job, .steps = steps, .shape = shape, .progress = ranges_at};
    keep_payload(job, 0, steps->start);
    if (!prepare(&p)) {
        restore_payload(job, 0, steps->start);
        return TG_NONFINITE;
    }
    p.ranges = tg_ranges_of(job->pool, job->source.count, TG_BLOCK);
    tg_parallel(job->pool, p.ranges.parts, encode_range, &p);
    if (p.nonfinite) {
        tg_parallel(job->pool, p.ranges.parts, undo_range, &p);
        restore_payload(job, 0, steps->start);
        return TG_NONFINITE;
    }
    digest_seams(&p);
    job->saturated += p.saturated;
    job->dropped += p.dropped;
    job->selected = job->source.count;
    return TG_OK;
}
