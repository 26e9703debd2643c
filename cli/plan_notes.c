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

/* Writes the names of codecs that were not probed; a codec's two rows follow each other. */
static void put_not_probed(const struct plan *plan, FILE *out)
{
    const char *before = "";
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        const bool has_second = i + 1 < plan->row_count && row->options.algorithm == TG_GATHER && !row->is_ring;
        if (!row->was_not_probed)
            continue;
        fprintf(out, "%s%s", before, row->name);
        before = ", ";
        if (has_second && row[1].was_not_probed)
            i++;
        else if (has_second || row->options.algorithm == TG_SHARD)
            fprintf(out, " by %s", tg_algorithm_text(row->options.algorithm));
    }
}

void plan_note_coding(struct plan *plan)
{
    const char *source = predict_costs_source((enum predict_device)plan->options->device);
    char *names = NULL;
    size_t size = 0;
    if (!plan->probe) {
        plan_note(plan, "assumed: coding as fast as on %s", source);
        return;
    }
    FILE *out = open_memstream(&names, &size);
    if (out)
        put_not_probed(plan, out);
    if (!out || fclose(out) != 0)
        plan->lacks_notes = true;
    else if (size > 0)
        plan_note(plan, "assumed: coding as fast as on %s, where not probed: %s", source, names);
    free(names);
}
