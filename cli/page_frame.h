/* What is around a page: its head, its colours, where it comes from. One file, nothing from elsewhere. */
#ifndef CLI_PAGE_FRAME_H
#define CLI_PAGE_FRAME_H

#include "complain.h"
#include "origin.h"

#include <stdio.h>

/* From the beginning to the heading and a paragraph below it. */
void page_put_head(FILE *out, const char *command, const char *heading, const char *description);

/* The last section: the command, then items of the page's own, then the rest and the end. */
void page_put_command(FILE *out, const struct origin *origin);
void page_put_item(FILE *out, const char *name, const char *text);
void page_put_end(FILE *out, const struct origin *origin);

/* Writes the file once `put` has made all of it. */
bool page_save(const char *path, bool (*put)(FILE *out, const void *page), const void *page, struct failure *failure);

#endif
