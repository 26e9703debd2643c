/* Whether a probe suits this machine and this day, and what of it suits a codec; see probe_file.h. */
#include "probe_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of how far quantiles are apart, relative to what they are of: whole reductions, where there are any,
 * because predictions rest on those; or else points of exchanges. */
static double scatter_of(const struct probe *probe)
{
    enum {
        MOST_POINTS = PREDICT_PATTERNS * PREDICT_MOST_POINTS,
        MOST = PROBE_MOST_CODINGS * PREDICT_LEVELS * PREDICT_MOST_SAMPLES
    };
    double width[MOST > MOST_POINTS ? MOST : MOST_POINTS] = {0};
    size_t count = 0;
    for (size_t i = 0; i < probe->coding_count; i++)
        for (size_t levels = 0; levels < PREDICT_LEVELS; levels++)
            for (size_t j = 0; j < probe->codings[i].coding.measured[levels].count; j++) {
                const struct predict_sample *s = &probe->codings[i].coding.measured[levels].samples[j];
                width[count++] = (s->high - s->low) / s->seconds;
            }
    const bool has_samples = count > 0;
    for (size_t i = 0; i < PREDICT_PATTERNS && !has_samples; i++)
        for (size_t j = 0; j < probe->network.patterns[i].count; j++) {
            const struct predict_point *p = &probe->network.patterns[i].points[j];
            width[count++] = p->seconds > 0 ? (p->high - p->low) / p->seconds : 0;
        }
    qsort(width, count, sizeof *width, ascending);
    return count > 0 ? width[count / 2] : 0;
}

static void widen_measured(struct predict_measured *measured, double factor, double least)
{
    for (size_t i = 0; i < measured->count; i++) {
        struct predict_sample *s = &measured->samples[i];
        s->high = s->seconds + factor * fmax(s->high - s->seconds, least * s->seconds);
        s->low = fmax(0.1 * s->low, s->seconds - factor * fmax(s->seconds - s->low, least * s->seconds));
    }
}

/* Quantiles go away from the median by the factor, and are no nearer than an eighth of it. They rise as before. */
static void widen(struct probe *probe, double factor)
{
    static const double least = 0.125;
    for (size_t i = 0; i < PREDICT_PATTERNS; i++)
        for (size_t j = 0; j < probe->network.patterns[i].count; j++) {
            struct predict_point *p = &probe->network.patterns[i].points[j];
            const double up = factor * fmax(p->high - p->seconds, least * p->seconds);
            const double down = factor * fmax(p->seconds - p->low, least * p->seconds);
            p->high = p->seconds + up;
            p->low = fmax(0, p->seconds - down);
            if (j > 0) {
                p->high = fmax(p->high, p[-1].high);
                p->low = fmax(p->low, p[-1].low);
            }
        }
    for (size_t i = 0; i < probe->coding_count; i++) {
        struct predict_coding *c = &probe->codings[i].coding;
        for (size_t levels = 0; levels < PREDICT_LEVELS; levels++)
            widen_measured(&c->measured[levels], factor, least);
        c->high = 1 + factor * fmax(c->high - 1, least);
        c->low = fmax(0.1 * c->low, 1 - factor * fmax(1 - c->low, least));
    }
}

bool probe_judge(struct probe *probe, const char *machine, int64_t now, bool insist, struct probe_doubts *doubts,
                 struct failure *failure)
{
    static const double scattered = 0.5, useless = 2, each = 1.5;
    const double days = (double)(now - probe->made) / 86400, scatter = scatter_of(probe);
    double factor = 1;
    *doubts = (struct probe_doubts){0};
    if (strcmp(machine, probe->machine) != 0) {
        if (!insist)
            return fail(failure, "the probe was made on another machine (%s; this is %s); probe here, or give --insist",
                        probe->machine, machine);
        snprintf(doubts->machine, sizeof doubts->machine, "the probe was made on another machine (%s)", probe->machine);
        factor *= each;
    }
    if (days > PROBE_OLD_DAYS || days < -1) {
        snprintf(doubts->age, sizeof doubts->age,
                 days > 0 ? "the probe is %.0f days old; networks change: probe again"
                          : "the probe is dated %.0f days from now; set the clock, or probe again",
                 fabs(days));
        factor *= each;
    }
    if (scatter > useless && !insist)
        return fail(failure,
                    "the probe's times vary too much to be used: 80 %% of them spread over %.1f times their median; "
                    "probe again "
                    "on a quiet machine, or give --insist",
                    scatter);
    if (scatter > scattered) {
        snprintf(
            doubts->scatter, sizeof doubts->scatter,
            "the probe's times vary: 80 %% of them spread over %.1f times their median; probe again on a quiet network",
            scatter);
        factor *= each;
    }
    if (factor > 1)
        widen(probe, factor);
    return true;
}

const struct probe_coding *probe_coding_of(const struct probe *probe, const tg_spec *spec,
                                           const tg_feedback_spec *feedback, tg_algorithm algorithm)
{
    char text[TG_SPEC_TEXT], loop[TG_SPEC_TEXT];
    const struct probe_coding *other = NULL;
    if (tg_spec_print(spec, text, sizeof text, NULL) != TG_OK ||
        tg_feedback_print(feedback, loop, sizeof loop, NULL) != TG_OK)
        return NULL;
    for (size_t i = 0; i < probe->coding_count; i++) {
        if (probe->codings[i].algorithm != algorithm || strcmp(probe->codings[i].coding.spec, text) != 0)
            continue;
        if (strcmp(probe->codings[i].feedback, loop) == 0)
            return &probe->codings[i];
        other = other ? other : &probe->codings[i];
    }
    return other;
}
