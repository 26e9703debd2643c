/* All parameters, in one place so that a name has the same meaning in every codec. */
#include "codec/parameters.h"

#include <stddef.h>

static const char *const norm_words[] = {"l2", "max", NULL};
static const char *const range_words[] = {"symmetric", "minmax", NULL};
static const char *const coding_words[] = {"packed", "elias", "entropy", "auto", NULL};
static const char *const values_words[] = {"fp32", "fp16", "bf16", "levels", NULL};

const tg_parameter tg_parameter_levels = {
    .name = "levels",
    .range = "1...32767",
    .field = TG_FIELD_LEVELS,
    .least = 1,
    .most = 32767,
    .of_levels = true,
    .summary = "quantisation levels on each side of zero; 7 fits 4 bits, 127 fits 8"};

const tg_parameter tg_parameter_bucket = {.name = "bucket",
                                          .range = "0...4294967295",
                                          .field = TG_FIELD_BUCKET,
                                          .least = 0,
                                          .most = UINT32_MAX,
                                          .of_levels = true,
                                          .summary = "consecutive elements that share a scale; 0 = the whole vector"};

const tg_parameter tg_parameter_norm = {.name = "norm",
                                        .range = "l2|max",
                                        .field = TG_FIELD_CHOICES,
                                        .words = norm_words,
                                        .shift = 0,
                                        .mask = TG_CHOICE_NORM_MAX,
                                        .of_levels = true,
                                        .summary = "the norm that is a bucket's scale"};

const tg_parameter tg_parameter_range = {
    .name = "range",
    .range = "symmetric|minmax",
    .field = TG_FIELD_CHOICES,
    .words = range_words,
    .shift = 1,
    .mask = TG_CHOICE_MINMAX,
    .of_levels = true,
    .summary = "levels symmetric about zero, or between the bucket's minimum and maximum"};

const tg_parameter tg_parameter_coding = {.name = "coding",
                                          .range = "packed|elias|entropy|auto",
                                          .field = TG_FIELD_CHOICES,
                                          .words = coding_words,
                                          .shift = TG_CODING_SHIFT,
                                          .mask = TG_CHOICE_CODING,
                                          .of_levels = true,
                                          .summary = "how levels are coded; auto uses the smallest"};

const tg_parameter tg_parameter_clip = {.name = "clip",
                                        .range = "0 or 0.001...60",
                                        .field = TG_FIELD_LEVELS,
                                        .least = 1,
                                        .most = 60000,
                                        .grain = 1000000,
                                        .zero_too = true,
                                        .summary = "clip to this many standard deviations first; 0 = no clipping"};

const tg_parameter tg_parameter_density = {.name = "density",
                                           .range = "0.000000001...1",
                                           .field = TG_FIELD_AMOUNT,
                                           .least = 1,
                                           .most = 1000000000,
                                           .grain = 1,
                                           .mask = TG_CHOICE_BY_K,
                                           .summary = "the share of elements to send"};

const tg_parameter tg_parameter_k = {.name = "k",
                                     .range = "1...4294967295",
                                     .field = TG_FIELD_AMOUNT,
                                     .least = 1,
                                     .most = UINT32_MAX,
                                     .mask = TG_CHOICE_BY_K,
                                     .shift = 6,
                                     .summary = "the number of elements to send, instead of density"};

const tg_parameter tg_parameter_values = {.name = "values",
                                          .range = "fp32|fp16|bf16|levels",
                                          .field = TG_FIELD_CHOICES,
                                          .words = values_words,
                                          .shift = TG_VALUES_SHIFT,
                                          .mask = TG_CHOICE_VALUES,
                                          .summary = "how the values of the selected elements are sent"};
