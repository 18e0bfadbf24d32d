// communicator_numbers.hpp: communicators under numbers that are theirs alone: all groups of a
// split are known to their ranks by one number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "diagnose/job.hpp"

namespace sennit::diagnose {

inline constexpr uint32_t kChannel = 0x80000000;  // of a group's channel (api/state/registry.hpp)

// Whether a rank, of so many, may say this of a communicator that it is in.
bool is_sound(const CommunicatorNote& comm, int rank, int ranks);

// Numbers of a job's communicators.
class CommunicatorNumbers {
 public:
  // `job` outlives this, and gets what is taken.
  explicit CommunicatorNumbers(JobRecording* job) : job_(*job) {}

  bool knows(const CommunicatorNote& comm) const;
  // Its number from now on: the one that its ranks know it by, where that is free.
  uint32_t take(const CommunicatorNote& comm);
  // Of the communicator, or the channel of a group, that `rank` knows as `comm`; nothing where that
  // was not taken.
  std::optional<uint32_t> of(uint32_t comm, int rank) const;
  // In the rank's events and notes, from the numbers that it knows. Takes its communicators.
  void apply(RankRecording* rank);

 private:
  JobRecording& job_;
  std::map<std::pair<uint32_t, std::vector<int>>, uint32_t> known_;  // by id and members
  std::map<std::pair<uint32_t, int>, uint32_t> of_rank_;             // by id and rank: the latest
};

}  // namespace sennit::diagnose
