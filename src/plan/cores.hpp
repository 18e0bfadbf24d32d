// cores.hpp: which ranks share a host, a machine, and its cores.
//
// A host is what can share memory; a machine is one kernel. They differ where containers or
// namespaces share a machine: such ranks talk through the network and still wait for each other's
// cores. Every rank tells what it sees, all work out the same from it. Pure but for look(). Cost:
// O(ranks x runs of cores).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sennit {

// What one process sees of where it runs.
struct CoreSight {
  // equal for processes that can share memory, as far as can be told from outside
  std::string host;
  std::string machine;     // equal under one kernel
  std::vector<int> cores;  // that this process may run on: first, last, first, last, ...
  static CoreSight look();
};

// Ranks, and how many cores they may use together: a launcher may have bound each to cores of its
// own.
struct CoreShare {
  int ranks = 0, cores = 0;
};
CoreShare share_of_host(const std::vector<CoreSight>& all, const std::string& host);
// Of the machine that `here` is on; of its host alone, where it could not tell the machine.
CoreShare share_of_machine(const std::vector<CoreSight>& all, const CoreSight& here);

// Whether all ranks run under one kernel: what they send one another never leaves its memory, even
// where they are on different hosts.
bool one_machine(const std::vector<CoreSight>& all);

// Ranks per core, in thousandths, on the machine where that is most; 1000 where every rank has a
// core.
uint64_t crowding_permille(const std::vector<CoreSight>& all);

}  // namespace sennit
