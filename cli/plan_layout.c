/* The tensors of a layout, as they become ready. See plan.h. */
#include "plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const struct layer *layer;
};

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->layer->name, y->layer->name);
}

static int by_offset(const void *a, const void *b)
{
    const struct layer *x = ((const struct entry *)a)->layer, *y = ((const struct entry *)b)->layer;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Layers that are next to each other in some order. An element of two layers would be sent twice. */
static bool are_apart(const struct layer *before, const struct layer *next, struct failure *failure)
{
    if (strcmp(next->name, before->name) == 0)
        return fail(failure, "two layers are called '%s'; give each a name of its own", next->name);
    if (next->offset >= before->offset && next->offset - before->offset < before->count)
        return fail(failure,
                    "layers '%s' and '%s' overlap: the first goes from %" PRIu64 " for %" PRIu64
                    " elements, the second begins at %" PRIu64 "; correct offset or count",
                    before->name, next->name, before->offset, before->count, next->offset);
    return true;
}

static bool are_all_apart(const struct layout *layout, int (*order)(const void *, const void *),
                          struct failure *failure)
{
    struct entry *sorted = calloc(layout->count, sizeof *sorted);
    if (!sorted)
        return fail(failure, "out of memory for its %zu layers", layout->count);
    for (size_t i = 0; i < layout->count; i++)
        sorted[i].layer = &layout->layers[i];
    qsort(sorted, layout->count, sizeof *sorted, order);
    bool is_good = true;
    for (size_t i = 1; i < layout->count && is_good; i++)
        is_good = are_apart(sorted[i - 1].layer, sorted[i].layer, failure);
    free(sorted);
    return is_good;
}

bool plan_layout_check(const struct layout *layout, bool *has_times, struct failure *failure)
{
    size_t with_times = 0;
    uint64_t elements = 0;
    double before = 0;
    if (layout->count == 0)
        return fail(failure, "it has no layers");
    for (size_t i = 0; i < layout->count; i++) {
        const struct layer *layer = &layout->layers[i];
        if (layer->name[0] == '\0')
            return fail(failure, "layer %zu has an empty name; give it one", i);
        if (layer->count == 0)
            return fail(failure, "layer '%s' has no elements; leave it out", layer->name);
        if (layer->count > TG_MAX_COUNT || elements > UINT64_MAX / 8 - layer->count)
            return fail(failure, "layer '%s' has %" PRIu64 " elements; cut it into layers of at most %" PRIu64,
                        layer->name, layer->count, (uint64_t)TG_MAX_COUNT);
        elements += layer->count;
        if (isnan(layer->ready))
            continue;
        with_times++;
        if (layer->ready < before)
            return fail(failure,
                        "layer '%s' is ready after %g seconds, but the one before it after %g; list layers in the "
                        "order in which they become ready",
                        layer->name, layer->ready, before);
        before = layer->ready;
    }
    if (with_times != 0 && with_times != layout->count)
        return fail(failure, "%zu of its %zu layers have a time \"ready\"; give all of them one, or none", with_times,
                    layout->count);
    *has_times = with_times > 0;
    return are_all_apart(layout, by_name, failure) && are_all_apart(layout, by_offset, failure);
}

void plan_layout_ready(const struct layout *layout, bool has_times, double backward, struct predict_tensor *tensors)
{
    double all = 0, done = 0;
    for (size_t i = 0; i < layout->count; i++)
        all += (double)layout->layers[i].count;
    for (size_t i = 0; i < layout->count; i++) {
        const struct layer *layer = &layout->layers[has_times ? i : layout->count - 1 - i];
        done += (double)layer->count;
        const double share = done < all ? done / all : 1;
        tensors[i] = (struct predict_tensor){layer->name, layer->count, has_times ? layer->ready : backward * share};
    }
}
