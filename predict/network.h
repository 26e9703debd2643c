/* Seconds of one exchange, taken apart. */
#ifndef PREDICT_NETWORK_H
#define PREDICT_NETWORK_H

#include "predict.h"

struct exchange_time {
    double fixed;  /* however little is sent */
    double volume; /* for the bytes, before the burst is taken off */
    double burst;  /* seconds of volume that pass at once after a pause */
    double hidden; /* of the fixed part, that in which the next exchange may pass */
};

/* `bytes` of the busiest rank, in so many messages to others. */
struct exchange_time exchange_time_of(const struct predict_network *network, const struct predict_job *job,
                                      enum predict_pattern pattern, double bytes, double messages,
                                      enum predict_end end);

/* How many messages the pattern takes where everybody sends to everybody; of a ring, one each round. */
double messages_of(enum predict_pattern pattern, uint32_t world);

/* Of the bytes that a rank sends in this pattern, how many times those go over its host's link: 0 on one host, 1 with
 * one rank on each. Two levels, where hosts add up before they send, would be another row here. */
double link_share(enum predict_pattern pattern, uint32_t world, uint32_t per_node);

bool is_extrapolated(const struct predict_network *network, const struct predict_job *job, enum predict_pattern pattern,
                     double bytes);

#endif
