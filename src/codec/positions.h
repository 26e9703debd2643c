/* Increasing positions in a vector, as they are sent: their number, a directory, and an index stream for each segment
 * (docs/format.md, 6). Between the directory and the streams lie the values, which are the caller's. Used for the
 * elements of a sparse vector, and for the levels that are not zero. */
#ifndef TG_CODEC_POSITIONS_H
#define TG_CODEC_POSITIONS_H

#include "base/bytes.h"
#include "code/indices.h"

/* The most bytes for up to `most` positions among `count` elements. */
size_t tg_positions_bound(uint64_t count, uint64_t most);

/* The most bytes that they come to once they are written, which takes the room above. */
size_t tg_positions_most(uint64_t count, uint64_t most);

/* Writes segment by segment, so that a caller can write while it finds the positions. */
typedef struct tg_positions_writer {
    const tg_gaps_engine *engine;
    uint64_t count;
    uint32_t origin; /* the caller's index of the vector's first element */
    uint64_t next;   /* where the next segment starts; count: there is none */
    unsigned log;    /* segments have 2^log elements */
    uint8_t *entry;  /* of the next segment in the directory */
    uint8_t *at;     /* its stream; at first, where the directory ends; after the last segment, the end of everything */
} tg_positions_writer;

/* Writes the head. The caller moves `at` behind the values before it writes segments. */
tg_positions_writer tg_positions_begin(uint64_t count, uint64_t listed, uint8_t *out, const tg_gaps_engine *engine);
/* Where the next segment ends. */
uint64_t tg_positions_limit(const tg_positions_writer *writer);
/* The next segment's m indices, which count from the start of the vector. */
void tg_positions_put(tg_positions_writer *writer, const uint32_t *indices, size_t m);
/* A writer of the segments from `first` on, made from one that has just begun. Its streams are written at a place that
 * is free whatever comes before them, and must be moved to their final place once that is known. */
tg_positions_writer tg_positions_from(const tg_positions_writer *begun, uint64_t first);
/* Writes all segments of a complete list; returns the end. */
uint8_t *tg_positions_write(tg_positions_writer *writer, const uint32_t *indices, size_t listed);

/* Reads untrusted bytes. */
typedef struct tg_positions_reader {
    const tg_gaps_engine *engine;
    uint64_t count, position;
    uint64_t segment, segment_end; /* elements of a segment; where the open one ends */
    uint64_t listed, bytes;        /* how many positions there are, and the size of everything in bytes */
    const uint8_t *directory;      /* entries of the segments still to come */
    const uint8_t *stream;
    tg_index_reader indices; /* of the open segment */
    bool any_open;
} tg_positions_reader;

/* Reads head, directory and streams from the cursor; the values are left. */
bool tg_positions_open(tg_positions_reader *reader, tg_cursor *c, uint64_t count, const tg_gaps_engine *engine);
/* How many of the next n > 0 elements lie in one segment, which is then open. The caller takes its positions below
 * *limit from reader->indices, subtracts *base, and advances reader->position by *here. */
bool tg_positions_within(tg_positions_reader *reader, size_t n, size_t *here, uint32_t *base, uint32_t *limit);
/* Whether what was read, to the end of a segment, was complete. */
bool tg_positions_done(const tg_positions_reader *reader);
/* Moves a newly opened reader to the segment that starts at `first`; returns how many positions are listed before
 * it. */
uint64_t tg_positions_seek(tg_positions_reader *reader, uint64_t first);

#endif
