/* Writing the elements that were selected: indices, values, and what is taken off the residual for them. */
#ifndef TG_CODEC_SELECTED_H
#define TG_CODEC_SELECTED_H

#include "codec/onepass.h"

/* The elements of whole segments and whole ranges, which one thread writes. */
typedef struct tg_portion {
    uint32_t *indices;
    float *values;
    size_t count;          /* of those, the selected ones that have been moved to the front */
    size_t before;         /* selected ones in earlier portions */
    uint64_t ties;         /* how many of those whose key equals the cut's are selected */
    uint8_t *stream, *end; /* of the indices, until they are moved to where they belong */
} tg_portion;

typedef struct tg_selected {
    tg_ranges ranges;
    tg_sieve *sieves; /* one list of each range, at first with others among the selected */
    tg_cut cut;
    bool winnowed; /* all that are listed are selected */
    float *losers; /* if not NULL, the residual that candidates from the key `taken` on were taken from */
    uint32_t taken;
    tg_residual_state residual;
    tg_portion *portions; /* room for one for each range */
    float *sent;          /* room for what the decoder will see; NULL: the values as they are */
    float *gathered;      /* room for all values, where they are to be levels and there are threads */
    void *levels_workspace;
} tg_selected;

/* Fills job->payload, and puts the residual right. */
void tg_selected_write(tg_job *job, const tg_selected *list);

/* How values that are not levels stand on the wire. */
tg_dtype tg_values_dtype(tg_values values);

#endif
