/* Saving and loading a reducer. */
#include "base/status.h"
#include "reduce/reducer.h"

tg_status tg_reducer_save(const tg_reducer *reducer, void *buffer, size_t capacity, size_t *size, tg_error *error)
{
    (void)reducer, (void)buffer, (void)capacity, (void)size;
    return tg_fail(error, TG_UNAVAILABLE, "saving is not there yet");
}

tg_status tg_reducer_load(tg_reducer *reducer, const tg_state *states, size_t count, tg_error *error)
{
    (void)reducer, (void)states, (void)count;
    return tg_fail(error, TG_UNAVAILABLE, "loading is not there yet");
}
