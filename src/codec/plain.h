/* Values that travel as plain floats: what `none`, `fp16` and `bf16` share. */
#ifndef TG_CODEC_PLAIN_H
#define TG_CODEC_PLAIN_H

#include "codec/codec.h"

/* None. */
size_t tg_plain_workspace(const tg_spec *spec, uint64_t count, unsigned threads);
/* Encodes job->source as values of this dtype. */
tg_status tg_plain_encode(tg_job *job, tg_dtype wire);
/* A row's open for values of this dtype, and its read and done. */
bool tg_plain_row_open(tg_reader *reader, const tg_payload *payload, tg_dtype wire);
bool tg_plain_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
bool tg_plain_row_done(const tg_reader *reader);
void tg_plain_row_seek(tg_reader *reader, uint64_t first);

extern const tg_parameter *const tg_no_parameters[];

#endif
