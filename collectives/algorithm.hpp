// algorithm.hpp: the contract of the collectives family.
//
// An algorithm turns (TierTree, Request, Parameters) into one Program per rank. It knows no
// transport, no device, no message size. Registered with SENNIT_ALGORITHM_ENTRY at the end of its
// file, which is all that the rest of the library needs to know of it: planner, verifier and
// simulator ask it through this interface, never by its name. All functions are pure and
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cost/cost_model.hpp"
#include "schedule/plan.hpp"
#include "schedule/program.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What is common to all ranks, worked out once; programs are made lazily per rank from it. The tree
// and the request must outlive it.
class Blueprint {
 public:
  virtual ~Blueprint() = default;
  // The program of the rank at this position. Cost: by the topology's depth and fan-out, never by
  // the message.
  virtual Program program(int position) const = 0;
  // True where all ranks' programs are one, but for who the peers and whose the blocks are.
  virtual bool uniform() const { return false; }
  // Where moreover turning the tree takes any rank's program to any other's: that peer of position
  // 0 which is to it what position 0 is to `peer`, another of its peers. -1: nothing is said.
  virtual int mirrored(int peer) const {
    (void)peer;
    return -1;
  }
  // By position: numbers from 0 without gaps, the same for ranks whose programs are one, but for
  // who the peers are and in which order they come, and for a few messages where pieces of unequal
  // groups are cut. Empty: nothing is said.
  virtual std::vector<uint32_t> kinds() const { return {}; }
  // Where kinds are told: at which of its exchanges two ranks meet, a number.
  virtual int exchange_of(int /*position*/, int /*peer*/) const { return 0; }
};

// What an algorithm says of itself, in closed form, for the cost model. Integers only, so that all
// ranks agree.
struct Estimate {
  // by tier: bytes over the most loaded group boundary / its capacity, whole message
  std::vector<uint64_t> tier_ns;
  // By tier, of these times: what messages' own headers add. Empty: nothing.
  std::vector<uint64_t> headers_ns;
  // Every message crosses all tiers between two ranks at once, and none waits for messages of
  // another tier: then these times do not add up.
  bool at_once = false;
  // Hardly a message waits for another: the first moves while the others are posted.
  bool posted_at_once = false;
  // Where there is a root: a rank may be early on one of a chunk's ways and late on another, and
  // holds the chunk's lane between. For so much of the whole way.
  uint8_t held_percent = 0;
  uint64_t latency_ns = 0;  // of the messages on one chunk's critical path
  // What those of them add that ask for their receives (CostModel::eager_bytes), by how large they
  // are where the whole message is one chunk.
  struct Asking {
    uint64_t bytes = 0, ns = 0;
    bool operator==(const Asking&) const = default;
  };
  std::vector<Asking> asking;
  uint64_t messages = 0;      // posted per chunk by the busiest rank
  uint64_t reduce_bytes = 0;  // read by reductions of the busiest rank, whole message
  // Read by others on the longest way through ranks that add up one after the other.
  uint64_t reduce_bytes_of_others = 0;
  bool operator==(const Estimate&) const = default;
};

// What an algorithm says beyond its Estimate for many ranks on few cores, whose links are shapers.
// Nobody but plan/shared_cores.cpp asks for it.
struct SharedCoresEstimate {
  // Of the ways from a group up to the root, the one on which boundaries take longest, one after
  // the other; 0: all of Estimate::tier_ns. Less where the tiers' busiest boundaries are of
  // different groups, as of a rank alone in its rack and of another rack: what loads them are
  // mostly different messages, which move at the same time.
  uint64_t way_ns = 0;
  // Of the whole message in one chunk, where a rank sends on only what it has received, over links
  // that other ranks load no less: what its longest path takes, hop after hop. 0: what the tiers
  // take.
  uint64_t path_ns = 0;
  // Every rank sends messages of several tiers all the time, and a chunk's wait behind those of the
  // chunks beside it, which are in another tier: beyond the first, chunks fill the tiers twice.
  bool fills_twice = false;
  // Per chunk by the busiest rank, where it takes in more than it posts. Counts where ranks wait
  // for a core, and within a host.
  uint64_t received = 0;
  // Posted per chunk by all ranks together; 0: the busiest rank's times the ranks. Counts where
  // some ranks wait for a core (SharedCores::crowded), and may be left out elsewhere.
  uint64_t all_messages = 0;
};

// What the programs of all ranks come to.
struct Counts {
  std::vector<uint64_t> tier_bytes;  // by tier: out of all its groups
  uint64_t messages = 0;             // for one chunk
  uint64_t rounds = 0;               // messages in the longest chain
  std::vector<int> kinds;            // positions, one of each kind of rank that needs scratch
};

// Which parameters an algorithm has a meaning for; what is none is not passed over, but refused.
struct Takes {
  size_t radices = 0;  // so many at most; several: of stages, from the innermost outwards
  uint16_t least_radix = 2;
  uint8_t whole_stages = 0;  // at most
};

// One family of schedules. Objects are without state, live as long as the program, and may be asked
// by any thread.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual std::string_view name() const = 0;  // "tiered", as SENNIT_ALGORITHM takes it
  // For this collective, on whatever tree. The other functions get nothing else: who has parameters
  // from a file or an option holds them against it first (check_parameters).
  virtual Takes takes(Collective) const { return {}; }
  // Whether this algorithm can do the request on this tree.
  virtual bool applies(const TierTree& tree, const Request& request) const = 0;
  // Settings worth comparing, most promising first, at most about 16. Chunks are the planner's:
  // leave 1.
  virtual std::vector<Parameters> candidates(const TierTree& tree,
                                             const Request& request) const = 0;
  virtual Estimate estimate(const TierTree& tree, const Request& request,
                            const Parameters& parameters, const CostModel& cost) const = 0;
  // The same of each of these: for an algorithm whose candidates have work in common.
  virtual std::vector<Estimate> estimates(const TierTree& tree, const Request& request,
                                          std::span<const Parameters> candidates,
                                          const CostModel& cost) const {
    std::vector<Estimate> all;
    for (const Parameters& parameters : candidates)
      all.push_back(estimate(tree, request, parameters, cost));
    return all;
  }
  // `estimate` is what the function above says of the same. Where all is left at 0, the algorithm
  // is planned as well, only less exactly.
  virtual SharedCoresEstimate on_shared_cores(const TierTree&, const Request&, const Parameters&,
                                              const CostModel&,
                                              const Estimate& /*estimate*/) const {
    return {};
  }
  virtual std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                             const Parameters& parameters) const = 0;
  // What all programs come to, without making them. None: they have to be made.
  virtual std::optional<Counts> count(const TierTree&, const Request&, const Parameters&) const {
    return std::nullopt;
  }
  // False: chunks are processed one whole schedule after the other with no gain (direct
  // all-to-all).
  virtual bool pipelines() const { return true; }
  // Whether every sum's order follows from the tree alone, whatever the size and the chunks: then
  // results are the same bits each time.
  virtual bool fixes_order(const Request& request, const Parameters&) const {
    return !request.reduces();
  }
  // How often every piece goes once around a ring of all ranks in fabric order, where nothing else
  // happens. The simulator takes a formula for that where the ring is long. 0: no ring.
  virtual uint64_t turns_around_ring(const Request&) const { return 0; }
  // Whether everybody sends straight to everybody: the plan of a send_recv, between whose two ranks
  // there is nothing to choose, bears the name of the algorithm that does.
  virtual bool sends_straight() const { return false; }
};

// All that are registered, sorted by name. The list is complete when main() begins.
std::span<const Algorithm* const> algorithms();
// The one whose name() is exactly this, or null.
const Algorithm* find_algorithm(std::string_view name);
// Whether the algorithm takes these for this collective, and chunks are within kMostChunks. Else an
// invalid argument, such as "ring takes no radices for all_reduce, not 4,2".
Status check_parameters(const Algorithm& algorithm, Collective collective,
                        const Parameters& parameters);

// Puts an algorithm on the list, before main(). Names are unique.
struct AlgorithmEntry {
  explicit AlgorithmEntry(const Algorithm* algorithm);
};
#define SENNIT_ALGORITHM_ENTRY(Class)                        \
  namespace {                                                \
  const Class k##Class;                                      \
  const ::sennit::AlgorithmEntry kEntryOf##Class(&k##Class); \
  }

}  // namespace sennit
