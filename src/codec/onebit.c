/* `onebit`: the sign, times the bucket's mean magnitude (Seide et al. 2014; Karimireddy et al. 2019). Biased: use it
 * with feedback. */
#include "base/bytes.h"
#include "codec/dense.h"
#include "codec/levels.h"
#include "codec/peak.h"
#include "codec/plain.h"
#include "codec/reader.h"
#include "codec/codec_table.h"

/* Where the means lie: behind the codes. */
static size_t means_at(uint64_t count) { return (size_t)tg_padded(tg_packed_size(count, 1)); }

static size_t bound(const tg_spec *spec, uint64_t count)
{
    return means_at(count) + (size_t)tg_bucket_count(count, spec->bucket) * 4;
}

static uint64_t bucket_size(const tg_spec *spec, uint64_t count)
{
    return spec->bucket == 0 || spec->bucket > count ? count : spec->bucket;
}

static bool nested(const tg_spec *spec) { return spec->bucket != 0 && TG_BLOCK % spec->bucket == 0; }

/* Code 1 is +mean, code 0 is -mean. */
static void values_of(const uint8_t *means, uint64_t bucket, uint64_t first, size_t n, const uint16_t *codes,
                      float *values)
{
    for (size_t i = 0; i < n;) {
        uint64_t at = (first + i) / bucket, left = (at + 1) * bucket - (first + i);
        const float mean = tg_load_float(means + at * 4), either[2] = {-mean, mean};
        for (size_t end = left < n - i ? i + (size_t)left : n; i < end; i++)
            values[i] = either[codes[i]];
    }
}

/* Whether the kernels for signs support whole blocks. */
static bool blocks_fit(uint32_t bucket, uint32_t *within_block)
{
    return tg_blocks_fit(bucket, within_block) && *within_block >= TG_GROUP;
}

static bool encode_block(tg_job *job, const void *shape, uint64_t first, size_t n, const float *u, float *sent)
{
    (void)shape;
    const uint64_t count = job->source.count, bucket = bucket_size(job->spec, count);
    uint16_t *codes = job->scratch->codes;
    uint8_t *means = job->payload + means_at(count);
    for (uint64_t at = first; nested(job->spec) && at < first + n; at += bucket) {
        float mean;
        uint64_t left = first + n - at;
        if (!tg_bucket_mean(job, at, left < bucket ? left : bucket, u + (at - first), &mean))
            return false;
        tg_store_float(means + at / bucket * 4, mean);
    }
    const tg_kernels *k = job->kernels;
    uint8_t *packed = job->payload + first / 8;
    tg_levels_decoding run = {.width = 1, .scales = means + first / bucket * 4, .packed = packed};
    if (k->pack_signs && n % TG_GROUP == 0 && blocks_fit(job->spec->bucket, &run.bucket)) {
        k->pack_signs(u, n, packed);
        if (sent)
            k->decode_levels(&run, 1, n, TG_SET, 1, sent);
        return true;
    }
    for (size_t i = 0; i < n; i++)
        codes[i] = tg_float_bits(u[i]) >> 31 == 0;
    k->pack(codes, n, 1, packed);
    if (sent)
        values_of(means, bucket, first, n, codes, sent);
    return true;
}

static void replay_block(tg_job *job, const void *shape, uint64_t first, size_t n, float *sent)
{
    (void)shape;
    const uint64_t count = job->source.count;
    uint16_t *codes = job->scratch->codes;
    job->kernels->unpack(job->payload + first / 8, n, 1, codes);
    values_of(job->payload + means_at(count), bucket_size(job->spec, count), first, n, codes, sent);
}

static bool measure_bucket(tg_job *job, const void *shape, uint64_t start, uint64_t n)
{
    (void)shape;
    float mean;
    if (!tg_bucket_mean(job, start, n, NULL, &mean))
        return false;
    const uint64_t count = job->source.count;
    tg_store_float(job->payload + means_at(count) + start / bucket_size(job->spec, count) * 4, mean);
    return true;
}

static tg_status encode(tg_job *job)
{
    const uint64_t count = job->source.count;
    job->payload_size = bound(job->spec, count);
    const tg_dense_steps steps = {.measure = nested(job->spec) ? NULL : measure_bucket,
                                  .bucket = bucket_size(job->spec, count),
                                  .block = encode_block,
                                  .replay = replay_block,
                                  .unit = tg_dense_unit(job->spec->bucket),
                                  .bits = 1,
                                  .scales_at = means_at(count),
                                  .scales_size = (size_t)tg_bucket_count(count, job->spec->bucket) * 4};
    const tg_status status = tg_dense_encode(job, &steps, NULL);
    if (status == TG_OK)
        (void)tg_pad(job->payload, tg_packed_size(count, 1));
    return status;
}

/* Uses the fields of the levels reader: scales are the means, codes the signs. */
static bool open(tg_reader *reader, const tg_payload *payload)
{
    tg_levels_reader *r = &reader->levels;
    tg_cursor c = tg_cursor_over(payload->bytes, payload->size);
    uint64_t buckets = tg_bucket_count(payload->count, payload->spec->bucket);
    r->scale_bytes = 4 * buckets;
    r->codes = tg_cursor_take_padded(&c, tg_packed_size(payload->count, 1));
    r->scales = tg_cursor_take(&c, r->scale_bytes);
    r->shape = (tg_levels_shape){.count = payload->count,
                                 .bucket = (uint32_t)bucket_size(payload->spec, payload->count)};
    r->position = 0;
    if (!r->scales || !r->codes || c.left != 0)
        return false;
    for (uint64_t b = 0; b < buckets; b++)
        if (tg_load32(r->scales + 4 * b) >= TG_INFINITY_BITS)
            return false;
    unsigned used = (unsigned)(payload->count % 8);
    return used == 0 || r->codes[payload->count / 8] >> used == 0;
}

static bool read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_levels_reader *r = &reader->levels;
    uint16_t codes[TG_BLOCK];
    float values[TG_BLOCK];
    reader->kernels->unpack(r->codes + r->position / 8, n, 1, codes);
    values_of(r->scales, r->shape.bucket, r->position, n, codes, values);
    tg_deliver(reader->kernels, values, n, mode, weight, out);
    r->position += n;
    return true;
}

static bool packed(const tg_reader *reader, tg_levels_decoding *next)
{
    const tg_levels_reader *r = &reader->levels;
    const bool one = r->shape.bucket >= r->shape.count; /* the whole vector */
    if (!blocks_fit(one ? 0 : r->shape.bucket, &next->bucket))
        return false;
    next->levels = 0;
    next->width = 1;
    next->scales = r->scales + r->position / r->shape.bucket * 4;
    next->packed = r->codes + r->position / 8;
    return true;
}

/* |x - sign(x) mean|^2 = |x|^2 - |x|_1^2 / d, and |x|_1 >= |x|_2. */
static double gamma_of(const tg_spec *spec, uint64_t count)
{
    return count == 0 ? 0 : 1 - 1 / (double)bucket_size(spec, count);
}

static const tg_parameter *const parameters[] = {&tg_parameter_bucket, NULL};
TG_PARAMETERS_FIT(parameters);

const tg_codec_row tg_codec_onebit = {
    .id = 5,
    .wants_feedback = true,
    .name = "onebit",
    .summary = "the sign, times the bucket's mean magnitude; for use with feedback",
    .parameters = parameters,
    .standard = {.codec = 5, .bucket = 512},
    .bound = bound,
    .workspace = tg_plain_workspace,
    .encode = encode,
    .open = open,
    .read = read,
    .done = tg_plain_row_done,
    .seek = tg_levels_row_seek,
    .packed = packed,
    .peak = tg_levels_row_peak,
    .gamma = gamma_of,
};
