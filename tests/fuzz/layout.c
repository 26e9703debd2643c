/* Any bytes as a .layout.json. The first byte says how many elements the gradient has; what is accepted lies within
 * them. */
#include "cli/layout.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct layout *layout, uint64_t elements)
{
    for (size_t i = 0; i < layout->count; i++) {
        const struct layer *layer = &layout->layers[i];
        REQUIRE(layer->offset <= elements && layer->count <= elements - layer->offset, "layer %zu is outside", i);
        REQUIRE(memchr(layer->name, 0, sizeof layer->name), "the name of layer %zu has no end", i);
        REQUIRE(memchr(layer->shape, 0, sizeof layer->shape), "the shape of layer %zu has no end", i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const uint64_t elements = (uint64_t)data[0] * data[0];
    char *text = exact_buffer(size - 1, 0);
    memcpy(text, data + 1, size - 1);
    struct layout layout;
    struct message message = {{0}};
    if (layout_parse(text, size - 1, elements, &layout, &message))
        check(&layout, elements);
    else
        REQUIRE(message.text[0] != 0 && layout.count == 0 && !layout.layers, "refused without a reason, or not freed");
    layout_free(&layout);
    free(text);
    return 0;
}
