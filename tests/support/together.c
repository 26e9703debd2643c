/* Reducers of one process. */
#include "together.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_TOGETHER = 64 };

typedef struct sharing {
    tg_reducer *reducer;
    tg_transport *transport;
    bool shared;
} sharing;

static void *share(void *argument)
{
    sharing *s = argument;
    if (tg_reducer_share_memory(s->reducer, s->transport, &s->shared, NULL) != TG_OK)
        s->shared = false;
    return NULL;
}

bool share_together(tg_reducer *const *reducers, uint32_t world)
{
    tg_transport *transports[MOST_TOGETHER];
    sharing all[MOST_TOGETHER];
    pthread_t threads[MOST_TOGETHER];
    bool shared = true;
    if (world > MOST_TOGETHER || tg_transport_local(world, transports, NULL) != TG_OK)
        abort();
    for (uint32_t rank = 0; rank < world; rank++) {
        all[rank] = (sharing){reducers[rank], transports[rank], false};
        if (pthread_create(&threads[rank], NULL, share, &all[rank]) != 0)
            abort();
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        (void)pthread_join(threads[rank], NULL);
        shared = shared && all[rank].shared;
    }
    for (uint32_t rank = 0; rank < world; rank++)
        tg_transport_free(transports[rank]); /* the memory stays until its last user is gone */
    return shared;
}
