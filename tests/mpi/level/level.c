/* Loaded before a program, this makes its MPI grant less, or initialises it as a program of one's own might have: LEVEL=funnelled (calls by the
 * thread that initialises it), single (initialised already, for calls by the first thread) or multiple (initialised already, for all
 * threads). A call by a thread that has no leave ends the program. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_t first;
static int for_one;

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
    else if (is("multiple"))
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
}

static void after_main(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done)
        MPI_Finalize();
}

__attribute__((destructor)) static void at_the_end(void)
{
    if (is("single") || is("multiple"))
        after_main();
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (!is("funnelled"))
        return PMPI_Init_thread(argc, argv, required, provided);
    first = pthread_self();
    for_one = 1;
    return PMPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, provided);
}

static void ask_leave(const char *call)
{
    if (!for_one || pthread_equal(pthread_self(), first))
        return;
    fprintf(stderr, "%s by a thread that has no leave\n", call);
    abort();
}

int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    ask_leave("MPI_Isend");
    return PMPI_Isend(from, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    ask_leave("MPI_Irecv");
    return PMPI_Irecv(to, count, type, from, tag, comm, request);
}

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    ask_leave("MPI_Testsome");
    return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    ask_leave("MPI_Comm_free");
    return PMPI_Comm_free(comm);
}
