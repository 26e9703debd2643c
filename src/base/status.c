/* Status texts and error messages. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const status_texts[TG_STATUS_COUNT] = {
    [TG_OK] = "ok",
    [TG_INVALID_ARGUMENT] = "invalid argument",
    [TG_INVALID_SPEC] = "invalid spec",
    [TG_UNKNOWN_CODEC] = "unknown codec",
    [TG_UNKNOWN_DEVICE] = "unknown device",
    [TG_UNKNOWN_VERSION] = "unknown format version",
    [TG_OUT_OF_MEMORY] = "out of memory",
    [TG_BUFFER_TOO_SMALL] = "buffer too small",
    [TG_SHAPE_MISMATCH] = "shape mismatch",
    [TG_NOT_A_FRAME] = "not a frame",
    [TG_TRUNCATED] = "truncated",
    [TG_CHECKSUM_MISMATCH] = "checksum mismatch",
    [TG_CORRUPT] = "corrupt frame",
    [TG_NONFINITE] = "non-finite value",
    [TG_UNSTABLE] = "unstable feedback",
    [TG_UNAVAILABLE] = "not available here",
    [TG_EXCHANGE] = "exchange failed",
    [TG_SKIPPED] = "step skipped",
    [TG_LAYOUT_MISMATCH] = "layout mismatch",
    [TG_BAD_RESIDUAL] = "non-finite residual",
    [TG_TRAILING_BYTES] = "trailing bytes",
};

const char *tg_status_text(tg_status status)
{
    unsigned index = (unsigned)status;
    return index < TG_STATUS_COUNT ? status_texts[index] : "unknown status";
}

tg_status tg_fail(tg_error *error, tg_status status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

tg_status tg_succeed(tg_error *error)
{
    if (error)
        error->message[0] = '\0';
    return TG_OK;
}

const char *tg_version(void) { return TG_VERSION_TEXT; }
