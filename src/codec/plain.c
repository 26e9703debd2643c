/* Plain values on the wire, in any of the three dtypes. */
#include "codec/plain.h"

#include "codec/dense.h"
#include "codec/reader.h"

const tg_parameter *const tg_no_parameters[] = {NULL};

size_t tg_plain_workspace(const tg_spec *spec, uint64_t count, unsigned threads)
{
    (void)spec;
    (void)count;
    (void)threads;
    return 0;
}

static bool encode_block(tg_job *job, const void *shape, uint64_t first, size_t n, const float *u, float *sent)
{
    const tg_kernels *k = job->kernels;
    const tg_dtype wire = *(const tg_dtype *)shape;
    uint8_t *at = job->payload + first * tg_dtype_size(wire);
    /* Where values come from memory, checking them before they are narrowed costs nothing, because it also loads them
     * into the cache. Where they have been computed, narrowing already tells whether the check is needed. */
    const bool check_first = job->check_finite && !job->source.residual;
    if (check_first && k->first_nonfinite(u, n) < n)
        return false;
    const uint64_t limited = k->store(wire, u, n, at);
    if (job->check_finite && !check_first && (limited > 0 || wire == TG_FLOAT32) && k->first_nonfinite(u, n) < n)
        return false;
    job->saturated += limited;
    if (sent)
        k->load(wire, at, n, sent);
    return true;
}

static void replay_block(tg_job *job, const void *shape, uint64_t first, size_t n, float *sent)
{
    const tg_dtype wire = *(const tg_dtype *)shape;
    job->kernels->load(wire, job->payload + first * tg_dtype_size(wire), n, sent);
}

tg_status tg_plain_encode(tg_job *job, tg_dtype wire)
{
    const tg_dense_steps steps = {.block = encode_block,
                                  .replay = replay_block,
                                  .unit = tg_dense_unit(0),
                                  .bits = 8 * (unsigned)tg_dtype_size(wire)};
    job->payload_size = (size_t)job->source.count * tg_dtype_size(wire);
    return tg_dense_encode(job, &steps, &wire);
}

bool tg_plain_open(tg_plain_reader *reader, tg_dtype dtype, uint64_t count, const uint8_t *bytes, size_t size)
{
    reader->dtype = dtype;
    reader->next = bytes;
    return size == count * tg_dtype_size(dtype);
}

bool tg_plain_read(tg_plain_reader *reader, const tg_kernels *kernels, size_t n, float *values)
{
    kernels->load(reader->dtype, reader->next, n, values);
    reader->next += n * tg_dtype_size(reader->dtype);
    return kernels->first_nonfinite(values, n) == n;
}

void tg_deliver(const tg_kernels *kernels, const float *values, size_t n, tg_read_mode mode, float weight, float *out)
{
    if (mode == TG_READ_SET)
        kernels->set_scaled(values, weight, n, out);
    else if (mode == TG_READ_ADD)
        kernels->add_scaled(values, weight, n, out);
}

bool tg_plain_row_open(tg_reader *reader, const tg_payload *payload, tg_dtype wire)
{
    reader->walk = true;
    return tg_plain_open(&reader->plain, wire, payload->count, payload->bytes, payload->size);
}

bool tg_plain_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    const tg_kernels *k = reader->kernels;
    if (k->decode_plain) {
        tg_plain_reader *r = &reader->plain;
        const uint8_t *wire = r->next;
        r->next += n * tg_dtype_size(r->dtype);
        return k->decode_plain(r->dtype, wire, n, mode == TG_READ_SET, weight, mode == TG_READ_CHECK ? NULL : out);
    }
    float values[TG_BLOCK];
    if (!tg_plain_read(&reader->plain, reader->kernels, n, values))
        return false;
    tg_deliver(reader->kernels, values, n, mode, weight, out);
    return true;
}

bool tg_plain_row_done(const tg_reader *reader)
{
    (void)reader;
    return true;
}

void tg_plain_row_seek(tg_reader *reader, uint64_t first)
{
    reader->plain.next += first * tg_dtype_size(reader->plain.dtype);
}
