/* See roll.h. */
#include "roll.h"

#include <stdio.h>

bool is_same_machine(const struct place *places, uint32_t one, uint32_t other)
{
    return places[one].machine == places[other].machine;
}

uint32_t first_beside(const struct place *places, uint32_t rank)
{
    uint32_t first = 0;
    while (!is_same_machine(places, first, rank))
        first++;
    return first;
}

uint32_t count_machines(const struct place *places, uint32_t world)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world; i++)
        count += first_beside(places, i) == i;
    return count;
}

void describe_machine(const struct place *places, uint32_t world, uint32_t rank, char *text, size_t capacity)
{
    enum { MOST_LISTED = 16 };
    uint32_t count = 0, listed = 0;
    for (uint32_t i = 0; i < world; i++)
        count += is_same_machine(places, i, rank);
    const uint32_t most = count <= MOST_LISTED ? count : MOST_LISTED;
    size_t used = (size_t)snprintf(text, capacity, "host %.*s (rank%s", ROLL_NAME_SIZE - 1, places[rank].host,
                                   count > 1 ? "s" : "");
    for (uint32_t i = 0; i < world && listed < most && used < capacity; i++) {
        if (!is_same_machine(places, i, rank))
            continue;
        const char *before = listed == 0 ? " " : listed + 1 == count ? " and " : ", ";
        used += (size_t)snprintf(text + used, capacity - used, "%s%u", before, (unsigned)i);
        listed++;
    }
    if (count > most && used < capacity)
        used += (size_t)snprintf(text + used, capacity - used, " and %u more", (unsigned)(count - most));
    if (used < capacity)
        snprintf(text + used, capacity - used, ")");
}
