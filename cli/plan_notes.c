/* What a plan rests on, input by input. See plan.h. */
#include "plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more note of so many bytes; NULL without memory. */
static char *next_note(struct plan *plan, size_t size)
{
    char **notes = realloc(plan->notes, (plan->note_count + 1) * sizeof *notes);
    if (!notes)
        return NULL;
    plan->notes = notes;
    return notes[plan->note_count] = malloc(size);
}

void plan_note(struct plan *plan, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *note = length < 0 ? NULL : next_note(plan, (size_t)length + 1);
    if (!note) {
        plan->lacks_notes = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(note, (size_t)length + 1, format, arguments);
    va_end(arguments);
    plan->note_count++;
}

void plan_notes_free(struct plan *plan)
{
    for (size_t i = 0; i < plan->note_count; i++)
        free(plan->notes[i]);
    free(plan->notes);
}

void plan_note_job(struct plan *plan)
{
    const struct plan_options *o = plan->options;
    const char *otherwise = plan->probe ? "measured" : "assumed";
    plan_note(plan, "%s: %s; %s: %" PRIu32 " rank%s; %s: %" PRIu32 " on a host",
              o->layout || o->model >= 0 ? "stated" : "assumed", o->layout ? "the tensors of the layout" : plan->what,
              o->world ? "stated" : otherwise, plan->job.world, plan->job.world == 1 ? "" : "s",
              o->per_node ? "stated" : otherwise, plan->job.per_node);
    if (o->flat && plan->job.per_node > 1)
        plan_note(plan, "stated: every rank exchanges with every other (--flat)");
    if (o->min_size > 0)
        plan_note(plan, "stated: tensors of fewer than %" PRIu64 " elements are not compressed", o->min_size);
    plan_note(plan, "%s: coding takes %.2f times as long while computing (--kappa 1: a card computes)",
              o->kappa > 0 ? "stated" : otherwise, plan->job.kappa);
}

static bool was_not_probed(const struct plan_row *row) { return row->was_not_probed; }
static bool is_too_slow(const struct plan_row *row) { return row->is_too_slow; }
static bool was_probed_otherwise(const struct plan_row *row) { return row->probed_feedback[0]; }

/* Writes the names of codecs of which that is true; a codec's two rows follow each other. */
static void put_names(const struct plan *plan, bool (*is_meant)(const struct plan_row *row), FILE *out)
{
    const char *before = "";
    const uint32_t world = plan->job.world;
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        const bool has_second = i + 1 < plan->row_count && row->options.algorithm == TG_GATHER && !row->is_ring &&
                                plan_has_row(&row[1], world);
        if (!plan_has_row(row, world) || !is_meant(row))
            continue;
        fprintf(out, "%s%s", before, row->name);
        before = ", ";
        if (row->probed_feedback[0])
            fprintf(out, " (probed: %s)", row->probed_feedback);
        if (has_second && is_meant(&row[1]))
            i++;
        else if (has_second || row->options.algorithm == TG_SHARD)
            fprintf(out, " by %s", tg_algorithm_text(row->options.algorithm));
    }
}

/* "assumed: coding as fast as ..." and the names, if there are any. */
static void note_names(struct plan *plan, bool (*is_meant)(const struct plan_row *row), const char *what)
{
    char *names = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&names, &size);
    if (out)
        put_names(plan, is_meant, out);
    if (!out || fclose(out) != 0)
        plan->lacks_notes = true;
    else if (size > 0)
        plan_note(plan, "%s: %s", what, names);
    free(names);
}

void plan_note_coding(struct plan *plan)
{
    const char *source = predict_costs_source(plan->device);
    char what[200];
    if (!plan->probe) {
        plan_note(plan, "assumed: coding as fast as on %s", source);
        return;
    }
    snprintf(what, sizeof what, "assumed: coding as fast as on %s, where not probed", source);
    note_names(plan, was_not_probed, what);
    note_names(plan, was_probed_otherwise, "assumed: coding as fast as with the feedback that was probed");
}

void plan_note_too_slow(struct plan *plan)
{
    char what[200];
    snprintf(what, sizeof what,
             "not simulated: even without unevenness they take over %d times as long as the best of their kind, with a "
             "codec or without",
             PLAN_TOO_SLOW);
    note_names(plan, is_too_slow, what);
}
