// local_ranks.hpp: how many ranks of the job share this host, as the launcher says: they share its
// cores and memory.
#pragma once

namespace sennit::trainer {

int ranks_on_this_host();  // 1 where no launcher says it
int cores_of_this_host();  // hardware threads, at least 1
// Threads for one rank: as asked, or its share of the host's cores.
int threads_of_a_rank(int asked);

}  // namespace sennit::trainer
