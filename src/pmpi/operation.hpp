// operation.hpp: a collective of MPI's on its way through sennit, blocking or not.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "pmpi/communicators.hpp"

namespace sennit::pmpi {

// What one call needs until it has completed: its buffers where the caller's are not dense, and
// what is left to do with them then.
struct Operation {
  const char* name = "";
  MPI_Comm mpi = MPI_COMM_NULL;
  std::shared_ptr<Held> held;
  std::function<sennit_status_t(sennit_comm_t, sennit_work_t*)> start;  // while held->mutex is
  std::function<void()> after;                                          // may be empty
  std::vector<std::byte> input, output;
  std::vector<size_t> counts, displacements, recv_counts, recv_displacements;
  sennit_work_t work SENNIT_GUARDED_BY(held->mutex) = nullptr;
};

// To its end. MPI makes progress meanwhile: other ranks may wait for messages of this one.
int run(Operation& operation);
// Begins it; *request is one of MPI's, which any of its functions can wait for.
int begin(std::unique_ptr<Operation> operation, MPI_Request* request);

// Looks after what has begun, and completes the requests of what is done. Called by whatever waits.
void poll();
// Whether something has begun and is not complete. Else MPI's own functions do.
bool any_begun();

// ---- errors of those that did not block ----

// What one ended with that was not MPI_SUCCESS. The function that completes its request tells it.
struct Failure {
  MPI_Comm comm = MPI_COMM_NULL;
  std::shared_ptr<Held> held;
  int error = MPI_SUCCESS;
};
bool any_failed();
// That of the request, as the program knew it before it was complete, which is told now.
std::optional<Failure> take_failure(MPI_Request request);
// Calls the communicator's own error handler, which may call any function of MPI's. Returns
// `error`.
int tell(const Failure& failure, int error);

// MPI does something only while one of its functions is called.
void let_mpi_progress();
// Sleeps for a moment where one of these is sennit's, in sennit; else only yields.
void rest();

}  // namespace sennit::pmpi
