/* The command `tersegrad`: finds the subcommand in the table and runs it. */
#include "commands.h"
#include "suggest.h"
#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command *const commands[] = {
    &codecs_command, &encode_command, &decode_command, &inspect_command,
    &bench_command,  &plan_command,   &train_command,  &report_command,
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void print_commands(FILE *out)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %s%-8s%s %s\n", colour_on(out, COLOUR_HEADING), commands[i]->name, colour_off(out),
                commands[i]->summary);
}

static int print_help(void)
{
    printf("tersegrad %s - gradient compression for distributed training\n\n"
           "usage: tersegrad COMMAND [OPTION]... [ARGUMENT]...\n\n",
           tg_version());
    print_commands(stdout);
    puts("  help     show this, or with a command's name the help of that command\n\n"
         "Every command takes --help, and --json for one JSON object on stdout.\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n\n"
         "Examples\n"
         "  tersegrad codecs\n"
         "  tersegrad encode qsgd:levels=7,bucket=512 gradient.npy\n"
         "  tersegrad decode gradient.tg -o restored.npy\n"
         "  tersegrad inspect gradient.npy\n"
         "  tersegrad bench -n 1000000 --codec topk:density=0.01 --feedback\n"
         "  tersegrad train");
    return EXIT_DONE;
}

static int refuse_command(const char *name)
{
    const char *names[COMMAND_COUNT + 4];
    size_t count = 0;
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[count++] = commands[i]->name;
    names[count++] = "help";
    names[count++] = "--help";
    names[count++] = "--version";
    names[count] = NULL;
    const char *near = nearest_text(name, names);
    const char *what = name[0] == '-' ? "option" : "command";
    if (near)
        complain(NULL, "there is no %s '%s'; did you mean '%s'?", what, name, near);
    else
        complain(NULL, "there is no %s '%s'", what, name);
    fputs("Try 'tersegrad --help'.\n", stderr);
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: tersegrad COMMAND [OPTION]... [ARGUMENT]...\n\n", stderr);
        print_commands(stderr);
        fputs("\nTry 'tersegrad --help'.\n", stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("tersegrad %s\n", tg_version());
        return EXIT_DONE;
    }
    bool is_help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (is_help && (argc == 2 || strcmp(argv[2], "help") == 0 || strcmp(argv[2], "--help") == 0)))
        return print_help();
    const char *wanted = is_help ? argv[2] : name;
    const struct command *command = find_command(wanted);
    if (!command)
        return refuse_command(wanted);
    if (is_help) {
        print_command_help(command);
        return EXIT_DONE;
    }
    return command->run(command, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    /* A full disk behind stdout shows only here. */
    bool was_bad = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || was_bad) {
        complain(NULL, "cannot write to standard output: %s", errno ? strerror(errno) : "write error");
        return EXIT_FAILED;
    }
    return code;
}
