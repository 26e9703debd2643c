/* The few functions of the driver that make graphs. */
#include "bench_graph.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool ask(const struct graphs *graphs, const char *name, void *a, void *b, void *c)
{
    int (*function)(void *, void *, void *) = NULL;
    void *found = graphs->driver ? dlsym(graphs->driver, name) : NULL;
    memcpy(&function, &found, sizeof found); /* ISO C has no cast from object to function pointers */
    return function && function(a, b, c) == 0;
}

static void *number(size_t n) { return (void *)(uintptr_t)n; }

bool graphs_open(struct graphs *graphs, const char *device_name)
{
    const char *digits = strchr(device_name, ':');
    void *context = NULL;
    *graphs = (struct graphs){.driver = dlopen("libcuda.so.1", RTLD_NOW)};
    if (ask(graphs, "cuInit", number(0), NULL, NULL) &&
        ask(graphs, "cuDevicePrimaryCtxRetain", &context, number(digits ? strtoul(digits + 1, NULL, 10) : 0), NULL) &&
        ask(graphs, "cuCtxSetCurrent", context, NULL, NULL) &&
        ask(graphs, "cuStreamCreate", &graphs->stream, number(1), NULL))
        return true;
    graphs_close(graphs);
    return false;
}

void graphs_close(struct graphs *graphs)
{
    if (graphs->stream)
        (void)ask(graphs, "cuStreamDestroy_v2", graphs->stream, NULL, NULL);
    if (graphs->driver)
        (void)dlclose(graphs->driver);
    *graphs = (struct graphs){.driver = NULL};
}

bool graph_begin(const struct graphs *graphs)
{
    return graphs->stream && ask(graphs, "cuStreamBeginCapture_v2", graphs->stream, number(1), NULL);
}

void *graph_end(const struct graphs *graphs)
{
    void *graph = NULL, *made = NULL;
    if (!ask(graphs, "cuStreamEndCapture", graphs->stream, &graph, NULL))
        return NULL;
    if (!ask(graphs, "cuGraphInstantiateWithFlags", &made, graph, number(0)))
        made = NULL;
    (void)ask(graphs, "cuGraphDestroy", graph, NULL, NULL);
    return made;
}

bool graph_launch(const struct graphs *graphs, void *graph)
{
    return ask(graphs, "cuGraphLaunch", graph, graphs->stream, NULL);
}

void graph_free(const struct graphs *graphs, void *graph)
{
    if (graph)
        (void)ask(graphs, "cuGraphExecDestroy", graph, NULL, NULL);
}
