/* What feedback needs to know of a codec. */
#ifndef TG_FRAME_TRAITS_H
#define TG_FRAME_TRAITS_H

#include <stdbool.h>

#include "tersegrad.h"

typedef struct tg_traits {
    const char *name;
    bool sparse;
    bool l2;      /* quantises with the L2 norm, alone or behind a selection */
    bool minmax;  /* quantises between a bucket's extremes: what is sent may differ in sign from u */
    double gamma; /* a bound on E|C(u) - u|^2 / |u|^2 */
} tg_traits;

/* Of a spec, for vectors of this count; fails for a spec that is none. */
tg_status tg_traits_of(const tg_spec *spec, uint64_t count, tg_traits *traits, tg_error *error);

#endif
