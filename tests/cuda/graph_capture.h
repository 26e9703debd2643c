/* Graphs of the emulated card, or of a real one through its driver, so that tests need no CUDA to be built. */
#ifndef TESTS_CUDA_GRAPH_CAPTURE_H
#define TESTS_CUDA_GRAPH_CAPTURE_H

#include <dlfcn.h>
#include <stdint.h>

#include "tersegrad.h"

static struct {
    void *driver, *module, *stream;
    void (*begin)(void); /* the emulated card's */
    void *(*end)(void);
    void (*launch)(const void *);
    void (*forget)(void *);
} capture;

static int ask_driver(const char *name, void *a, void *b, void *c)
{
    int (*function)(void *, void *, void *) = NULL;
    *(void **)&function = dlsym(capture.driver, name);
    return function ? function(a, b, c) : -1;
}

/* A stream of the first card, made current for this thread; NULL, or why not. */
static const char *open_stream(void)
{
    void *context = NULL;
    capture.driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!capture.driver)
        return "there is no driver";
    if (ask_driver("cuInit", (void *)0, NULL, NULL) != 0 ||
        ask_driver("cuDevicePrimaryCtxRetain", &context, (void *)0, NULL) != 0 ||
        ask_driver("cuCtxSetCurrent", context, NULL, NULL) != 0 ||
        ask_driver("cuStreamCreate", &capture.stream, (void *)1, NULL) != 0)
        return "the driver makes no stream";
    return NULL;
}

/* Opens a device with a stream that can be captured. */
static const char *capture_open(const char *name, tg_device **device, tg_error *error)
{
    if (tg_device_open(name, NULL, device, error) != TG_OK)
        return error->message;
    capture.module = dlopen("libtersegrad_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    if (capture.module) {
        *(void **)&capture.begin = dlsym(capture.module, "emulated_begin_capture");
        *(void **)&capture.end = dlsym(capture.module, "emulated_end_capture");
        *(void **)&capture.launch = dlsym(capture.module, "emulated_launch");
        *(void **)&capture.forget = dlsym(capture.module, "emulated_forget");
    }
    if (capture.begin)
        return NULL;
    tg_device_free(*device);
    const char *why = open_stream();
    if (why)
        return why;
    return tg_device_open(name, capture.stream, device, error) == TG_OK ? NULL : error->message;
}

static void capture_begin(void)
{
    if (capture.begin)
        capture.begin();
    else
        (void)ask_driver("cuStreamBeginCapture_v2", capture.stream, (void *)1, NULL); /* of this thread */
}

/* NULL where it failed. */
static void *capture_end(void)
{
    void *graph = NULL, *made = NULL;
    if (capture.begin)
        return capture.end();
    if (ask_driver("cuStreamEndCapture", capture.stream, &graph, NULL) != 0 ||
        ask_driver("cuGraphInstantiateWithFlags", &made, graph, (void *)0) != 0)
        return NULL;
    (void)ask_driver("cuGraphDestroy", graph, NULL, NULL);
    return made;
}

static void capture_launch(void *graph)
{
    if (capture.begin)
        capture.launch(graph);
    else
        (void)ask_driver("cuGraphLaunch", graph, capture.stream, NULL);
}

static void capture_forget(void *graph)
{
    if (capture.begin)
        capture.forget(graph);
    else
        (void)ask_driver("cuGraphExecDestroy", graph, NULL, NULL);
}

static void capture_close(void)
{
    if (capture.stream)
        (void)ask_driver("cuStreamDestroy_v2", capture.stream, NULL, NULL);
    if (capture.module)
        (void)dlclose(capture.module);
}

#endif
