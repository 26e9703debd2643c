/* The only way to report a failure: a status to return and, if the caller passed a tg_error, a sentence. */
#ifndef TG_BASE_STATUS_H
#define TG_BASE_STATUS_H

#include "tersegrad.h"

/* Writes the sentence, if there is room for one, and returns `status`: `return tg_fail(error, TG_CORRUPT, "…", …);` */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
tg_status
tg_fail(tg_error *error, tg_status status, const char *format, ...);

/* Empties the sentence and returns TG_OK. */
tg_status tg_succeed(tg_error *error);

#endif
