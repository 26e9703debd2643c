/* What others do: MPI_Allreduce of floats, in place. dense_mpi [-n FLOATS] [-r REPEATS]; prints as bench/reduce.c does.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    long count = 25600000;
    int repeats = 5, rank, world;
    double times[100];
    MPI_Init(&argc, &argv);
    for (int option; (option = getopt(argc, argv, "n:r:")) != -1;)
        if (option == 'n')
            count = atol(optarg);
        else if (option == 'r')
            repeats = atoi(optarg) < 100 ? atoi(optarg) : 99;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    float *values = malloc((size_t)count * sizeof *values);
    for (long i = 0; i < count; i++)
        values[i] = (float)(i % 1000) * 1e-20f;
    for (int i = 0; i < repeats + 1; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - start, slowest;
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i > 0)
            times[i - 1] = slowest;
    }
    qsort(times, (size_t)repeats, sizeof *times, ascending);
    if (rank == 0)
        printf("%-40s %-6s %2d ranks  %9.2f ms  median %9.2f\n", "dense MPI_Allreduce", "", world, 1e3 * times[0],
               1e3 * times[repeats / 2]);
    free(values);
    MPI_Finalize();
    return 0;
}
