/* The tensors of a layout, as they become ready. See plan.h. */
#include "plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct name {
    const char *text;
};

static int by_text(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    return strcmp(x->text, y->text);
}

static bool has_unlike_names(const struct layout *layout, struct message *message)
{
    struct name *sorted = calloc(layout->count, sizeof *sorted);
    if (!sorted)
        return fail(message, "out of memory for its %zu layers", layout->count);
    for (size_t i = 0; i < layout->count; i++)
        sorted[i].text = layout->layers[i].name;
    qsort(sorted, layout->count, sizeof *sorted, by_text);
    bool is_good = true;
    for (size_t i = 1; i < layout->count && is_good; i++)
        if (strcmp(sorted[i].text, sorted[i - 1].text) == 0)
            is_good = fail(message, "two layers are called '%s'; give each a name of its own", sorted[i].text);
    free(sorted);
    return is_good;
}

bool plan_layout_check(const struct layout *layout, bool *has_times, struct message *message)
{
    size_t with_times = 0;
    uint64_t elements = 0;
    double before = 0;
    if (layout->count == 0)
        return fail(message, "it has no layers");
    for (size_t i = 0; i < layout->count; i++) {
        const struct layer *layer = &layout->layers[i];
        if (layer->name[0] == '\0')
            return fail(message, "layer %zu has an empty name; give it one", i);
        if (layer->count == 0)
            return fail(message, "layer '%s' has no elements; leave it out", layer->name);
        if (layer->count > TG_MAX_COUNT || elements > UINT64_MAX / 8 - layer->count)
            return fail(message, "layer '%s' has %" PRIu64 " elements; cut it into layers of at most %" PRIu64,
                        layer->name, layer->count, (uint64_t)TG_MAX_COUNT);
        elements += layer->count;
        if (isnan(layer->ready))
            continue;
        with_times++;
        if (layer->ready < before)
            return fail(message,
                        "layer '%s' is ready after %g seconds, but the one before it after %g; list layers in the "
                        "order in which they become ready",
                        layer->name, layer->ready, before);
        before = layer->ready;
    }
    if (with_times != 0 && with_times != layout->count)
        return fail(message, "%zu of its %zu layers have a time \"ready\"; give all of them one, or none", with_times,
                    layout->count);
    *has_times = with_times > 0;
    return has_unlike_names(layout, message);
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
