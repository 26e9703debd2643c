/* Decimal numbers in spec texts, stored as whole billionths so that text and number convert exactly both ways. */
#ifndef TG_BASE_DECIMAL_H
#define TG_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TG_BILLION UINT64_C(1000000000)

/* Parses digits[.digits][e[+-]digits], no sign, at most nine decimals that are not zero; false if it is not such a
 * number or exceeds 10^18 billionths. `length` bytes are read. */
bool tg_decimal_parse(const char *text, size_t length, uint64_t *billionths);

/* Shortest text: "0.001", "2.5", "7". Room for 24 characters. Returns the length. */
size_t tg_decimal_print(uint64_t billionths, char text[24]);

#endif
