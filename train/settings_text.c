/* See settings_text.h. */
#include "settings_text.h"

#include "blob.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_text(struct setting *list, size_t *count, const char *name, bool is_lasting, const char *text)
{
    struct setting *setting = &list[(*count)++];
    *setting = (struct setting){.name = name, .is_lasting = is_lasting};
    text = text ? text : "";
    const size_t length = strlen(text);
    if (length < sizeof setting->value)
        memcpy(setting->value, text, length + 1);
    else
        snprintf(setting->value, sizeof setting->value, "%.100s... (%zu bytes, digest %016" PRIx64 ")", text, length,
                 digest_bytes(text, length));
}

static void add_number(struct setting *list, size_t *count, const char *name, bool is_lasting, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    add_text(list, count, name, is_lasting, text);
}

static void add_real(struct setting *list, size_t *count, const char *name, double real)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", real);
    add_text(list, count, name, false, text);
}

static void add_shape(struct setting *list, size_t *count, const struct dataset *data)
{
    char text[128];
    snprintf(text, sizeof text,
             "%" PRIu64 " rows, %" PRIu64 " for testing, %" PRIu32 " features and %" PRIu32 " classes",
             data->train_rows, data->test_rows, data->features, data->classes);
    add_text(list, count, "--data of", true, text);
    snprintf(text, sizeof text, "%016" PRIx64, data->digest);
    add_text(list, count, "--data of content", true, text);
}

size_t settings_list(const struct train_settings *s, const struct dataset *data, struct setting list[SETTINGS_MOST])
{
    size_t count = 0;
    add_text(list, &count, "--data", true, s->data);
    add_shape(list, &count, data);
    add_text(list, &count, "--model", true, s->model);
    add_number(list, &count, "--batch", true, s->batch);
    add_number(list, &count, "--seed", true, s->seed);
    add_text(list, &count, "--algorithm", true, s->algorithm == ALGORITHM_QSVRG ? "qsvrg" : "sgd");
    add_real(list, &count, "--lr", s->lr);
    add_real(list, &count, "--momentum", s->momentum);
    add_real(list, &count, "--weight-decay", s->weight_decay);
    add_number(list, &count, "--schedule", false, s->schedule);
    add_number(list, &count, "--steps", false, s->steps);
    add_real(list, &count, "--epochs", s->epochs);
    add_number(list, &count, "--insist", false, s->insist);
    add_number(list, &count, "--reduce", false, (uint64_t)s->reduce);
    add_number(list, &count, "--min-size", true, s->min_size);
    add_number(list, &count, "--warmup", false, s->warmup);
    add_number(list, &count, "--nonfinite", false, (uint64_t)s->nonfinite);
    add_text(list, &count, "--link", false, s->link_text);
    add_text(list, &count, "--group", false, s->group_text);
    add_text(list, &count, "--bypass", false, s->bypass_text);
    add_text(list, &count, "--checkpoint", false, s->checkpoint);
    add_number(list, &count, "--every", false, s->every);
    add_text(list, &count, "--resume", false, s->resume);
    for (size_t i = 0; i < s->run_count; i++) {
        add_text(list, &count, "--codec", true, s->runs[i].codec_text);
        add_text(list, &count, "--feedback", true, s->runs[i].feedback_text);
    }
    for (size_t i = 0; i < s->change_count; i++) {
        char text[64];
        snprintf(text, sizeof text, "%" PRIu64 ":%.17g", s->changes[i].from_step, s->changes[i].density);
        add_text(list, &count, "--density-schedule", false, text);
    }
    return count;
}

/* The place of the first difference between two ranks' lists, as rank 0 and this rank would be told. */
static bool is_same(const tg_state *first, const tg_state *other, uint32_t rank, struct failure *failure)
{
    if (first->size == other->size && memcmp(first->data, other->data, first->size) == 0)
        return true;
    const uint8_t *a = first->data, *b = other->data;
    struct blob_reader one = {a, a + first->size, false}, two = {b, b + other->size, false};
    while (!one.is_bad && !two.is_bad && one.at < one.end && two.at < two.end) {
        size_t sizes[4];
        const char *name = blob_get_block(&one, &sizes[0]), *value = blob_get_block(&one, &sizes[1]);
        const char *other_name = blob_get_block(&two, &sizes[2]), *other_value = blob_get_block(&two, &sizes[3]);
        bool is_equal = sizes[0] == sizes[2] && memcmp(name, other_name, sizes[0]) == 0 && sizes[1] == sizes[3] &&
                        memcmp(value, other_value, sizes[1]) == 0;
        if (!is_equal)
            return fail(failure,
                        "the ranks have different settings: rank 0 has %.*s %.*s%s, and rank %" PRIu32
                        " has %.*s %.*s%s; give all ranks the same %s",
                        (int)sizes[0], name, (int)sizes[1], value, sizes[1] ? "" : "none", rank, (int)sizes[2],
                        other_name, (int)sizes[3], other_value, sizes[3] ? "" : "none",
                        sizes[0] >= 6 && memcmp(name, "--data", 6) == 0 ? "data" : "options");
    }
    return fail(failure,
                "the ranks have different settings: rank 0 and rank %" PRIu32
                " have different numbers of --codec or --density-schedule; give all ranks the same options",
                rank);
}

enum verdict settings_agree(const struct team *team, const struct train_settings *settings, const struct dataset *data,
                            struct failure *failure)
{
    struct setting *list = malloc(SETTINGS_MOST * sizeof *list);
    struct blob blob = {0};
    size_t count = list ? settings_list(settings, data, list) : 0;
    for (size_t i = 0; i < count; i++) {
        blob_put_block(&blob, list[i].name, strlen(list[i].name));
        blob_put_block(&blob, list[i].value, strlen(list[i].value));
    }
    free(list);
    struct shared_bytes *all = team_share(team, blob.bytes, blob.size, false, failure);
    blob_free(&blob);
    if (!all)
        return TEAM_LOST;
    enum verdict verdict = TEAM_WELL;
    for (uint32_t i = 1; i < team->world && verdict == TEAM_WELL; i++)
        if (!is_same(&all->parts[0], &all->parts[i], i, failure))
            verdict = TEAM_FAILED;
    shared_bytes_free(all);
    return verdict;
}
