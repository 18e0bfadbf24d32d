// local_ranks.hpp: how many ranks of the job share this host, as the launcher says: they share its
// cores and memory.
#pragma once

namespace sennit::trainer {

// 1 where no launcher says it.
int ranks_on_this_host();
// Hardware threads, at least 1.
int cores_of_this_host();
// Those that this process may run on, at least 1.
int cores_of_this_process();
// Threads for one rank: as asked, or its share of the host's cores, and no more than it may run on.
int threads_of_a_rank(int asked);

}  // namespace sennit::trainer
