/* See layout.h. */
#include "layout.h"

#include "files.h"
#include "json_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CLI_HAS_JANSSON

/* Writes "64x32x3x3" and checks that the product is the count. */
static bool read_shape(const json_t *shape, struct layer *layer, struct failure *failure)
{
    layer->shape[0] = '\0';
    if (!shape)
        return true;
    char shown[JSON_SHOWN];
    if (!json_is_array(shape))
        return fail(failure, "the shape of layer '%s' is %s; give a list of whole numbers, or none", layer->name,
                    json_shown(shape, shown));
    uint64_t product = 1;
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        uint64_t length;
        if (!json_is_count(json_array_get(shape, i), &length))
            return fail(failure, "the shape of layer '%s' has the entry %s; give whole numbers that are not negative",
                        layer->name, json_shown(json_array_get(shape, i), shown));
        product = length != 0 && product > UINT64_MAX / length ? UINT64_MAX : product * length;
        int more = snprintf(layer->shape + used, sizeof layer->shape - used, "%s%" PRIu64, used ? "x" : "", length);
        used = used + (size_t)more < sizeof layer->shape ? used + (size_t)more : sizeof layer->shape - 1;
    }
    if (product != layer->count)
        return fail(failure, "layer '%s' has the shape %s, which is not its count %" PRIu64 "; correct one of them",
                    layer->name, layer->shape, layer->count);
    return true;
}

static bool read_ready(const json_t *ready, struct layer *layer, struct failure *failure)
{
    layer->ready = NAN;
    if (!ready)
        return true;
    char shown[JSON_SHOWN];
    if (!json_is_number(ready) || !(json_number_value(ready) >= 0 && json_number_value(ready) <= 1e6))
        return fail(failure, "the time \"ready\" of layer '%s' is %s; give seconds from 0 to 1000000", layer->name,
                    json_shown(ready, shown));
    layer->ready = json_number_value(ready);
    return true;
}

static bool read_elements(const json_t *from, const char *key, const char *layer, uint64_t *elements,
                          struct failure *failure)
{
    char shown[JSON_SHOWN];
    return json_is_count(json_object_get(from, key), elements) ||
           fail(failure, "the %s of layer '%s' is %s; give a whole number that is not negative", key, layer,
                json_shown(json_object_get(from, key), shown));
}

/* `place`: its number in the file, from 0. */
static bool read_layer(const json_t *from, size_t place, uint64_t elements, struct layer *layer,
                       struct failure *failure)
{
    const json_t *name = json_object_get(from, "name");
    char shown[JSON_SHOWN];
    if (!json_is_object(from))
        return fail(failure, "layer %zu is %s; give an object with a name, an offset and a count", place,
                    json_shown(from, shown));
    if (!json_is_string(name) || json_string_length(name) >= sizeof layer->name)
        return fail(failure, "the name of layer %zu is %s; give a text of up to %zu bytes", place,
                    json_shown(name, shown), sizeof layer->name - 1);
    strcpy(layer->name, json_string_value(name));
    if (!read_elements(from, "offset", layer->name, &layer->offset, failure) ||
        !read_elements(from, "count", layer->name, &layer->count, failure))
        return false;
    if (layer->offset > elements || layer->count > elements - layer->offset)
        return fail(failure,
                    "layer '%s' goes from %" PRIu64 " for %" PRIu64 " elements, but the gradient has %" PRIu64
                    "; correct offset or count",
                    layer->name, layer->offset, layer->count, elements);
    return read_shape(json_object_get(from, "shape"), layer, failure) &&
           read_ready(json_object_get(from, "ready"), layer, failure);
}

static bool read_layers(const json_t *from, uint64_t elements, struct layout *layout, struct failure *failure)
{
    char shown[JSON_SHOWN];
    if (!json_is_array(from))
        return fail(failure, "it is %s, and not a list of layers", json_shown(from, shown));
    const size_t count = json_array_size(from);
    layout->layers = calloc(count ? count : 1, sizeof *layout->layers);
    if (!layout->layers)
        return fail(failure, "out of memory for its %zu layers", count);
    while (layout->count < count) {
        const size_t place = layout->count++;
        if (!read_layer(json_array_get(from, place), place, elements, &layout->layers[place], failure))
            return false;
    }
    return true;
}

bool layout_parse(const char *text, size_t size, uint64_t elements, struct layout *layout, struct failure *failure)
{
    *layout = (struct layout){0};
    json_t *from = json_read(text, size, failure);
    const bool is_read = from && read_layers(from, elements, layout, failure);
    json_decref(from);
    if (!is_read)
        layout_free(layout);
    return is_read;
}

#else

bool layout_parse(const char *text, size_t size, uint64_t elements, struct layout *layout, struct failure *failure)
{
    (void)text;
    (void)size;
    (void)elements;
    *layout = (struct layout){0};
    return fail(failure, NO_JSON);
}

#endif

bool layout_load(const char *path, uint64_t elements, struct layout *layout, struct failure *failure)
{
    *layout = (struct layout){0};
    struct file_bytes file;
    if (!read_file(path, &file, failure))
        return false;
    struct failure reason = {""};
    bool is_read = layout_parse((const char *)file.bytes, file.size, elements, layout, &reason);
    free(file.bytes);
    return is_read || fail(failure, "cannot use the layout '%s': %s", path, reason.text);
}

void layout_free(struct layout *layout)
{
    free(layout->layers);
    *layout = (struct layout){0};
}

char *layout_find(const char *gradient_path)
{
    static const char from[] = ".npy", to[] = ".layout.json";
    size_t length = strlen(gradient_path);
    if (length < sizeof from || strcmp(gradient_path + length - (sizeof from - 1), from) != 0)
        return NULL;
    size_t stem = length - (sizeof from - 1);
    char *path = malloc(stem + sizeof to);
    if (!path)
        return NULL;
    memcpy(path, gradient_path, stem);
    strcpy(path + stem, to);
    if (access(path, R_OK) == 0)
        return path;
    while (stem > 0 && path[stem - 1] != '-' && path[stem - 1] != '/')
        stem--;
    if (stem > 1 && path[stem - 1] == '-') {
        strcpy(path + stem - 1, to);
        if (access(path, R_OK) == 0)
            return path;
    }
    free(path);
    return NULL;
}
