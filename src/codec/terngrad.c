/* `terngrad`: -1, 0 or +1 times the bucket's largest magnitude, after clipping to a number of standard deviations (Wen
 * et al. 2017). It is qsgd with one level and the max-norm. Clipping is a smaller radius, because values outside the
 * radius are limited to it anyway. */
#include "codec/levels.h"
#include "codec/peak.h"
#include "codec/reader.h"
#include "codec/codec_table.h"

static tg_levels_shape shape_of(const tg_spec *spec, uint64_t count)
{
    return (tg_levels_shape){.count = count,
                             .levels = 1,
                             .bucket = spec->bucket,
                             .clip = spec->levels,
                             .max_norm = true,
                             .coding = tg_spec_coding(spec)};
}

static const tg_parameter *const parameters[] = {&tg_parameter_clip, &tg_parameter_bucket, &tg_parameter_coding, NULL};
TG_PARAMETERS_FIT(parameters);

TG_LEVELS_ROW(tg_codec_terngrad, 4, "terngrad", "-1, 0 or +1 times the bucket's largest magnitude", false,
              .bucket = 512);
