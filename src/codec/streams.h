/* Streams of chunks, one after the other, written by several threads: each has a place that is free whatever comes
 * before it, and what was written is moved together at the end, by all of them too. */
#ifndef TG_CODEC_STREAMS_H
#define TG_CODEC_STREAMS_H

#include <stdint.h>

#include "base/pool.h"

/* Writes the stream of a chunk at `at`, no more than `bound` bytes, and returns its end. */
typedef uint8_t *tg_chunk_writer(void *context, uint64_t chunk, uint8_t *at);

/* All of them; returns the end. There is room for `bound` bytes for every chunk but the last, and for that what it can
 * take. */
uint8_t *tg_streams_write(tg_pool *pool, uint64_t chunks, size_t bound, tg_chunk_writer *write, void *context,
                          uint8_t *at);

/* Bytes that were written at `from` and belong behind those of the piece before. */
typedef struct tg_stream {
    const uint8_t *from;
    size_t size;
} tg_stream;

/* Moves at most TG_MAX_RANGES pieces together, from `at` on; returns the end. They lie one after the other, none before
 * its new place. */
uint8_t *tg_streams_join(tg_pool *pool, const tg_stream *streams, size_t count, uint8_t *at);

#endif
