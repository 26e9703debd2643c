/* Before their first step, rank 0 tells the others what it reduces and how, and they compare, so that a difference is
 * named and not met later as a frame of the wrong kind. */
#ifndef TG_REDUCE_GREETING_H
#define TG_REDUCE_GREETING_H

#include "reduce/message.h"

/* Tensors that have an entry of their own; of more, several share one. */
#define TG_GREETING_ENTRIES 8192u

/* What is compared, each as 16 bits of a digest. */
typedef enum tg_greeting_option {
    TG_GREETING_ALGORITHM,
    TG_GREETING_NONFINITE,
    TG_GREETING_SEED,
    TG_GREETING_MIN_SIZE,
    TG_GREETING_WARMUP,
    TG_GREETING_SCHEDULE,
    TG_GREETING_DEPTH,
    TG_GREETING_BATCH_ELEMENTS,
    TG_GREETING_BYPASS,
    TG_GREETING_HOSTS, /* which ranks share one */
    TG_GREETING_ON_DEVICE,
    TG_GREETING_STATE, /* how many steps were made, and where parts begin: last, because options change that too */
    TG_GREETING_OPTIONS
} tg_greeting_option;

enum { TG_GREETING_NAME, TG_GREETING_SHAPE, TG_GREETING_CODEC, TG_GREETING_FEEDBACK, TG_GREETING_FIELDS };

#define TG_GREETING_HEAD (4u + 2u * TG_GREETING_OPTIONS)
#define TG_GREETING_MOST (TG_GREETING_HEAD + 2u * TG_GREETING_FIELDS * TG_GREETING_ENTRIES)

/* The start of a greeting; returns its size with the entries that tg_greeting_tensor is to fill in. */
uint32_t tg_greeting_begin(uint8_t *greeting, uint32_t tensor_count);
void tg_greeting_option_set(const tg_kernels *kernels, uint8_t *greeting, tg_greeting_option option, const void *bytes,
                            size_t size);
/* `parts` is where ranks' parts begin, `part_count` numbers, or NULL. */
void tg_greeting_tensor(const tg_kernels *kernels, uint8_t *greeting, uint32_t number, const tg_reducer_tensor *tensor,
                        const uint32_t *parts, size_t part_count);

/* Compares this rank's greeting with another's; the first difference is in words about this rank: "it has ...". */
tg_status tg_greeting_compare(const uint8_t *ours, tg_cursor theirs, const char *const *names, tg_error *error);

#endif
