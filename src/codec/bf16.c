/* `bf16`: bfloat16, rounded to nearest even; what is too large is limited to the largest finite value and counted. */
#include "codec/plain.h"

static tg_dtype wire_of(tg_dtype source)
{
    (void)source;
    return TG_BFLOAT16;
}

/* Half a unit in the last place of 8 bits, squared. */
#define GAMMA 0x1p-16

TG_PLAIN_ROW(tg_codec_bf16, 2, "bf16", "bfloat16; overflow saturates and is counted", false, 2, GAMMA);
