/* Decimal numbers in spec texts, independent of the locale: whole billionths, or float32. Both convert exactly: the
 * text that is printed parses to the same number. */
#ifndef TG_BASE_DECIMAL_H
#define TG_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TG_BILLION UINT64_C(1000000000)

/* Parses digits[.digits][e[+-]digits], no sign, at most nine decimals that are not zero; false if it is not such a
 * number or exceeds UINT32_MAX. `length` bytes are read. */
bool tg_decimal_parse(const char *text, size_t length, uint64_t *billionths);

/* Shortest text: "0.001", "2.5", "7". Room for 24 characters. Returns the length. */
size_t tg_decimal_print(uint64_t billionths, char text[24]);

/* Parses the same syntax, with at most 15 significant digits, to a double within a few units in its last place; false
 * if it is not such a number or exceeds 10^9. The caller has entered the floating-point mode. */
bool tg_decimal_parse_real(const char *text, size_t length, double *value);

/* The shortest text that parses to a double which rounds to this float, 0 to 10^9: decimals while nine are enough,
 * "6.245e-10" beyond. */
void tg_decimal_print_float(float value, char text[24]);

#endif
