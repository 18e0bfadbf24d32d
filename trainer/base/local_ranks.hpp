// local_ranks.hpp: how many ranks of the job share this host, as the launcher says: they share its
// cores and memory.
#pragma once

namespace sennit::trainer {

// By the first that is set of LOCAL_WORLD_SIZE (torchrun, and `sennit train --local`), and Open
// MPI's, Slurm's and PMI's variables; 1 where none is.
int ranks_on_this_host();
// Hardware threads, at least 1.
int cores_of_this_host();
// Threads for one rank: as asked, or its share of the host's cores.
int threads_of_a_rank(int asked);

}  // namespace sennit::trainer
