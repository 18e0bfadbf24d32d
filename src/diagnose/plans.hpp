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
#include "diagnose/expected.hpp"
#include "diagnose/job.hpp"
#include "schedule/program.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// Made as they are asked for, and kept. `job` outlives this. Not thread-safe.
class Plans {
 public:
  explicit Plans(const JobRecording& job);
  ~Plans();

  // Null, and why_none(), where it was not noted.
  const Fabric* fabric() const { return fabric_ ? &*fabric_ : nullptr; }
  // Null, and why_none(), where the notes do not say enough: the communicator's members, or the
  // fabric.
  const TierTree* tree(uint32_t comm);
  // Null: no note of it, or one that fits no such communicator.
  const PlanNote* note(uint32_t comm, uint64_t plan);
  // What all programs of the plan are made from; null where it cannot be known. In place, programs
  // may be others.
  const Blueprint* blueprint(uint32_t comm, uint64_t plan, bool in_place);
  // What edges of a plan that has a blueprint should take on tree(); simulated at first, and kept
  // until some others were. `took_ns`: expected_of()'s.
  const ExpectedPlan& expected(uint32_t comm, uint64_t plan, double took_ns);
  // What a world rank runs in a call that begins with this plan; null where it cannot be known.
  const Program* program(uint32_t comm, uint64_t plan, bool in_place, int rank);
  // World rank and position in the communicator; -1: it is no member.
  int position(uint32_t comm, int rank);
  int rank_at(uint32_t comm, int position);
  // "all_reduce of 4 MiB float32 sum"; "a call" where nobody noted it.
  std::string call_name(uint32_t comm, uint64_t plan);
  // "rack"; "tier 2" where there is no tree.
  std::string tier_name(uint32_t comm, uint8_t tier);
  const std::string& why_none() const { return why_none_; }

 private:
  const JobRecording& job_;
  std::optional<Fabric> fabric_;
  std::string why_none_;
  std::map<uint32_t, std::unique_ptr<TierTree>> trees_;
  // What a blueprint is made from must outlive it.
  struct Made {
    Request request;
    TierTree tree;  // that it was planned on: positions are those of tree()
    std::unique_ptr<Blueprint> blueprint;
    std::map<int, Program> programs;  // by position
    std::optional<ExpectedPlan> expected;
  };
  Made* made(uint32_t comm, uint64_t plan, bool in_place);

  std::map<std::tuple<uint32_t, uint64_t, bool>, Made> made_;
  size_t expected_ = 0;                               // so many were simulated, ever
  std::map<uint32_t, std::map<int, int>> positions_;  // by communicator and world rank
};

}  // namespace sennit::diagnose
