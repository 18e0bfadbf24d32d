// source.hpp: the contract of the topology family: where a fabric's shape is written down.
//
// A source fills in what it knows. Sources are asked by falling priority and merged: a figure of a higher
// priority stands, a disagreement is kept in Fabric::conflicts. Measured outranks declared outranks assumed,
// whatever the source.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "fabric.hpp"

namespace sennit {

struct SourceContext {
  std::string host;         // this host's name as the job knows it
  std::string fabric_file;  // given by option or configuration; empty: search
};

struct Source {
  std::string_view name;
  int priority;   // file 90, ibnet 80, slurm 60, lldp 50, hwloc 30, synthetic 0 (only when asked for)
  bool per_host;  // gives each host's inside: asked once per host, by one rank; else asked by rank 0 only
  // nullopt: nothing to say here, which is no error. An error is a malformed file and the like.
  std::function<Result<std::optional<Fabric>>(const SourceContext&)> read;
};
std::span<const Source> sources();  // all registered, by falling priority
struct SourceEntry {
  explicit SourceEntry(Source source);
};
#define SENNIT_SOURCE_ENTRY(...)                           \
  namespace {                                              \
  const ::sennit::SourceEntry kEntry(Source{__VA_ARGS__}); \
  }

// Merges `more` into `base` (asked earlier, so of higher priority).
Fabric merge(Fabric base, const Fabric& more, std::string_view source);

// Synthetic trees: "fat-tree:2x4,nic=400Mbit/s,uplink=229Mbit/s", "meta24k", ... (syntax in
// topology/README.md).
Result<Fabric> synthetic_fabric(std::string_view spec);
// meta24k and friends straight to a TierTree, without building the 24,576-host graph; ranks 0..n-1 in fabric
// order.
Result<TierTree> synthetic_tree(std::string_view spec);

}  // namespace sennit
