/* The layers of a flat gradient, from a .layout.json:
 * [{"name": ..., "shape": [...], "offset": ..., "count": ..., "ready": ...}, ...] */
#ifndef CLI_LAYOUT_H
#define CLI_LAYOUT_H

#include "complain.h"

#include <stddef.h>
#include <stdint.h>

struct layer {
    char name[256];
    char shape[64]; /* "64x32x3x3"; "" where the file says nothing */
    uint64_t offset, count;
    double ready; /* seconds after the backward pass began; NAN where the file says nothing */
};

struct layout {
    struct layer *layers;
    size_t count;
};

/* Every layer must lie within `elements`. Free with layout_free. */
bool layout_load(const char *path, uint64_t elements, struct layout *layout, struct failure *failure);
bool layout_parse(const char *text, size_t size, uint64_t elements, struct layout *layout, struct failure *failure);
void layout_free(struct layout *layout);

/* The layout that belongs to X.npy: X.layout.json, or with X = NAME-SUFFIX, NAME.layout.json. From malloc; NULL where
 * no such file exists. */
char *layout_find(const char *gradient_path);

#endif
