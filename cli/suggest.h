/* "Did you mean ...?" for what was mistyped: commands, options, codecs and their parameters. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include "complain.h"

/* Which of the texts is most like the one that was typed; NULL if none is near. The texts end with NULL. */
const char *nearest_text(const char *typed, const char *const *texts);

/* tg_spec_parse; a failure leaves its sentence, with a suggestion where a codec or a parameter looks mistyped. */
bool parse_spec(const char *text, tg_spec *spec, struct failure *failure);

#endif
