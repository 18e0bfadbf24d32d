// simulate_network.hpp: directed capacities of a tier tree, shared max-min fairly by what moves at the
// moment.
//
// Progressive filling: all flows' rates rise together until a link is full; its flows keep that rate, the
// others rise on. After changes only the flows are worked out again that are tied to the changed links by
// links that can be full: a link wide enough for all its flows ties nothing. Links that no traffic can ever
// fill (an uplink at full bisection) are left out from the start. Times in ns, rounded up. Cost of settle():
// O(flows affected * depth + links * log links).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "simulate.hpp"

namespace sennit::simulation {

inline constexpr uint64_t kNever = ~uint64_t{0};

class Network {
 public:
  Network(const TierTree& tree, const CostModel& cost);

  // A pipe from one position to another, with at most one flow at a time. O(depth).
  uint32_t connect(int from, int to);
  void start(uint32_t connection, uint64_t bytes, uint64_t now_ns);  // bytes > 0
  // Works out the rates after starts and ends; before time goes on.
  void settle(uint64_t now_ns);
  uint64_t next_end_ns() const { return heap_.empty() ? kNever : connections_[heap_.front()].end_ns; }
  uint32_t end_next(uint64_t now_ns);  // ends that flow; its connection
  std::vector<GroupLoad> loads() const;

 private:
  static constexpr uint32_t kNotInHeap = ~uint32_t{0};

  struct Link {
    uint64_t capacity = 0;       // bytes/s
    bool can_fill = true;        // some traffic could fill it
    uint64_t wanted = 0;         // sum of the limits of its flows
    std::vector<uint32_t> hops;  // of its flows, indices into hops_
    uint32_t flows = 0;          // also where it cannot be filled
    uint64_t busy_since_ns = 0, busy_ns = 0;
    uint64_t bytes = 0;
    uint32_t seen = 0;  // settle() number
    double left = 0;    // of settle()
    uint32_t open = 0;  // of settle(): flows without a rate
    bool scarce() const { return can_fill && wanted > capacity; }
  };
  struct Hop {
    uint32_t connection = 0, link = 0;
    uint32_t place = 0;  // in the link's hops
  };
  struct Connection {
    uint32_t first_hop = 0, hops = 0;
    uint64_t limit = 0;  // bytes/s: the narrowest link's
    uint32_t narrowest = 0;
    double left = 0, rate = 0;  // bytes, bytes/s
    uint64_t at_ns = 0;         // `left` is of this time
    uint64_t end_ns = kNever;
    uint32_t heap_place = kNotInHeap;
    uint32_t seen = 0, fixed = 0;  // settle() numbers
  };

  void touch(Link& link, uint32_t index, bool was_scarce);
  void find_affected();
  void fill(uint64_t now_ns);
  void fix(uint32_t connection, double rate, uint64_t now_ns);
  void set_rate(uint32_t connection, double rate, uint64_t now_ns);
  bool earlier(uint32_t a, uint32_t b) const;
  void heap_put(size_t place, uint32_t connection);
  void heap_up(size_t place);
  void heap_down(size_t place);

  std::vector<Link> links_;  // egress of group g: 2g, ingress: 2g + 1
  std::vector<Hop> hops_;
  std::vector<Connection> connections_;
  const TierTree& tree_;
  std::vector<uint32_t> heap_;  // connections with a flow, by end
  std::vector<uint32_t> changed_links_, changed_connections_;
  std::vector<uint32_t> affected_links_, affected_;
  // (rate, link, or number of links + connection): where filling stops next
  std::vector<std::pair<double, uint32_t>> stops_;
  uint32_t settling_ = 0;
};

}  // namespace sennit::simulation
