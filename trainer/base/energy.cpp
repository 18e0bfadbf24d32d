// energy.cpp: see trainer/base/energy.hpp.
#include "trainer/base/energy.hpp"

#include <fstream>

namespace sennit::trainer {

std::optional<double> energy_joules(const std::string& powercap) {
  std::optional<double> joules;
  for (int package = 0; package < 64; package++) {
    std::ifstream counter(powercap + "/intel-rapl:" + std::to_string(package) + "/energy_uj");
    double microjoules = 0;
    if (!(counter >> microjoules)) break;
    joules = joules.value_or(0) + microjoules * 1e-6;
  }
  return joules;
}

}  // namespace sennit::trainer
