/* Loaded before a program, this makes its MPI grant less, or initialises it as a program of one's own might have:
 * LEVEL=funnelled (calls by the thread that initialises it), single (initialised already, for calls by the first
 * thread) or multiple (initialised already, for all threads). A call by a thread that has no leave, or during
 * another's, ends the program. */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_t first;
static int for_one;
static atomic_int inside;

static void give_up(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

static int is(const char *level)
{
    const char *wanted = getenv("LEVEL");
    return wanted && strcmp(wanted, level) == 0;
}

__attribute__((constructor)) static void before_main(void)
{
    int level;
    first = pthread_self();
    for_one = is("single");
    if (is("single"))
        MPI_Init(NULL, NULL);
    else if (is("multiple") &&
             (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS || level < MPI_THREAD_MULTIPLE))
        give_up("MPI is not for all threads");
}

__attribute__((destructor)) static void after_main(void)
{
    if (is("single") || is("multiple"))
        PMPI_Finalize();
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (!is("funnelled"))
        return PMPI_Init_thread(argc, argv, required, provided);
    first = pthread_self();
    for_one = 1;
    return PMPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, provided);
}

/* For whoever wants a communicator that is not the world: of the ranks with even numbers, or of those with odd ones.
 * With NONE in the environment, MPI_COMM_NULL. */
const void *level_half(void)
{
    static MPI_Comm half = MPI_COMM_NULL;
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_split(MPI_COMM_WORLD, getenv("NONE") ? MPI_UNDEFINED : rank % 2, rank, &half);
    return &half;
}

static void enter(void)
{
    if (for_one && !pthread_equal(pthread_self(), first))
        give_up("a call by a thread that has no leave");
    if (atomic_fetch_add(&inside, 1) > 0)
        give_up("a call during another");
}

static int leave(int status)
{
    atomic_fetch_sub(&inside, 1);
    return status;
}

int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    enter();
    return leave(PMPI_Isend(from, count, type, to, tag, comm, request));
}

int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    enter();
    return leave(PMPI_Irecv(to, count, type, from, tag, comm, request));
}

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[])
{
    enter();
    return leave(PMPI_Testsome(count, requests, done, indices, statuses));
}

int MPI_Testall(int count, MPI_Request requests[], int *done, MPI_Status statuses[])
{
    enter();
    return leave(PMPI_Testall(count, requests, done, statuses));
}

int MPI_Comm_free(MPI_Comm *comm)
{
    enter();
    return leave(PMPI_Comm_free(comm));
}

int MPI_Finalize(void)
{
    enter();
    return leave(PMPI_Finalize());
}
