/* Calling a function for every bucket of a vector, with all threads. */
#ifndef TG_CODEC_BUCKETS_H
#define TG_CODEC_BUCKETS_H

#include "codec/codec.h"

/* A function of one bucket; false if a value is not finite. */
typedef bool tg_bucket_step(tg_job *job, const void *shape, uint64_t start, uint64_t n);

/* Calls `step` for every bucket of the job's source; false if one call returns false. */
bool tg_each_bucket(tg_job *job, uint64_t bucket, tg_bucket_step *step, const void *shape);

#endif
