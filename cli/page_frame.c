/* See page_frame.h. */
#include "page_frame.h"

#include "chart.h"
#include "files.h"

#include <stdlib.h>

static const char style[] =
    ":root{color-scheme:light dark;--page:#fbfbfa;--ink:#1d1d1f;--soft:#5c5c61;--grid:#e3e3e0;--box:#fff;"
    "--c0:#5c5c61;--c1:#0b62c4;--c2:#c2410c;--c3:#0f766e;--c4:#a21caf;--c5:#a16207;--c6:#be123c;--c7:#4d7c0f;"
    "--t0:#c9c9c6;--t1:#8b8b88;--t2:#0b62c4;--t3:#f0953f;--t4:#4ba3a0;--t5:#b9a3d6}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#151517;--ink:#ededf0;--soft:#a5a5ad;--grid:#323238;--box:#1d1d20;"
    "--c0:#b4b4bc;--c1:#69b1ff;--c2:#ff9b66;--c3:#4fd1c5;--c4:#e58cf0;--c5:#e3b341;--c6:#ff8fa3;--c7:#a3d65c;"
    "--t0:#4a4a50;--t1:#7f7f87;--t2:#69b1ff;--t3:#f0a35a;--t4:#5cc4bd;--t5:#c0a8e6}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:76rem;margin:0 auto;padding:1.25rem 1rem 3rem}\n"
    "h1{font-size:1.5rem;line-height:1.2;margin:0 0 .4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 "
    ".6rem}\n"
    "p{margin:.3rem 0;color:var(--soft);overflow-wrap:anywhere;max-width:60rem}\n"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr))}\n"
    "figure{margin:0;padding:.8rem .8rem .4rem;background:var(--box);border:1px solid "
    "var(--grid);border-radius:.6rem;min-width:0}\n"
    "figcaption{font-weight:600;margin-bottom:.3rem;overflow-wrap:anywhere}\n"
    "svg{display:block;width:100%;height:auto;max-width:36rem;font:12.5px system-ui,sans-serif}\n"
    ".scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:.6rem;background:var(--box)}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;width:100%}\n"
    "th,td{padding:.45rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}\n"
    "tr:last-child td,tr:last-child th{border-bottom:0}thead th{color:var(--soft);font-weight:600}\n"
    "th:first-child,.left{text-align:left}tbody th{font-weight:500}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:0;color:var(--soft)}"
    "dd{margin:0;min-width:0;overflow-wrap:anywhere}.stopped{color:var(--ink);font-weight:600}\n"
    "code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--soft)}.tick{fill:var(--soft);font-size:12px}.name{fill:var(--soft)}\n"
    ".end{text-anchor:end}.middle{text-anchor:middle}.label{font-weight:600}.plain{fill:var(--ink)}\n"
    ".line,.outline,.mark,.cross{fill:none;stroke-linejoin:round}.outline,.mark,.cross{stroke-width:2}\n"
    ".hover{fill:transparent}.hover:hover{fill:var(--ink)}\n"
    ".d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}.d4{stroke-dasharray:14 4}"
    ".d5{stroke-dasharray:4 6}.d6{stroke-dasharray:12 3 2 3 2 3}.d7{stroke-dasharray:1 6}\n"
    ".legend{list-style:none;margin:.2rem 0;padding:0;display:flex;flex-wrap:wrap;gap:.1rem .9rem;font-size:.85rem}\n"
    ".legend li{overflow-wrap:anywhere;min-width:0}.note{font-size:.85rem}\n"
    "svg.key{display:inline-block;width:30px;height:8px;margin-right:.4em;vertical-align:middle}\n"
    ".early{opacity:.5;stroke-dasharray:4 3}\n"
    ".mark{stroke-width:1.5}.outline.late{stroke-width:2.2}\n";

void page_put_head(FILE *out, const char *command, const char *heading, const char *description)
{
    enum { STAGES = 6 };
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>tersegrad %s: ",
            command);
    put_html(out, heading);
    fprintf(out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s", style);
    for (unsigned i = 0; i < CHART_COLOURS; i++)
        fprintf(out, "svg .c%u{stroke:var(--c%u)}svg text.c%u{stroke:none;fill:var(--c%u)}", i, i, i, i);
    for (unsigned i = 0; i < STAGES; i++)
        fprintf(out, "svg .t%u{fill:var(--t%u)}", i, i);
    fputs("\n</style>\n</head>\n<body>\n<main>\n<h1>", out);
    put_html(out, heading);
    fputs("</h1>\n<p>", out);
    put_html(out, description);
    fputs("</p>\n", out);
}

void page_put_item(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<dt>%s</dt><dd>", name);
    put_html(out, text);
    fputs("</dd>\n", out);
}

void page_put_command(FILE *out, const struct origin *origin)
{
    fputs("<h2>Provenance</h2>\n<dl>\n<dt>command</dt><dd><code>", out);
    put_html(out, origin->command);
    fputs("</code></dd>\n", out);
}

void page_put_end(FILE *out, const struct origin *origin)
{
    char version[64];
    page_put_item(out, "date", origin->date);
    page_put_item(out, "host", origin->host);
    snprintf(version, sizeof version, "tersegrad %s", tg_version());
    page_put_item(out, "version", version);
    fputs("</dl>\n</main>\n</body>\n</html>\n", out);
}

bool page_save(const char *path, bool (*put)(FILE *out, const void *page), const void *page, struct failure *failure)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return fail(failure, "out of memory for the report");
    bool is_done = put(out, page) && !ferror(out);
    is_done = fclose(out) == 0 && is_done;
    struct piece piece = {text, size};
    is_done = is_done ? write_file(path, &piece, 1, failure) : fail(failure, "out of memory for the report");
    free(text);
    return is_done;
}
