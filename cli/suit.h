/* Which codecs suit a gradient: each is tried on it, and the figures give the advice. */
#ifndef CLI_SUIT_H
#define CLI_SUIT_H

#include "gradient_stats.h"
#include "measure.h"

struct suit_row {
    const struct listed_spec *spec;
    struct measurement measurement;
    bool unstable; /* plain error feedback over it would diverge */
};

#define ADVICE_MAX 8
struct suits {
    struct spec_list specs;
    struct suit_row rows[SPEC_LIST_MAX];
    size_t row_count;
    char advice[ADVICE_MAX][320];
    size_t advice_count;
};

/* Tries every codec of the standard list on the float32 vector. Elements that are not finite count as zeros. */
bool suits_measure(const tg_tensor *gradient, struct suits *suits, struct failure *failure);

/* Puts what the figures say into words. `layer_spread` is the largest layer's scale over the smallest's, or 0. */
void suits_advise(struct suits *suits, const struct moments *moments, const struct topk_share *share,
                  double layer_spread);

#endif
