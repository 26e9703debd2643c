/* `qsgd`: unbiased stochastic quantisation to `levels` levels on each side of zero, a scale for each bucket (Alistarh
 * et al. 2017). */
#include "codec/levels.h"
#include "codec/peak.h"
#include "codec/reader.h"
#include "codec/codec_table.h"

static tg_levels_shape shape_of(const tg_spec *spec, uint64_t count) { return tg_levels_shape_of(spec, count); }

static const tg_parameter *const parameters[] = {&tg_parameter_levels, &tg_parameter_bucket, &tg_parameter_norm,
                                                 &tg_parameter_range,  &tg_parameter_coding, NULL};
TG_PARAMETERS_FIT(parameters);

TG_LEVELS_ROW(tg_codec_qsgd, 3, "qsgd", "unbiased stochastic quantisation, a scale for each bucket", true,
              .choices = TG_CHOICE_NORM_MAX, .levels = 7, .bucket = 512);
