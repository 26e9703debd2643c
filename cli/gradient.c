/* .npy bytes to a tensor; see gradient.h. */
#include "gradient.h"

#include <inttypes.h>
#include <stdlib.h>

static bool unpack(struct file_bytes *file, const char *name, bool as_float32, struct gradient *gradient,
                   struct failure *failure)
{
    struct npy npy;
    struct failure reason;
    if (!npy_parse(file->bytes, file->size, &npy, &reason))
        return fail(failure, "cannot read '%s': %s", name, reason.text);
    if (npy.count > TG_MAX_COUNT)
        return fail(failure, "cannot read '%s': it has %" PRIu64 " elements, and one vector may have %" PRIu32, name,
                    npy.count, TG_MAX_COUNT);
    if (npy.type == NPY_F2 && as_float32) {
        size_t needed = (size_t)npy.count * 4 > file->size ? (size_t)npy.count * 4 : file->size;
        uint8_t *larger = realloc(file->bytes, needed);
        if (!larger)
            return fail(failure, "cannot read '%s': out of memory for %zu bytes", name, needed);
        file->bytes = larger;
    }
    gradient->file_type = npy.type;
    gradient->tensor.dtype = npy_unpack(file->bytes, &npy, as_float32) == NPY_F2 ? TG_FLOAT16 : TG_FLOAT32;
    gradient->tensor.count = npy.count;
    gradient->tensor.data = file->bytes;
    gradient->storage = file->bytes;
    return true;
}

bool gradient_from_bytes(struct file_bytes *file, const char *name, bool as_float32, struct gradient *gradient,
                         struct failure *failure)
{
    *gradient = (struct gradient){0};
    bool is_unpacked = unpack(file, name, as_float32, gradient, failure);
    if (!is_unpacked)
        free(file->bytes);
    *file = (struct file_bytes){0};
    return is_unpacked;
}

bool gradient_load(const char *path, bool as_float32, struct gradient *gradient, struct failure *failure)
{
    struct file_bytes file;
    const char *name = is_standard_stream(path) ? "standard input" : path;
    return read_file(path, &file, failure) && gradient_from_bytes(&file, name, as_float32, gradient, failure);
}

void gradient_warn(const struct gradient *gradient, const char *command, const char *path)
{
    if (gradient->file_type == NPY_F8)
        warn(command, "'%s' holds float64; it was narrowed to float32", path);
}

void gradient_free(struct gradient *gradient)
{
    free(gradient->storage);
    *gradient = (struct gradient){0};
}
