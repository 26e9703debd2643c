/* Costs of coding for when nothing was measured: assumed to be those of one machine, which docs/planning.md names. */
#ifndef PREDICT_COSTS_H
#define PREDICT_COSTS_H

#include "predict.h"

enum predict_device { PREDICT_CPU, PREDICT_CARD };

/* What they were measured on: "one thread of an AMD EPYC (Zen 4, AVX-512)". */
const char *predict_costs_source(enum predict_device device);

bool predict_costs(enum predict_device device, const tg_spec *codec, bool feedback, struct predict_coding *coding,
                   struct failure *failure);

#endif
