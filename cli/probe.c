/* `tersegrad plan --probe` under mpirun: joins the job, measures, and rank 0 writes the file. See probe.h. */
#include "probe.h"

#include "files.h"
#include "train.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double probe_now(const struct probe_team *team, struct failure *failure)
{
    const double own = team->team.rank == 0 ? 1e-9 * (double)(clock_ns() - team->began) : 0;
    double now;
    return probe_slowest(team, own, &now, failure) ? now : -1;
}

/* All ranks' numbers, sorted; the caller frees. */
static double *share_numbers(const struct probe_team *team, double number, struct failure *failure)
{
    struct shared_bytes *all = team_share(&team->team, &number, sizeof number, false, failure);
    double *numbers = all ? calloc(team->team.world, sizeof *numbers) : NULL;
    if (all && !numbers)
        fail(failure, "out of memory for the numbers of %" PRIu32 " ranks", team->team.world);
    for (uint32_t i = 0; numbers && i < team->team.world; i++)
        memcpy(&numbers[i], all->parts[i].data, all->parts[i].size == sizeof *numbers ? sizeof *numbers : 0);
    shared_bytes_free(all);
    if (numbers)
        probe_sort(numbers, team->team.world);
    return numbers;
}

bool probe_middle(const struct probe_team *team, double number, double *middle, struct failure *failure)
{
    double *numbers = share_numbers(team, number, failure);
    const bool is_done = numbers != NULL;
    if (is_done)
        *middle = probe_quantile(numbers, team->team.world, 0.5);
    free(numbers);
    return is_done;
}

bool probe_slowest(const struct probe_team *team, double number, double *slowest, struct failure *failure)
{
    double *numbers = share_numbers(team, number, failure);
    const bool is_done = numbers != NULL;
    if (is_done)
        *slowest = numbers[team->team.world - 1];
    free(numbers);
    return is_done;
}

bool probe_agree(const struct probe_team *team, bool well, struct failure *failure)
{
    uint32_t culprit;
    return team_verdict(&team->team, well, &culprit, failure) == TEAM_WELL;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void probe_sort(double *samples, size_t count) { qsort(samples, count, sizeof *samples, ascending); }

double probe_quantile(const double *sorted, size_t count, double at)
{
    const double place = at * (double)(count - 1);
    const size_t below = (size_t)place;
    return below + 1 < count ? sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below])
                             : sorted[count - 1];
}

enum { NAME = 256 };

/* The most ranks that have the same name, and the number of each rank's name; numbers follow each other. */
static bool count_alike(const struct team *team, const char name[NAME], uint32_t *most, uint32_t *numbers,
                        struct failure *failure)
{
    struct shared_bytes *all = team_share(team, name, NAME, false, failure);
    if (!all)
        return false;
    uint32_t names = 0;
    *most = 1;
    for (uint32_t i = 0; i < team->world; i++) {
        uint32_t alike = 0, first = team->world;
        for (uint32_t j = 0; j < team->world; j++) {
            const bool is_alike = memcmp(all->parts[i].data, all->parts[j].data, NAME) == 0;
            alike += is_alike;
            first = is_alike && j < first ? j : first;
        }
        numbers[i] = first < i ? numbers[first] : names++;
        *most = alike > *most ? alike : *most;
    }
    shared_bytes_free(all);
    return true;
}

/* Predictions are for hosts of as many ranks each, but for the last. One host has nobody to compress for. */
static bool are_levels_planned(const uint32_t *host_of_rank, uint32_t world, uint32_t per_node)
{
    uint32_t smaller = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        uint32_t before = 0, alike = 0;
        for (uint32_t i = 0; i < world; i++) {
            before += i < rank && host_of_rank[i] == host_of_rank[rank];
            alike += host_of_rank[i] == host_of_rank[rank];
        }
        smaller += before == 0 && alike < per_node;
    }
    return per_node > 1 && per_node < world && smaller <= 1;
}

/* Hosts have names; those that run on one kernel, as namespaces and containers do, share its processors. */
static bool count_neighbours(const struct team *team, uint32_t *host_of_rank, uint32_t *kernels, struct probe *probe,
                             struct failure *failure)
{
    char host[NAME] = "", kernel[NAME] = "";
    (void)gethostname(host, sizeof host - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(kernel, sizeof kernel, file))
        memcpy(kernel, host, sizeof kernel);
    if (file)
        fclose(file);
    return count_alike(team, host, &probe->network.per_node, host_of_rank, failure) &&
           count_alike(team, kernel, &probe->sharing, kernels, failure);
}

/* Exchanges have a third of the time. */
static bool measure(struct probe_team *team, const struct probe_request *request, struct probe *probe,
                    struct failure *failure)
{
    uint32_t *hosts = calloc(2 * (size_t)team->team.world, sizeof *hosts);
    probe->network.world = team->team.world;
    probe_machine(probe->machine);
    probe->made = (int64_t)time(NULL);
    snprintf(probe->command, sizeof probe->command, "%s", request->command);
    snprintf(probe->library, sizeof probe->library, "%s", tg_version());
    snprintf(probe->transport, sizeof probe->transport, "%s, %s", tg_transport_name(team->team.transport),
             train_mpi_module());
    bool is_well = probe_agree(team, hosts || fail(failure, "out of memory for the hosts of ranks"), failure) &&
                   hosts && count_neighbours(&team->team, hosts, hosts + team->team.world, probe, failure);
    if (is_well && are_levels_planned(hosts, team->team.world, probe->network.per_node))
        team->host_of_rank = hosts;
    is_well = is_well && probe_network(team, 0.33 * request->seconds, &probe->network, failure) &&
              probe_codecs(team, request, 0.97 * request->seconds, probe, failure) &&
              probe_agree(team, team->team.rank > 0 || probe_save(request->path, probe, failure), failure);
    team->host_of_rank = NULL;
    free(hosts);
    return is_well;
}

static int probe_ranks(const struct command *command, const struct probe_request *request, tg_transport *transport)
{
    struct probe_team team = {
        {transport, tg_transport_rank(transport), tg_transport_world(transport), 4 * PROBE_MOST_SECONDS},
        clock_ns(),
        NULL};
    struct failure failure = {""};
    uint32_t culprit;
    const bool can_write = team.team.rank > 0 || can_write_file(request->path, &failure);
    const enum verdict first = team_verdict(&team.team, can_write, &culprit, &failure);
    const int exit_code = first == TEAM_FAILED ? EXIT_USAGE : EXIT_FAILED; /* before anything is measured */
    struct probe *probe = calloc(1, sizeof *probe);
    const bool is_well = first == TEAM_WELL && probe_agree(&team, probe || fail(&failure, "out of memory"), &failure) &&
                         probe && measure(&team, request, probe, &failure);
    if (is_well && team.team.rank == 0)
        printf("probed %" PRIu32 " ranks in %.1f s: %s\n", team.team.world, 1e-9 * (double)(clock_ns() - team.began),
               request->path);
    else if (!is_well && team.team.rank == 0)
        complain(command->name, "%s", failure.text);
    free(probe);
    if (is_well)
        return EXIT_DONE;
    /* Where all have agreed to end, all come here; where a rank is lost, nobody may wait for this one. */
    struct shared_bytes *last = team_share(&team.team, "", 0, false, &failure);
    if (!last)
        tg_transport_abort(transport, exit_code);
    shared_bytes_free(last);
    return exit_code;
}

/* All ranks have the same arguments: one speaks. */
static int refuse(const struct command *command, const struct failure *failure)
{
    if (train_is_first_process())
        complain(command->name, "%s", failure->text);
    return EXIT_USAGE;
}

int probe_run(const struct command *command, const struct probe_request *request)
{
    const char *module = train_mpi_module();
    const uint64_t launched = train_launched_ranks();
    tg_transport *transport = NULL;
    tg_error error = {""};
    struct failure failure = {""};
    if (!module || launched < 2) {
        fail(&failure,
             "a probe measures between ranks, and there is only one; start it under mpirun, with two or more");
        return refuse(command, &failure);
    }
    if (!probe_check_codecs(request, &failure))
        return refuse(command, &failure);
    if (tg_transport_mpi(module, &transport, &error) != TG_OK) {
        fail(&failure, "%s", error.message);
        (void)refuse(command, &failure);
        return EXIT_FAILED;
    }
    const uint32_t found = tg_transport_world(transport);
    int exit_code = EXIT_FAILED;
    if (found == launched)
        exit_code = probe_ranks(command, request, transport);
    else /* each of them is alone, and cannot know who speaks */
        complain(command->name,
                 "the launcher started %" PRIu64 " ranks, and MPI (%s) found %" PRIu32
                 "; use the mpirun that belongs to this MPI",
                 launched, module, found);
    tg_transport_free(transport);
    return exit_code;
}
