// local_ranks.cpp: see trainer/base/local_ranks.hpp.
#include "trainer/base/local_ranks.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "trainer/base/launcher.hpp"

namespace sennit::trainer {

int ranks_on_this_host() { return std::max(1, launchers_ranks_here()); }

int cores_of_this_host() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores_of_this_host();  // a larger host
  return std::max(1, CPU_COUNT(&set));
}

int threads_of_a_rank(int asked) {
  if (asked > 0) return asked;
  const int share = cores_of_this_host() / ranks_on_this_host();
  return std::max(1, std::min(share, cores_of_this_process()));
}

}  // namespace sennit::trainer
