/* `topk`: the k elements of largest magnitude, exactly k whatever the ties. */
#include "codec/sparse.h"

static const tg_selector selector = {.exact = true};

TG_SPARSE_ROW(tg_codec_topk, 16, "topk", "the k elements of largest magnitude, exactly");
