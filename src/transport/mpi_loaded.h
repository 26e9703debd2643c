/* Which MPI this process has loaded: of two in one process, the functions of one would get the handles of the other. */
#ifndef TG_TRANSPORT_MPI_LOADED_H
#define TG_TRANSPORT_MPI_LOADED_H

#include <stdbool.h>

typedef struct tg_mpi_loaded {
    bool openmpi, mpich;
} tg_mpi_loaded;

tg_mpi_loaded tg_mpi_find_loaded(void);

#endif
