/* Packed codes whose bytes are prefix coded, for the widths that fill bytes evenly (docs/format.md, 4.5). */
#ifndef TG_CODEC_PREFIX_CODES_H
#define TG_CODEC_PREFIX_CODES_H

#include "base/bytes.h"
#include "base/pool.h"
#include "code/prefix.h"

/* Whether codes of this width are ever sent this way. */
static inline bool tg_prefix_suits(unsigned width) { return width == 2 || width == 4 || width == 8; }

/* The chunks that the encoder writes; a decoder reads longer ones, and shorter ones, too. */
enum { TG_PREFIX_SHORT_CHUNK = 13, TG_PREFIX_LONG_CHUNK = 14 };

/* Bytes before the streams, with chunks of 2^chunk_log bytes. */
size_t tg_prefix_codes_head(uint64_t bytes, unsigned chunk_log);
/* The most bytes that this many packed bytes take. */
size_t tg_prefix_codes_bound(uint64_t bytes);
/* Writes the code, the directory and the streams, in chunks of one of the two sizes; returns the end. Each chunk
 * depends only on the code and its own bytes. */
uint8_t *tg_prefix_codes_write(const tg_prefix_code *code, unsigned chunk_log, tg_pool *pool, const uint8_t *packed,
                               uint64_t bytes, uint8_t *out);

/* Reads untrusted bytes. */
typedef struct tg_prefix_codes {
    uint64_t bytes, position;
    uint64_t chunk;               /* bytes of a chunk */
    const uint8_t *directory;     /* entries of the chunks still to come */
    const uint8_t *stream;        /* where the next chunk starts */
    const uint8_t *end;           /* of all streams */
    const tg_prefix_slots *slots; /* for the current call; NULL: a table is made for each part */
    tg_prefix_code code;
    tg_prefix_reader reader;
    bool any_open;
} tg_prefix_codes;

/* Opens `bytes` packed bytes, which fill all that the cursor has left. */
bool tg_prefix_codes_open(tg_prefix_codes *r, tg_cursor *c, uint64_t bytes);
/* The next n packed bytes; a multiple of TG_PREFIX_STREAMS except for the last call. */
bool tg_prefix_codes_next(tg_prefix_codes *r, size_t n, uint8_t *packed);
/* Whether what was read, to the end of a chunk, was complete. */
bool tg_prefix_codes_done(const tg_prefix_codes *r);
/* Moves a newly opened reader to the chunk that starts with packed byte `first`. */
void tg_prefix_codes_seek(tg_prefix_codes *r, uint64_t first);

#endif
