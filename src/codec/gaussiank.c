/* `gaussiank`: a threshold from a normal distribution fitted to a sample, |mean| + deviation * z(1 - k/2d), then
 * bracketed until about k elements pass (Shi et al. 2019; the two-sided quantile, and the true count, unlike that
 * paper's code). */
#include "base/numeric.h"
#include "codec/moments.h"
#include "codec/sparse.h"

static tg_guesses guess_gaussian(tg_selection *s)
{
    size_t n = tg_sample_fixed(s);
    double mean = tg_sample_sum(s, TG_SUM_OF_VALUES, n) / (double)n;
    double variance = tg_sample_sum(s, TG_SUM_OF_SQUARES, n) / (double)n - mean * mean;
    double deviation = variance > 0 ? tg_sqrt(variance) : 0;
    float guess = (float)((mean < 0 ? -mean : mean) + deviation * tg_normal_tail_quantile(tg_share(s) / 2));
    return (tg_guesses){.values = {guess}, .count = 1};
}

static const tg_selector selector = {.guess = guess_gaussian, .sample_size = tg_fixed_sample_size};

TG_SPARSE_ROW(tg_codec_gaussiank, 18, "gaussiank", "about k largest: threshold from a fitted normal distribution");
