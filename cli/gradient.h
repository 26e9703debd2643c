/* A gradient from a .npy file, ready for the library. */
#ifndef CLI_GRADIENT_H
#define CLI_GRADIENT_H

#include "files.h"
#include "common/npy.h"

struct gradient {
    tg_tensor tensor;
    enum npy_type file_type; /* as it was stored: NPY_F8 was narrowed to float32 */
    void *storage;
};

/* Takes over file->bytes, also on failure. `name` is for the message. With `as_float32`, float16 is widened. */
bool gradient_from_bytes(struct file_bytes *file, const char *name, bool as_float32, struct gradient *gradient,
                         struct failure *failure);

bool gradient_load(const char *path, bool as_float32, struct gradient *gradient, struct failure *failure);

/* Says on stderr that float64 was narrowed, if it was. */
void gradient_warn(const struct gradient *gradient, const char *command, const char *path);

void gradient_free(struct gradient *gradient);

#endif
