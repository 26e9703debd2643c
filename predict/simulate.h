/* Steps on a cluster whose hosts and racks are not all alike. An event is an exchange of a rank, not a message: a step
 * of shard has 10^8 messages at 10,000 ranks. The same inputs give the same output, on any machine. */
#ifndef PREDICT_SIMULATE_H
#define PREDICT_SIMULATE_H

#include "schedule.h"

enum { SIMULATE_MOST_RANKS = 100000, SIMULATE_MOST_STEPS = 10000 };

struct cluster {
    uint32_t rack_hosts;     /* hosts of a rack; 0: all hosts are in one */
    double oversubscription; /* how many times the links of a rack's hosts together are faster than its uplink */
    double jitter;           /* standard deviation of a rank's computing from step to step, as a share of it */
    double stragglers;       /* share of the hosts that are slow */
    double slowdown;         /* how many times longer these compute */
    bool codes_on_hosts;     /* codecs run on the hosts' processors: slow hosts are as slow at coding */
    uint32_t steps;
    uint64_t seed;
};

struct simulated {
    double mean, low, high; /* of steps: 80 % lie between */
    uint64_t events;        /* that happened: each exchange of each rank, in each step */
};

bool simulate_check(const struct cluster *cluster, const struct predict_job *job, struct failure *failure);

/* The inputs must have been checked. */
bool simulate(const struct schedule *schedule, const struct predict_job *job, const struct predict_network *network,
              const struct cluster *cluster, struct simulated *result, struct failure *failure);

#endif
