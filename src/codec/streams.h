/* Writing the streams of chunks, which follow one another, with several threads: each thread writes at a place that is
 * free whatever comes before it, and all threads then move the streams together. */
#ifndef TG_CODEC_STREAMS_H
#define TG_CODEC_STREAMS_H

#include <stdint.h>

#include "base/pool.h"

/* Writes the stream of a chunk at `at`, no more than `bound` bytes, and returns its end. */
typedef uint8_t *tg_chunk_writer(void *context, uint64_t chunk, uint8_t *at);

/* Writes all streams; returns the end. `at` has room for `bound` bytes for every chunk except the last, and for the
 * last what it can take. */
uint8_t *tg_streams_write(tg_pool *pool, uint64_t chunks, size_t bound, tg_chunk_writer *write, void *context,
                          uint8_t *at);

/* Bytes that were written at `from` and belong directly after those of the stream before. */
typedef struct tg_stream {
    const uint8_t *from;
    size_t size;
} tg_stream;

/* Moves at most TG_MAX_RANGES streams together, from `at` on; returns the end. They lie in order, none before its new
 * place. */
uint8_t *tg_streams_join(tg_pool *pool, const tg_stream *streams, size_t count, uint8_t *at);

#endif
