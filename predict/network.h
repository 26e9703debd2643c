/* Seconds of one exchange, taken apart. */
#ifndef PREDICT_NETWORK_H
#define PREDICT_NETWORK_H

#include "predict.h"

/* Who exchanges: all ranks with all, or with two levels of reduction the ranks of a host among themselves, and owners
 * of a share with those on other hosts. */
enum predict_scope { PREDICT_FLAT, PREDICT_INSIDE, PREDICT_BETWEEN };

struct exchange_time {
    double fixed;  /* however little is sent */
    double volume; /* for the bytes over a link, before the burst is taken off */
    double burst;  /* seconds of volume that pass at once after a pause */
    double inside; /* for the bytes that stay on their hosts meanwhile, of which a link's burst is no part */
    double hidden; /* of the fixed part, that in which the next exchange may pass */
};

/* `bytes` of the busiest rank, or with PREDICT_BETWEEN of the busiest host; in so many messages of a rank to others. */
struct exchange_time exchange_time_of(const struct predict_network *network, const struct predict_job *job,
                                      enum predict_pattern pattern, enum predict_scope scope, double bytes,
                                      double messages, enum predict_end end);

/* Seconds for the bytes of an exchange by itself, after a pause. */
double bytes_time(const struct exchange_time *time);

/* Exchanges pass over a link one after the other. After a pause a burst passes at once: bytes only, the fixed part of
 * each exchange takes its time after that of the one before. So nothing comes sooner where bytes take longer. */
struct link {
    double free; /* when the next exchange may begin; -INFINITY before the first */
    double paid; /* when it could have, had all bytes passed at the link's rate since the burst */
};

/* An exchange that is made at `made`; returns when it is sent. */
double link_send(struct link *link, double made, const struct exchange_time *time);

/* How many messages the pattern takes where everybody sends to everybody; of a ring, one each round. */
double messages_of(enum predict_pattern pattern, uint32_t world);

/* Of such bytes, how many times those go over a host's link: 0 on one host, 1 with one rank on each, and 1 with
 * PREDICT_BETWEEN. */
double link_share(enum predict_pattern pattern, enum predict_scope scope, uint32_t world, uint32_t per_node);

/* Whether points were measured over links, and the job is on one host: they say nothing of it. */
bool left_links(const struct predict_network *network, const struct predict_job *job);
/* Whether they were measured on one host: they say nothing of links. */
bool is_of_one_host(const struct predict_network *network);

bool is_extrapolated(const struct predict_network *network, const struct predict_job *job, enum predict_pattern pattern,
                     enum predict_scope scope, double bytes);

#endif
