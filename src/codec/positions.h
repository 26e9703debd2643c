/* Increasing positions in a vector, as the wire has them: their number, a directory, and an index stream for each
 * segment (docs/format.md, 6). The elements of a sparse vector are listed so, and the levels that are not zero. */
#ifndef TG_CODEC_POSITIONS_H
#define TG_CODEC_POSITIONS_H

#include "base/bytes.h"
#include "code/indices.h"

/* Most bytes for up to `most` of `count` elements. */
size_t tg_positions_bound(uint64_t count, uint64_t most);

/* Written segment by segment, so that a caller may come to know the indices as it goes. */
typedef struct tg_positions_writer {
    const tg_gaps_engine *engine;
    uint64_t count;
    uint64_t next;  /* where the next segment starts; count: there is none */
    unsigned log;   /* segments have 2^log elements */
    uint8_t *entry; /* of the next segment in the directory */
    uint8_t *at;    /* its stream; after the last segment, the end of it all */
} tg_positions_writer;

tg_positions_writer tg_positions_begin(uint64_t count, uint64_t listed, uint8_t *out, const tg_gaps_engine *engine);
/* Where the next segment ends. */
uint64_t tg_positions_limit(const tg_positions_writer *writer);
/* The next segment's m indices, which count from the start of the vector. */
void tg_positions_put(tg_positions_writer *writer, const uint32_t *indices, size_t m);
/* A writer of the segments from `first` on, of one that has just begun: their streams have a place that is free
 * whatever comes before them, and are to be moved to where they belong once that is known. */
tg_positions_writer tg_positions_from(const tg_positions_writer *begun, uint64_t first);
/* All segments of a list that is complete; returns the end. */
uint8_t *tg_positions_write(const uint32_t *indices, size_t listed, uint64_t count, uint8_t *out,
                            const tg_gaps_engine *engine);

/* Reads what may be anything. */
typedef struct tg_positions_reader {
    const tg_gaps_engine *engine;
    uint64_t count, position;
    uint64_t segment, segment_end; /* elements of a segment; where the open one ends */
    uint64_t listed, bytes;        /* how many positions there are, and what all of this takes */
    const uint8_t *directory;      /* entries of the segments still to come */
    const uint8_t *stream;
    tg_index_reader indices; /* of the open segment */
    bool any_open;
} tg_positions_reader;

/* Takes head, directory and streams off the cursor. */
bool tg_positions_open(tg_positions_reader *reader, tg_cursor *c, uint64_t count, const tg_gaps_engine *engine);
/* How many of the next n > 0 elements lie in one segment, which is then open: the caller takes its positions below
 * *limit, less *base, from reader->indices and moves reader->position on by *here. */
bool tg_positions_within(tg_positions_reader *reader, size_t n, size_t *here, uint32_t *base, uint32_t *limit);
/* Whether what was read, to the end of a segment, ended well. */
bool tg_positions_done(const tg_positions_reader *reader);
/* Moves a reader that has just been opened on to the segment that starts at `first`; returns how many positions are
 * listed before it. */
uint64_t tg_positions_seek(tg_positions_reader *reader, uint64_t first);

#endif
