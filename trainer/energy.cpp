// energy.cpp: see energy.hpp.
#include "energy.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

namespace sennit::trainer {

std::optional<double> energy_joules() {
  std::optional<double> joules;
  for (int package = 0; package < 64; package++) {
    std::ifstream counter("/sys/class/powercap/intel-rapl:" + std::to_string(package) + "/energy_uj");
    double microjoules = 0;
    if (!(counter >> microjoules)) break;
    joules = joules.value_or(0) + microjoules * 1e-6;
  }
  return joules;
}

bool all_ranks_on_this_host(int ranks) {
  for (const char* variable : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    if (const char* text = std::getenv(variable)) return std::atoi(text) == ranks;
  return ranks == 1;
}

}  // namespace sennit::trainer
