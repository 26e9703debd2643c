/* Elementary functions from the four operations and sqrt. */
#include "base/numeric.h"

#include <string.h>

static const double ln2 = 0.69314718055994530942;

/* x = mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)). */
static double split(double x, int *exponent)
{
    int shift = 0;
    if (x < 0x1p-1022) { /* subnormal: scale up first, exactly */
        x *= 0x1p54;
        shift = -54;
    }
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *exponent = (int)(bits >> 52) - 1023 + shift;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    if (mantissa > 1.41421356237309504880) {
        mantissa *= 0.5;
        *exponent += 1;
    }
    return mantissa;
}

/* ln m = 2 artanh((m - 1) / (m + 1)); |t| < 0.172, so the series ends soon. */
static double log_of_mantissa(double m)
{
    double t = (m - 1) / (m + 1), square = t * t, sum = 0;
    for (int odd = 21; odd >= 1; odd -= 2)
        sum = sum * square + 1.0 / odd;
    return 2 * t * sum;
}

double tg_log(double x)
{
    int exponent;
    double mantissa = split(x, &exponent);
    return exponent * ln2 + log_of_mantissa(mantissa);
}

double tg_log2(double x)
{
    int exponent;
    double mantissa = split(x, &exponent);
    return exponent + log_of_mantissa(mantissa) / ln2;
}

static double polynomial(const double *coefficients, int degree, double x)
{
    double sum = coefficients[degree];
    for (int i = degree - 1; i >= 0; i--)
        sum = sum * x + coefficients[i];
    return sum;
}

/* Wichura's AS 241 (PPND16), in terms of the upper tail. */
double tg_normal_tail_quantile(double p)
{
    static const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                               1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                               3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[] = {1.0,
                               4.2313330701600911252e1,
                               6.8718700749205790830e2,
                               5.3941960214247511077e3,
                               2.1213794301586595867e4,
                               3.9307895800092710610e4,
                               2.8729085735721942674e4,
                               5.2264952788528545610e3};
    static const double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                               3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[] = {1.0,
                               2.05319162663775882187e0,
                               1.67638483018380384940e0,
                               6.89767334985100004550e-1,
                               1.48103976427480074590e-1,
                               1.51986665636164571966e-2,
                               5.47593808499534494600e-4,
                               1.05075007164441684324e-9};
    static const double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                               2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                               2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[] = {1.0,
                               5.99832206555887937690e-1,
                               1.36929880922735805310e-1,
                               1.48753612908506148525e-2,
                               7.86869131145613259100e-4,
                               1.84631831751005468180e-5,
                               1.42151175831644588870e-7,
                               2.04426310338993978564e-15};
    double centred = 0.5 - p; /* positive in the upper half */
    if (centred >= -0.425 && centred <= 0.425) {
        double r = 0.180625 - centred * centred;
        return centred * polynomial(a, 7, r) / polynomial(b, 7, r);
    }
    double tail = centred > 0 ? p : 1 - p;
    double r = tg_sqrt(-tg_log(tail));
    double z = r <= 5 ? polynomial(c, 7, r - 1.6) / polynomial(d, 7, r - 1.6)
                      : polynomial(e, 7, r - 5) / polynomial(f, 7, r - 5);
    return centred > 0 ? z : -z;
}
