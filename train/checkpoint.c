/* The file of a checkpoint: what it was made with, the state of every run that has begun, a digest. It is written to a
 * temporary file, synced and renamed, so that a kill at any moment leaves the old one or the new one. */
#include "read.h"
#include "settings_text.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "tgtrain"
/* Version 4, in this machine's byte order: another kind of machine reads another number. */
static const uint64_t version = UINT64_C(0x0102030400000005);

/* ---- what it was made with ---- */

static void put_text(struct blob *blob, const char *text) { blob_put_block(blob, text, strlen(text)); }

static bool expect_text(struct worker *worker, struct blob_reader *reader, const char *name, const char *wanted)
{
    size_t size;
    const char *text = blob_get_block(reader, &size);
    if (size == strlen(wanted) && memcmp(text, wanted, size) == 0)
        return true;
    if (size == 0)
        (void)fail(&worker->failure, "'%s' was made without %s, but '%s' is given", worker->task->settings->resume,
                   name, wanted);
    else
        (void)fail(&worker->failure, "'%s' was made with %s %.*s, not %s", worker->task->settings->resume, name,
                   (int)(size < 200 ? size : 200), text, wanted[0] ? wanted : "the default");
    return worker_refuses(worker);
}

/* ---- writing ---- */

/* What was typed; the settings that last, codecs and feedback among them; then the state of each run. */
static void compose(const struct worker *worker, struct blob *blob)
{
    const struct train_settings *from = worker->task->settings;
    struct setting *settings = malloc(SETTINGS_MOST * sizeof *settings);
    if (!settings) {
        blob->out_of_memory = true;
        return;
    }
    size_t count = settings_list(from, &worker->task->data, settings);
    blob_put(blob, MAGIC, sizeof MAGIC);
    blob_put_number(blob, version);
    blob_put_block(blob, from->arguments, from->arguments_size);
    blob_put_number(blob, from->run_count);
    for (size_t i = 0; i < count; i++)
        if (settings[i].is_lasting)
            put_text(blob, settings[i].value);
    free(settings);
    for (size_t i = 0; i < from->run_count; i++)
        blob_put_block(blob, worker->saved[i].bytes, worker->saved[i].size);
    blob_put_number(blob, digest_bytes(blob->bytes, blob->size));
}

static bool write_all(int descriptor, const struct blob *blob)
{
    for (size_t done = 0; done < blob->size;) {
        ssize_t put = write(descriptor, blob->bytes + done, blob->size - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

static bool cannot_write(const char *path, int reason, struct failure *failure)
{
    return fail(failure, "cannot write the checkpoint '%s': %s", path, strerror(reason));
}

/* The name must be on the disk as well as the bytes. Some file systems cannot sync a directory; that alone is no
 * failure. */
static void sync_directory(const char *path)
{
    char folder[PATH_ROOM];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        close(descriptor);
    }
}

static bool is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* Always the same name: what a kill leaves behind is overwritten by the next one. */
static bool temporary_name(const char *path, char name[PATH_ROOM])
{
    return snprintf(name, PATH_ROOM, "%s.part", path) < PATH_ROOM;
}

static bool write_blob(const char *path, const struct blob *blob, struct failure *failure)
{
    char temporary[PATH_ROOM];
    bool is_direct = is_special(path);
    if (!temporary_name(path, temporary))
        return cannot_write(path, ENAMETOOLONG, failure);
    int descriptor = is_direct ? open(path, O_WRONLY) : open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (descriptor < 0)
        return cannot_write(path, errno, failure);
    bool is_written = write_all(descriptor, blob) && (is_direct || fsync(descriptor) == 0);
    int reason = errno;
    if (close(descriptor) != 0 && is_written) {
        is_written = false;
        reason = errno;
    }
    if (is_written && !is_direct && rename(temporary, path) != 0) {
        is_written = false;
        reason = errno;
    }
    if (!is_written) {
        if (!is_direct)
            unlink(temporary);
        return cannot_write(path, reason, failure);
    }
    if (!is_direct)
        sync_directory(path);
    return true;
}

bool checkpoint_write(struct worker *worker)
{
    bool is_well = true;
    if (worker->team.rank == 0) {
        struct blob blob = {0};
        compose(worker, &blob);
        is_well = blob.out_of_memory ? fail(&worker->failure, "out of memory for the checkpoint")
                                     : write_blob(worker->task->settings->checkpoint, &blob, &worker->failure);
        blob_free(&blob);
    }
    return worker_agrees(worker, is_well);
}

bool checkpoint_probe(const char *path, struct failure *failure)
{
    char temporary[PATH_ROOM];
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return cannot_write(path, EISDIR, failure);
    if (is_special(path))
        return true;
    if (!temporary_name(path, temporary))
        return cannot_write(path, ENAMETOOLONG, failure);
    int descriptor = open(temporary, O_WRONLY | O_CREAT, 0666);
    if (descriptor < 0)
        return cannot_write(path, errno, failure);
    close(descriptor);
    unlink(temporary);
    return true;
}

/* ---- reading ---- */

static bool load(const char *path, struct content *content, struct failure *failure)
{
    if (!read_content(path, content, failure))
        return false;
    uint64_t digest;
    if (content->size < sizeof MAGIC + 2 * sizeof digest || memcmp(content->bytes, MAGIC, sizeof MAGIC) != 0)
        return fail(failure, "'%s' is not a checkpoint of tersegrad train", path);
    memcpy(&digest, content->bytes + content->size - sizeof digest, sizeof digest);
    content->size -= sizeof digest;
    if (digest != digest_bytes(content->bytes, content->size))
        return fail(failure, "'%s' is damaged: checksum mismatch", path);
    return true;
}

char *checkpoint_arguments(const char *path, size_t *size)
{
    struct content content = {0};
    struct failure ignored;
    char *arguments = NULL;
    if (load(path, &content, &ignored)) {
        struct blob_reader reader = {content.bytes + sizeof MAGIC, content.bytes + content.size, false};
        const bool is_ours = blob_get_number(&reader) == version;
        const void *bytes = blob_get_block(&reader, size);
        if (is_ours && !reader.is_bad && *size > 0 && (arguments = malloc(*size)) != NULL) {
            memcpy(arguments, bytes, *size);
            arguments[*size - 1] = '\0';
        }
    }
    free(content.bytes);
    return arguments;
}

static bool expect_settings(struct worker *worker, struct blob_reader *reader)
{
    struct setting *settings = malloc(SETTINGS_MOST * sizeof *settings);
    if (!settings)
        return fail(&worker->failure, "out of memory");
    size_t count = settings_list(worker->task->settings, &worker->task->data, settings);
    bool is_same = true;
    for (size_t i = 0; i < count && is_same; i++)
        is_same = !settings[i].is_lasting || expect_text(worker, reader, settings[i].name, settings[i].value);
    free(settings);
    return is_same;
}

/* On every rank, from the bytes that rank 0 has read. */
static bool parse(struct worker *worker, const tg_state *bytes, tg_state saved[TRAIN_MOST_RUNS])
{
    const struct train_settings *from = worker->task->settings;
    const uint8_t *start = bytes->data;
    struct blob_reader reader = {start + sizeof MAGIC, start + bytes->size, false};
    if (blob_get_number(&reader) != version)
        return fail(&worker->failure, "'%s' is of another version, or from a machine of another byte order",
                    from->resume);
    size_t ignored;
    (void)blob_get_block(&reader, &ignored); /* what was typed */
    uint64_t runs = blob_get_number(&reader);
    if (runs != from->run_count)
        return fail(&worker->failure, "'%s' has %" PRIu64 " runs, but --codec is given %zu times", from->resume, runs,
                    from->run_count) ||
               worker_refuses(worker);
    if (!expect_settings(worker, &reader))
        return false;
    for (size_t i = 0; i < from->run_count; i++)
        saved[i].data = blob_get_block(&reader, &saved[i].size);
    if (reader.is_bad || reader.at != reader.end)
        return fail(&worker->failure, "'%s' is damaged: the lengths of its parts do not add up", from->resume);
    return true;
}

bool checkpoint_read(struct worker *worker, struct shared_bytes **bytes, tg_state saved[TRAIN_MOST_RUNS])
{
    struct content content = {0};
    bool is_well = worker->team.rank > 0 || load(worker->task->settings->resume, &content, &worker->failure);
    *bytes = NULL;
    if (worker_agrees(worker, is_well))
        *bytes = team_share(&worker->team, content.bytes, content.size, false, &worker->failure);
    free(content.bytes);
    return *bytes && worker_agrees(worker, parse(worker, &(*bytes)->parts[0], saved));
}
