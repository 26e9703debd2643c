/* What all sparsifiers share: the payload of indices and values (docs/format.md, 6), and the pass that lists the
 * selected elements and updates the residual. A sparsifier is a selector and a row. */
#ifndef TG_CODEC_SPARSE_H
#define TG_CODEC_SPARSE_H

#include "codec/peak.h"
#include "codec/reader.h"
#include "codec/select.h"
#include "codec/codec_table.h"

typedef struct tg_selector {
    tg_guesses (*guess)(tg_selection *selection); /* NULL: selects exactly k, nothing is guessed */
    bool by_random_key;
    bool exact;                            /* never selects more than k */
    size_t (*sample_size)(uint64_t count); /* floats that selection->sample needs; NULL for none */
} tg_selector;

size_t tg_sparse_bound(const tg_spec *spec, uint64_t count, const tg_selector *selector);
/* Of up to `most` elements that have been selected already, of a vector of `count`. */
size_t tg_sparse_list_bound(const tg_spec *spec, uint64_t count, uint64_t most);
/* The most bytes that they come to; writing them takes the room above. */
size_t tg_sparse_list_most(const tg_spec *spec, uint64_t count, uint64_t most);
size_t tg_sparse_workspace(const tg_spec *spec, uint64_t count, unsigned threads, const tg_selector *selector);
tg_status tg_sparse_encode(tg_job *job, const tg_selector *selector);

/* The payload of n elements that have been selected already, of a vector of job->source.count elements whose first
 * element has the index `origin`: increasing indices, finite values. Where values are not sent as float32, job->sent
 * receives what the decoder will see. The lists are only read. It needs no more workspace or room than
 * a selection of n. */
void tg_sparse_encode_list(tg_job *job, uint32_t origin, uint32_t *indices, float *values, size_t n);

/* The elements of a sparse payload as a list, with indices counted from `origin`; `values` may be NULL. False if the
 * payload breaks a rule of the format. */
bool tg_sparse_list(tg_reader *reader, uint32_t origin, uint32_t *indices, float *values);

bool tg_sparse_open(tg_reader *reader, const tg_payload *payload);
bool tg_sparse_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
bool tg_sparse_done(const tg_reader *reader);
void tg_sparse_seek(tg_reader *reader, uint64_t first);

/* 1 - k/d, where k is the fewest elements that the selector may send, plus the error of values in fewer than 32
 * bits. */
double tg_sparse_gamma(const tg_spec *spec, uint64_t count, const tg_selector *selector);

extern const tg_parameter *const tg_sparse_parameters[];
size_t tg_fixed_sample_size(uint64_t count);

/* Defines the functions of a row and the row itself from a `static const tg_selector selector`. */
#define TG_SPARSE_ROW(row_name, row_id, row_text, row_summary)                                                      \
    static size_t bound(const tg_spec *spec, uint64_t count) { return tg_sparse_bound(spec, count, &selector); }    \
    static size_t workspace(const tg_spec *spec, uint64_t count, unsigned threads)                                  \
    {                                                                                                               \
        return tg_sparse_workspace(spec, count, threads, &selector);                                                \
    }                                                                                                               \
    static tg_status encode(tg_job *job) { return tg_sparse_encode(job, &selector); }                               \
    static double gamma_of(const tg_spec *spec, uint64_t count) { return tg_sparse_gamma(spec, count, &selector); } \
    const tg_codec_row row_name = {                                                                                 \
        .id = (row_id),                                                                                             \
        .sparse = true,                                                                                             \
        .wants_feedback = true,                                                                                     \
        .has_norm = true,                                                                                           \
        .name = (row_text),                                                                                         \
        .summary = (row_summary),                                                                                   \
        .parameters = tg_sparse_parameters,                                                                         \
        .standard =                                                                                                 \
            {.codec = (row_id), .choices = TG_CHOICE_NORM_MAX, .levels = 7, .bucket = 512, .amount = 10000000},     \
        .bound = bound,                                                                                             \
        .workspace = workspace,                                                                                     \
        .encode = encode,                                                                                           \
        .open = tg_sparse_open,                                                                                     \
        .read = tg_sparse_read,                                                                                     \
        .done = tg_sparse_done,                                                                                     \
        .seek = tg_sparse_seek,                                                                                     \
        .peak = tg_sparse_row_peak,                                                                                 \
        .gamma = gamma_of,                                                                                          \
    }

#endif
