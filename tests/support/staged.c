/* Tensors on their way to a device that has memory of its own, and back. */
#define STAGED_ITSELF
#include "staged.h"

#include <stdlib.h>
#include <string.h>

#include "feedback/feedback.h"
#include "frame/encode.h"
#include "guarded.h"

bool is_apart(const tg_device *device) { return is_guarded(device) || strncmp(tg_device_name(device), "cuda", 4) == 0; }

static size_t size_of(const tg_tensor *t) { return (size_t)t->count * tg_dtype_size(t->dtype); }

/* What a call is to be given: the tensor itself, or a copy on the device. What cannot be copied is left for the library
 * to refuse. */
static tg_tensor stage(tg_device *device, const tg_tensor *tensor)
{
    if (!tensor)
        return (tg_tensor){.data = NULL};
    tg_tensor there = *tensor;
    if (device && is_apart(device) && tensor->data && size_of(tensor) > 0 &&
        (tg_device_allocate(device, size_of(tensor), &there.data, NULL) != TG_OK ||
         tg_device_copy_in(device, there.data, tensor->data, size_of(tensor), NULL) != TG_OK))
        abort();
    return there;
}

/* After the call: the copy goes, and what it holds comes back if it is an output. */
static void unstage(tg_device *device, const tg_tensor *there, const tg_tensor *tensor, bool is_output)
{
    if (!tensor || there->data == tensor->data)
        return;
    if (is_output && tg_device_copy_out(device, tensor->data, there->data, size_of(tensor), NULL) != TG_OK)
        abort();
    tg_device_release(device, there->data);
}

tg_status staged_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options, void *frame,
                        size_t capacity, tg_encode_report *report, tg_error *error)
{
    tg_device *device = codec ? tg_codec_device(codec) : NULL;
    const tg_tensor there = stage(device, input);
    tg_status status = tg_encode(codec, input ? &there : NULL, options, frame, capacity, report, error);
    unstage(device, &there, input, false);
    return status;
}

tg_status staged_encode_with_feedback(tg_codec *codec, tg_feedback *feedback, const tg_tensor *gradient,
                                      const tg_encode_options *options, void *frame, size_t capacity,
                                      tg_encode_report *report, tg_error *error)
{
    tg_device *device = codec ? tg_codec_device(codec) : NULL;
    const tg_tensor there = stage(device, gradient);
    tg_status status = tg_encode_with_feedback(codec, feedback, gradient ? &there : NULL, options, frame, capacity,
                                               report, error);
    unstage(device, &there, gradient, false);
    return status;
}

tg_status staged_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                        const tg_tensor *out, tg_error *error)
{
    const tg_tensor there = stage(device, out);
    tg_status status = tg_decode(device, frames, frame_count, weight, flags, out ? &there : NULL, error);
    unstage(device, &there, out, true);
    return status;
}

tg_status staged_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                            const tg_tensor *out, tg_error *error)
{
    const tg_tensor there = stage(device, out);
    tg_status status = tg_decode_add(device, frames, frame_count, weight, flags, out ? &there : NULL, error);
    unstage(device, &there, out, true);
    return status;
}

tg_status staged_compensate(tg_feedback *feedback, const tg_tensor *gradient, const tg_tensor *u, tg_error *error)
{
    tg_device *device = feedback ? feedback->device : NULL;
    const tg_tensor there = stage(device, gradient), u_there = stage(device, u);
    tg_status status = tg_feedback_compensate(feedback, gradient ? &there : NULL, u ? &u_there : NULL, error);
    unstage(device, &there, gradient, false);
    unstage(device, &u_there, u, true);
    return status;
}

tg_status staged_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame, tg_error *error)
{
    tg_device *device = feedback ? feedback->device : NULL;
    const tg_tensor there = stage(device, gradient);
    tg_status status = tg_feedback_update(feedback, gradient ? &there : NULL, frame, error);
    unstage(device, &there, gradient, false);
    return status;
}
