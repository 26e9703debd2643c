/* See job_name.h. The name is a socket's, of the kernel's own name space, that leaves no file. */
#include "job_name.h"

#include "process.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un job_name;
static socklen_t job_name_size;

void job_name_set(uint64_t job)
{
    job_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(job_name.sun_path + 1, sizeof job_name.sun_path - 1, "tersegrad-train-%016llx",
                          (unsigned long long)job);
    job_name_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int job_name_take(void)
{
    int place = socket(AF_UNIX, SOCK_STREAM, 0);
    return place >= 0 && bind(place, (const struct sockaddr *)&job_name, job_name_size) == 0 ? place : -1;
}

_Noreturn void job_name_hold(int place)
{
    enum { SECONDS = 3 };
    (void)setsid();
    close_all_but(&place, 1);
    sleep(SECONDS);
    _exit(0);
}
