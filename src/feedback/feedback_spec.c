/* Feedback texts: `ef`, `ecq:alpha=0.2,beta=0.9`, `dgc:momentum=0.9,clip=1`, exact both ways. */
#include "feedback/feedback.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/fpenv.h"
#include "base/status.h"

typedef struct number {
    const char *name, *range;
    size_t offset; /* in tg_feedback_spec */
    double most;
    bool below; /* most itself is excluded */
    float standard;
} number;

typedef struct kind {
    const char *name;
    size_t number_count;
    number numbers[2];
} kind;

static const kind kinds[] = {
    [TG_FEEDBACK_NONE] = {.name = "none"},
    [TG_FEEDBACK_EF] = {.name = "ef"},
    [TG_FEEDBACK_ECQ] = {.name = "ecq",
                         .number_count = 2,
                         .numbers = {{"alpha", "0...1", offsetof(tg_feedback_spec, alpha), 1, false, 0.2f},
                                     {"beta", "0...1", offsetof(tg_feedback_spec, beta), 1, false, 0.9f}}},
    [TG_FEEDBACK_DGC] = {.name = "dgc",
                         .number_count = 2,
                         .numbers = {{"momentum", "0...1, below 1", offsetof(tg_feedback_spec, momentum), 1, true,
                                      0.9f},
                                     {"clip", "0 (off)...1000000", offsetof(tg_feedback_spec, clip), 1e6, false, 0}}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static float *field(tg_feedback_spec *spec, const number *n) { return (float *)(void *)((char *)spec + n->offset); }

static float field_value(const tg_feedback_spec *spec, const number *n)
{
    tg_feedback_spec copy = *spec;
    return *field(&copy, n);
}

static tg_feedback_spec standard_of(tg_feedback_kind k)
{
    tg_feedback_spec spec = {.kind = k};
    if (k == TG_FEEDBACK_EF || k == TG_FEEDBACK_DGC)
        spec.alpha = spec.beta = 1;
    for (size_t i = 0; i < kinds[k].number_count; i++)
        *field(&spec, &kinds[k].numbers[i]) = kinds[k].numbers[i].standard;
    return spec;
}

static bool in_range(const number *n, double value)
{
    return value >= 0 && (n->below ? value < n->most : value <= n->most);
}

tg_status tg_feedback_spec_check(const tg_feedback_spec *spec, tg_error *error)
{
    if ((unsigned)spec->kind >= KINDS)
        return tg_fail(error, TG_INVALID_SPEC, "invalid feedback kind %d", (int)spec->kind);
    const kind *k = &kinds[spec->kind];
    tg_feedback_spec clean = standard_of(spec->kind);
    for (size_t i = 0; i < k->number_count; i++) {
        float value = field_value(spec, &k->numbers[i]);
        /* No text gives a negative zero. */
        if (!in_range(&k->numbers[i], (double)value) || tg_float_bits(value) >> 31)
            return tg_fail(error, TG_INVALID_SPEC, "%s: %s=%g is out of range; allowed: %s", k->name,
                           k->numbers[i].name, (double)value, k->numbers[i].range);
        *field(&clean, &k->numbers[i]) = value;
    }
    if (clean.alpha != spec->alpha || clean.beta != spec->beta || clean.momentum != spec->momentum ||
        clean.clip != spec->clip)
        return tg_fail(error, TG_INVALID_SPEC,
                       "%s: a field has a value that %s does not use; make the spec with tg_feedback_parse", k->name,
                       k->name);
    return TG_OK;
}

/* The value in `item`, "alpha=0.2" of this length. */
static tg_status parse_value(const kind *k, const number *n, const char *item, size_t length, float *result,
                             tg_error *error)
{
    const size_t key = strlen(n->name) + 1;
    if (length < key)
        return tg_fail(error, TG_INVALID_SPEC, "%s: %s has no value; write %s=%s", k->name, n->name, n->name, n->range);
    double value = 0;
    const tg_decimal_result parsed = tg_decimal_parse_real(item + key, length - key, &value);
    const char *wrong = NULL;
    if (parsed == TG_DECIMAL_NO_NUMBER)
        wrong = "not a number";
    else if (parsed == TG_DECIMAL_OUTSIDE || !in_range(n, value))
        wrong = "out of range";
    else if (!in_range(n, (double)(float)value)) /* 0.9999999999 rounds to 1 */
        wrong = "1 in float32";
    if (wrong)
        return tg_fail(error, TG_INVALID_SPEC, "%s: %.*s is %s; allowed: %s", k->name, length > 60 ? 60 : (int)length,
                       item, wrong, n->range);
    *result = (float)value;
    return TG_OK;
}

static tg_status parse(const char *text, tg_feedback_spec *spec, tg_error *error)
{
    size_t name = strcspn(text, ":"), which = 0;
    while (which < KINDS && !(strlen(kinds[which].name) == name && memcmp(kinds[which].name, text, name) == 0))
        which++;
    if (which == KINDS)
        return tg_fail(error, TG_INVALID_SPEC, "unknown feedback '%.*s'; use none, ef, ecq or dgc",
                       name > 40 ? 40 : (int)name, text);
    const kind *k = &kinds[which];
    tg_feedback_spec result = standard_of((tg_feedback_kind)which);
    const char *at = text + name;
    unsigned given = 0;
    while (*at) {
        at++; /* the ':' or ',' */
        size_t length = strcspn(at, ","), key = strcspn(at, "=,");
        size_t i = 0;
        while (i < k->number_count && !(strlen(k->numbers[i].name) == key && memcmp(k->numbers[i].name, at, key) == 0))
            i++;
        if (i == k->number_count)
            return tg_fail(error, TG_INVALID_SPEC, "%s has no parameter '%.*s'", k->name, key > 40 ? 40 : (int)key, at);
        const number *n = &k->numbers[i];
        tg_status status = parse_value(k, n, at, length, field(&result, n), error);
        if (status != TG_OK)
            return status;
        if (given & 1u << i)
            return tg_fail(error, TG_INVALID_SPEC, "%s: %s is given twice", k->name, n->name);
        given |= 1u << i;
        at += length;
    }
    *spec = result;
    return tg_succeed(error);
}

tg_status tg_feedback_parse(const char *text, tg_feedback_spec *spec, tg_error *error)
{
    if (!text || !spec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_parse: text and spec must not be NULL");
    tg_fp_mode before = tg_fp_enter(); /* a decimal is the same float in every rounding mode */
    tg_status status = parse(text, spec, error);
    tg_fp_leave(before);
    return status;
}

static tg_status print(const tg_feedback_spec *spec, char *text, size_t capacity, tg_error *error)
{
    tg_status status = tg_feedback_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    const kind *k = &kinds[spec->kind];
    char whole[TG_SPEC_TEXT];
    size_t used = (size_t)snprintf(whole, sizeof whole, "%s", k->name);
    for (size_t i = 0; i < k->number_count; i++) {
        char value[24] = "";
        tg_decimal_print_float(field_value(spec, &k->numbers[i]), value);
        used += (size_t)snprintf(whole + used, sizeof whole - used, "%c%s=%s", i ? ',' : ':', k->numbers[i].name,
                                 value);
    }
    if (used >= capacity)
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the text needs %zu bytes; the buffer has %zu", used + 1, capacity);
    memcpy(text, whole, used + 1);
    return tg_succeed(error);
}

tg_status tg_feedback_print(const tg_feedback_spec *spec, char *text, size_t capacity, tg_error *error)
{
    if (!spec || !text)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_print: spec and text must not be NULL");
    tg_fp_mode before = tg_fp_enter();
    tg_status status = print(spec, text, capacity, error);
    tg_fp_leave(before);
    return status;
}
