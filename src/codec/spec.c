/* Spec texts: `name:key=value,…` to twelve bytes and back, by the codec's own list of parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/decimal.h"
#include "base/status.h"
#include "codec/codec.h"

_Static_assert(sizeof(tg_spec) == 12, "a spec is compared with memcmp and has no padding");

static bool is_density(const tg_parameter *p) { return p == &tg_parameter_density; }
static bool is_k(const tg_parameter *p) { return p == &tg_parameter_k; }

static uint64_t get(const tg_parameter *p, const tg_spec *spec)
{
    switch (p->field) {
    case TG_FIELD_CHOICES:
        return (uint64_t)(spec->choices & p->mask) >> p->shift;
    case TG_FIELD_LEVELS:
        return spec->levels;
    case TG_FIELD_BUCKET:
        return spec->bucket;
    default:
        return spec->amount;
    }
}

static void set(const tg_parameter *p, tg_spec *spec, uint64_t value)
{
    switch (p->field) {
    case TG_FIELD_CHOICES:
        spec->choices = (uint8_t)((spec->choices & ~p->mask) | (uint8_t)(value << p->shift));
        break;
    case TG_FIELD_LEVELS:
        spec->levels = (uint16_t)value;
        break;
    case TG_FIELD_BUCKET:
        spec->bucket = (uint32_t)value;
        break;
    default:
        spec->amount = (uint32_t)value;
        spec->choices = (uint8_t)(is_k(p) ? spec->choices | TG_CHOICE_BY_K : spec->choices & ~TG_CHOICE_BY_K);
    }
}

/* Whether the parameter is used with the other fields of this spec. */
static bool applies(const tg_codec_row *row, const tg_parameter *p, const tg_spec *spec)
{
    if (row->sparse && p->of_levels && tg_spec_values(spec) != TG_VALUES_LEVELS)
        return false;
    if (p == &tg_parameter_norm)
        return !(spec->choices & TG_CHOICE_MINMAX);
    if (is_density(p) || is_k(p))
        return is_k(p) == !!(spec->choices & TG_CHOICE_BY_K);
    return true;
}

static bool in_range(const tg_parameter *p, uint64_t value)
{
    return (value >= p->least && value <= p->most) || (p->zero_too && value == 0);
}

/* The spec with every unused field at its fixed value: zero, but norm is `max` under minmax. */
static tg_spec canonical(const tg_codec_row *row, const tg_spec *spec)
{
    tg_spec clean = {.codec = row->id};
    for (const tg_parameter *const *p = row->parameters; *p; p++)
        if (applies(row, *p, spec))
            set(*p, &clean, get(*p, spec));
    if (clean.choices & TG_CHOICE_MINMAX)
        clean.choices |= TG_CHOICE_NORM_MAX;
    return clean;
}

tg_status tg_spec_check(const tg_spec *spec, tg_error *error)
{
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    if (!row)
        return tg_fail(error, TG_UNKNOWN_CODEC, "unknown codec number %u: tersegrad %s does not have it", spec->codec,
                       TG_VERSION_TEXT);
    for (const tg_parameter *const *p = row->parameters; *p; p++)
        if (!(*p)->words && applies(row, *p, spec) && !in_range(*p, get(*p, spec)))
            return tg_fail(error, TG_INVALID_SPEC, "%s: the field for %s has the invalid value %" PRIu64, row->name,
                           (*p)->name, get(*p, spec));
    tg_spec clean = canonical(row, spec);
    if (memcmp(&clean, spec, sizeof clean) != 0)
        return tg_fail(error, TG_INVALID_SPEC,
                       "%s: an unused field of the spec is not zero; make specs with tg_spec_parse", row->name);
    return TG_OK;
}

/* ---- text to spec ---- */

typedef struct slice {
    const char *text;
    int length;
} slice;

static bool equals(slice s, const char *word)
{
    return strlen(word) == (size_t)s.length && memcmp(s.text, word, (size_t)s.length) == 0;
}

/* How much of a text goes into a message. */
static int shown(slice s) { return s.length > 40 ? 40 : s.length; }

/* Splits `rest` at the first `mark`: returns what is before it, and moves `rest` behind it, or to the end. */
static slice split(const char **rest, char mark)
{
    const char *end = strchr(*rest, mark);
    slice s = {*rest, (int)(end ? end - *rest : (ptrdiff_t)strlen(*rest))};
    *rest = end ? end + 1 : *rest + s.length;
    return s;
}

static tg_status no_such_word(const tg_codec_row *row, const tg_parameter *p, slice value, tg_error *error)
{
    char known[80] = "";
    for (size_t i = 0; p->words[i]; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", p->words[i]);
    }
    return tg_fail(error, TG_INVALID_SPEC, "%s: %s=%.*s is not one of %s", row->name, p->name, shown(value), value.text,
                   known);
}

/* How many decimals a value may have. */
static int decimals_of(uint64_t grain)
{
    int decimals = 9;
    for (; grain > 1; grain /= 10)
        decimals--;
    return decimals;
}

static tg_status parse_number(const tg_codec_row *row, const tg_parameter *p, slice value, uint64_t *number,
                              tg_error *error)
{
    uint64_t billionths = 0, grain = p->grain ? p->grain : TG_BILLION;
    const tg_decimal_result result = tg_decimal_parse(value.text, (size_t)value.length, &billionths);
    const bool fine = result == TG_DECIMAL_TOO_FINE || billionths % grain != 0;
    *number = billionths / grain;
    /* What is finer than the field lies between *number and the next. */
    const bool inside = result != TG_DECIMAL_OUTSIDE && in_range(p, *number) && !(fine && *number == p->most);
    if (result != TG_DECIMAL_NO_NUMBER && inside && !fine)
        return TG_OK;
    if (result != TG_DECIMAL_NO_NUMBER && inside && p->grain)
        return tg_fail(error, TG_INVALID_SPEC, "%s: %s=%.*s has too many digits; write at most %d decimals", row->name,
                       p->name, shown(value), value.text, decimals_of(grain));
    return tg_fail(error, TG_INVALID_SPEC, "%s: %s=%.*s is %s; allowed: %s", row->name, p->name, shown(value),
                   value.text,
                   result == TG_DECIMAL_NO_NUMBER ? "not a number"
                   : inside                       ? "not a whole number"
                                                  : "out of range",
                   p->range);
}

static tg_status parse_value(const tg_codec_row *row, const tg_parameter *p, slice value, uint64_t *number,
                             tg_error *error)
{
    if (!p->words)
        return parse_number(row, p, value, number, error);
    for (*number = 0; p->words[*number]; ++*number)
        if (equals(value, p->words[*number]))
            return TG_OK;
    return no_such_word(row, p, value, error);
}

static tg_status unknown_name(slice name, tg_error *error)
{
    char known[160] = "";
    for (size_t i = 0; tg_codec_row_at(i); i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", tg_codec_row_at(i)->name);
    }
    return tg_fail(error, TG_UNKNOWN_CODEC, "unknown codec '%.*s'; the codecs are %s", shown(name), name.text, known);
}

static tg_status unknown_key(const tg_codec_row *row, slice key, tg_error *error)
{
    char known[120] = "";
    for (const tg_parameter *const *p = row->parameters; *p; p++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*p)->name);
    }
    return tg_fail(error, TG_INVALID_SPEC, "%s has no parameter '%.*s'%s%s", row->name, shown(key), key.text,
                   known[0] ? "; its parameters are " : "", known);
}

tg_status tg_spec_parse(const char *text, tg_spec *spec, tg_error *error)
{
    if (!text || !spec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_spec_parse: text and spec must not be NULL");
    const char *rest = text;
    bool has_parameters = strchr(text, ':') != NULL;
    slice name = split(&rest, ':');
    const tg_codec_row *row = NULL;
    for (size_t i = 0; !row && tg_codec_row_at(i); i++)
        if (equals(name, tg_codec_row_at(i)->name))
            row = tg_codec_row_at(i);
    if (!row)
        return unknown_name(name, error);
    if (has_parameters && *rest == '\0')
        return tg_fail(error, TG_INVALID_SPEC, "%s: no parameters after ':'; write key=value or remove the ':'", text);

    tg_spec result = row->standard;
    unsigned given = 0; /* bit i: the i-th parameter of the row was given */
    for (bool more = has_parameters; more;) {
        more = strchr(rest, ',') != NULL;
        slice item = split(&rest, ','), key = {item.text, 0};
        while (key.length < item.length && item.text[key.length] != '=')
            key.length++;
        unsigned index = 0;
        while (row->parameters[index] && !equals(key, row->parameters[index]->name))
            index++;
        const tg_parameter *p = row->parameters[index];
        if (!p)
            return unknown_key(row, key, error);
        slice value = {item.text + key.length + 1, item.length - key.length - 1};
        uint64_t number;
        if (value.length < 0)
            return tg_fail(error, TG_INVALID_SPEC, "%s: %s has no value; write %s=%s", row->name, p->name, p->name,
                           p->range);
        if (given & 1u << index)
            return tg_fail(error, TG_INVALID_SPEC, "%s: %s is given twice", row->name, p->name);
        tg_status status = parse_value(row, p, value, &number, error);
        if (status != TG_OK)
            return status;
        given |= 1u << index;
        set(p, &result, number);
    }
    for (unsigned index = 0; row->parameters[index]; index++) {
        const tg_parameter *p = row->parameters[index];
        if (!(given & 1u << index) || applies(row, p, &result))
            continue;
        if (is_density(p) || is_k(p))
            return tg_fail(error, TG_INVALID_SPEC, "%s: density and k cannot be combined; give one of them", row->name);
        if (p == &tg_parameter_norm && (!row->sparse || tg_spec_values(&result) == TG_VALUES_LEVELS)) {
            if (result.choices & TG_CHOICE_NORM_MAX)
                continue;
            return tg_fail(error, TG_INVALID_SPEC, "%s: norm=l2 requires range=symmetric", row->name);
        }
        return tg_fail(error, TG_INVALID_SPEC, "%s: %s requires values=levels", row->name, p->name);
    }
    *spec = canonical(row, &result);
    return tg_succeed(error);
}

/* ---- spec to text ---- */

static size_t print_value(const tg_parameter *p, uint64_t value, char text[24])
{
    if (p->words)
        return (size_t)snprintf(text, 24, "%s", p->words[value]);
    return tg_decimal_print(value * (p->grain ? p->grain : TG_BILLION), text);
}

tg_status tg_spec_print(const tg_spec *spec, char *text, size_t capacity, tg_error *error)
{
    if (!spec || !text)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_spec_print: spec and text must not be NULL");
    tg_status status = tg_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    char whole[TG_SPEC_TEXT];
    size_t used = (size_t)snprintf(whole, sizeof whole, "%s", row->name);
    char mark = ':';
    for (const tg_parameter *const *p = row->parameters; *p; p++) {
        if (!applies(row, *p, spec))
            continue;
        char value[24];
        (void)print_value(*p, get(*p, spec), value);
        used += (size_t)snprintf(whole + used, sizeof whole - used, "%c%s=%s", mark, (*p)->name, value);
        mark = ',';
    }
    if (used >= capacity)
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the text of the spec needs %zu bytes; the buffer has %zu", used + 1,
                       capacity);
    memcpy(text, whole, used + 1);
    return tg_succeed(error);
}

uint64_t tg_spec_selected(const tg_spec *spec, uint64_t count)
{
    const tg_codec_row *row = spec ? tg_codec_row_of(spec->codec) : NULL;
    if (!row || !row->sparse || count == 0)
        return count;
    uint64_t target = spec->amount;
    if (!(spec->choices & TG_CHOICE_BY_K)) /* at most 10^9 * 2^32: fits */
        target = (count < TG_MAX_COUNT ? count : TG_MAX_COUNT) * spec->amount / TG_BILLION;
    return target < 1 ? 1 : target > count ? count : target;
}

/* ---- the table, for help texts and forms ---- */

tg_status tg_codec_list(size_t index, tg_codec_info *info)
{
    const tg_codec_row *row = tg_codec_row_at(index);
    if (!row || !info)
        return TG_INVALID_ARGUMENT;
    *info = (tg_codec_info){.id = row->id,
                            .sparse = row->sparse,
                            .unbiased = row->unbiased,
                            .wants_feedback = row->wants_feedback,
                            .name = row->name,
                            .summary = row->summary};
    for (const tg_parameter *const *p = row->parameters; *p && info->parameter_count < TG_MAX_PARAMETERS; p++) {
        tg_parameter_info *parameter = &info->parameters[info->parameter_count++];
        *parameter = (tg_parameter_info){.name = (*p)->name, .range = (*p)->range, .summary = (*p)->summary};
        if (!is_k(*p)) /* density has the default of the two */
            (void)print_value(*p, get(*p, &row->standard), parameter->standard);
    }
    return TG_OK;
}
