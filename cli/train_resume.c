/* `--resume FILE`: what is not typed is taken from the file, which holds the arguments that it was made with. They are
 * kept in the form --name=value. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

static size_t name_length(const char *argument) { return strcspn(argument, "="); }

static bool has_name(const char *argument, const char *name)
{
    return name_length(argument) == strlen(name) && strncmp(argument, name, strlen(name)) == 0;
}

static bool has_one_of(const char *argument, const char *const *names)
{
    for (; *names; names++)
        if (has_name(argument, *names))
            return true;
    return false;
}

static const struct option *find(const struct command *command, const char *argument)
{
    const struct option *option = command->options;
    while (option->name && !has_name(argument, option->name))
        option++;
    return option->name ? option : NULL;
}

/* The typed arguments in that form, one behind the other in `text`; a NULL ends the lists of this file. False where
 * they are not options with values, which the parser will explain. */
static bool join(const struct command *command, int argc, char **argv, char *text, char **items)
{
    for (int i = 0; i < argc; i++) {
        const struct option *option = find(command, argv[i]);
        const bool is_apart = option && option->kind != OPTION_FLAG && !strchr(argv[i], '=');
        if (!option || (is_apart && i + 1 == argc))
            return false;
        *items++ = text;
        strcpy(text, argv[i]);
        if (is_apart)
            strcat(strcat(text, "="), argv[++i]);
        text += strlen(text) + 1;
    }
    return true;
}

/* Whether a typed argument takes the place of a stored one. Steps and epochs are two ways to say one thing, and codecs
 * have their feedbacks in the same order. */
static bool is_replaced(const char *stored, char *const *typed)
{
    static const char *const steps[] = {"--steps", "--epochs", NULL}, *const codecs[] = {"--codec", "--feedback", NULL};
    for (; *typed; typed++)
        if ((name_length(stored) == name_length(*typed) && strncmp(stored, *typed, name_length(stored)) == 0) ||
            (has_one_of(stored, steps) && has_one_of(*typed, steps)) ||
            (has_one_of(stored, codecs) && has_one_of(*typed, codecs)))
            return true;
    return false;
}

/* Whether a checkpoint keeps it. */
static bool lasts(const char *argument)
{
    static const char *const passing[] = {"--resume", "--json", NULL};
    return !has_one_of(argument, passing);
}

/* Where the run writes to is taken over by a run that is resumed just as it was. */
static bool is_taken(const char *stored, char *const *typed)
{
    static const char *const files[] = {"--checkpoint", "--every", "--log", "--report", NULL};
    bool is_alone = true;
    for (size_t i = 0; typed[i]; i++)
        is_alone = is_alone && !lasts(typed[i]);
    return (is_alone || !has_one_of(stored, files)) && !is_replaced(stored, typed);
}

static const char *resumed_file(char *const *typed)
{
    const char *file = NULL;
    for (; *typed; typed++)
        file = has_name(*typed, "--resume") ? *typed + name_length(*typed) + 1 : file;
    return file;
}

static size_t count_texts(const char *texts, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += texts[i] == '\0';
    return count;
}

/* What a checkpoint keeps of them. */
static bool compose_text(struct train_arguments *all)
{
    size_t length = 1;
    for (char **item = all->items; *item; item++)
        length += strlen(*item) + 1;
    all->text = malloc(length);
    for (char **item = all->items; all->text && *item; item++) {
        if (lasts(*item)) {
            strcpy(all->text + all->text_size, *item);
            all->text_size += strlen(*item) + 1;
        }
    }
    return all->text;
}

/* Before the typed ones those of the checkpoint that they do not replace. */
static bool merge(struct train_arguments *all, char *const *typed, size_t typed_count, char *stored, size_t size)
{
    all->items = calloc(count_texts(stored, size) + typed_count + 1, sizeof *all->items);
    if (!all->items)
        return false;
    for (size_t at = 0; at < size; at += strlen(stored + at) + 1)
        if (is_taken(stored + at, typed))
            all->items[all->count++] = stored + at;
    for (; *typed; typed++)
        all->items[all->count++] = *typed;
    return compose_text(all);
}

bool train_arguments_make(const struct command *command, int argc, char **argv, struct train_arguments *arguments,
                          struct failure *failure)
{
    size_t length = 1, stored_size = 0;
    for (int i = 0; i < argc; i++)
        length += strlen(argv[i]) + 2;
    *arguments = (struct train_arguments){.count = 0, .storage = malloc(length)};
    char **typed = calloc((size_t)argc + 1, sizeof *typed);
    bool is_made = typed && arguments->storage;
    if (is_made && join(command, argc, argv, arguments->storage, typed)) {
        const char *file = resumed_file(typed);
        arguments->stored = file ? checkpoint_arguments(file, &stored_size) : NULL;
        is_made = merge(arguments, typed, (size_t)argc, arguments->stored, arguments->stored ? stored_size : 0);
    } else if (is_made) { /* as they are: the parser says what is wrong */
        memcpy(typed, argv, (size_t)argc * sizeof *typed);
        arguments->items = typed;
        arguments->count = argc;
        typed = NULL;
    }
    free(typed);
    return is_made || fail(failure, "out of memory");
}

void train_arguments_free(struct train_arguments *arguments)
{
    free(arguments->items);
    free(arguments->text);
    free(arguments->storage);
    free(arguments->stored);
    *arguments = (struct train_arguments){0};
}
