// launch.hpp: how a process learns which rank it is and where rank 0 listens: from an id of 128
// bytes that the program hands to all of them, or from the launcher's environment.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "control/control_plane.hpp"

namespace sennit {

// Time-outs, SENNIT_INSECURE, SENNIT_INTERFACE and SENNIT_WIRE from the environment; the rest is
// left at its default.
BootstrapOptions bootstrap_defaults();

// 128-byte unique id: address, port, job number, secret, checksum. The listener stays open in this
// process until rank 0 of the job, in this process, takes it over.
Result<std::vector<std::byte>> make_unique_id();
Result<BootstrapOptions> options_from_unique_id(std::span<const std::byte> id, int rank, int size);
// For an id that a launcher carried to all its processes: it serves all their jobs, one after the
// other or side by side, and the port stays this process's for as long as it lives.
Result<BootstrapOptions> options_from_launch_id(std::span<const std::byte> id, int rank, int size);

// From the environment: Open MPI (OMPI_COMM_WORLD_*, PMIX_*), Slurm (SLURM_PROCID, ...), torchrun
// (RANK, ...). Fills rank, size, root address, secret. The error names the variables that were
// looked for. `local_rank`/`local_size` may be -1.
struct Launch {
  std::string launcher;  // "open mpi", "pmix", "slurm", "torchrun"
  BootstrapOptions bootstrap;
  int local_rank = -1;
  int local_size = -1;
};
Result<Launch> launch_from_environment();

}  // namespace sennit
