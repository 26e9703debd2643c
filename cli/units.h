/* Numbers with units, as people write them for networks. */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include "common/failure.h"

#include <stddef.h>

/* A rate of the first `length` characters: "1gbit", "100mbit", "2.5gbit", "500kbit", in bits per second. False unless
 * it is a positive, finite number with a unit. */
bool parse_rate(const char *text, size_t length, double *bits_per_second);
/* Likewise a time, in seconds: "50us", "1.5ms", "2s", "800ns"; 0 with a unit is one too. */
bool parse_time(const char *text, size_t length, double *seconds);

#endif
