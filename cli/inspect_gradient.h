/* All that `tersegrad inspect` found out about a gradient, and the two ways to print it. */
#ifndef CLI_INSPECT_GRADIENT_H
#define CLI_INSPECT_GRADIENT_H

#include "gradient_stats.h"
#include "layout.h"
#include "suit.h"

struct gradient_view {
    const char *dtype; /* of the file */
    struct moments moments;
    struct histogram histogram;
    struct topk_share share;
    struct layout layout;
    struct moments *layers; /* one for each of the layout's */
    double layer_spread;    /* the largest layer's std over the smallest's that is not zero; 0 without layers */
    struct suits *suits;
};

void gradient_view_text(const struct gradient_view *view, const char *path, bool wide);
void gradient_view_json(const struct gradient_view *view);

#endif
