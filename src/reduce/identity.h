/* What a tensor of a reducer is, as bytes: its shape, its codec and its feedback. Its name stands apart. */
#ifndef TG_REDUCE_IDENTITY_H
#define TG_REDUCE_IDENTITY_H

#include "base/bytes.h"
#include "codec/header.h"
#include "tersegrad.h"

enum {
    TG_SHAPE_BYTES = 9,
    TG_FEEDBACK_BYTES = 17,
    TG_IDENTITY_BYTES = TG_SHAPE_BYTES + TG_SPEC_BYTES + TG_FEEDBACK_BYTES
};

static inline void tg_identity_store(uint8_t bytes[TG_IDENTITY_BYTES], const tg_reducer_tensor *tensor)
{
    uint8_t *codec = bytes + TG_SHAPE_BYTES, *feedback = codec + TG_SPEC_BYTES;
    tg_store64(bytes, tensor->count);
    bytes[8] = (uint8_t)tensor->dtype;
    tg_spec_store(&tensor->codec, codec);
    feedback[0] = (uint8_t)tensor->feedback.kind;
    tg_store_float(feedback + 1, tensor->feedback.alpha);
    tg_store_float(feedback + 5, tensor->feedback.beta);
    tg_store_float(feedback + 9, tensor->feedback.momentum);
    tg_store_float(feedback + 13, tensor->feedback.clip);
}

#endif
