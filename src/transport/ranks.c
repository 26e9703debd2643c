/* See ranks.h. */
#include "transport/ranks.h"

#include <stdio.h>

void tg_ranks_add(tg_ranks *ranks, uint32_t rank)
{
    if (ranks->count < TG_RANKS_NAMED)
        ranks->first[ranks->count] = rank;
    ranks->count++;
}

const char *tg_ranks_text(const tg_ranks *ranks, char text[TG_RANKS_TEXT])
{
    const uint32_t named = ranks->count < TG_RANKS_NAMED ? ranks->count : TG_RANKS_NAMED;
    int used = snprintf(text, TG_RANKS_TEXT, ranks->count == 1 ? "rank" : "ranks");
    for (uint32_t i = 0; i < named; i++) {
        const char *before = i == 0 ? "" : i + 1 == ranks->count ? " and" : ",";
        used += snprintf(text + used, TG_RANKS_TEXT - (size_t)used, "%s %u", before, ranks->first[i]);
    }
    if (ranks->count > named)
        (void)snprintf(text + used, TG_RANKS_TEXT - (size_t)used, " and %u other%s", ranks->count - named,
                       ranks->count - named == 1 ? "" : "s");
    return text;
}
