/* CUDA graphs of what a benchmark times, by way of the driver: the command needs no CUDA to be built, and a card's work
 * is timed without what the host does for each launch. */
#ifndef CLI_BENCH_GRAPH_H
#define CLI_BENCH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

struct graphs {
    void *driver, *stream;
};

/* A stream that can be captured, of the first card or of "cuda:N"; false where there is none, as on an emulated card.
 * Then the stream is NULL. */
bool graphs_open(struct graphs *graphs, const char *device_name);
void graphs_close(struct graphs *graphs);

/* What is put on the stream in between becomes a graph; NULL where that failed. */
bool graph_begin(const struct graphs *graphs);
void *graph_end(const struct graphs *graphs);
bool graph_launch(const struct graphs *graphs, void *graph);
void graph_free(const struct graphs *graphs, void *graph);

#endif
