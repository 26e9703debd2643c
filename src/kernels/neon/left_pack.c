/* For each mask of four lanes, the bytes of its lanes in order. */
#include "kernels/neon/left_pack.h"

#if defined(__AARCH64EL__)

#define LANE(n) 4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3
#define LANES(a, b, c, d)                  \
    {                                      \
        LANE(a), LANE(b), LANE(c), LANE(d) \
    }

const uint8_t tg_neon_lane_bytes[16][16] = {
    LANES(0, 0, 0, 0), LANES(0, 0, 0, 0), LANES(1, 0, 0, 0), LANES(0, 1, 0, 0), LANES(2, 0, 0, 0), LANES(0, 2, 0, 0),
    LANES(1, 2, 0, 0), LANES(0, 1, 2, 0), LANES(3, 0, 0, 0), LANES(0, 3, 0, 0), LANES(1, 3, 0, 0), LANES(0, 1, 3, 0),
    LANES(2, 3, 0, 0), LANES(0, 2, 3, 0), LANES(1, 2, 3, 0), LANES(0, 1, 2, 3),
};

#endif
