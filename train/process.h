/* What processes that look after each other need: to know one again, to end it and no other, to read what it wrote, to
 * let go of files. */
#ifndef TRAIN_PROCESS_H
#define TRAIN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number is given again to another process some day; with the time of its start it is not. */
struct process {
    int64_t number; /* 0: none */
    uint64_t start; /* since the machine's start, in the kernel's ticks */
};

enum { PROCESS_NAME_SIZE = 16 };

/* The process of that number, its parent's number and its name; false if there is none, or only what is left of one
 * that ended. */
bool process_look(int64_t number, struct process *process, int64_t *parent, char name[PROCESS_NAME_SIZE]);

bool process_lives(const struct process *process);
/* Nothing, where it does not live. */
void process_signal(const struct process *process, int signal);

/* False: the other end was closed before. */
bool read_whole(int from, void *bytes, size_t size);

/* A launcher takes a rank for alive as long as anybody has the files that it gave to it. */
void close_all_but(const int *kept, size_t count);

#endif
