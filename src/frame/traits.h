/* What feedback needs to know of a codec. */
#ifndef TG_FRAME_TRAITS_H
#define TG_FRAME_TRAITS_H

#include <stdbool.h>

#include "tersegrad.h"

typedef struct tg_traits {
    const char *name;
    bool sparse;
    bool l2;      /* quantises with the L2 norm, alone or after a selection */
    double gamma; /* a bound on E|C(u) - u|^2 / |u|^2 */
} tg_traits;

/* The traits of a spec, for vectors of this count; fails for an invalid spec. */
tg_status tg_traits_of(const tg_spec *spec, uint64_t count, tg_traits *traits, tg_error *error);

#endif
