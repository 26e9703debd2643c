/* Values that are sent as plain floats: what `none`, `fp16` and `bf16` share. */
#ifndef TG_CODEC_PLAIN_H
#define TG_CODEC_PLAIN_H

#include "codec/codec_table.h"
#include "codec/peak.h"

/* 0: no workspace. */
size_t tg_plain_workspace(const tg_spec *spec, uint64_t count, unsigned threads);
/* Encodes job->source as values of this dtype. */
tg_status tg_plain_encode(tg_job *job, tg_dtype wire);
/* A row's open for values of this dtype, and its read and done. */
bool tg_plain_row_open(tg_reader *reader, const tg_payload *payload, tg_dtype wire);
bool tg_plain_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
bool tg_plain_row_done(const tg_reader *reader);
void tg_plain_row_seek(tg_reader *reader, uint64_t first);

extern const tg_parameter *const tg_no_parameters[];

/* Defines the functions of a row and the row itself from `static tg_dtype wire_of(tg_dtype source)`, the dtype in which
 * a source's values are sent. An element takes at most `row_bytes` bytes. */
#define TG_PLAIN_ROW(row_name, row_id, row_text, row_summary, row_lossless, row_bytes, row_gamma)     \
    static size_t bound(const tg_spec *spec, uint64_t count)                                          \
    {                                                                                                 \
        (void)spec;                                                                                   \
        return (size_t)count * (row_bytes);                                                           \
    }                                                                                                 \
    static tg_status encode(tg_job *job) { return tg_plain_encode(job, wire_of(job->source.dtype)); } \
    static bool open(tg_reader *reader, const tg_payload *payload)                                    \
    {                                                                                                 \
        return tg_plain_row_open(reader, payload, wire_of(payload->dtype));                           \
    }                                                                                                 \
    static double gamma_of(const tg_spec *spec, uint64_t count)                                       \
    {                                                                                                 \
        (void)spec;                                                                                   \
        (void)count;                                                                                  \
        return (row_gamma);                                                                           \
    }                                                                                                 \
    const tg_codec_row row_name = {                                                                   \
        .id = (row_id),                                                                               \
        .name = (row_text),                                                                           \
        .summary = (row_summary),                                                                     \
        .unbiased = (row_lossless),                                                                   \
        .plain = true,                                                                                \
        .lossless = (row_lossless),                                                                   \
        .parameters = tg_no_parameters,                                                               \
        .standard = {.codec = (row_id)},                                                              \
        .bound = bound,                                                                               \
        .workspace = tg_plain_workspace,                                                              \
        .encode = encode,                                                                             \
        .open = open,                                                                                 \
        .read = tg_plain_row_read,                                                                    \
        .done = tg_plain_row_done,                                                                    \
        .seek = tg_plain_row_seek,                                                                    \
        .peak = tg_plain_row_peak,                                                                    \
        .gamma = gamma_of,                                                                            \
    }

#endif
