/* The parameters of specs. Each has its name, its range and the field of tg_spec that holds it; parsing, printing and
 * checking specs is one loop over a codec's list of these. */
#ifndef TG_CODEC_PARAMETERS_H
#define TG_CODEC_PARAMETERS_H

#include <stdbool.h>

#include "tersegrad.h"

/* The bits of tg_spec.choices. */
enum {
    TG_CHOICE_NORM_MAX = 0x01,
    TG_CHOICE_MINMAX = 0x02,
    TG_CHOICE_CODING = 0x0c,
    TG_CODING_SHIFT = 2,
    TG_CHOICE_VALUES = 0x30,
    TG_VALUES_SHIFT = 4,
    TG_CHOICE_BY_K = 0x40
};
typedef enum tg_coding { TG_CODING_PACKED, TG_CODING_ELIAS, TG_CODING_ENTROPY, TG_CODING_AUTO } tg_coding;
typedef enum tg_values { TG_VALUES_FP32, TG_VALUES_FP16, TG_VALUES_BF16, TG_VALUES_LEVELS } tg_values;

static inline tg_coding tg_spec_coding(const tg_spec *spec)
{
    return (tg_coding)((spec->choices & TG_CHOICE_CODING) >> TG_CODING_SHIFT);
}

static inline tg_values tg_spec_values(const tg_spec *spec)
{
    return (tg_values)((spec->choices & TG_CHOICE_VALUES) >> TG_VALUES_SHIFT);
}

typedef enum tg_field { TG_FIELD_CHOICES, TG_FIELD_LEVELS, TG_FIELD_BUCKET, TG_FIELD_AMOUNT } tg_field;

typedef struct tg_parameter {
    const char *name, *range, *summary;
    tg_field field;
    const char *const *words; /* for choices: the names of 0, 1, …; terminated by NULL */
    unsigned shift;           /* for choices: where its bits lie, which `mask` covers */
    uint8_t mask;
    uint64_t least, most; /* for numbers, in units of the field */
    uint64_t grain;       /* for decimals: billionths per unit of the field; 0 for whole numbers */
    bool zero_too;        /* 0 is also allowed */
    bool of_levels;       /* in sparsifiers: used only with values=levels */
} tg_parameter;

/* A row's list of parameters, which NULL ends, fits tg_codec_info. */
#define TG_PARAMETERS_FIT(list) \
    _Static_assert(sizeof(list) <= sizeof(void * [TG_MAX_PARAMETERS + 1]), "tg_codec_info has no room for them all")

extern const tg_parameter tg_parameter_levels, tg_parameter_bucket, tg_parameter_norm, tg_parameter_range,
    tg_parameter_coding, tg_parameter_clip, tg_parameter_density, tg_parameter_k, tg_parameter_values;

#endif
