/* What the fuzz targets share. A target is one function that takes any bytes and aborts where a promise is broken;
 * libFuzzer calls it (make fuzz), or replay.c does for the files of a corpus (make check). */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "tersegrad.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise, in words. */
#define REQUIRE(condition, ...)                                                           \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                 \
            fputc('\n', stderr);                                                          \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* Exactly this many bytes, so that the address sanitizer sees one too many; never NULL. */
static inline void *exact_buffer(size_t size, int fill)
{
    void *buffer = malloc(size ? size : 1);
    REQUIRE(buffer, "%zu bytes of memory", size);
    memset(buffer, fill, size ? size : 1);
    return buffer;
}

/* Every device of this machine, "cpu/scalar" first; opened once, and never closed. */
#define FUZZ_DEVICES_MAX 8
static inline size_t open_devices(tg_device *devices[FUZZ_DEVICES_MAX])
{
    static tg_device *opened[FUZZ_DEVICES_MAX];
    static size_t count;
    if (count == 0) {
        tg_error error;
        REQUIRE(tg_device_open("cpu/scalar", NULL, &opened[count++], &error) == TG_OK, "%s", error.message);
        const char *name;
        for (size_t i = 0; (name = tg_device_list(i)) && count < FUZZ_DEVICES_MAX; i++)
            if (strcmp(name, "cpu/scalar") != 0)
                REQUIRE(tg_device_open(name, NULL, &opened[count++], &error) == TG_OK, "%s", error.message);
    }
    memcpy(devices, opened, sizeof opened);
    return count;
}

#endif
