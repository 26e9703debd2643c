/* Between the library and a module that is compiled against one MPI: the only symbol that the module shows. */
#ifndef TG_TRANSPORT_MPI_MODULE_H
#define TG_TRANSPORT_MPI_MODULE_H

#include "transport/transport.h"

typedef struct tg_mpi_module {
    const char *version; /* TG_VERSION_TEXT of the library that it was built with */
    const char *mpi;     /* "openmpi" or "mpich": what it was compiled against */
    /* `communicator`: where an MPI_Comm lies, NULL for the world. `fragment`: the most bytes of one MPI message, longer
     * ones are cut; 0 for the largest that is safe. */
    tg_status (*open)(const void *communicator, size_t fragment, tg_transport **transport, tg_error *error);
} tg_mpi_module;

#define TG_MPI_MODULE "tg_mpi_module_of_this_mpi"

/* tg_transport_mpi_on, with the fragment's size for tests. */
tg_status tg_transport_mpi_open(const char *module, const void *communicator, size_t fragment, tg_transport **transport,
                                tg_error *error);

#endif
