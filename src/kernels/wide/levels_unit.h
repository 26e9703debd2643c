/* The units of the fused encoder: whole buckets that are whole groups, whose scales are computed before they are
 * quantised. */
#ifndef TG_KERNELS_WIDE_LEVELS_UNIT_H
#define TG_KERNELS_WIDE_LEVELS_UNIT_H

#include "kernels/kernels.h"

/* TG_UNIT: elements of a unit, unless a bucket is longer. Longer units would hide more latency, but measure worse
 * (1024: +15 %, 2048: +28 % of the time of an encode from memory), because the first-level cache is small, and shared
 * where two threads share a core.
 *
 * The others say how many bytes ahead to prefetch, into the first-level cache or (SECOND) into the second. With
 * feedback twice as many lines are in flight: there 4096 takes 30 to 40 % longer than 2560, and 1536 a tenth longer
 * (docs/log/cpu-kernels.md). */
enum {
    TG_UNIT = TG_GROUP,
    TG_UNIT_BUCKETS = TG_UNIT / TG_FUSED_BUCKET,
    TG_UNIT_AHEAD = 4096,
    TG_UNIT_AHEAD_FEEDBACK = 2560,
    TG_UNIT_SECOND = 6144,
    TG_UNIT_SECOND_FEEDBACK = 4096
};

typedef struct tg_unit {
    const tg_levels_encoding *encoding;
    size_t at, n; /* of its run */
    const float *u, *rest;
    uint8_t *scales, *packed;
    float gain[TG_UNIT_BUCKETS], value[TG_UNIT_BUCKETS], radius[TG_UNIT_BUCKETS];
} tg_unit;

/* Functions that quantise, pack and store the rest, by width (2, 4, 8, any), by whether positions must be limited, and
 * by whether there is feedback. */
typedef void (*const tg_unit_encoders[4][2][2])(const tg_unit *unit);

#endif
