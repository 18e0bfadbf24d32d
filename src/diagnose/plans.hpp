// plans.hpp: the trees and programs of a job's calls, made again from the notes of its recordings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/algorithm.hpp"
#include "diagnose/recordings.hpp"
#include "schedule/program.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// Made as they are asked for, and kept. `job` outlives this. Not thread-safe.
class Plans {
 public:
  explicit Plans(const JobRecording& job);
  ~Plans();

  // Null, and why_none(), where the notes do not say enough: the communicator's members, or the
  // fabric.
  const TierTree* tree(uint32_t comm);
  // Null: no note of it.
  const PlanNote* note(uint32_t comm, uint64_t plan) const;
  // What a world rank runs in a call that begins with this plan; null where it cannot be known.
  const Program* program(uint32_t comm, uint64_t plan, int rank);
  // World rank and position in the communicator; -1: it is no member.
  int position(uint32_t comm, int rank);
  int rank_at(uint32_t comm, int position);
  // "all_reduce of 4 MiB float32 sum"; "a call" where nobody noted it.
  std::string call_name(uint32_t comm, uint64_t plan) const;
  // "rack"; "tier 2" where there is no tree.
  std::string tier_name(uint32_t comm, uint8_t tier);
  const std::string& why_none() const { return why_none_; }

 private:
  const JobRecording& job_;
  std::optional<Fabric> fabric_;
  std::string why_none_;
  std::map<uint32_t, std::unique_ptr<TierTree>> trees_;
  std::map<std::pair<uint32_t, uint64_t>, std::unique_ptr<Blueprint>> blueprints_;
  std::map<std::tuple<uint32_t, uint64_t, int>, Program> programs_;
};

}  // namespace sennit
