/* See spec_list.h. The variants are only offered: one that the library does not take is left out. */
#include "spec_list.h"

#include "suggest.h"

#include <stdio.h>
#include <string.h>

static const char *const variants[] = {
    "qsgd:levels=7,norm=max",
    "qsgd:levels=7,norm=l2",
    "qsgd:levels=7,norm=max,coding=entropy",
    "qsgd:levels=7,norm=l2,coding=entropy",
    "qsgd:levels=127,norm=max",
    "qsgd:levels=127,norm=l2",
    "qsgd:levels=127,norm=l2,coding=entropy",
    "topk:density=0.1",
    "topk:density=0.01",
    "topk:density=0.001",
};

static tg_status find_info(uint8_t id, tg_codec_info *info)
{
    for (size_t i = 0; tg_codec_list(i, info) == TG_OK; i++)
        if (info->id == id)
            return TG_OK;
    return TG_UNKNOWN_CODEC;
}

static bool make_item(const char *text, struct listed_spec *item, struct failure *failure)
{
    if (!parse_spec(text, &item->spec, failure))
        return false;
    tg_status status = find_info(item->spec.codec, &item->info);
    if (status != TG_OK)
        return fail(failure, "%s", tg_status_text(status));
    if (strlen(text) >= sizeof item->text)
        return fail(failure, "the spec '%.40s...' is too long", text);
    strcpy(item->label, text);
    strcpy(item->text, text);
    return true;
}

static bool is_listed(const struct spec_list *list, const tg_spec *spec)
{
    for (size_t i = 0; i < list->count; i++)
        if (memcmp(&list->items[i].spec, spec, sizeof *spec) == 0)
            return true;
    return false;
}

/* A spec of the standard list: written out in full for machines, and not twice. */
static void offer(struct spec_list *list, const char *text)
{
    struct listed_spec item;
    struct failure ignored;
    if (list->count == SPEC_LIST_MAX || !make_item(text, &item, &ignored) || is_listed(list, &item.spec))
        return;
    if (tg_spec_print(&item.spec, item.text, sizeof item.text, NULL) == TG_OK)
        list->items[list->count++] = item;
}

bool spec_list_fill(struct spec_list *list, const struct text_list *texts, struct failure *failure)
{
    list->count = 0;
    for (size_t i = 0; texts && i < texts->count; i++)
        if (!make_item(texts->items[i], &list->items[list->count++], failure))
            return false;
    if (list->count > 0)
        return true;
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++) {
        size_t length = strlen(info.name);
        for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++)
            if (strncmp(variants[v], info.name, length) == 0 && variants[v][length] == ':')
                offer(list, variants[v]);
        offer(list, info.name);
    }
    return true;
}
