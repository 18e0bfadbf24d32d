// digest.hpp: what one rank tells the coordinator, twice a second, of the calls that have ended
// there since: sums, by plan and by the rank that messages came from.
//
// Times are differences on the rank's own clock, so that digests of several hosts can be put
// together without knowing how far their clocks are apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace sennit::watch {

// Messages of collective calls from one rank of another host, in DigestPlan::alone calls.
struct DigestEdge {
  int peer = -1;  // world rank
  uint64_t bytes = 0;
  uint64_t service_ns = 0;  // as diagnose::Service, by the receiver alone
  bool operator==(const DigestEdge&) const = default;
};

// Calls that ran one plan.
struct DigestPlan {
  static constexpr size_t kTiers = 4;

  uint32_t comm = 0;  // as the rank knows it
  uint64_t plan = 0;
  uint32_t first = 0, last = 0;  // numbers of calls
  uint32_t calls = 0;
  uint64_t in_calls_ns = 0;  // the sum of how long they took
  // Of them those in which no other call was under way here.
  uint32_t alone = 0;
  uint64_t alone_ns = 0;                      // their sum
  uint64_t quickest_ns = 0;                   // the shortest of them
  std::array<uint64_t, kTiers> tier_bytes{};  // received in all calls, by the tier crossed
  std::vector<DigestEdge> edges;
  bool operator==(const DigestPlan&) const = default;
};

// Of calls with numbers that follow one another on a communicator.
struct DigestPace {
  uint32_t comm = 0;
  uint32_t pairs = 0;
  // Medians: of the time between two of them in which the rank was in no call at all, and from
  // begin to begin.
  uint64_t between_ns = 0, period_ns = 0;
  bool operator==(const DigestPace&) const = default;
};

// All that is told at once.
struct Digest {
  uint64_t span_ns = 0;                 // since the one before
  uint64_t without_core_ns = 0;         // of it: CoreTime::take_ns()
  std::optional<double> cores_between;  // WorkBetween::cores(), in thousandths
  std::vector<DigestPlan> plans;
  std::vector<DigestPace> paces;
  bool operator==(const Digest&) const = default;
};

inline constexpr size_t kMostDigestBytes = 1024;

// At most kMostDigestBytes: the plans and edges that moved most, and the paces with most calls.
// What edges moved is rounded to 64 bytes, what they took to microseconds.
std::vector<std::byte> encode(const Digest& digest);
// Errors: what is no digest, or says what none would.
Result<Digest> decode_digest(std::span<const std::byte> bytes);

}  // namespace sennit::watch
