/* Traits, from the codec's row. */
#include "frame/traits.h"

#include <inttypes.h>

#include "base/status.h"
#include "codec/codec.h"

static bool is_l2_quantiser(const tg_codec_row *row, const tg_spec *spec)
{
    return row->has_norm && !(spec->choices & TG_CHOICE_NORM_MAX) &&
           (!row->sparse || tg_spec_values(spec) == TG_VALUES_LEVELS);
}

tg_status tg_traits_of(const tg_spec *spec, uint64_t count, tg_traits *traits, tg_error *error)
{
    tg_status status = tg_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    if (count > TG_MAX_COUNT)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "a tensor of %" PRIu64 " elements is too large: the limit is %" PRIu32, count, TG_MAX_COUNT);
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    *traits = (tg_traits){
        .name = row->name, .sparse = row->sparse, .l2 = is_l2_quantiser(row, spec), .gamma = row->gamma(spec, count)};
    return TG_OK;
}
