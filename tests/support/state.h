/* Residuals and momenta as tests look at them: copies, of which the last eight are there. */
#ifndef TESTS_STATE_H
#define TESTS_STATE_H

#include "tersegrad.h"

float *residual_of(tg_feedback *feedback);
/* NULL where there is none. */
float *momentum_of(tg_feedback *feedback);

/* All of it, also values that tg_feedback_write refuses. */
void set_residual(tg_feedback *feedback, const float *values);
void set_momentum(tg_feedback *feedback, const float *values);

#endif
