/* A table for people: cells are added row by row, and the columns come out aligned. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "complain.h"

#include <stddef.h>
#include <stdio.h>

struct table {
    const char *alignment; /* one letter a column, 'l' or 'r' */
    size_t columns;
    char **cells;
    size_t count, capacity;
    size_t fitted_column, fitted_width; /* of table_fit; a width of 0: as wide as it comes */
    bool out_of_memory;
};

/* The first row is the heading. */
void table_start(struct table *table, const char *alignment);
void table_cell(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);

/* The table shall fit a terminal of that width: cells of one column (the first is 0) are cut for it, or folded if it is
 * the last one and aligned to the left. */
void table_fit(struct table *table, size_t column, size_t width);

/* Prints and frees the table. A last column that is aligned to the left is not padded. */
void table_end(struct table *table, FILE *out);

/* 1234567 as "1 234 567". Returns `text`. */
#define GROUPED_MAX 32
const char *grouped(uint64_t number, char text[GROUPED_MAX]);

#endif
