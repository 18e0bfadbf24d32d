// slurm.hpp: what Slurm says of the network: topology.conf (also the text of `scontrol show
// topology`), and the variables that every task has. topology.yaml is the text form "slurm_yaml",
// where the build has yaml-cpp. Pure functions of their texts; capacities stay unknown, for Slurm
// does not know them.
#pragma once

#include <string>
#include <string_view>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// Whether a file is a topology.conf rather than the text form: its first word begins with
// SwitchName=, BlockName=, BlockSizes= or AggregatedBlock=.
bool is_topology_conf(std::string_view text);

// Trees (SwitchName=, Nodes=, Switches=) and blocks (BlockName=, Nodes=, BlockSizes=). A line with
// Switches= is about these; its Nodes=, as scontrol prints them, are all the nodes below and not
// read. A value may stand in quotes.
Result<Fabric> parse_topology_conf(std::string_view text, const std::string& file);

// What is said where nodes of a job (a hostlist) are not in the fabric that was read from `file`:
// which. Empty: all are.
Result<std::string> missing_nodes(const Fabric& fabric, const std::string& file,
                                  std::string_view nodelist);

// SLURM_TOPOLOGY_ADDR "root.leaf3.n17" with SLURM_TOPOLOGY_ADDR_PATTERN "switch.switch.node": this
// host's path. A level may be a hostlist. `host` is the vertex's name; empty: the node's name as
// Slurm has it.
Result<Fabric> parse_topology_addr(std::string_view address, std::string_view pattern,
                                   const std::string& host);

}  // namespace sennit
