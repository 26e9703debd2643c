/* Selecting by random keys in one pass. They do not depend on the vector, and how they are distributed is known: so the
 * key that about k of them exceed needs no sample, and those above one that is safely lower are few. */
#ifndef TG_CODEC_DRAWN_H
#define TG_CODEC_DRAWN_H

#include "codec/selected.h"

/* Most elements of all lists together. */
size_t tg_drawn_room(uint64_t count, uint64_t wanted, unsigned threads);

/* Lists what tg_select would select, of the ranges of the one pass, which has been gone over already
 * (tg_onepass_commit). False, by bad luck of one in millions, if too many or too few were met. */
bool tg_drawn_select(const tg_onepass *onepass, tg_selected *list, uint32_t *indices, float *values);

#endif
