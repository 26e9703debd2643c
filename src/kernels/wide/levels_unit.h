/* The fused encoder's units: whole buckets that are whole groups, whose scales are found before they are quantised. */
#ifndef TG_KERNELS_WIDE_LEVELS_UNIT_H
#define TG_KERNELS_WIDE_LEVELS_UNIT_H

#include "kernels/kernels.h"

/* Elements of a unit, unless a bucket is longer. Larger ones would hide more latency, but measure worse (1024: +15 %,
 * 2048: +28 % of an encode from memory): the first-level cache is small, and shared where two threads share a core. And
 * how far ahead to prefetch, in bytes, to the first-level cache, or to the second where that is asked for. With
 * feedback there are twice as many lines on their way: 4096 takes 30 to 40 % longer than 2560, and 1536 a tenth longer
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

/* Quantise, pack and keep the rest, by width (2, 4, 8, any), whether positions must be limited, and whether there is
 * feedback. */
typedef void (*const tg_unit_encoders[4][2][2])(const tg_unit *unit);

#endif
