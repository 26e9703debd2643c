/* `dgck`: the threshold is estimated from a random sample of one per cent, where it has the proportional rank; if it
 * selects too many elements, exactly the k largest are selected (Lin et al. 2018). */
#include "base/bytes.h"
#include "codec/nth.h"
#include "codec/sparse.h"

static size_t sample_size(uint64_t count)
{
    uint64_t size = (count + 99) / 100;
    if (size < 4096)
        size = 4096;
    /* Samples consist of whole runs. */
    return (size_t)(size < count ? size : count) + TG_SAMPLE_RUN;
}

static tg_guesses guess_by_sample(tg_selection *s)
{
    const uint64_t count = s->job->source.count;
    size_t n = tg_sample_random(s, sample_size(count) - TG_SAMPLE_RUN);
    uint64_t rank = (s->target * n + count / 2) / count;
    tg_threshold threshold = tg_nth_of_array(s->sample, n, rank < 1 ? 1 : rank, (tg_band){0, TG_INFINITY_BITS}, s->keys,
                                             TG_BLOCK);
    return (tg_guesses){.values = {tg_bits_float(threshold.above)}, .count = 1, .exact_if_many = true};
}

static const tg_selector selector = {.guess = guess_by_sample, .sample_size = sample_size};

TG_SPARSE_ROW(tg_codec_dgck, 19, "dgck", "about k largest: threshold from a random sample of 1 %");
