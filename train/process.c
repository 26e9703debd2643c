/* See process.h. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* /proc/N/stat: the number, the name in brackets (which may hold anything), the state, the parent, and the start as the
 * 22nd. */
static bool parse(const char *text, struct process *process, int64_t *parent, char name[PROCESS_NAME_SIZE])
{
    enum { STATE = 3, PARENT = 4, START = 22 };
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open)
        return false;
    snprintf(name, PROCESS_NAME_SIZE, "%.*s", (int)(close - open - 1), open + 1);
    const char *at = close + 1;
    for (int field = STATE; *at == ' '; field++) {
        at++;
        if (field == STATE && (*at == 'Z' || *at == 'X'))
            return false;
        if (field == PARENT)
            *parent = strtoll(at, NULL, 10);
        if (field == START) {
            process->start = strtoull(at, NULL, 10);
            return true;
        }
        at += strcspn(at, " ");
    }
    return false;
}

bool process_look(int64_t number, struct process *process, int64_t *parent, char name[PROCESS_NAME_SIZE])
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)number);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0)
        return false;
    text[got] = 0;
    *process = (struct process){.number = number};
    return parse(text, process, parent, name);
}

bool process_lives(const struct process *process)
{
    struct process now;
    int64_t parent;
    char name[PROCESS_NAME_SIZE];
    return process->number > 0 && process_look(process->number, &now, &parent, name) && now.start == process->start;
}

void process_signal(const struct process *process, int signal)
{
    if (process_lives(process))
        (void)kill((pid_t)process->number, signal);
}

bool read_whole(int from, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = read(from, (char *)bytes + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

void close_all_but(const int *kept, size_t count)
{
    enum { MOST_FILES = 4096 };
    for (int file = 0; file < MOST_FILES; file++) {
        bool is_kept = false;
        for (size_t i = 0; i < count; i++)
            is_kept = is_kept || file == kept[i];
        if (!is_kept)
            close(file);
    }
}
