/* `none`: the values as they are, in the source's own dtype. Lossless but for what feedback adds to a 16-bit gradient. */
#include "codec/plain.h"
#include "codec/table.h"

static size_t bound(const tg_spec *spec, uint64_t count)
{
    (void)spec;
    return (size_t)count * 4;
}

static tg_status encode(tg_job *job) { return tg_plain_encode(job, job->source.dtype); }

static bool open(tg_reader *reader, const tg_payload *payload) { return tg_plain_row_open(reader, payload, payload->dtype); }

/* Nothing is lost of a float32 vector; a 16-bit one loses at most half a unit in the last place where feedback is added. */
static double gamma_of(const tg_spec *spec, uint64_t count)
{
    (void)spec;
    (void)count;
    return 0;
}

const tg_codec_row tg_codec_none = {
    .id = 0,
    .name = "none",
    .summary = "the values as they are",
    .unbiased = true,
    .parameters = tg_no_parameters,
    .standard = {.codec = 0},
    .bound = bound,
    .workspace = tg_plain_workspace,
    .encode = encode,
    .open = open,
    .read = tg_plain_row_read,
    .done = tg_plain_row_done,
    .seek = tg_plain_row_seek,
    .gamma = gamma_of,
};
