/* `bf16`: bfloat16, rounded to nearest even; what is too large is limited to the largest finite value and counted. */
#include "codec/plain.h"
#include "codec/table.h"

static size_t bound(const tg_spec *spec, uint64_t count)
{
    (void)spec;
    return (size_t)count * 2;
}

static tg_status encode(tg_job *job) { return tg_plain_encode(job, TG_BFLOAT16); }

static bool open(tg_reader *reader, const tg_payload *payload) { return tg_plain_row_open(reader, payload, TG_BFLOAT16); }

/* Half a unit in the last place of 8 bits, squared. */
static double gamma_of(const tg_spec *spec, uint64_t count)
{
    (void)spec;
    (void)count;
    return 0x1p-16;
}

const tg_codec_row tg_codec_bf16 = {
    .id = 2,
    .name = "bf16",
    .summary = "bfloat16; overflow saturates and is counted",
    .unbiased = false,
    .parameters = tg_no_parameters,
    .standard = {.codec = 2},
    .bound = bound,
    .workspace = tg_plain_workspace,
    .encode = encode,
    .open = open,
    .read = tg_plain_row_read,
    .done = tg_plain_row_done,
    .seek = tg_plain_row_seek,
    .gamma = gamma_of,
};
