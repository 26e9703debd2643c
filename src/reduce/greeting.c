/* Making and comparing greetings. */
#include "reduce/greeting.h"

#include "base/status.h"
#include "reduce/identity.h"

enum { ENTRY = 2 * TG_GREETING_FIELDS };

static const char *const option_texts[TG_GREETING_OPTIONS] = {
    [TG_GREETING_ALGORITHM] = "algorithm",
    [TG_GREETING_NONFINITE] = "policy for values that are not finite",
    [TG_GREETING_SEED] = "seed",
    [TG_GREETING_MIN_SIZE] = "minimum size",
    [TG_GREETING_WARMUP] = "number of warm-up steps",
    [TG_GREETING_SCHEDULE] = "density schedule",
    [TG_GREETING_DEPTH] = "depth",
    [TG_GREETING_BATCH_ELEMENTS] = "number of elements in a batch",
    [TG_GREETING_BYPASS] = "bypass setting",
    [TG_GREETING_HOSTS] = "list of hosts",
    [TG_GREETING_ON_DEVICE] = "setting of on_device",
    [TG_GREETING_STATE] = "history: it was resumed from another step",
};

static const char *const field_texts[TG_GREETING_FIELDS] = {"name", "count, dtype or boundaries", "codec", "feedback"};

static uint32_t entries(uint32_t tensor_count)
{
    return tensor_count < TG_GREETING_ENTRIES ? tensor_count : TG_GREETING_ENTRIES;
}

static uint16_t digest16(const tg_kernels *kernels, const void *bytes, size_t size)
{
    return (uint16_t)kernels->digest(bytes, size);
}

uint32_t tg_greeting_begin(uint8_t *greeting, uint32_t tensor_count)
{
    const uint32_t size = TG_GREETING_HEAD + ENTRY * entries(tensor_count);
    memset(greeting, 0, size);
    tg_store32(greeting, tensor_count);
    return size;
}

void tg_greeting_option_set(const tg_kernels *kernels, uint8_t *greeting, tg_greeting_option option, const void *bytes,
                            size_t size)
{
    tg_store16(greeting + 4 + 2 * (size_t)option, digest16(kernels, bytes, size));
}

/* Count, dtype, and where parts begin. */
static uint16_t shape_digest(const tg_kernels *kernels, const uint8_t *shape, const uint32_t *parts, size_t part_count)
{
    uint16_t digest = digest16(kernels, shape, TG_SHAPE_BYTES);
    for (size_t i = 0; parts && i < part_count; i++) {
        uint8_t bytes[6];
        tg_store16(bytes, digest);
        tg_store32(bytes + 2, parts[i]);
        digest = digest16(kernels, bytes, sizeof bytes);
    }
    return digest;
}

void tg_greeting_tensor(const tg_kernels *kernels, uint8_t *greeting, uint32_t number, const tg_reducer_tensor *tensor,
                        const uint32_t *parts, size_t part_count)
{
    uint8_t *entry = greeting + TG_GREETING_HEAD + ENTRY * (size_t)(number % TG_GREETING_ENTRIES);
    uint8_t shape[TG_IDENTITY_BYTES], *codec = shape + TG_SHAPE_BYTES, *feedback = codec + TG_SPEC_BYTES;
    tg_identity_store(shape, tensor);
    const uint16_t digests[TG_GREETING_FIELDS] = {
        digest16(kernels, tensor->name, strlen(tensor->name)), shape_digest(kernels, shape, parts, part_count),
        digest16(kernels, codec, TG_SPEC_BYTES), digest16(kernels, feedback, TG_FEEDBACK_BYTES)};
    for (unsigned i = 0; i < TG_GREETING_FIELDS; i++) /* rotated, so that two tensors that change places are seen */
        tg_store16(entry + 2 * i, (uint16_t)(tg_load16(entry + 2 * i) * 3 + digests[i]));
}

tg_status tg_greeting_compare(const uint8_t *ours, tg_cursor theirs, const char *const *names, tg_error *error)
{
    const uint32_t count = tg_load32(ours), their_count = tg_cursor_u32(&theirs);
    if (theirs.short_read)
        return tg_fail(error, TG_CORRUPT, "that rank's greeting is too short");
    if (their_count != count)
        return tg_fail(error, TG_LAYOUT_MISMATCH, "it has %u tensors, not %u", count, their_count);
    for (unsigned i = 0; i < TG_GREETING_OPTIONS; i++)
        if (tg_cursor_u16(&theirs) != tg_load16(ours + 4 + 2 * i))
            return tg_fail(error, TG_LAYOUT_MISMATCH, "it has another %s", option_texts[i]);
    for (uint32_t entry = 0; entry < entries(count); entry++)
        for (unsigned i = 0; i < TG_GREETING_FIELDS; i++)
            if (tg_cursor_u16(&theirs) != tg_load16(ours + TG_GREETING_HEAD + ENTRY * (size_t)entry + 2 * i))
                return tg_fail(error, TG_LAYOUT_MISMATCH, "it has another %s for tensor %u ('%.60s' here)",
                               field_texts[i], entry, names[entry]);
    if (theirs.short_read || theirs.left > 0)
        return tg_fail(error, TG_CORRUPT, "that rank's greeting has a wrong length");
    return TG_OK;
}
