// plan.hpp: what was decided for a Request, and why: algorithm, parameters, predicted time, bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sennit {

inline constexpr uint32_t kMostChunks = 1u << 20;

// Parameters::whole_stages: all of them, for small messages.
inline constexpr uint8_t kAllStages = 255;

// Parameters of every algorithm; one that has no use for a field leaves it at its default.
struct Parameters {
  uint32_t chunks = 1;  // pipeline slices per block
  // tiered: from the innermost stage outwards; empty: one direct stage per tier
  std::vector<uint16_t> radices;
  // tiered all-reduce: this many outermost stages exchange whole pieces
  uint8_t whole_stages = 0;
  bool operator==(const Parameters&) const = default;
  std::string to_text() const;
};

// The least time any schedule can take; see plan/bound.hpp. Unknown where a capacity is unknown.
struct Bound {
  bool known = false;
  uint64_t time_ns = 0;
  int binding_tier = -1;          // index into TierTree::tiers; -1 when unknown
  int binding_group = -1;         // the group, or -1 where a whole tier binds together
  std::string why;                // "rack: 2(n-1)M / sum of egress"
  std::vector<uint64_t> tier_ns;  // by tier: the bound that this tier alone sets; 0: none
};

// A plan that was thought of.
struct Candidate {
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0;
  std::string rejected;      // why it lost; empty for the choice
  uint64_t measured_ns = 0;  // of the tuning table's choice; 0: not measured
};

// What runs, and why: the candidates are all that were thought of, the choice among them.
struct Plan {
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0;
  Bound bound;
  std::vector<Candidate> candidates;
  uint64_t hash = 0;  // of request, tree fingerprint, algorithm and parameters
  // by an option or a file: it is verified before it first runs (plan/asked_for.hpp)
  bool asked_for = false;
  std::string to_text() const;
};

}  // namespace sennit
