/* `mpi`: loads the module for the MPI that launched this process. */
#include "base/status.h"
#include "transport/transport.h"

tg_status tg_transport_mpi(const char *module, tg_transport **transport, tg_error *error)
{
    (void)module, (void)transport;
    return tg_fail(error, TG_UNAVAILABLE, "MPI is not there yet");
}
