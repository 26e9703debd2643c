/* See optimiser.h. */
#include "optimiser.h"

#include <math.h>

#define PI 3.14159265358979323846

double learning_rate(enum train_schedule schedule, double lr, uint64_t step, uint64_t steps)
{
    const double done = steps ? (double)step / (double)steps : 0;
    switch (schedule) {
    case SCHEDULE_LINEAR:
        return lr * (1 - done);
    case SCHEDULE_COSINE:
        return lr * (1 + cos(PI * done)) / 2;
    case SCHEDULE_STEP:
        return lr * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
    case SCHEDULE_CONSTANT:
        break;
    }
    return lr;
}

void descend(float *weights, float *velocity, const float *gradient, uint64_t count, double rate, double momentum,
             double decay)
{
    const float r = (float)rate, m = (float)momentum, d = (float)decay;
    if (!velocity) {
        for (uint64_t i = 0; i < count; i++)
            weights[i] -= r * (gradient[i] + d * weights[i]);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        velocity[i] = m * velocity[i] + (gradient[i] + d * weights[i]);
        weights[i] -= r * velocity[i];
    }
}
