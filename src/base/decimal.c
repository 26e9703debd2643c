/* Exact decimal text, independent of the locale. */
#include "base/decimal.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool tg_decimal_parse(const char *text, size_t length, uint64_t *billionths)
{
    const uint64_t limit = TG_BILLION * TG_BILLION;
    uint64_t digits = 0;
    int scale = 9; /* the value is digits * 10^scale billionths */
    bool any = false, point = false;
    size_t i = 0;
    for (; i < length && (is_digit(text[i]) || (text[i] == '.' && !point)); i++) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        any = true;
        if (digits > limit)
            return false;
        digits = digits * 10 + (uint64_t)(text[i] - '0');
        scale -= point;
    }
    if (!any)
        return false;
    if (i < length) {
        if (text[i] != 'e' && text[i] != 'E')
            return false;
        i++;
        bool negative = i < length && text[i] == '-';
        if (i < length && (text[i] == '-' || text[i] == '+'))
            i++;
        int exponent = 0;
        if (i == length)
            return false;
        for (; i < length; i++) {
            if (!is_digit(text[i]) || exponent > 100)
                return false;
            exponent = exponent * 10 + (text[i] - '0');
        }
        scale += negative ? -exponent : exponent;
    }
    for (; scale < 0 && digits > 0; scale++) {
        if (digits % 10 != 0)
            return false; /* finer than a billionth */
        digits /= 10;
    }
    for (; scale > 0 && digits > 0; scale--) {
        if (digits > limit / 10)
            return false;
        digits *= 10;
    }
    if (digits > limit)
        return false;
    *billionths = digits;
    return true;
}

size_t tg_decimal_print(uint64_t billionths, char text[24])
{
    uint64_t whole = billionths / TG_BILLION, fraction = billionths % TG_BILLION;
    int length = snprintf(text, 24, "%" PRIu64, whole);
    if (fraction > 0) {
        length += snprintf(text + length, 24 - (size_t)length, ".%09" PRIu64, fraction);
        while (text[length - 1] == '0')
            text[--length] = '\0';
    }
    return (size_t)length;
}
