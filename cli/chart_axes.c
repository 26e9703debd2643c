/* See chart_axes.h. Ticks are at 1, 2 or 5 times a power of ten. */
#include "chart_axes.h"

#include <math.h>

static double nice_step(double range, size_t most)
{
    double raw = range / (double)most, power = pow(10, floor(log10(raw)));
    double rest = raw / power;
    return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

struct axis axis_over(double low, double high, bool is_log, double start, double end)
{
    enum { TICKS = 5 };
    struct axis axis = {.is_log = is_log, .start = start, .end = end};
    if (is_log) {
        axis.low = log10(low);
        axis.high = log10(high);
        double room = (axis.high - axis.low) * 0.03;
        if (axis.high - axis.low < 0.1)
            room = 0.05;
        axis.low -= room;
        axis.high += room;
        return axis;
    }
    if (!(high > low))
        high = low + (low > 0 ? low : 1);
    double step = nice_step(high - low, TICKS);
    axis.low = floor(low / step + 1e-9) * step;
    axis.high = ceil(high / step - 1e-9) * step;
    return axis;
}

double axis_place(const struct axis *axis, double value)
{
    double at = axis->is_log ? log10(value) : value;
    return axis->start + (at - axis->low) / (axis->high - axis->low) * (axis->end - axis->start);
}

static size_t linear_ticks(const struct axis *axis, size_t most, double *ticks)
{
    double step = nice_step(axis->high - axis->low, most - 1);
    size_t count = 0;
    for (double at = ceil(axis->low / step - 1e-9) * step; at <= axis->high + step * 1e-9 && count < most; at += step)
        ticks[count++] = fabs(at) < step * 1e-9 ? 0 : at;
    return count;
}

/* Powers of ten, some left out where there are many; 1, 2 and 5 times them where there are few. */
static size_t log_ticks(const struct axis *axis, size_t most, double *ticks)
{
    static const double few[] = {1, 2, 5}, fewer[] = {1, 1.5, 2, 3, 4, 5, 7};
    double decades = axis->high - axis->low;
    bool is_narrow = decades < 0.7;
    const double *factors = is_narrow ? fewer : few;
    size_t factor_count = is_narrow ? sizeof fewer / sizeof *fewer : decades < 2.2 ? sizeof few / sizeof *few : 1;
    int stride = decades > (double)most ? (int)ceil(decades / (double)most) : 1;
    size_t count = 0;
    for (int power = (int)floor(axis->low); power <= (int)ceil(axis->high); power++) {
        if (stride > 1 && power % stride != 0)
            continue;
        for (size_t i = 0; i < factor_count; i++) {
            double at = power + log10(factors[i]);
            if (at >= axis->low && at <= axis->high && count < most)
                ticks[count++] = pow(10, power) * factors[i];
        }
    }
    return count;
}

size_t axis_ticks(const struct axis *axis, size_t most, double *ticks)
{
    return axis->is_log ? log_ticks(axis, most, ticks) : linear_ticks(axis, most, ticks);
}

static const char *bytes_tick(double value, char text[TICK_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    snprintf(text, TICK_TEXT, "%.3g %s", value, units[unit]);
    return text;
}

const char *tick_text(const struct axis *axis, double value, char text[TICK_TEXT])
{
    if (axis->is_bytes)
        return bytes_tick(value, text);
    double magnitude = fabs(value);
    if (magnitude >= 1e6 || (magnitude > 0 && magnitude < 1e-3)) {
        /* 10⁻⁵ rather than 1e-05 */
        static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
        int power = (int)floor(log10(magnitude) + 1e-9);
        double factor = value / pow(10, power);
        int used = fabs(factor - 1) < 1e-6 ? snprintf(text, TICK_TEXT, "10%s", power < 0 ? "⁻" : "")
                                           : snprintf(text, TICK_TEXT, "%.3g·10%s", factor, power < 0 ? "⁻" : "");
        int size = power < 0 ? -power : power;
        if (size >= 10)
            used += snprintf(text + used, TICK_TEXT - (size_t)used, "%s", digits[size / 10 % 10]);
        snprintf(text + used, TICK_TEXT - (size_t)used, "%s", digits[size % 10]);
        return text;
    }
    snprintf(text, TICK_TEXT, "%.6g", value);
    return text;
}
