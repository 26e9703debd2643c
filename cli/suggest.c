/* Finds the known word that is nearest to an unknown one; see suggest.h. */
#include "suggest.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_same_letter(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* How many slips lie between two short texts: a letter left out, added, replaced, or two neighbours exchanged. Anything
 * longer than a line counts as far away. */
static size_t count_slips(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return SIZE_MAX;
    size_t slips[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= a_length; i++) {
        for (size_t j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                slips[i][j] = i + j;
                continue;
            }
            size_t best = slips[i - 1][j - 1] + !is_same_letter(a[i - 1], b[j - 1]);
            best = slips[i - 1][j] + 1 < best ? slips[i - 1][j] + 1 : best;
            best = slips[i][j - 1] + 1 < best ? slips[i][j - 1] + 1 : best;
            bool is_exchanged = i > 1 && j > 1 && is_same_letter(a[i - 1], b[j - 2]) &&
                                is_same_letter(a[i - 2], b[j - 1]);
            if (is_exchanged && slips[i - 2][j - 2] + 1 < best)
                best = slips[i - 2][j - 2] + 1;
            slips[i][j] = best;
        }
    }
    return slips[a_length][b_length];
}

const char *nearest_text(const char *typed, const char *const *texts)
{
    const char *best = NULL;
    size_t best_slips = SIZE_MAX;
    for (; *texts; texts++) {
        bool is_start = strlen(typed) >= 3 && strncmp(typed, *texts, strlen(typed)) == 0;
        size_t slips = is_start ? 0 : count_slips(typed, *texts);
        if (slips < best_slips) {
            best_slips = slips;
            best = *texts;
        }
    }
    /* Two slips in a word of six letters still look like that word; in a word of three they do not. */
    return best && best_slips <= 2 && best_slips * 3 <= strlen(best) ? best : NULL;
}

/* ---- specs ---- */

enum { MOST_NAMES = 64 };

static bool is_listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The codec of that name; fills `names` with those of all codecs. */
static bool find_codec(const char *name, tg_codec_info *found, const char *names[MOST_NAMES])
{
    size_t count = 0;
    tg_codec_info info;
    bool is_found = false;
    while (count + 1 < MOST_NAMES && tg_codec_list(count, &info) == TG_OK) {
        names[count++] = info.name;
        if (strcmp(info.name, name) == 0) {
            *found = info;
            is_found = true;
        }
    }
    names[count] = NULL;
    return is_found;
}

/* What the first unknown name in the spec may have meant; NULL where nothing is near. */
static const char *suggest(char *text)
{
    const char *names[MOST_NAMES];
    tg_codec_info info = {0};
    char *at = strchr(text, ':');
    if (at)
        *at++ = '\0';
    if (!find_codec(text, &info, names))
        return nearest_text(text, names);
    size_t count = 0;
    for (; count < info.parameter_count && count + 1 < MOST_NAMES; count++)
        names[count] = info.parameters[count].name;
    names[count] = NULL;
    while (at) {
        char *next = strchr(at, ',');
        if (next)
            *next++ = '\0';
        at[strcspn(at, "=")] = '\0';
        if (!is_listed(names, at))
            return nearest_text(at, names);
        at = next;
    }
    return NULL;
}

bool parse_spec(const char *text, tg_spec *spec, struct failure *failure)
{
    tg_error error = {""};
    char copy[TG_SPEC_TEXT];
    tg_status status = tg_spec_parse(text, spec, &error);
    if (status == TG_OK)
        return true;
    snprintf(copy, sizeof copy, "%s", text);
    const char *near = strlen(text) < sizeof copy ? suggest(copy) : NULL;
    const char *reason = library_message(status, &error);
    return near ? fail(failure, "%s; did you mean '%s'?", reason, near) : fail(failure, "%s", reason);
}
