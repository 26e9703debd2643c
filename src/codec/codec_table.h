/* All codecs. A new one is a file that defines its row, a declaration here and a line in codec_table.c. */
#ifndef TG_CODEC_CODEC_TABLE_H
#define TG_CODEC_CODEC_TABLE_H

#include "codec/codec.h"

extern const tg_codec_row tg_codec_none, tg_codec_fp16, tg_codec_bf16, tg_codec_qsgd, tg_codec_terngrad,
    tg_codec_onebit, tg_codec_topk, tg_codec_randk, tg_codec_gaussiank, tg_codec_dgck, tg_codec_trimk, tg_codec_sidco;

#endif
