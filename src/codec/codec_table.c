/* The table of codecs, in the order in which they are listed to users. */
#include "codec/codec_table.h"

static const tg_codec_row *const rows[] = {
    &tg_codec_none, &tg_codec_fp16,  &tg_codec_bf16,      &tg_codec_qsgd, &tg_codec_terngrad, &tg_codec_onebit,
    &tg_codec_topk, &tg_codec_randk, &tg_codec_gaussiank, &tg_codec_dgck, &tg_codec_trimk,    &tg_codec_sidco,
};

const tg_codec_row *tg_codec_row_at(size_t index) { return index < sizeof rows / sizeof rows[0] ? rows[index] : NULL; }

const tg_codec_row *tg_codec_row_of(uint8_t id)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i]->id == id)
            return rows[i];
    return NULL;
}
