/* See suit.h. */
#include "suit.h"

#include "terminal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_unstable(const tg_spec *spec, uint64_t count)
{
    tg_feedback_spec ef;
    tg_stability stability;
    return tg_feedback_parse("ef", &ef, NULL) == TG_OK &&
           tg_stability_of(spec, &ef, count, &stability, NULL) == TG_OK && stability.binding;
}

static tg_status measure_all(tg_device *device, const tg_tensor *gradient, float *scratch, struct suits *suits,
                             tg_error *error)
{
    const tg_encode_options options = {.nonfinite = TG_NONFINITE_ZERO};
    struct progress progress;
    progress_start(&progress, "trying codecs");
    tg_status status = TG_OK;
    for (size_t i = 0; i < suits->specs.count && status == TG_OK; i++) {
        struct suit_row *row = &suits->rows[suits->row_count++];
        row->spec = &suits->specs.items[i];
        row->unstable = is_unstable(&row->spec->spec, gradient->count);
        progress_update(&progress, (double)i / (double)suits->specs.count, row->spec->label);
        status = measure_once(device, row->spec, gradient, &options, scratch, &row->measurement, error);
    }
    progress_end(&progress);
    return status;
}

bool suits_measure(const tg_tensor *gradient, struct suits *suits, struct failure *failure)
{
    suits->row_count = suits->advice_count = 0;
    if (gradient->count == 0)
        return true;
    if (!spec_list_fill(&suits->specs, NULL, failure))
        return false;
    float *scratch = malloc((size_t)gradient->count * sizeof *scratch);
    if (!scratch)
        return fail(failure, "out of memory for %zu elements", (size_t)gradient->count);
    tg_error error = {""};
    tg_device *device = NULL;
    tg_status status = tg_device_open("cpu", NULL, &device, &error);
    if (status == TG_OK)
        status = measure_all(device, gradient, scratch, suits, &error);
    tg_device_free(device);
    free(scratch);
    return status == TG_OK || fail(failure, "%s", library_message(status, &error));
}

PRINTF_LIKE(2, 3)
static void advise(struct suits *suits, const char *format, ...)
{
    if (suits->advice_count == ADVICE_MAX)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(suits->advice[suits->advice_count++], sizeof suits->advice[0], format, arguments);
    va_end(arguments);
}

/* The smallest frame whose error is within the limit; NULL if none is. */
static const struct suit_row *smallest_within(const struct suits *suits, double limit)
{
    const struct suit_row *best = NULL;
    for (size_t i = 0; i < suits->row_count; i++) {
        const struct suit_row *row = &suits->rows[i];
        if (row->measurement.relative_error <= limit &&
            (!best || row->measurement.bits_per_element < best->measurement.bits_per_element))
            best = row;
    }
    return best;
}

static void advise_codec(struct suits *suits, double limit, const char *remark)
{
    const struct suit_row *row = smallest_within(suits, limit);
    if (row)
        advise(suits, "Smallest with a squared error of at most %g %%: %s, %.4g bits per element, error %.2g %%%s",
               limit * 100, row->spec->label, row->measurement.bits_per_element, row->measurement.relative_error * 100,
               remark);
}

void suits_advise(struct suits *suits, const struct moments *moments, const struct topk_share *share,
                  double layer_spread)
{
    double zeros = moments->count ? (double)moments->zeros / (double)moments->count : 0;
    if (moments->nonfinite > 0)
        advise(suits, "Some elements are not finite: encode refuses them without --nonfinite zero.");
    if (!(moments->energy > 0))
        return;
    if (layer_spread >= 10)
        advise(
            suits,
            "The layers' scales differ by a factor of %.3g: use small buckets, so that each layer has its own scales.",
            layer_spread);
    if (moments->kurtosis >= 10)
        advise(suits, "Heavy tails (kurtosis %.4g, a Gaussian has 3): sparsifiers and entropy coding gain most here.",
               moments->kurtosis);
    if (zeros >= 0.2)
        advise(suits,
               "%.3g %% of the elements are exactly 0: with entropy coding or a sparsifier they cost almost no bits.",
               zeros * 100);
    double kept = 100 * (1 - share->ratio);
    advise(suits, "The largest %.3g %% of the elements carry %.3g %% of the energy%s.", share->density * 100, kept,
           share->ratio <= 0.5  ? ": top-k suits it"
           : share->ratio > 0.9 ? ": top-k alone loses most of it"
                                : "");
    advise_codec(suits, 0.01, ".");
    advise_codec(suits, 0.1, ".");
    advise_codec(suits, 0.5, "; use error feedback.");
}
