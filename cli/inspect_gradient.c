/* A gradient: moments, magnitudes, layers, what top-k leaves out, and which codecs suit it. */
#include "gradient.h"
#include "gradient_stats.h"
#include "inspect.h"
#include "inspect_gradient.h"
#include "layout.h"
#include "suit.h"

#include <stdlib.h>

/* The explicit layout must be right; one that happens to lie there is left aside, with a warning, if it is not. */
static bool find_layout(const struct command *command, const struct inspect_settings *settings, const char *path,
                        uint64_t elements, struct layout *layout, struct failure *failure)
{
    *layout = (struct layout){0};
    if (settings->layout)
        return layout_load(settings->layout, elements, layout, failure);
    char *found = layout_find(path);
    if (found && !layout_load(found, elements, layout, failure))
        warn(command->name, "%s", failure->text);
    free(found);
    return true;
}

static bool measure_layers(const float *values, struct gradient_view *view, struct failure *failure)
{
    view->layers = calloc(view->layout.count ? view->layout.count : 1, sizeof *view->layers);
    if (!view->layers)
        return fail(failure, "out of memory for %zu layers", view->layout.count);
    double smallest = 0, largest = 0;
    for (size_t i = 0; i < view->layout.count; i++) {
        const struct layer *layer = &view->layout.layers[i];
        measure_moments(values + layer->offset, (size_t)layer->count, &view->layers[i]);
        double scale = view->layers[i].std;
        if (scale > 0 && (smallest == 0 || scale < smallest))
            smallest = scale;
        if (scale > largest)
            largest = scale;
    }
    view->layer_spread = smallest > 0 ? largest / smallest : 0;
    return true;
}

static bool look_at(const struct command *command, const struct inspect_settings *settings, const char *path,
                    const struct gradient *gradient, struct gradient_view *view, struct failure *failure)
{
    const float *values = gradient->tensor.data;
    size_t count = (size_t)gradient->tensor.count;
    view->dtype = gradient->file_type == NPY_F2 ? "float16" : gradient->file_type == NPY_F4 ? "float32" : "float64";
    if (!find_layout(command, settings, path, count, &view->layout, failure))
        return false;
    measure_moments(values, count, &view->moments);
    measure_histogram(values, count, view->moments.max_abs, &view->histogram);
    if (!measure_topk(values, count, settings->density, &view->share))
        return fail(failure, "out of memory for the top-k figures");
    if (!measure_layers(values, view, failure))
        return false;
    view->suits = malloc(sizeof *view->suits);
    if (!view->suits)
        return fail(failure, "out of memory for the codecs' figures");
    if (!suits_measure(&gradient->tensor, view->suits, failure))
        return false;
    suits_advise(view->suits, &view->moments, &view->share, view->layer_spread);
    return true;
}

int inspect_gradient(const struct command *command, const struct inspect_settings *settings, const char *path,
                     struct file_bytes *file)
{
    struct gradient gradient;
    struct failure failure = {""};
    if (!gradient_from_bytes(file, path, true, &gradient, &failure)) {
        complain(command->name, "%s", failure.text);
        return EXIT_FAILED;
    }
    gradient_warn(&gradient, command->name, path);
    struct gradient_view view = {0};
    bool is_done = look_at(command, settings, path, &gradient, &view, &failure);
    if (is_done && settings->json)
        gradient_view_json(&view);
    else if (is_done)
        gradient_view_text(&view, path, settings->wide);
    else
        complain(command->name, "%s", failure.text);
    free(view.suits);
    free(view.layers);
    layout_free(&view.layout);
    gradient_free(&gradient);
    return is_done ? EXIT_DONE : EXIT_FAILED;
}
