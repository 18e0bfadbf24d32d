// launch.hpp: how a process learns which rank it is and where rank 0 listens: from an id of 128
// bytes that the program hands to all of them, or from the launcher's environment.
#pragma once

#include <string>

#include "api/start/unique_id.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"

namespace sennit {

// Whether a launcher, or who sets the variables by hand, says which rank this process is. That may
// be one whose variables are not enough: launch_from_environment() tells.
bool launcher_seen();

// From the environment: Open MPI (OMPI_COMM_WORLD_*, PMIX_*), Slurm (SLURM_PROCID, ...), torchrun
// (RANK, ...). Fills rank, size, root address, secret. The error names the variables that were
// looked for, or what to do under MPI launchers that speak PMI alone. `local_rank`/`local_size` may
// be -1. Who waits for the launcher may be interrupted.
struct Launch {
  std::string launcher;  // "open mpi", "pmix", "slurm", "torchrun"
  BootstrapOptions bootstrap;
  int local_rank = -1;
  int local_size = -1;
};
Result<Launch> launch_from_environment(Interruption interruption = {});

}  // namespace sennit
