/* How the rest of the library sees a codec: as one row of a table. The row's functions encode a source of values to a
 * payload, and read a payload block by block. To add a codec, write one file that defines a row and add a line to
 * codec_table.c. */
#ifndef TG_CODEC_CODEC_H
#define TG_CODEC_CODEC_H

#include "codec/parameters.h"
#include "kernels/kernels.h"
#include "kernels/source.h"

/* The digests of the leaves of a payload, which the checksum is made of (docs/format.md, 2). A codec may fill in those
 * from `from` to `to` while their bytes are in the cache; the frame's encoder does the others. */
#define TG_LEAF 4096u
typedef struct tg_digests {
    uint64_t *of; /* room for every leaf of the payload; NULL: there is no checksum */
    size_t from, to;
} tg_digests;

/* One encode call. */
typedef struct tg_job {
    const tg_kernels *kernels;
    tg_pool *pool;
    const tg_spec *spec;
    tg_source source;
    tg_draw draw;
    bool check_finite; /* non-finite values have not been looked for: report them when they are found */
    /* if not NULL, undo buffer for the old bytes at the payload's place, which are restored if a value is not finite */
    uint8_t *undo;
    void *workspace;                  /* as many bytes as the row's `workspace` returns, aligned for any type */
    struct tg_dense_scratch *scratch; /* codec/dense.h: of the thread that works on this copy of the job */
    float *sent;                      /* if not NULL, receives what the decoder will see, `count` values */

    /* If not NULL, a sparsifier leaves its selection here and writes no payload: room for 128 elements more than can be
     * selected. Values are as they were, whatever the spec does to them on the wire. */
    struct {
        uint32_t *indices;
        float *values;
    } list;
    uint8_t *payload;    /* room for the row's `bound` */
    size_t payload_size; /* out */
    tg_digests digests;  /* out */
    unsigned layout;     /* out */
    uint64_t selected;   /* out */
    uint64_t saturated;  /* out */
    uint64_t dropped;    /* out */
} tg_job;

/* An untrusted payload, with the header's fields that its reader needs. */
typedef struct tg_payload {
    const tg_spec *spec;
    tg_dtype dtype;
    unsigned layout;
    uint64_t count;
    const uint8_t *bytes;
    size_t size;
} tg_payload;

/* What to do with the values that are read. */
typedef enum tg_read_mode {
    TG_READ_CHECK, /* nothing: only check the rules of the format */
    TG_READ_SET,   /* out = weight * value; a sparse reader does not touch elements that are not listed */
    TG_READ_ADD    /* out = out + weight * value */
} tg_read_mode;

typedef struct tg_reader tg_reader; /* codec/reader.h */

typedef struct tg_codec_row {
    uint8_t id;
    bool sparse, unbiased, wants_feedback; /* as in tg_codec_info */
    bool plain;                            /* the payload is the values, one after the other */
    bool lossless;                         /* plain, and in the source's own dtype: what arrives is what was sent */
    bool has_norm;                         /* its levels, where it has some, may be scaled by the L2 norm */
    const char *name, *summary;
    const tg_parameter *const *parameters; /* terminated by NULL */
    tg_spec standard;                      /* the defaults */

    size_t (*bound)(const tg_spec *spec, uint64_t count);                       /* most bytes of a payload */
    size_t (*workspace)(const tg_spec *spec, uint64_t count, unsigned threads); /* bytes an encode call needs */
    tg_status (*encode)(tg_job *job); /* TG_OK or TG_NONFINITE; after the latter everything has been restored */

    /* open prepares the reader and checks what can be checked at once. read reads the next n elements, a multiple of
     * TG_BLOCK except for the last call, and at most the reader's step. done tells whether what was read, up to a
     * multiple of the reader's grain or the end, was complete. Each returns false for a payload that breaks a rule of
     * the format. */
    bool (*open)(tg_reader *reader, const tg_payload *payload);
    bool (*read)(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
    bool (*done)(const tg_reader *reader);
    /* Moves a newly opened reader to element `first`, a multiple of its grain; reading and `done` continue from there.
     * NULL where the grain is always 0. */
    void (*seek)(tg_reader *reader, uint64_t first);
    /* The next block of TG_BLOCK elements as packed levels for the fused kernel; false, for every block of this reader,
     * if it is not supported. NULL: never supported. The caller advances reader->levels.position. */
    bool (*packed)(const tg_reader *reader, tg_levels_decoding *next);
    /* Bits of a magnitude that no value exceeds, of a payload of `count` elements that has just been opened. */
    uint32_t (*peak)(const tg_reader *reader, tg_pool *pool, uint64_t count);

    /* A bound on E|C(u) - u|^2 / |u|^2 for vectors of this count; docs/numerics.md derives them. */
    double (*gamma)(const tg_spec *spec, uint64_t count);
} tg_codec_row;

/* The row of a spec's codec, or NULL. */
const tg_codec_row *tg_codec_row_of(uint8_t id);
const tg_codec_row *tg_codec_row_at(size_t index);

/* The spec of `none`, which has no parameters. */
#define TG_SPEC_NONE ((tg_spec){.codec = 0})

/* Whether a spec's codec sends the values without loss. */
static inline bool tg_spec_is_lossless(const tg_spec *spec)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    return row && row->lossless;
}

/* TG_OK if tg_spec_parse could have returned this spec. */
tg_status tg_spec_check(const tg_spec *spec, tg_error *error);

#endif
