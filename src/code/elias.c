/* The Elias layouts of quantised levels, sparse and dense: their lengths, writers and checked reader. */
#include "code/elias.h"

#include <string.h>

static uint32_t magnitude(int16_t level) { return (uint32_t)(level < 0 ? -(int)level : (int)level); }

static size_t count_nonzero(const int16_t *levels, size_t n)
{
    size_t nonzero = 0;
    for (size_t i = 0; i < n; i++)
        nonzero += levels[i] != 0;
    return nonzero;
}

static uint64_t sparse_bits(const int16_t *levels, size_t n)
{
    uint64_t bits = 0;
    size_t previous = 0, nonzero = 0; /* previous: position plus one */
    for (size_t i = 0; i < n; i++) {
        if (levels[i] == 0)
            continue;
        bits += tg_omega_length(i + 1 - previous) + 1u + tg_omega_length(magnitude(levels[i]));
        previous = i + 1;
        nonzero++;
    }
    return bits + tg_omega_length(nonzero + 1);
}

static uint64_t dense_bits(const int16_t *levels, size_t n)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += tg_omega_length((uint64_t)magnitude(levels[i]) + 1) + (levels[i] != 0);
    return bits;
}

uint64_t tg_elias_bits(int layout, const int16_t *levels, size_t n)
{
    return layout == TG_ELIAS_SPARSE ? sparse_bits(levels, n) : dense_bits(levels, n);
}

static void write_sparse(tg_bit_writer *w, const int16_t *levels, size_t n)
{
    size_t previous = 0;
    tg_omega_write(w, count_nonzero(levels, n) + 1);
    for (size_t i = 0; i < n; i++) {
        if (levels[i] == 0)
            continue;
        tg_omega_write(w, i + 1 - previous);
        tg_bits_put(w, levels[i] < 0, 1);
        tg_omega_write(w, magnitude(levels[i]));
        previous = i + 1;
    }
}

static void write_dense(tg_bit_writer *w, const int16_t *levels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tg_omega_write(w, (uint64_t)magnitude(levels[i]) + 1);
        if (levels[i] != 0)
            tg_bits_put(w, levels[i] < 0, 1);
    }
}

uint8_t *tg_elias_write(int layout, const int16_t *levels, size_t n, uint8_t *out)
{
    tg_bit_writer w = tg_bit_writer_at(out);
    if (layout == TG_ELIAS_SPARSE)
        write_sparse(&w, levels, n);
    else
        write_dense(&w, levels, n);
    return tg_bits_finish(&w);
}

void tg_elias_open(tg_elias_reader *reader, int layout, const uint8_t *in, size_t size, size_t n, unsigned max_level)
{
    *reader = (tg_elias_reader){
        .bits = tg_bit_reader_at(in, size),
        .count = n,
        .max_level = max_level,
        .layout = layout,
    };
    if (layout == TG_ELIAS_SPARSE) {
        uint64_t nonzero_plus_one = 0;
        reader->broken = !tg_omega_read(&reader->bits, &nonzero_plus_one) || nonzero_plus_one - 1 > n;
        reader->unread = reader->broken ? 0 : nonzero_plus_one - 1;
    }
}

/* Reads the distance, sign and magnitude of the next non-zero level. */
static bool read_nonzero(tg_elias_reader *reader)
{
    uint64_t distance, size;
    if (!tg_omega_read(&reader->bits, &distance) || distance > reader->count - reader->position)
        return false;
    bool negative = tg_bit_get(&reader->bits);
    if (!tg_omega_read(&reader->bits, &size) || size > reader->max_level)
        return false;
    reader->position += (size_t)distance;
    reader->level = (int16_t)(negative ? -(int)size : (int)size);
    reader->unread--;
    return true;
}

static bool next_sparse(tg_elias_reader *reader, size_t count, int16_t *levels)
{
    const size_t begin = reader->delivered, end = begin + count;
    memset(levels, 0, count * sizeof *levels);
    for (;;) {
        if (reader->level == 0) {
            if (reader->unread == 0)
                return true;
            if (!read_nonzero(reader))
                return false;
        }
        if (reader->position > end)
            return true;
        levels[reader->position - 1 - begin] = reader->level;
        reader->level = 0;
    }
}

static bool next_dense(tg_elias_reader *reader, size_t count, int16_t *levels)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t size_plus_one;
        if (!tg_omega_read(&reader->bits, &size_plus_one) || size_plus_one - 1 > reader->max_level)
            return false;
        int size = (int)(size_plus_one - 1);
        if (size != 0 && tg_bit_get(&reader->bits))
            size = -size;
        levels[i] = (int16_t)size;
    }
    return !reader->bits.overrun;
}

bool tg_elias_next(tg_elias_reader *reader, size_t count, int16_t *levels)
{
    if (reader->broken || count > reader->count - reader->delivered)
        return false;
    bool sound = count == 0 || (reader->layout == TG_ELIAS_SPARSE ? next_sparse : next_dense)(reader, count, levels);
    reader->broken = !sound;
    reader->delivered += count;
    return sound;
}

bool tg_elias_done(const tg_elias_reader *reader)
{
    /* All non-zero levels have been read by then: the call that delivers the last level reads until none is left. */
    return !reader->broken && reader->delivered == reader->count && tg_bits_at_end(&reader->bits);
}
