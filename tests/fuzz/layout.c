/* Any bytes as a .layout.json. The first byte says how many elements the gradient has; what is accepted lies within
 * them, and what can be planned has tensors that do not decrease in time and whose names differ. */
#include "cli/layout.h"
#include "cli/plan.h"
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

static void check_planned(const struct layout *layout)
{
    bool has_times = false;
    struct failure failure = {{0}};
    if (!plan_layout_check(layout, &has_times, &failure)) {
        REQUIRE(failure.text[0] != 0, "refused without a reason");
        return;
    }
    struct predict_tensor *tensors = calloc(layout->count, sizeof *tensors);
    REQUIRE(tensors, "no memory");
    plan_layout_ready(layout, has_times, 1, tensors);
    const double last = tensors[layout->count - 1].ready;
    const struct predict_job job = {.tensors = tensors,
                                    .tensor_count = layout->count,
                                    .backward = has_times ? last : 1,
                                    .world = 2,
                                    .per_node = 1,
                                    .kappa = 1};
    REQUIRE(predict_job_check(&job, &failure), "%s", failure.text);
    for (size_t i = 0; i < layout->count; i++)
        REQUIRE(tensors[i].count > 0 && tensors[i].name[0] != 0, "tensor %zu is empty", i);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const uint64_t elements = (uint64_t)data[0] * data[0];
    char *text = exact_buffer(size - 1, 0);
    memcpy(text, data + 1, size - 1);
    struct layout layout;
    struct failure failure = {{0}};
    if (layout_parse(text, size - 1, elements, &layout, &failure)) {
        check(&layout, elements);
        check_planned(&layout);
    } else
        REQUIRE(failure.text[0] != 0 && layout.count == 0 && !layout.layers, "refused without a reason, or not freed");
    layout_free(&layout);
    free(text);
    return 0;
}
