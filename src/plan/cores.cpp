// cores.cpp: see plan/cores.hpp.
#include "plan/cores.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

struct Union {
  int ranks = 0;
  std::set<int> cores;
  void add(const CoreSight& sight) {
    ranks++;
    for (size_t i = 0; i + 1 < sight.cores.size(); i += 2)
      for (int core = std::max(0, sight.cores[i]);
           core <= std::min(sight.cores[i + 1], CPU_SETSIZE - 1); core++)
        cores.insert(core);
  }
  CoreShare share() const { return {ranks, static_cast<int>(cores.size())}; }
};

}  // namespace

CoreSight CoreSight::look() {
  CoreSight sight;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> sight.machine;
  struct stat shm = {};
  stat("/dev/shm", &shm);
  sight.host = fmt::format("{}/{}/{}/{}", this_host(), sight.machine, shm.st_dev, shm.st_ino);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return sight;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set)) continue;
    if (sight.cores.empty() || sight.cores.back() != core - 1)
      sight.cores.insert(sight.cores.end(), {core, core});
    sight.cores.back() = core;
  }
  return sight;
}

CoreShare share_of_host(const std::vector<CoreSight>& all, const std::string& host) {
  Union together;
  for (const CoreSight& sight : all)
    if (sight.host == host) together.add(sight);
  return together.share();
}

CoreShare share_of_machine(const std::vector<CoreSight>& all, const CoreSight& here) {
  if (here.machine.empty()) return share_of_host(all, here.host);
  Union together;
  for (const CoreSight& sight : all)
    if (sight.machine == here.machine) together.add(sight);
  return together.share();
}

bool one_machine(const std::vector<CoreSight>& all) {
  return !all.empty() && !all[0].machine.empty() &&
         std::ranges::all_of(
             all, [&](const CoreSight& sight) { return sight.machine == all[0].machine; });
}

uint64_t crowding_permille(const std::vector<CoreSight>& all) {
  std::map<std::string, Union> machines;
  for (const CoreSight& sight : all)
    if (!sight.machine.empty() && !sight.cores.empty()) machines[sight.machine].add(sight);
  uint64_t most = kPermille;
  for (const auto& [name, machine] : machines)
    if (!machine.cores.empty())
      most =
          std::max(most, static_cast<uint64_t>(machine.ranks) * kPermille / machine.cores.size());
  return most;
}

}  // namespace sennit
