/* See train_names.h. */
#include "train_names.h"

#include <stdio.h>
#include <string.h>

/* Whether `text`, "name:key=value,key=value", has exactly this part. */
static bool has_part(const char *text, const char *part, size_t length)
{
    const char *at = strchr(text, ':');
    while (at) {
        at++;
        size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, part, length) == 0)
            return true;
        at = at[here] ? at + here : NULL;
    }
    return false;
}

static bool has_same_name(const char *one, const char *other)
{
    size_t length = strcspn(one, ":");
    return length == strcspn(other, ":") && strncmp(one, other, length) == 0;
}

static const char *text_of(const struct train_report *report, size_t run, bool of_feedback)
{
    const struct train_codec *codec = report->runs[run].codec;
    return of_feedback ? codec->feedback_text : codec->codec_text;
}

/* Appends the name, and those of the parts that another run of this name does not have. */
static void add_text(const struct train_report *report, size_t run, bool of_feedback, char name[SHORT_NAME])
{
    const char *text = text_of(report, run, of_feedback);
    size_t used = strlen(name);
    used += (size_t)snprintf(name + used, SHORT_NAME - used, "%s%.*s", of_feedback ? "+" : "", (int)strcspn(text, ":"),
                             text);
    for (const char *at = strchr(text, ':'); at && used < SHORT_NAME;) {
        at++;
        size_t length = strcspn(at, ",");
        bool differs = false;
        for (size_t i = 0; i < report->run_count && !differs; i++)
            differs = has_same_name(text, text_of(report, i, of_feedback)) &&
                      !has_part(text_of(report, i, of_feedback), at, length);
        if (differs)
            used += (size_t)snprintf(name + used, SHORT_NAME - used, " %.*s", (int)length, at);
        at = at[length] ? at + length : NULL;
    }
}

static bool is_again(const struct train_report *report, char names[][SHORT_NAME], size_t run)
{
    for (size_t i = 0; i < report->run_count; i++)
        if (i != run && strcmp(names[i], names[run]) == 0)
            return true;
    return false;
}

void train_short_names(const struct train_report *report, const char *const *origins, char names[][SHORT_NAME])
{
    for (size_t i = 0; i < report->run_count; i++) {
        names[i][0] = '\0';
        if (origins)
            snprintf(names[i], SHORT_NAME, "%.24s: ", origins[i]);
        add_text(report, i, false, names[i]);
        if (report->runs[i].codec->feedback.kind != TG_FEEDBACK_NONE)
            add_text(report, i, true, names[i]);
    }
    /* The very same run twice: a number tells them apart. */
    bool again[TRAIN_MOST_RUNS];
    for (size_t i = 0; i < report->run_count; i++)
        again[i] = is_again(report, names, i);
    for (size_t i = 0; i < report->run_count; i++) {
        size_t length = strlen(names[i]);
        if (again[i])
            snprintf(names[i] + length, SHORT_NAME - length, " (%zu)", i + 1);
    }
}
