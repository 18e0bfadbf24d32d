// network.hpp: directed capacities of a tier tree, shared max-min fairly by what moves at the
// moment.
//
// Progressive filling: all flows' rates rise together until a link is full; its flows keep that
// rate, the others rise on. After a change only the changed links are filled anew, with what the
// links around them can give their flows; those around are taken in as well, until no link is
// overloaded, and none has more than the tolerated part of its capacity to spare while its flows
// want more, or gives a flow that much less than its share. Links that no traffic can ever fill (an
// uplink at full bisection), or that the flows of the moment cannot, tie nothing together. Flows
// over the same links have the same rate, and are one path however many they are. Times in ns,
// rounded up. Cost of a change: O(paths on the links taken in * depth * rounds). With a grain
// (SimulateOptions::grain_ns) so much changes at once that all links are filled anew, once.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulate/simulate.hpp"
#include "simulate/symmetry.hpp"

namespace sennit::simulation {

inline constexpr uint64_t kNever = ~uint64_t{0};

// A multiple of the grain beside this time: the later one the likelier the nearer it is, as
// `chance`, any number, decides. Grain 0: the time itself.
inline uint64_t on_grain(uint64_t time_ns, uint64_t grain_ns, uint64_t chance) {
  if (grain_ns == 0 || time_ns == kNever) return time_ns;
  return (time_ns + chance % grain_ns) / grain_ns * grain_ns;
}

// The links of one simulation and what moves over them. Tree and symmetry must outlive it. Calls
// come in the order of time. One thread.
class FlowNetwork {
 public:
  FlowNetwork(const TierTree& tree, const SimulateOptions& options, const Symmetry& symmetry);

  // Of a way: the links up to the common group, those down from it, or both.
  enum class Part : uint8_t { up, down, all };
  // A pipe from one position to another, or a part of it, with at most one flow at a time, that
  // stands for `ranks` such pipes of as many ranks. O(depth).
  uint32_t connect(int from, int to, uint32_t ranks, Part part);
  void start(uint32_t connection, uint64_t bytes, uint64_t now_ns);  // bytes > 0
  void count(uint32_t connection, uint64_t bytes);  // among the loads, without moving them
  uint64_t least_time_ns() const;  // of the link that is slowest with what it was given so far
  // Works out the rates after starts and ends; before time goes on.
  void settle(uint64_t now_ns);
  uint64_t next_end_ns() const { return heap_.empty() ? kNever : paths_[heap_.front()].end_ns; }
  // Whether anything is on its way.
  bool moves() const { return !heap_.empty(); }
  uint32_t end_next(uint64_t now_ns);    // ends that flow; its connection
  std::vector<GroupLoad> loads() const;  // by group

 private:
  static constexpr uint32_t kNotInHeap = ~uint32_t{0};
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  struct Link {
    uint64_t capacity = 0;         // bytes/s
    unsigned __int128 filled = 0;  // the capacity times what a flow of weight one weighs
    bool can_fill = true;          // some traffic could fill it
    // Sum of the limits of its flows, here and below each times its weight.
    unsigned __int128 wanted = 0;
    std::vector<uint32_t> hops;  // of its flows, indices into hops_
    uint32_t flows = 0;          // also where it cannot be filled
    uint64_t busy_since_ns = 0, busy_ns = 0;
    unsigned __int128 bytes = 0;
    uint32_t seen = 0;  // settle() number
    double used = 0;    // sum of its flows' rates
    // rate of the flows that it holds back; unlimited: it holds back none
    double level = kUnlimited;
    // Of settle(): what is left to flows without a rate, how many they are, the level; and what the
    // flows of the area change on a link outside.
    double left = 0;
    uint64_t open = 0;
    double next_level = kUnlimited;
    double change = 0;
    uint32_t changed = 0;  // round
    bool scarce() const { return can_fill && wanted > filled; }
  };
  struct Hop {
    uint32_t path = 0, link = 0;
    uint32_t place = 0;   // in the link's hops
    uint64_t weight = 1;  // flows that one stands for, on each link of that class, in unit_
  };
  // A flow ends when its path has carried so many bytes for each of its flows.
  struct Flow {
    double ends_at;
    uint32_t connection;
    bool operator<(const Flow& other) const {  // for a heap whose top ends first
      return ends_at != other.ends_at ? ends_at > other.ends_at : connection > other.connection;
    }
  };
  struct Path {
    uint32_t first_hop = 0, hops = 0;
    uint32_t tying = 0;  // the first so many hops are over links that can be filled
    uint64_t limit = 0;  // bytes/s: the narrowest link's
    uint32_t narrowest = 0;
    std::vector<Flow> flows;  // heap
    // bytes for each flow since the first of these, bytes/s of each
    double carried = 0, rate = 0;
    uint64_t at_ns = 0;  // `carried` is of this time
    uint64_t end_ns = kNever;
    uint32_t heap_place = kNotInHeap;
    uint64_t many() const { return flows.size(); }
    uint32_t bottleneck = kNone;    // the link that holds it back
    uint32_t seen = 0;              // settle() number
    uint32_t fixed = 0;             // round
    double cap = 0, next_rate = 0;  // of settle()
    uint32_t capped_by = kNone, next_bottleneck = kNone;
  };

  struct Stop {
    double rate;
    uint32_t number;  // of the link or path
    bool operator<(const Stop& other) const { return rate < other.rate; }
    bool operator>(const Stop& other) const { return rate > other.rate; }
  };

  void touch(Link& link, uint32_t index, bool was_scarce);
  void take_in(uint32_t link);
  void take_in_path(uint32_t path);
  void fill();
  void fill_all();
  void run_stops();
  void cap(Path& path);
  void fix(uint32_t path, double rate, uint32_t by);
  bool widen();
  void commit(uint64_t now_ns);
  uint32_t path_over(std::span<Hop> hops);
  uint32_t link_of(uint32_t group_class, uint32_t side, int from, int to) const;
  std::span<Hop> hops_of(const Path& path) {
    return std::span(hops_).subspan(path.first_hop, path.hops);
  }
  std::span<Hop> tying_hops_of(const Path& path) {
    return std::span(hops_).subspan(path.first_hop, path.tying);
  }
  static uint64_t chance_of(const Flow& flow);
  static void carry_on(Path& path, uint64_t now_ns);
  void set_end(uint32_t path);
  bool earlier(uint32_t a, uint32_t b) const;
  void heap_put(size_t place, uint32_t path);
  void heap_up(size_t place);
  void heap_down(size_t place);

  // The links of egress of a group of class c begin at the 2c-th of first_link_, those of ingress
  // at the one after: one, or one for each cable.
  std::vector<Link> links_;
  std::vector<uint32_t> first_link_;
  std::vector<Hop> hops_;
  std::vector<Path> paths_;
  std::vector<uint32_t> path_of_connection_;
  std::unordered_map<uint64_t, uint32_t> path_of_hops_;  // by their hash
  const TierTree& tree_;
  const Symmetry& symmetry_;
  const uint64_t unit_;         // the weight of one flow on a link
  std::vector<uint32_t> heap_;  // paths with flows, by the first end
  std::vector<uint32_t> changed_links_, changed_paths_;
  std::vector<uint32_t> area_links_, area_;  // of settle(): taken in
  std::vector<uint32_t> around_, more_;
  // Where filling stops: a heap of links, by when they are full, and paths, by what they can get.
  std::vector<Stop> stops_, caps_;
  const double tolerance_;
  const uint64_t grain_ns_, cable_hash_;
  uint32_t settling_ = 0, round_ = 0;
};

}  // namespace sennit::simulation
