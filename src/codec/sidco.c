/* `sidco`: a threshold from an exponential distribution that is fitted in stages. Each stage keeps a quarter of the
 * elements of the one before. Where the tail is exponential, the magnitudes above a threshold exceed it by their mean
 * times a logarithm (Abdelmoniem et al. 2021). */
#include "base/bytes.h"
#include "base/numeric.h"
#include "codec/moments.h"
#include "codec/sparse.h"

static tg_guesses guess_exponential(tg_selection *s)
{
    size_t n = tg_sample_fixed(s);
    double share = tg_share(s), threshold = 0;
    while (n > 0) {
        /* The mean by which the remaining elements exceed the last threshold; the sample is compacted as it shrinks. */
        for (size_t i = 0; i < n; i++)
            s->sample[i] = (float)((double)tg_bits_float(tg_float_bits(s->sample[i]) & TG_MAGNITUDE_MASK) - threshold);
        double mean = tg_sample_sum(s, TG_SUM_OF_VALUES, n) / (double)n;
        double stage = share < 0.25 ? 0.25 : share, step = mean * -tg_log(stage);
        size_t passed = 0;
        for (size_t i = 0; i < n; i++)
            if ((double)s->sample[i] > step)
                s->sample[passed++] = (float)((double)s->sample[i] + threshold);
        threshold += step;
        if (share >= 0.25)
            break;
        share /= 0.25;
        n = passed;
    }
    return (tg_guesses){.values = {(float)threshold}, .count = 1};
}

static const tg_selector selector = {.guess = guess_exponential, .sample_size = tg_fixed_sample_size};

TG_SPARSE_ROW(tg_codec_sidco, 21, "sidco", "about k largest: threshold from an exponential tail fitted in stages");
