/* Writing the selected elements: their indices, their values, and the residual that remains. */
#ifndef TG_CODEC_SPARSE_WRITER_H
#define TG_CODEC_SPARSE_WRITER_H

#include "codec/onepass.h"

/* The elements of whole segments and whole ranges, which one thread writes. */
typedef struct tg_portion {
    uint32_t *indices;
    float *values;
    size_t count;          /* selected elements, which have been moved to the front */
    size_t before;         /* selected elements in earlier portions */
    uint64_t ties;         /* how many elements whose key equals the threshold's are selected */
    uint8_t *stream, *end; /* of the indices, until they are moved to their final place */
} tg_portion;

typedef struct tg_selected {
    tg_ranges ranges;
    uint32_t origin;            /* the lists' index of the vector's first element */
    tg_range_list *range_lists; /* a list for each range; at first it also has candidates that are not selected */
    tg_threshold threshold;
    bool all_selected; /* every element of the lists is selected */
    /* if not NULL, the residual in which candidates with the key `clear_from` or a larger one have been cleared */
    float *cleared;
    uint32_t clear_from;
    tg_residual_state residual;
    tg_portion *portions; /* room for one per range */
    float *sent;          /* room for what the decoder will see; NULL: the values themselves */
    float *gathered; /* room for all values, where they are levels and there are threads; NULL: they lie together */
    void *levels_workspace;
} tg_selected;

/* Fills job->payload, and completes the residual. */
void tg_selected_write(tg_job *job, const tg_selected *list);

/* The same with the list at job->list in place of a payload; values are taken off the residual as they are. */
void tg_selected_list(tg_job *job, const tg_selected *list);

/* The dtype on the wire of values that are not levels. */
tg_dtype tg_values_dtype(tg_values values);

#endif
