// local_ranks.cpp: see trainer/base/local_ranks.hpp.
#include "trainer/base/local_ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace sennit::trainer {

int ranks_on_this_host() {
  // Whoever is asked first for the rank as well (api/start/launch.cpp) is asked first.
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE",
                               "SLURM_NTASKS_PER_NODE", "PMI_LOCAL_SIZE"})
    if (const char* text = std::getenv(variable)) return std::max(1, std::atoi(text));
  return 1;
}

int cores_of_this_host() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int threads_of_a_rank(int asked) {
  if (asked > 0) return asked;
  return std::max(1, cores_of_this_host() / ranks_on_this_host());
}

}  // namespace sennit::trainer
