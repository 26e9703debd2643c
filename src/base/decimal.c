/* Exact decimal text, independent of the locale. */
#include "base/decimal.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A decimal number as it is written: digits * 10^scale, and a little more where digits were cut off. */
typedef struct decimal {
    uint64_t digits;
    int scale;
    bool cut;
} decimal;

/* Up to this, one more digit fits. */
static const uint64_t most_digits = (UINT64_MAX - 9) / 10;

static void append(decimal *d, int digit, bool fraction)
{
    if (d->digits <= most_digits) {
        d->digits = d->digits * 10 + (uint64_t)digit;
        d->scale -= fraction;
    } else {
        d->cut = d->cut || digit != 0;
        d->scale += !fraction;
    }
}

/* Reads "e-07". What is far beyond any number here stays at a size that an int has. */
static bool parse_exponent(const char *text, size_t length, int *exponent)
{
    size_t i = 1;
    const bool negative = i < length && text[i] == '-';
    if (i < length && (text[i] == '-' || text[i] == '+'))
        i++;
    *exponent = 0;
    if (i == length || (text[0] != 'e' && text[0] != 'E'))
        return false;
    for (; i < length; i++) {
        if (!is_digit(text[i]))
            return false;
        if (*exponent < 10000)
            *exponent = *exponent * 10 + (text[i] - '0');
    }
    *exponent = negative ? -*exponent : *exponent;
    return true;
}

static bool parse(const char *text, size_t length, decimal *d)
{
    bool any = false, point = false;
    int exponent = 0;
    size_t i = 0;
    *d = (decimal){.digits = 0};
    for (; i < length && (is_digit(text[i]) || (text[i] == '.' && !point)); i++) {
        if (text[i] == '.')
            point = true;
        else
            append(d, text[i] - '0', point);
        any = any || text[i] != '.';
    }
    if (!any || (i < length && !parse_exponent(text + i, length - i, &exponent)))
        return false;
    d->scale += exponent;
    return true;
}

/* Whether it is a number with a minus, which nothing here may be. */
static tg_decimal_result without_sign(const char *text, size_t length)
{
    decimal d;
    return length > 1 && text[0] == '-' && parse(text + 1, length - 1, &d) ? TG_DECIMAL_OUTSIDE : TG_DECIMAL_NO_NUMBER;
}

tg_decimal_result tg_decimal_parse(const char *text, size_t length, uint64_t *billionths)
{
    const uint64_t limit = UINT32_MAX * TG_BILLION;
    decimal d;
    if (!parse(text, length, &d))
        return without_sign(text, length);
    d.scale += 9;
    for (; d.scale < 0 && d.digits > 0; d.scale++) {
        d.cut = d.cut || d.digits % 10 != 0;
        d.digits /= 10;
    }
    for (; d.scale > 0 && d.digits > 0; d.scale--) {
        if (d.digits > limit / 10)
            return TG_DECIMAL_OUTSIDE;
        d.digits *= 10;
    }
    *billionths = d.digits;
    return d.digits > limit ? TG_DECIMAL_OUTSIDE : d.cut ? TG_DECIMAL_TOO_FINE : TG_DECIMAL_OK;
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

/* ---- float32 ---- */

/* value * 10^scale; a power of ten up to 10^22 is exact, so most texts are rounded once. */
static double scaled(double value, int scale)
{
    while (scale != 0 && value != 0 && value <= DBL_MAX) {
        enum { EXACT = 22 };
        const int step = scale > EXACT ? EXACT : scale < -EXACT ? -EXACT : scale;
        double power = 1;
        for (int i = 0; i < step || i < -step; i++)
            power *= 10;
        value = step > 0 ? value * power : value / power;
        scale -= step;
    }
    return value;
}

tg_decimal_result tg_decimal_parse_real(const char *text, size_t length, double *value)
{
    decimal d;
    if (!parse(text, length, &d))
        return without_sign(text, length);
    for (; d.digits > 0 && d.digits % 10 == 0; d.scale++) /* up to 15 digits are exact in a double */
        d.digits /= 10;
    *value = scaled((double)d.digits, d.scale);
    return *value <= 1e9 ? TG_DECIMAL_OK : TG_DECIMAL_OUTSIDE;
}

/* As decimals, if nine of them are enough. */
static bool print_decimals(float value, char text[24])
{
    for (uint64_t grain = TG_BILLION; grain > 0; grain /= 10) {
        const uint64_t rounded = (uint64_t)((double)value * 1e9 / (double)grain + 0.5) * grain;
        if ((float)((double)rounded / 1e9) == value) {
            (void)tg_decimal_print(rounded, text);
            return true;
        }
    }
    return false;
}

void tg_decimal_print_float(float value, char text[24])
{
    enum { ENOUGH = 9 }; /* digits that tell any two float32 apart */
    if (print_decimals(value, text))
        return;
    int exponent = 0;
    while (scaled((double)value, -exponent) < 1)
        exponent--;
    for (int n = 1; n <= ENOUGH; n++) {
        uint64_t digits = (uint64_t)(scaled((double)value, n - 1 - exponent) + 0.5);
        if ((float)scaled((double)digits, exponent - n + 1) != value)
            continue;
        char all[24];
        (void)snprintf(all, sizeof all, "%" PRIu64, digits);
        (void)snprintf(text, 24, "%c%s%.9se%d", all[0], n > 1 ? "." : "", all + 1, exponent);
        return;
    }
}
