/* Decimal numbers in spec texts, independent of the locale: whole billionths, or float32. Both convert exactly: the
 * text that is printed parses to the same number. */
#ifndef TG_BASE_DECIMAL_H
#define TG_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TG_BILLION UINT64_C(1000000000)

typedef enum tg_decimal_result {
    TG_DECIMAL_OK,
    TG_DECIMAL_NO_NUMBER,
    TG_DECIMAL_TOO_FINE, /* more digits than are kept; the value is rounded down */
    TG_DECIMAL_OUTSIDE   /* beyond what is kept, or negative; there is no value */
} tg_decimal_result;

/* Parses digits[.digits][e[+-]digits], up to UINT32_MAX, at most nine decimals that are not zero. `length` bytes are
 * read. */
tg_decimal_result tg_decimal_parse(const char *text, size_t length, uint64_t *billionths);

/* Shortest text: "0.001", "2.5", "7". Room for 24 characters. Returns the length. */
size_t tg_decimal_print(uint64_t billionths, char text[24]);

/* Parses the same syntax, up to 10^9 and with any number of digits, to a double within a few units in its last place.
 * The caller has entered the floating-point mode. */
tg_decimal_result tg_decimal_parse_real(const char *text, size_t length, double *value);

/* The shortest text that parses to a double which rounds to this float, 0 to 10^9: decimals while nine are enough,
 * "6.245e-10" beyond. */
void tg_decimal_print_float(float value, char text[24]);

#endif
