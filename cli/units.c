/* See units.h. */
#include "units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

/* Digits, at most one point among them, and one of the units. */
static bool parse(const char *text, size_t length, const struct unit *units, double *number)
{
    char copy[64], *end;
    if (length >= sizeof copy || text[0] < '0' || text[0] > '9')
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    const size_t digits = strspn(copy, "0123456789.");
    for (; units->name && strcmp(copy + digits, units->name) != 0; units++)
        ;
    if (!units->name)
        return false;
    copy[digits] = '\0';
    *number = strtod(copy, &end) * units->factor;
    return *end == '\0' && isfinite(*number);
}

bool parse_rate(const char *text, size_t length, double *bits_per_second)
{
    static const struct unit units[] = {{"bit", 1},    {"kbit", 1e3},  {"mbit", 1e6},
                                        {"gbit", 1e9}, {"tbit", 1e12}, {NULL, 0}};
    return parse(text, length, units, bits_per_second) && *bits_per_second > 0;
}

bool parse_time(const char *text, size_t length, double *seconds)
{
    static const struct unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
    return parse(text, length, units, seconds);
}
