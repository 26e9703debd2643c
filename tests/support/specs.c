/* The specs that laws run over, made from the codec table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { MOST = 400 };
static char *specs[MOST + 1];
static size_t spec_count;

/* Adds a spec if it is one, and not there yet. */
static void add(const char *text)
{
    tg_spec spec;
    char canonical[TG_SPEC_TEXT];
    if (tg_spec_parse(text, &spec, NULL) != TG_OK || tg_spec_print(&spec, canonical, sizeof canonical, NULL) != TG_OK)
        return;
    for (size_t i = 0; i < spec_count; i++)
        if (strcmp(specs[i], canonical) == 0)
            return;
    if (spec_count == MOST)
        abort();
    specs[spec_count] = malloc(strlen(canonical) + 1);
    strcpy(specs[spec_count++], canonical);
}

/* Values worth trying for a parameter: its words, or numbers at the edges and in between. */
static const char *values_of(const tg_parameter_info *p)
{
    if (strchr(p->range, '|'))
        return p->range;
    if (strcmp(p->name, "levels") == 0)
        return "1|2|3|7|15|127|128|1000|32767";
    if (strcmp(p->name, "bucket") == 0)
        return "0|1|16|100|512|4096|5000|4294967295";
    if (strcmp(p->name, "density") == 0)
        return "0.000000001|0.001|0.01|0.1|0.8|1";
    if (strcmp(p->name, "k") == 0)
        return "1|5|1000000";
    if (strcmp(p->name, "clip") == 0)
        return "0|1|2.5";
    return p->standard;
}

static void vary(const char *prefix, const tg_codec_info *info, const char *with)
{
    for (size_t i = 0; i < info->parameter_count; i++) {
        const tg_parameter_info *p = &info->parameters[i];
        for (const char *at = values_of(p); *at;) {
            size_t length = strcspn(at, "|");
            char text[2 * TG_SPEC_TEXT];
            snprintf(text, sizeof text, "%s%s%s%s=%.*s", prefix, with, *with ? "," : "", p->name, (int)length, at);
            add(text);
            at += length + (at[length] == '|');
        }
    }
}

static const char *const crossings[] = {
    "qsgd:levels=127,coding=entropy",
    "qsgd:levels=1,norm=l2,bucket=0,coding=auto",
    "qsgd:levels=1,norm=l2,bucket=0,coding=elias",
    "qsgd:levels=1000,coding=entropy",
    "qsgd:levels=32767,coding=entropy",
    "qsgd:levels=257,bucket=0,coding=auto",
    "topk:density=1,values=levels,levels=300,coding=entropy",
    "qsgd:levels=32767,coding=elias",
    "qsgd:levels=32767,range=minmax",
    "qsgd:bucket=0,norm=l2,coding=entropy",
    "qsgd:bucket=100,norm=l2,coding=elias",
    "qsgd:range=minmax,bucket=0,coding=auto",
    "qsgd:range=minmax,bucket=7,levels=3",
    "terngrad:clip=2.5,bucket=0,coding=entropy",
    "terngrad:clip=1,bucket=100,coding=elias",
    "topk:density=0.1,values=levels,coding=auto",
    "topk:density=0.5,values=levels,levels=127,coding=entropy,bucket=100",
    "topk:density=0.3,values=levels,range=minmax,coding=elias",
    "topk:density=1,values=fp16",
    "topk:k=5,values=levels",
    "gaussiank:density=0.1,values=bf16",
    "randk:density=0.5,values=levels,levels=1",
};

const char *const *all_specs(void)
{
    if (spec_count > 0)
        return (const char *const *)specs;
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++) {
        char prefix[64];
        add(info.name);
        snprintf(prefix, sizeof prefix, "%s:", info.name);
        vary(prefix, &info, "");
        if (info.sparse && i % 3 == 0) /* all share the payload: some of them stand for the rest */
            vary(prefix, &info, "density=0.3,values=levels");
    }
    for (size_t i = 0; i < sizeof crossings / sizeof crossings[0]; i++)
        add(crossings[i]);
    return (const char *const *)specs;
}

static unsigned own_part = 1, all_parts = 1, turn;

bool my_turn(void) { return turn++ % all_parts == own_part - 1; }

bool in_parts(void) { return all_parts > 1; }

void share_specs(unsigned part, unsigned parts)
{
    own_part = part;
    all_parts = parts;
    size_t kept = 0, whole = 0;
    for (all_specs(); whole < spec_count; whole++) {
        if (whole % parts == part - 1)
            specs[kept++] = specs[whole];
        else
            free(specs[whole]);
    }
    for (size_t i = kept; i < spec_count; i++) /* some laws go on by several, to the next NULL */
        specs[i] = NULL;
    spec_count = kept;
}

void keep_specs_of(tg_device *device)
{
    size_t kept = 0, whole = 0;
    for (all_specs(); whole < spec_count; whole++) {
        if (has_codec(device, specs[whole]))
            specs[kept++] = specs[whole];
        else
            free(specs[whole]);
    }
    for (size_t i = kept; i < spec_count; i++) /* some laws go on by several, to the next NULL */
        specs[i] = NULL;
    spec_count = kept;
}

bool is_sparsifier(const char *spec)
{
    const size_t length = strcspn(spec, ":");
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        if (strlen(info.name) == length && strncmp(spec, info.name, length) == 0)
            return info.sparse;
    return false;
}

generator generator_for(const char *spec, uint64_t seed)
{
    generator g = {seed};
    for (const char *at = spec; *at; at++)
        g.state = next_random(&g) ^ (unsigned char)*at;
    return g;
}
