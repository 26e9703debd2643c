/* Shared memory of processes of one machine: a file without a name, which the others open through /proc, so that
 * nothing is left over when ranks are killed, and no limit of /dev/shm applies. Its last bytes are random and also in
 * the location: a process of another machine, or of another container, may have the same numbers. Its size is sealed,
 * since reading memory of a file that has become shorter is a signal. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/random.h>
#endif

#include "transport/mpi/module.h"

enum { NONCE = 16 };

typedef struct location {
    int64_t process;
    uint64_t size;
    int32_t file;
    uint8_t nonce[NONCE];
} location;
_Static_assert(sizeof(location) <= TG_LOCATION_SIZE, "a location fits");

static void unmap(tg_shared *shared)
{
    if (shared->memory)
        (void)munmap(shared->memory, shared->size + NONCE);
    if (shared->of)
        (void)close((int)(intptr_t)shared->of - 1);
    *shared = (tg_shared){.memory = NULL};
}

static bool map(int file, size_t size, int protection, tg_shared *shared)
{
    void *memory = mmap(NULL, size + NONCE, protection, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return false;
    *shared = (tg_shared){.memory = memory, .size = size, .release = unmap};
    return true;
}

#if defined(__linux__)
enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static bool is_sealed(int file)
{
    const int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & SIZE_SEALS) == SIZE_SEALS;
}

bool tg_mpi_share(tg_transport *transport, size_t size, tg_shared *shared, uint8_t bytes[TG_LOCATION_SIZE])
{
    location t = {.process = getpid(), .size = size};
    (void)transport;
    if (size > INT64_MAX - NONCE || getrandom(t.nonce, NONCE, 0) != NONCE)
        return false;
    const int file = memfd_create("tersegrad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return false;
    if (ftruncate(file, (off_t)(size + NONCE)) != 0 || fcntl(file, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) != 0 ||
        !map(file, size, PROT_READ | PROT_WRITE, shared)) {
        (void)close(file);
        return false;
    }
    shared->of = (void *)(intptr_t)(file + 1); /* others open it by this number */
    t.file = file;
    memcpy(shared->memory + size, t.nonce, NONCE);
    memset(bytes, 0, TG_LOCATION_SIZE);
    memcpy(bytes, &t, sizeof t);
    return true;
}
#else
static bool is_sealed(int file) { return (void)file, false; }

bool tg_mpi_share(tg_transport *transport, size_t size, tg_shared *shared, uint8_t bytes[TG_LOCATION_SIZE])
{
    (void)transport, (void)size, (void)shared, (void)bytes;
    return false;
}
#endif

bool tg_mpi_look(tg_transport *transport, const uint8_t bytes[TG_LOCATION_SIZE], tg_shared *shared)
{
    location t;
    char path[64];
    struct stat about;
    (void)transport;
    memcpy(&t, bytes, sizeof t);
    if (t.size > INT64_MAX - NONCE)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)t.process, (int)t.file);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    const bool mapped = fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                        (uint64_t)about.st_size == t.size + NONCE && is_sealed(file) &&
                        map(file, (size_t)t.size, PROT_READ, shared);
    (void)close(file);
    if (mapped && memcmp(shared->memory + shared->size, t.nonce, NONCE) != 0)
        unmap(shared);
    return mapped && shared->memory;
}
