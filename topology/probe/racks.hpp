// racks.hpp: which hosts share uplinks, out of rates while everybody sends to everybody, and of
// what lone hosts hear then. See topology/probe/probe.hpp for the whole probe. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "topology/probe/round.hpp"

namespace sennit::probe {

// A figure for each pair of hosts; 0: none came.
class Pairs {
 public:
  explicit Pairs(int hosts) : hosts_(hosts), figures_(index(hosts) * index(hosts), 0) {}
  uint64_t& at(int a, int b) { return figures_[cell(a, b)]; }
  uint64_t at(int a, int b) const { return figures_[cell(a, b)]; }
  std::span<const uint64_t> all() const { return figures_; }

 private:
  size_t cell(int a, int b) const { return index(a) * index(hosts_) + index(b); }

  int hosts_;
  std::vector<uint64_t> figures_;
};

// Finds which hosts are near one another. One thread.
class Racks {
 public:
  explicit Racks(int hosts) : hosts_(hosts), rates_(hosts) {}

  // First: all pairs at once, and the rates of these flows.
  Round everybody() const;
  void record(const Round& round, std::span<const uint64_t> rates);

  // Then: the racks as these rates show them. Where hosts are alone in theirs, round trips are
  // needed as well (`needs_round_trips`), and rounds in which they hear from every rack.
  std::vector<Round> lone_rounds(bool* needs_round_trips);
  // What such a round gave: lone hosts join the rack that they hear more from, if it is near.
  void place_lone(const Round& round, std::span<const uint64_t> rates, const Pairs& round_trips);

  // At last: racks, and what joins racks more closely than others, and so on upwards. groups[0] is
  // all hosts; parents come before their children.
  std::vector<Group> groups() const;

 private:
  using HostSets = std::vector<std::vector<int>>;

  // Both directions count: what limits one seldom limits the other by chance.
  double rate(int a, int b) const {
    return static_cast<double>(rates_.at(a, b) + rates_.at(b, a)) / 2;
  }
  bool was_lone(int host) const;
  std::vector<int> by_rates() const;
  bool looks_near(int h, int other, const Pairs& round_trips) const;
  double median_between(const std::vector<int>& some, const std::vector<int>& others) const;
  HostSets join_nearest(const HostSets& sets) const;
  double separation(const std::vector<int>& hosts) const;

  const int hosts_;
  Pairs rates_;               // while everybody sent to everybody
  std::vector<int> seen_;     // by host: the lowest host of its rack, as those rates alone show it
  std::vector<int> rack_of_;  // by host: likewise, with the lone ones placed
};

}  // namespace sennit::probe
