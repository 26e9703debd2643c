/* See origin.h. */
#include "origin.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>

void origin_add(struct origin *origin, const char *argument)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
    size_t used = strlen(origin->command);
    if (argument[0] && strspn(argument, plain) == strlen(argument)) {
        snprintf(origin->command + used, ORIGIN_TEXT - used, "%s%s", used ? " " : "", argument);
        return;
    }
    char quoted[ORIGIN_TEXT];
    size_t length = 0;
    quoted[length++] = '\'';
    for (; *argument && length + 8 < sizeof quoted; argument++) {
        if (*argument == '\'') {
            memcpy(quoted + length, "'\\''", 4);
            length += 4;
        } else {
            quoted[length++] = *argument;
        }
    }
    quoted[length++] = '\'';
    quoted[length] = '\0';
    snprintf(origin->command + used, ORIGIN_TEXT - used, "%s%s", used ? " " : "", quoted);
}

void origin_fill(struct origin *origin, const char *subcommand, int argc, char **argv)
{
    *origin = (struct origin){.command = "tersegrad"};
    origin_add(origin, subcommand);
    for (int i = 0; i < argc; i++)
        origin_add(origin, argv[i]);
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(origin->date, sizeof origin->date, "%Y-%m-%d %H:%M:%S UTC", &parts);
    struct utsname host;
    if (uname(&host) == 0)
        snprintf(origin->host, sizeof origin->host, "%.100s (%.16s)", host.nodename, host.machine);
}
