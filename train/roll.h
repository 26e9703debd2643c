/* Who the ranks of a job are and where: what a watcher is told. */
#ifndef TRAIN_ROLL_H
#define TRAIN_ROLL_H

#include "process.h"

enum { ROLL_NAME_SIZE = 64 };

/* A rank, as the others see it: its process, the watcher and the end of the pipe that it reads, and on which machine
 * these numbers hold. */
struct place {
    struct process process;
    int64_t watcher, pipe;
    uint64_t machine;
    char host[ROLL_NAME_SIZE];
};

/* `job` is the same for all ranks of a job, and for no other job: made of rank 0's place. */
struct roll {
    uint32_t rank, world;
    uint64_t job;
};

bool is_same_machine(const struct place *places, uint32_t one, uint32_t other);

/* The lowest rank of a rank's machine: the watcher of that one speaks for the machine. */
uint32_t first_beside(const struct place *places, uint32_t rank);

/* How many machines there are. */
uint32_t count_machines(const struct place *places, uint32_t world);

/* "host n1 (ranks 1 and 4)", for the machine of that rank. */
void describe_machine(const struct place *places, uint32_t world, uint32_t rank, char *text, size_t capacity);

#endif
