// local_ranks.hpp: how many ranks of the job share this host, as the launcher says: they share its cores and
// memory.
#pragma once

namespace sennit::trainer {

int ranks_on_this_host();  // 1 where no launcher says it
// Threads for one rank: as asked, or its share of the cores that this process may run on.
int threads_of_a_rank(int asked);

}  // namespace sennit::trainer
