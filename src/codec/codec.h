/* What a codec is to the rest of the library: one row of a table. The row's functions turn a source of values into a
 * payload, and walk a payload block by block. Adding a codec is one file that defines a row, and one line in
 * codec_table.c.
 */
#ifndef TG_CODEC_CODEC_H
#define TG_CODEC_CODEC_H

#include "codec/parameters.h"
#include "kernels/kernels.h"
#include "kernels/source.h"

/* The checksum's digests of a payload's chunks (docs/format.md, 2). A codec may fill in those from `from` to `to` while
 * their bytes are in the cache; the frame's encoder does the others. */
#define TG_CHUNK 4096u
typedef struct tg_digests {
    uint64_t *of; /* room for every chunk of the payload; NULL: there is no checksum */
    size_t from, to;
} tg_digests;

/* One encode call on its way through a codec. */
typedef struct tg_job {
    const tg_kernels *kernels;
    tg_pool *pool;
    const tg_spec *spec;
    tg_source source;
    tg_draw draw;
    bool check_finite; /* nobody has looked for non-finite values: report them where they turn up */
    uint8_t
        *kept; /* if not NULL, room for what lies in the payload's place, which is put back if a value is not finite */
    void *workspace;                  /* as many bytes as the row's `workspace` asked for, aligned for any type */
    struct tg_dense_scratch *scratch; /* codec/dense.h: of the thread that works on this copy of the job */
    float *sent;                      /* if not NULL, receives what the decoder will see, `count` values */

    uint8_t *payload;    /* room for the row's `bound` */
    size_t payload_size; /* out */
    tg_digests digests;  /* out */
    unsigned layout;     /* out */
    uint64_t selected;   /* out */
    uint64_t saturated;  /* out */
    uint64_t dropped;    /* out */
} tg_job;

/* A payload from outside, with the header's fields that it needs. */
typedef struct tg_payload {
    const tg_spec *spec;
    tg_dtype dtype;
    unsigned layout;
    uint64_t count;
    const uint8_t *bytes;
    size_t size;
} tg_payload;

/* What to do with the values that a reader comes to. */
typedef enum tg_read_mode {
    TG_READ_CHECK, /* nothing: only see whether the payload keeps the rules */
    TG_READ_SET,   /* out = weight * value; a sparse reader leaves elements that are not listed alone */
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
    const tg_parameter *const *parameters; /* NULL ends */
    tg_spec standard;                      /* the defaults */

    size_t (*bound)(const tg_spec *spec, uint64_t count);                       /* most bytes of a payload */
    size_t (*workspace)(const tg_spec *spec, uint64_t count, unsigned threads); /* bytes an encode call needs */
    tg_status (*encode)(tg_job *job); /* TG_OK or TG_NONFINITE, and then all is put back */

    /* open prepares the reader and checks what can be checked at once; read takes the next n elements, a multiple of
     * TG_BLOCK but for the last call, and no more than the reader's step; done says whether what was read, up to a
     * multiple of the reader's grain or the end, ended well. Each is false for a payload that breaks a rule. */
    bool (*open)(tg_reader *reader, const tg_payload *payload);
    bool (*read)(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
    bool (*done)(const tg_reader *reader);
    /* Moves a reader that has just been opened on to element `first`, a multiple of its grain; reading and `done` go on
     * from there. NULL where the grain is always 0. */
    void (*seek)(tg_reader *reader, uint64_t first);
    /* What `read` would read of the next block of TG_BLOCK elements, if it is packed levels that the fused kernel
     * takes; false if not, for every block of this reader. NULL: never. The caller moves reader->levels.position on. */
    bool (*packed)(const tg_reader *reader, tg_levels_decoding *next);
    /* Bits of a magnitude that no value exceeds, of a payload of `count` elements that has just been opened. */
    uint32_t (*peak)(const tg_reader *reader, tg_pool *pool, uint64_t count);

    /* A bound on E|C(u) - u|^2 / |u|^2 for vectors of this count; docs/numerics.md derives them. */
    double (*gamma)(const tg_spec *spec, uint64_t count);
} tg_codec_row;

/* The row of a spec's codec, or NULL. */
const tg_codec_row *tg_codec_row_of(uint8_t id);
const tg_codec_row *tg_codec_row_at(size_t index);

/* Whether a spec's codec sends the values as they are. */
static inline bool tg_spec_is_lossless(const tg_spec *spec)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    return row && row->lossless;
}

/* TG_OK if the spec is one that tg_spec_parse could have made. */
tg_status tg_spec_check(const tg_spec *spec, tg_error *error);

#endif
