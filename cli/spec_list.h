/* Codec specs to try: those that the user names, or a good choice from the library's table. */
#ifndef CLI_SPEC_LIST_H
#define CLI_SPEC_LIST_H

#include "options.h"

struct listed_spec {
    tg_spec spec;
    tg_codec_info info;
    char label[TG_SPEC_TEXT]; /* for people: as it was typed, or as short as it can be written */
    char text[TG_SPEC_TEXT];  /* for machines: as it was typed, or every parameter written out */
};

#define SPEC_LIST_MAX TEXT_LIST_MAX
struct spec_list {
    struct listed_spec items[SPEC_LIST_MAX];
    size_t count;
};

/* The specs in `texts`; if there are none, every codec with its defaults and a few variants besides. False, with the
 * library's sentence, for a text that is no spec. */
bool spec_list_fill(struct spec_list *list, const struct text_list *texts, struct failure *failure);

#endif
