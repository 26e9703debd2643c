/* A device whose memory the host cannot touch, for tests that run on any machine: a CPU device behind the same table,
 * with memory that is not mapped for reading or writing outside of its own operations. A stray access from the host
 * ends the program. Calls are queued, and take place when somebody waits for them, as on a stream: whoever reads a
 * result before that finds garbage; and so does who reads a frame when only reports have been waited for. */
#ifndef TESTS_GUARDED_H
#define TESTS_GUARDED_H

#include "device/cpu/cpu.h"

/* `name` is that of the CPU device. */
tg_device *open_guarded(const char *name, bool queues);
bool is_guarded(const tg_device *device);

/* How often somebody has waited for this guarded device. */
uint64_t guarded_waits(tg_device *device);
/* Calls that nobody has waited for. */
size_t guarded_calls(tg_device *device);

/* The CPU device, or that behind a guarded one. */
tg_cpu *cpu_of(tg_device *device);

#endif
