/* Puts the listed levels at their positions among the zeros. */
#include "codec/listed_levels.h"

/* Where no level is listed, no codes follow. */
bool tg_listed_open(tg_listed_levels *r, const tg_kernels *kernels, tg_cursor *c, uint64_t count, uint32_t levels)
{
    r->levels = levels;
    r->ahead_at = r->ahead_count = 0;
    if (!tg_positions_open(&r->positions, c, count, kernels->gaps))
        return false;
    const uint64_t n = r->positions.listed;
    return n == 0 ? c->left == 0 : tg_entropy_codes_open(&r->codes, kernels, c, n, 2 * levels);
}

/* The code of the next level that is not zero. Listed levels have no code for zero; a code that is too large is read as
 * the largest. */
static bool next_listed(tg_listed_levels *r, uint16_t *code)
{
    if (r->ahead_at == r->ahead_count) {
        const uint64_t left = r->codes.count - r->codes.position;
        r->ahead_at = 0;
        r->ahead_count = left < TG_GROUP ? (size_t)left : TG_GROUP;
        if (left == 0 || !tg_entropy_codes_next(&r->codes, r->ahead_count, r->ahead))
            return false;
    }
    const uint32_t next = r->ahead[r->ahead_at++], levels = r->levels;
    *code = (uint16_t)(next < levels ? next : next < 2 * levels ? next + 1 : 2 * levels);
    return true;
}

bool tg_listed_next(tg_listed_levels *r, size_t n, uint16_t *codes)
{
    enum { BATCH = 128 };
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)r->levels;
    for (size_t done = 0, here; done < n; done += here) {
        uint32_t base, limit, places[BATCH];
        size_t got = BATCH;
        if (!tg_positions_within(&r->positions, n - done, &here, &base, &limit))
            return false;
        while (got == BATCH) {
            if (!tg_index_next(&r->positions.indices, limit, BATCH, places, &got))
                return false;
            for (size_t j = 0; j < got; j++)
                if (!next_listed(r, &codes[done + (places[j] - base)]))
                    return false;
        }
        r->positions.position += here;
    }
    return true;
}

bool tg_listed_done(const tg_listed_levels *r)
{
    return tg_positions_done(&r->positions) && (r->positions.listed == 0 || tg_entropy_codes_done(&r->codes));
}
