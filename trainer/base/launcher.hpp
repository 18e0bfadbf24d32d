// launcher.hpp: what the launcher says in this process's environment: which rank it is, and of how
// many.
//
// The conditions are those of sennit_comm_init_env, so that what is launched here can start there.
#pragma once

#include <string>
#include <vector>

namespace sennit::trainer {

// Whether this process is a rank of a job: of torchrun, Open MPI, PMIx, a step of Slurm, or PMI,
// which an MPI knows and sennit does not. RANK alone, or Slurm's batch script, is none.
bool launched();
// The variables that say so: without them none launched it.
std::vector<std::string> variables_of_launchers();
// "" where none launched it.
std::string launchers_rank();
// 0: the launcher does not say, or there is none.
int launchers_ranks();
// Those on this host. 0: as above.
int launchers_ranks_here();

}  // namespace sennit::trainer
