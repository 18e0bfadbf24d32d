// order.hpp: `sennit topo --order`: how often messages between neighbours in rank cross each tier,
// now and in fabric order; and the files that tell launchers the better one.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::topo {

// Which host each rank is on, and who says so.
struct HostOrder {
  std::vector<std::string> hosts;  // by rank
  std::string from;                // "Slurm's job 17", "PBS_NODEFILE", "hosts.txt"
};
// Of a file, one host or hostlist a line, as mpirun, srun and MPICH take them; where `file` is
// empty, of the job that this runs in, else of all hosts of the fabric. (command/topo/hosts.cpp)
Result<HostOrder> read_order(const std::string& file, const Fabric& fabric);

// An order held against the best.
struct OrderReport {
  std::string text;
  std::vector<std::string> best;       // host by rank
  std::vector<std::string> strangers;  // hosts that the fabric does not know; last in `best`
};
Result<OrderReport> compare_orders(const Fabric& fabric, const HostOrder& order);

// Host by rank as a launcher reads it: Open MPI's sequential mapper (--map-by seq --hostfile),
// Slurm (SLURM_HOSTFILE with srun -m arbitrary), and Open MPI's --rankfile, where rank i of a host
// is on its core i. (command/topo/hosts.cpp)
std::string hostfile_text(const std::vector<std::string>& hosts);
std::string nodelist_text(const std::vector<std::string>& hosts);
std::string rankfile_text(const std::vector<std::string>& hosts);

}  // namespace sennit::topo
