/* How a mean gradient moves the weights. */
#ifndef TRAIN_OPTIMISER_H
#define TRAIN_OPTIMISER_H

#include "train.h"

/* The learning rate of step `step` of `steps`. */
double learning_rate(enum train_schedule schedule, double lr, uint64_t step, uint64_t steps);

/* v = momentum v + (g + decay w); w = w - rate v. Without momentum there is no velocity (NULL). */
void descend(float *weights, float *velocity, const float *gradient, uint64_t count, double rate, double momentum,
             double decay);

#endif
