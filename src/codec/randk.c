/* `randk`: k elements at random, unscaled, so that what is left out is (1 - k/d) of the energy on average. The k
 * largest of one random number for each index; the draw's identity decides them. */
#include "codec/sparse.h"

static const tg_selector selector = {.by_random_key = true, .exact = true};

TG_SPARSE_ROW(tg_codec_randk, 17, "randk", "k elements chosen at random");
