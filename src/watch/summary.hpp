// summary.hpp: sums up what a rank records, event by event, into digests.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "diagnose/edges.hpp"
#include "record/event.hpp"
#include "watch/digest.hpp"

namespace sennit::watch {

// A time in which a rank is in no call.
struct Between {
  uint64_t begin_ns = 0, end_ns = 0;
};

// A call counts in the digest in whose time it ended. Calls of which something was not seen, its
// begin or what came after, do not count. One thread at a time.
class Summary {
 public:
  // World ranks of other hosts: what comes from the rest crosses no network.
  explicit Summary(std::vector<bool> remote) : remote_(std::move(remote)) {}

  // In the order in which they were recorded.
  void add(const TraceEvent& event);
  // Events in between were not seen.
  void gap();
  // Of all that has ended since the last take().
  Digest take(uint64_t span_ns);
  // When the rank was in no call, as far as that has ended since this was called last. Ascending,
  // apart.
  std::vector<Between> take_in_none() { return std::exchange(in_none_, {}); }

 private:
  // Calls of one rank under way; those of sends and receives have a tag and a peer.
  struct Name {
    uint32_t comm = 0, seq = 0, tag = 0;
    int peer = -1;
    bool point_to_point = false, receiving = false;
    auto tied() const { return std::tie(comm, seq, tag, peer, point_to_point, receiving); }
    bool operator<(const Name& other) const { return tied() < other.tied(); }
  };
  struct Open {
    uint64_t begin_ns = 0;
    bool alone = true;
  };
  // What has come for a collective call that has not ended; its begin may not be recorded.
  struct Incoming {
    std::map<int, diagnose::Service> edges;  // by world rank
    std::array<uint64_t, DigestPlan::kTiers> tier_bytes{};
  };
  // The latest call on a communicator that has ended.
  struct Latest {
    uint32_t seq = 0;
    uint64_t begin_ns = 0, in_none_ns = 0;  // the latter: when it ended
  };
  struct Pace {
    std::vector<double> between_ns, period_ns;
  };
  // The way of messages from one rank: how much later, by this clock, than they left by the
  // sender's, at the least. Both clocks may drift, so what is long ago does not count.
  struct Way {
    uint32_t apart_us = 0;  // of the first one; the others differ from it by little
    int64_t least_us = 0, least_before_us = 0;
    uint64_t since_ns = 0;  // that least_us is counted
  };
  uint64_t queued_ns(const TraceEvent& event);
  uint64_t could_move_ns(const TraceEvent& event);
  static Name name_of(const TraceEvent& event);
  void receive(const TraceEvent& event);
  void begin(const TraceEvent& event);
  void end(const TraceEvent& event);
  void forget_open();
  void forget_older();
  Open open_at(const Name& name, uint64_t begin_ns);
  void follow(const Name& name, const Open& call);
  void finish(const TraceEvent& event, const Open& call);

  const std::vector<bool> remote_;
  std::map<Name, Open> open_;
  std::map<std::pair<uint32_t, uint32_t>, Incoming> incoming_;  // by communicator and number
  std::map<uint32_t, Latest> latest_;
  std::map<int, Way> ways_;        // by world rank
  uint64_t covered_until_ns_ = 0;  // the latest end
  uint64_t in_none_ns_ = 0;        // time in no call, ever
  std::vector<Between> in_none_;   // the latest of it
  uint64_t since_ns_ = 0;          // nothing is known of what was before
  std::map<std::pair<uint32_t, uint64_t>, DigestPlan> plans_;
  std::map<std::pair<uint32_t, uint64_t>, std::map<int, DigestEdge>> edges_;
  std::map<uint32_t, Pace> paces_;
};

}  // namespace sennit::watch
