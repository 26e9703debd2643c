/* Gradients on their way through a reduction on a guarded device. */
#define STAGED_ITSELF
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "reduce/reducer.h"
#include "staged.h"

enum { MOST_TENSORS = 64, MOST_UNDER_WAY = 256 };

/* The tensors of one reduction that is under way. */
typedef struct staging {
    tg_reduction *of;
    tg_device *device;
    tg_tensor host[MOST_TENSORS], there[MOST_TENSORS];
} staging;

static staging *under_way[MOST_UNDER_WAY];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t size_of(const tg_tensor *t) { return (size_t)t->count * tg_dtype_size(t->dtype); }

static staging *make(const tg_reducer *reducer)
{
    staging *s = calloc(1, sizeof *s);
    if (!s || reducer->tensor_count > MOST_TENSORS)
        abort();
    s->device = reducer->device;
    return s;
}

/* To the device; what cannot be copied is left for the library to refuse. */
static const tg_tensor *stage(staging *s, size_t index, const tg_tensor *tensor)
{
    if (!tensor || index >= MOST_TENSORS || s->there[index].data)
        return tensor;
    s->host[index] = s->there[index] = *tensor;
    s->there[index].data = NULL;
    if (!tensor->data || size_of(tensor) == 0)
        return tensor;
    if (tg_device_allocate(s->device, size_of(tensor), &s->there[index].data, NULL) != TG_OK ||
        tg_device_copy_in(s->device, s->there[index].data, tensor->data, size_of(tensor), NULL) != TG_OK)
        abort();
    return &s->there[index];
}

/* And back. */
static void unstage_one(staging *s, size_t index)
{
    tg_tensor *there = &s->there[index];
    if (there->data && tg_device_copy_out(s->device, s->host[index].data, there->data, size_of(there), NULL) != TG_OK)
        abort();
    tg_device_release(s->device, there->data);
    there->data = NULL;
}

static void unstage(staging *s)
{
    for (size_t i = 0; i < MOST_TENSORS; i++)
        unstage_one(s, i);
    free(s);
}

static void remember(staging *s, tg_reduction *reduction)
{
    s->of = reduction;
    (void)pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < MOST_UNDER_WAY && under_way[i])
        i++;
    if (i == MOST_UNDER_WAY)
        abort();
    under_way[i] = s;
    (void)pthread_mutex_unlock(&lock);
}

static staging *find(const tg_reduction *reduction, bool takes)
{
    staging *found = NULL;
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; reduction && i < MOST_UNDER_WAY && !found; i++)
        if (under_way[i] && under_way[i]->of == reduction) {
            found = under_way[i];
            if (takes)
                under_way[i] = NULL;
        }
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static bool is_staged(const tg_reducer *reducer) { return reducer && is_apart(reducer->device); }

/* All gradients at once. */
static const tg_tensor *stage_all(staging *s, const tg_reducer *reducer, const tg_tensor *gradients)
{
    for (size_t i = 0; i < reducer->tensor_count; i++) {
        (void)stage(s, i, &gradients[i]);
        if (!s->there[i].data)
            s->there[i] = gradients[i]; /* nothing there that could be touched */
    }
    return s->there;
}

/* What was not copied must not be copied back. */
static void forget_uncopied(staging *s)
{
    for (size_t i = 0; i < MOST_TENSORS; i++)
        if (s->there[i].data == s->host[i].data)
            s->there[i].data = NULL;
}

tg_status staged_reduce(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients, uint64_t step,
                        tg_error *error)
{
    if (!is_staged(reducer) || !gradients)
        return tg_reduce(reducer, transport, gradients, step, error);
    staging *s = make(reducer);
    tg_status status = tg_reduce(reducer, transport, stage_all(s, reducer, gradients), step, error);
    forget_uncopied(s);
    unstage(s);
    return status;
}

static tg_status under(tg_status status, staging *s, tg_reduction **reduction)
{
    forget_uncopied(s);
    if (status == TG_OK)
        remember(s, *reduction);
    else
        unstage(s);
    return status;
}

tg_status staged_start(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients, uint64_t step,
                       tg_reduction **reduction, tg_error *error)
{
    if (!is_staged(reducer) || !gradients)
        return tg_reduce_start(reducer, transport, gradients, step, reduction, error);
    staging *s = make(reducer);
    const tg_tensor *there = stage_all(s, reducer, gradients);
    return under(tg_reduce_start(reducer, transport, there, step, reduction, error), s, reduction);
}

tg_status staged_begin(tg_reducer *reducer, const tg_tensor *gradients, uint64_t step, tg_reduction **reduction,
                       tg_error *error)
{
    if (!is_staged(reducer))
        return tg_reduce_begin(reducer, gradients, step, reduction, error);
    staging *s = make(reducer);
    const tg_tensor *there = gradients ? stage_all(s, reducer, gradients) : NULL;
    return under(tg_reduce_begin(reducer, there, step, reduction, error), s, reduction);
}

tg_status staged_ready(tg_reduction *reduction, size_t index, const tg_tensor *gradient, tg_error *error)
{
    staging *s = find(reduction, false);
    const tg_tensor *there = s ? stage(s, index, gradient) : gradient;
    tg_status status = tg_reduce_ready(reduction, index, there, error);
    if (s && status != TG_OK && there != gradient)
        unstage_one(s, index);
    return status;
}

tg_status staged_absent(tg_reduction *reduction, size_t index, const tg_tensor *out, tg_error *error)
{
    staging *s = find(reduction, false);
    const tg_tensor *there = s ? stage(s, index, out) : out;
    tg_status status = tg_reduce_absent(reduction, index, there, error);
    if (s && status != TG_OK && there != out)
        unstage_one(s, index);
    return status;
}

/* A call that is refused may leave the reduction under way. */
static void ended(tg_reduction *reduction)
{
    staging *s = reduction && !reduction->active ? find(reduction, true) : NULL;
    if (s)
        unstage(s);
}

tg_status staged_finish(tg_reduction *reduction, tg_transport *transport, tg_error *error)
{
    tg_status status = tg_reduce_finish(reduction, transport, error);
    ended(reduction);
    return status;
}

tg_status staged_end(tg_reduction *reduction, tg_error *error)
{
    tg_status status = tg_reduce_end(reduction, error);
    ended(reduction);
    return status;
}

void staged_abandon(tg_reduction *reduction)
{
    tg_reduce_abandon(reduction);
    ended(reduction);
}
