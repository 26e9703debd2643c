/* `trimk`: RedSync's trimmed top-k. The threshold is mean + r (max - mean) of the magnitudes of a sample, r lowered
 * from 0.8 in steps of 0.2 and then bisected until about k elements pass (Fang et al. 2019). */
#include "base/bytes.h"
#include "codec/dense.h"
#include "codec/moments.h"
#include "codec/sparse.h"

static tg_guesses guess_trimmed(tg_selection *s)
{
    size_t n = tg_sample_fixed(s);
    double mean = tg_sample_sum(s, TG_SUM_OF_MAGNITUDES, n) / (double)n;
    uint32_t largest = 0;
    for (size_t first = 0; first < n; first += TG_BLOCK) {
        uint32_t here = s->job->kernels->max_magnitude(s->sample + first, tg_block_size(n, first));
        largest = here > largest ? here : largest;
    }
    tg_guesses guesses = {.count = 5};
    for (int step = 0; step < 5; step++)
        guesses.values[step] = (float)(mean + (4 - step) / 5.0 * ((double)tg_bits_float(largest) - mean));
    return guesses;
}

static const tg_selector selector = {.guess = guess_trimmed, .sample_size = tg_fixed_sample_size};

TG_SPARSE_ROW(tg_codec_trimk, 20, "trimk", "about k largest: threshold between mean and maximum, lowered step by step");
