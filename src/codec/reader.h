/* The state of reading one payload; which parts are used depends on the codec. Some calls have a reader on the stack,
 * so it is kept small. */
#ifndef TG_CODEC_READER_H
#define TG_CODEC_READER_H

#include "code/elias.h"
#include "codec/codec.h"
#include "codec/levels.h"
#include "codec/listed_levels.h"
#include "codec/prefix_codes.h"

/* Chunks of Elias codes. */
typedef struct tg_elias_chunks {
    const uint8_t *directory; /* lengths of the chunks still to come */
    const uint8_t *stream;    /* where the next chunk starts */
    uint64_t chunk_end;       /* where the open one ends */
    bool any_open;
    tg_elias_reader reader;
} tg_elias_chunks;

/* Levels: scales, and codes in one of six layouts. */
typedef struct tg_levels_reader {
    const tg_kernels *kernels;
    tg_levels_shape shape;
    unsigned width, layout;
    uint64_t position;
    const uint8_t *scales;
    const uint8_t *codes; /* packed */
    uint64_t scale_bytes;
    uint64_t *histogram; /* if not NULL, counts the codes that are read, from histogram_first on */
    uint32_t histogram_first;
    union {
        tg_elias_chunks elias;
        tg_entropy_codes entropy;
        tg_listed_levels listed;
        tg_prefix_codes prefix;
    } open;
} tg_levels_reader;

typedef struct tg_plain_reader {
    tg_dtype dtype;
    const uint8_t *next;
} tg_plain_reader;

/* The positions that sparse readers have written in a block of up to TG_BLOCK elements that is used again and again:
 * clearing only these is cheaper than clearing the block. Above TG_MAX_TOUCHED it is not, so the positions are only
 * counted. */
#define TG_MAX_TOUCHED (TG_BLOCK / 8)
typedef struct tg_touched {
    float *block; /* in the first-level cache; zero except at the touched positions */
    size_t count;
    uint32_t positions[TG_MAX_TOUCHED + TG_RICE_BLOCK];
} tg_touched;

typedef struct tg_sparse_reader {
    tg_positions_reader positions;
    tg_touched *touched; /* if not NULL, records the positions that are written */
    tg_values values;
    tg_plain_reader plain;
    float ahead[TG_GROUP]; /* levels are decoded a group at a time and handed out from here */
    size_t ahead_at, ahead_count;
} tg_sparse_reader;

/* How many elements to read in one call, in multiples of TG_BLOCK except for the last call. Sparse readers accept any
 * number, entropy coded levels up to a chunk. These numbers are large enough to be worth a call and small enough that
 * the part of the output to which several frames are added stays in the cache. The long step is for sparse frames where
 * the cache brings nothing. */
#define TG_SPARSE_STEP (64u * TG_BLOCK)
#define TG_LONG_SPARSE_STEP (1024u * TG_BLOCK)
#define TG_ENTROPY_STEP (16u * TG_BLOCK)
#define TG_PREFIX_STEP (64u * TG_BLOCK)

/* Bins of a reader's histogram of codes. */
#define TG_HISTOGRAM 4096u

struct tg_reader {
    const tg_kernels *kernels;
    const tg_codec_row *row;
    uint64_t step; /* the most elements in one call of read: TG_BLOCK, unless open allows more */
    /* reading can start at multiples of this power of two: TG_BLOCK, unless open sets another; 0: only at the start */
    uint64_t grain;
    bool walk; /* set by open: the payload must be read completely to know whether it is valid */
    tg_levels_reader levels;
    tg_plain_reader plain;
    tg_sparse_reader sparse;
};

/* Opens levels that fill all of `bytes`. `walk` is set where the payload must be read completely to know whether it is
 * valid. */
bool tg_levels_open(tg_levels_reader *reader, const tg_kernels *kernels, const tg_levels_shape *shape, unsigned layout,
                    const uint8_t *bytes, size_t size, bool *walk);
/* The next n values, in multiples of TG_GROUP except for the last call. */
bool tg_levels_read(tg_levels_reader *reader, size_t n, float *values);
bool tg_levels_done(const tg_levels_reader *reader);

/* The functions of a row whose payload is levels. */
bool tg_levels_row_open(tg_reader *reader, const tg_levels_shape *shape, const tg_payload *payload);
bool tg_levels_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out);
bool tg_levels_row_done(const tg_reader *reader);
void tg_levels_row_seek(tg_reader *reader, uint64_t first);
bool tg_levels_row_packed(const tg_reader *reader, tg_levels_decoding *next);

/* Whether every block of TG_BLOCK elements consists of whole buckets, or lies within one. `within_block` receives how
 * many elements of a block share a scale. */
bool tg_blocks_fit(uint32_t bucket, uint32_t *within_block);

/* Plain values: opens `count` values of a dtype that fill all of `bytes`. */
bool tg_plain_open(tg_plain_reader *reader, tg_dtype dtype, uint64_t count, const uint8_t *bytes, size_t size);
/* The next n <= TG_BLOCK; false if one is not finite. */
bool tg_plain_read(tg_plain_reader *reader, const tg_kernels *kernels, size_t n, float *values);

/* Sets the touched positions of the block to zero. */
void tg_touched_clear(tg_touched *touched);

/* Sets or adds a block of values in the output, as the mode says. */
void tg_deliver(const tg_kernels *kernels, const float *values, size_t n, tg_read_mode mode, float weight, float *out);

#endif
