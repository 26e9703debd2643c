/* Sizes, limits and errors of frames; see measure.h. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The bits that it takes to say which k of d elements were chosen. */
static double log2_choose(double d, double k)
{
    static const double log2_e = 1.4426950408889634;
    return (lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1)) * log2_e;
}

static bool has_parameter(const tg_codec_info *info, const char *name)
{
    for (size_t i = 0; i < info->parameter_count; i++)
        if (strcmp(info->parameters[i].name, name) == 0)
            return true;
    return false;
}

/* The bits below which a codec cannot go for these very levels or this number of chosen elements: the Shannon entropy
 * of its levels and its scales, or its values as they are where it has no levels; and for a sparsifier the choice. */
static double frame_limit(const tg_codec_info *info, const tg_frame_parts *parts, uint64_t count)
{
    /* A sparsifier may code levels, and does so if it has scales. */
    bool has_levels = has_parameter(info, "coding") && parts->scale_bytes > 0;
    double bits = 8 * (double)parts->scale_bytes;
    bits += has_levels ? parts->level_entropy : 8 * (double)parts->value_bytes;
    if (info->sparse)
        bits += log2_choose((double)count, (double)parts->selected);
    return bits;
}

tg_status measure_frame(tg_device *device, const struct listed_spec *spec, tg_frame frame, uint64_t count,
                        struct measurement *measurement, tg_error *error)
{
    tg_frame_parts parts;
    tg_status status = tg_frame_measure(device, frame, &parts, error);
    if (status != TG_OK)
        return status;
    measurement->bytes = frame.size;
    measurement->selected = parts.selected;
    measurement->index_bits = 8 * parts.index_bytes;
    measurement->bits_per_element = 8 * (double)frame.size / (double)count;
    measurement->limit_bits_per_element = frame_limit(&spec->info, &parts, count) / (double)count;
    return TG_OK;
}

double relative_error(const float *x, const float *decoded, size_t count)
{
    double error = 0, energy = 0;
    for (size_t i = 0; i < count; i++) {
        double wanted = isfinite(x[i]) ? x[i] : 0, difference = decoded[i] - wanted;
        error += difference * difference;
        energy += wanted * wanted;
    }
    return energy > 0 ? error / energy : NAN;
}

tg_status measure_once(tg_device *device, const struct listed_spec *spec, const tg_tensor *input,
                       const tg_encode_options *options, float *scratch, struct measurement *measurement,
                       tg_error *error)
{
    tg_codec *codec = NULL;
    void *bytes = NULL;
    tg_encode_report report;
    tg_status status = tg_codec_create(device, &spec->spec, input->count, &codec, error);
    if (status == TG_OK) {
        size_t bound = tg_frame_bound(codec, input->count);
        bytes = malloc(bound);
        status = bytes ? tg_encode(codec, input, options, bytes, bound, &report, error) : TG_OUT_OF_MEMORY;
    }
    if (status == TG_OK) {
        tg_frame frame = {bytes, report.bytes};
        const tg_tensor out = {scratch, input->count, TG_FLOAT32};
        status = measure_frame(device, spec, frame, input->count, measurement, error);
        if (status == TG_OK)
            status = tg_decode(device, &frame, 1, 1.0f, TG_VERIFIED, &out, error);
        if (status == TG_OK)
            measurement->relative_error = relative_error(input->data, scratch, (size_t)input->count);
    }
    free(bytes);
    tg_codec_free(codec);
    return status;
}
