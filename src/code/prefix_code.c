/* Which prefix code an encoder uses, and the code on the wire. Every choice is made with integers, so every machine
 * writes the same bytes. */
#include "code/prefix.h"

#include <string.h>

#include "base/bytes.h"
#include "code/bit_tools.h"

/* Several tables in turn: with one, runs of equal bytes would wait for the previous increment to be stored. */
enum { TABLES = 8 };

static void count_part(const uint8_t *bytes, size_t n, uint32_t part[TABLES][TG_PREFIX_SYMBOLS])
{
    size_t i = 0;
    for (; i + TABLES <= n; i += TABLES) {
        const uint64_t eight = tg_load64(bytes + i);
        for (unsigned k = 0; k < TABLES; k++)
            part[k][(uint8_t)(eight >> 8 * k)]++;
    }
    for (; i < n; i++)
        part[0][bytes[i]]++;
}

size_t tg_bytes_count(const uint8_t *bytes, size_t n, unsigned every, uint64_t *histogram)
{
    uint32_t part[TABLES][TG_PREFIX_SYMBOLS] = {{0}};
    size_t counted = 0;
    for (size_t at = 0; at < n; at += (size_t)every * TG_PREFIX_PART) {
        const size_t here = n - at < TG_PREFIX_PART ? n - at : TG_PREFIX_PART;
        count_part(bytes + at, here, part);
        counted += here;
    }
    for (unsigned k = 0; k < TABLES; k++)
        for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
            histogram[s] += part[k][s];
    return counted;
}

/* The bytes that occur, the most frequent first and the lower first of equals; returns how many. */
static unsigned rank_symbols(const uint64_t *histogram, uint8_t *ranked)
{
    unsigned n = 0;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++) {
        if (histogram[s] == 0)
            continue;
        unsigned at = n++;
        for (; at > 0 && histogram[ranked[at - 1]] < histogram[s]; at--)
            ranked[at] = ranked[at - 1];
        ranked[at] = (uint8_t)s;
    }
    return n;
}

/* How many codes Huffman's tree has of each length. Trees are joined the lightest first; of equals, single bytes before
 * trees, the last ranked before others, and earlier trees before later ones. */
static void huffman_lengths(const uint64_t *histogram, const uint8_t *ranked, unsigned n, uint16_t *of_length)
{
    uint64_t weight[2 * TG_PREFIX_SYMBOLS] = {0};
    uint16_t parent[2 * TG_PREFIX_SYMBOLS] = {0}, depth[2 * TG_PREFIX_SYMBOLS] = {0};
    for (unsigned i = 0; i < n; i++) /* the lightest first */
        weight[i] = histogram[ranked[n - 1 - i]];
    unsigned leaf = 0, tree = n;
    for (unsigned joined = n; joined < 2 * n - 1; joined++) {
        for (unsigned child = 0; child < 2; child++) {
            const bool take_leaf = leaf < n && (tree == joined || weight[leaf] <= weight[tree]);
            const unsigned node = take_leaf ? leaf++ : tree++;
            parent[node] = (uint16_t)joined;
            weight[joined] += weight[node];
        }
    }
    for (unsigned i = 2 * n - 2; i-- > 0;) {
        depth[i] = (uint16_t)(depth[parent[i]] + 1);
        if (i < n)
            of_length[depth[i]]++;
    }
}

/* Shortens codes that are too long: two of the longest are replaced by one that is a bit shorter, and the longest code
 * that is at least another bit shorter is split into two. */
static void limit_lengths(uint16_t *of_length, unsigned longest)
{
    for (; longest > TG_PREFIX_LONGEST; longest--) {
        while (of_length[longest] > 0) {
            unsigned shorter = longest - 2;
            while (of_length[shorter] == 0)
                shorter--;
            of_length[longest] = (uint16_t)(of_length[longest] - 2);
            of_length[longest - 1]++;
            of_length[shorter]--;
            of_length[shorter + 1] = (uint16_t)(of_length[shorter + 1] + 2);
        }
    }
}

void tg_prefix_make(tg_prefix_code *code, const uint64_t *histogram)
{
    uint8_t ranked[TG_PREFIX_SYMBOLS];
    uint16_t of_length[TG_PREFIX_SYMBOLS] = {0};
    const unsigned n = rank_symbols(histogram, ranked);
    memset(code, 0, sizeof *code);
    huffman_lengths(histogram, ranked, n, of_length);
    limit_lengths(of_length, TG_PREFIX_SYMBOLS - 1);
    for (unsigned i = 0, length = 1; i < n; i++) {
        while (of_length[length] == 0)
            length++;
        code->length[ranked[i]] = (uint8_t)length;
        of_length[length]--;
    }
}

uint64_t tg_prefix_bits(const tg_prefix_code *code, const uint64_t *histogram)
{
    uint64_t bits = 0;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        bits += histogram[s] * code->length[s];
    return bits;
}

uint64_t tg_bytes_entropy(const uint64_t *histogram)
{
    uint64_t total = 0, bits = 0;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        total += histogram[s];
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        if (histogram[s] > 0)
            bits += histogram[s] * (tg_log2_fixed(total) - tg_log2_fixed(histogram[s]));
    return bits;
}

void tg_prefix_table_write(const tg_prefix_code *code, uint8_t *out)
{
    for (unsigned i = 0; i < TG_PREFIX_TABLE; i++)
        out[i] = (uint8_t)(code->length[2 * i] | code->length[2 * i + 1] << 4);
}

bool tg_prefix_table_read(tg_prefix_code *code, const uint8_t *in)
{
    uint32_t used = 0;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++) {
        const unsigned length = in[s / 2] >> (s % 2 * 4) & 15;
        if (length > TG_PREFIX_LONGEST)
            return false;
        code->length[s] = (uint8_t)length;
        used += length > 0 ? TG_PREFIX_SLOTS >> length : 0;
    }
    return used == TG_PREFIX_SLOTS;
}
