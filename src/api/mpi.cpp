// mpi.cpp: a communicator from an MPI_Comm; its own library, so that libsennit needs no MPI.
#include <mpi.h>

#include "sennit/sennit.h"

extern "C" sennit_status_t sennit_comm_init_mpi(sennit_comm_t* comm, const void* mpi_comm,
                                                const sennit_config_t* config) {
  if (!comm || !mpi_comm) return SENNIT_INVALID_ARGUMENT;
  const MPI_Comm mpi = *static_cast<const MPI_Comm*>(mpi_comm);
  int rank = 0, size = 0;
  if (MPI_Comm_rank(mpi, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi, &size) != MPI_SUCCESS)
    return SENNIT_INVALID_ARGUMENT;
  struct {
    sennit_unique_id_t id;
    int status;
  } message = {};
  if (rank == 0) message.status = sennit_get_unique_id(&message.id);
  if (MPI_Bcast(&message, sizeof message, MPI_BYTE, 0, mpi) != MPI_SUCCESS)
    return SENNIT_LINK_FAILED;
  if (message.status != SENNIT_OK) return static_cast<sennit_status_t>(message.status);
  return sennit_comm_init_rank(comm, size, &message.id, rank, config);
}
