/* `none`: the values themselves, in the source's dtype. Lossless, except for what feedback adds to a 16-bit
 * gradient. */
#include "codec/plain.h"

static tg_dtype wire_of(tg_dtype source) { return source; }

/* A float32 vector loses nothing; a 16-bit one loses at most half a unit in the last place where feedback is added. */
#define GAMMA 0

TG_PLAIN_ROW(tg_codec_none, 0, "none", "the values as they are", true, 4, GAMMA);
