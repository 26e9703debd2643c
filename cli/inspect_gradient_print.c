/* What was found in a gradient, for people and as JSON. */
#include "inspect_gradient.h"
#include "json_writer.h"
#include "table.h"
#include "terminal.h"

#include <math.h>
#include <stdio.h>

static double percent(uint64_t part, uint64_t whole) { return whole ? 100 * (double)part / (double)whole : 0; }

/* ---- for people ---- */

static void print_heading(const char *text)
{
    printf("\n%s%s%s\n", colour_on(stdout, COLOUR_HEADING), text, colour_off(stdout));
}

static void print_moments(const struct moments *m)
{
    char number[GROUPED_MAX];
    if (m->count > m->nonfinite) {
        printf("  mean        %.5g\n", m->mean);
        printf("  std         %.5g\n", m->std);
        printf("  max |x|     %.5g\n", m->max_abs);
        if (isfinite(m->kurtosis))
            printf("  kurtosis    %.4g (a Gaussian has 3)\n", m->kurtosis);
    }
    printf("  zeros       %s (%.3g %%)\n", grouped(m->zeros, number), percent(m->zeros, m->count));
    printf("  not finite  %s%s%s\n", m->nonfinite ? colour_on(stdout, COLOUR_BAD) : "", grouped(m->nonfinite, number),
           m->nonfinite ? colour_off(stdout) : "");
}

static void print_bin(const char *label, uint64_t count, uint64_t total, uint64_t largest)
{
    char number[GROUPED_MAX];
    size_t room = terminal_width(stdout) - 40;
    printf("  %s %13s %5.1f %%  ", label, grouped(count, number), percent(count, total));
    fputs(colour_on(stdout, COLOUR_BAR), stdout);
    draw_bar(stdout, largest ? (double)count / (double)largest : 0, room > 60 ? 60 : room);
    printf("%s\n", colour_off(stdout));
}

static void print_histogram(const struct gradient_view *view)
{
    const struct histogram *h = &view->histogram;
    uint64_t zeros = view->moments.zeros, tiny = h->counts[0] - zeros, total = view->moments.count;
    uint64_t largest = zeros > tiny ? zeros : tiny;
    int first = HISTOGRAM_BINS;
    for (int i = HISTOGRAM_BINS - 1; i > 0; i--) {
        largest = h->counts[i] > largest ? h->counts[i] : largest;
        first = h->counts[i] ? i : first;
    }
    print_heading("Magnitudes");
    if (zeros > 0)
        print_bin("          0", zeros, total, largest);
    char label[32];
    if (tiny > 0) {
        snprintf(label, sizeof label, "< %9.1e", h->edges[1]);
        print_bin(label, tiny, total, largest);
        first = 1;
    }
    for (int i = first; i < HISTOGRAM_BINS; i++) {
        snprintf(label, sizeof label, "≥ %9.1e", h->edges[i]);
        print_bin(label, h->counts[i], total, largest);
    }
}

static void print_layers(const struct gradient_view *view, bool wide)
{
    if (view->layout.count == 0)
        return;
    print_heading("Layers");
    struct table table;
    table_start(&table, wide ? "llrrrrr" : "lrrrrr");
    table_cell(&table, "name");
    if (wide)
        table_cell(&table, "shape");
    table_cell(&table, "elements");
    table_cell(&table, "std");
    table_cell(&table, "max |x|");
    table_cell(&table, "zeros");
    table_cell(&table, "energy");
    for (size_t i = 0; i < view->layout.count; i++) {
        const struct layer *layer = &view->layout.layers[i];
        const struct moments *m = &view->layers[i];
        char number[GROUPED_MAX];
        table_cell(&table, "%s", layer->name);
        if (wide)
            table_cell(&table, "%s", layer->shape);
        table_cell(&table, "%s", grouped(layer->count, number));
        table_cell(&table, "%.3g", m->std);
        table_cell(&table, "%.3g", m->max_abs);
        table_cell(&table, "%.1f %%", percent(m->zeros, m->count));
        table_cell(&table, "%.1f %%", view->moments.energy > 0 ? 100 * m->energy / view->moments.energy : 0);
    }
    if (!wide)
        table_fit(&table, 0, terminal_width(stdout));
    table_end(&table, stdout);
}

static void print_share(const struct topk_share *share)
{
    if (share->k == 0)
        return;
    char number[GROUPED_MAX];
    print_heading("Top-k");
    printf("  k = %s, density %.4g\n", grouped(share->k, number), share->density);
    if (isfinite(share->ratio))
        printf("  |u - Top_k(u)|^2 / |u|^2   %.5f\n", share->ratio);
    printf("  (1 - k/d)^2                %.5f\n", share->bound_tight);
    printf("  1 - k/d                    %.5f\n", share->bound_classic);
}

static void print_suits(const struct suits *suits)
{
    if (suits->row_count == 0)
        return;
    print_heading("Codecs, tried on it");
    print_wrapped(stdout, "error: |decoded - x|^2 / |x|^2 of one encode without feedback", 2);
    struct table table;
    table_start(&table, "lrrl");
    table_cell(&table, "codec");
    table_cell(&table, "bits");
    table_cell(&table, "error");
    table_cell(&table, "%s", "");
    for (size_t i = 0; i < suits->row_count; i++) {
        const struct suit_row *row = &suits->rows[i];
        table_cell(&table, "%s", row->spec->label);
        table_cell(&table, "%.4f", row->measurement.bits_per_element);
        if (isfinite(row->measurement.relative_error))
            table_cell(&table, "%.3g", row->measurement.relative_error);
        else
            table_cell(&table, "-");
        table_cell(&table, "%s", row->unstable ? "diverges with ef" : "");
    }
    table_fit(&table, 3, terminal_width(stdout));
    table_end(&table, stdout);
    print_heading("In short");
    for (size_t i = 0; i < suits->advice_count; i++)
        print_wrapped(stdout, suits->advice[i], 2);
}

void gradient_view_text(const struct gradient_view *view, const char *path, bool wide)
{
    char number[GROUPED_MAX];
    print_clean(stdout, path);
    printf(": %s elements of %s\n", grouped(view->moments.count, number), view->dtype);
    print_moments(&view->moments);
    if (view->moments.count == 0)
        return;
    print_histogram(view);
    print_layers(view, wide);
    print_share(&view->share);
    print_suits(view->suits);
}

/* ---- for machines ---- */

static void put_moments(struct json_writer *json, const struct moments *m)
{
    json_put_unsigned(json, "count", m->count);
    json_put_real(json, "mean", m->mean);
    json_put_real(json, "std", m->std);
    json_put_real(json, "max_abs", m->max_abs);
    json_put_unsigned(json, "zeros", m->zeros);
    json_put_unsigned(json, "nonfinite", m->nonfinite);
    json_put_real(json, "kurtosis", m->kurtosis);
}

static void put_histogram(struct json_writer *json, const struct histogram *h)
{
    json_open_object(json, "histogram");
    json_open_row(json, "edges");
    for (int i = 0; i <= HISTOGRAM_BINS; i++)
        json_put_real(json, NULL, h->edges[i]);
    json_close_array(json);
    json_open_row(json, "counts");
    for (int i = 0; i < HISTOGRAM_BINS; i++)
        json_put_unsigned(json, NULL, h->counts[i]);
    json_close_array(json);
    json_close_object(json);
}

static void put_layers(struct json_writer *json, const struct gradient_view *view)
{
    json_open_array(json, "layers");
    for (size_t i = 0; i < view->layout.count; i++) {
        json_open_object(json, NULL);
        json_put_text(json, "name", view->layout.layers[i].name);
        json_put_unsigned(json, "offset", view->layout.layers[i].offset);
        put_moments(json, &view->layers[i]);
        json_close_object(json);
    }
    json_close_array(json);
}

static void put_suits(struct json_writer *json, const struct suits *suits)
{
    json_open_array(json, "codecs");
    for (size_t i = 0; i < suits->row_count; i++) {
        const struct suit_row *row = &suits->rows[i];
        json_open_object(json, NULL);
        json_put_text(json, "codec", row->spec->text);
        json_put_unsigned(json, "bytes", row->measurement.bytes);
        json_put_real(json, "bits_per_element", row->measurement.bits_per_element);
        json_put_real(json, "relative_error", row->measurement.relative_error);
        json_put_bool(json, "unstable_feedback", row->unstable);
        json_close_object(json);
    }
    json_close_array(json);
    json_open_array(json, "advice");
    for (size_t i = 0; i < suits->advice_count; i++)
        json_put_text(json, NULL, suits->advice[i]);
    json_close_array(json);
}

void gradient_view_json(const struct gradient_view *view)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    put_moments(&json, &view->moments);
    json_put_text(&json, "dtype", view->dtype);
    json_put_real(&json, "density", view->share.density);
    json_put_unsigned(&json, "k", view->share.k);
    json_put_real(&json, "topk_ratio", view->share.ratio);
    json_put_real(&json, "bound_tight", view->share.bound_tight);
    json_put_real(&json, "bound_classic", view->share.bound_classic);
    put_histogram(&json, &view->histogram);
    if (view->layout.count > 0)
        put_layers(&json, view);
    put_suits(&json, view->suits);
    json_close_object(&json);
}
