/* `fp16`: IEEE half precision, rounded to nearest even; values that are too large are limited to 65504 and counted. */
#include "codec/plain.h"

static tg_dtype wire_of(tg_dtype source)
{
    (void)source;
    return TG_FLOAT16;
}

/* Half a unit in the last place of 11 bits, squared; values outside the normal range of float16 are not considered. */
#define GAMMA 0x1p-22

TG_PLAIN_ROW(tg_codec_fp16, 1, "fp16", "half precision; overflow saturates and is counted", false, 2, GAMMA);
