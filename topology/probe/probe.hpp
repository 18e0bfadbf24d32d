// probe.hpp: what to measure between the hosts of a job to learn its fabric, and what the figures
// mean. Pure.
//
// Groups. Everybody sends to everybody at once: flows that share an uplink with many get less than
// those within a rack, the more so the more oversubscribed it is. A host is compared with its own
// best flows. (One flow alone would never show a shared uplink.) A host that stays alone, because
// it is slow or has no neighbour, hears from every rack in turn while that fills its uplink: from
// its own rack it hears more, and its round trips are shorter. Above 64 hosts, too many for that,
// classes of round trips are the tiers. Rates. Every host's own by rings inside the groups, every
// group's by a cut: all its hosts send to hosts outside while as many send back. Where two hosts
// only met each other and were slow, each is tried with another one too. A group whose cut carries
// what its hosts can send is no bottleneck and dissolves. Rounds: 1, racks if a host stays alone, 2
// + groups, suspects; and 4 (n - 1) of round trips where they are needed. Figures are goodput: what
// a payload gets.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/probe/racks.hpp"
#include "topology/probe/round.hpp"

namespace sennit::probe {

// What one host was measured to send and receive.
struct HostRate {
  uint64_t bytes_per_s = 0;
  bool measured = false;  // else assumed: the median of the others
};

// What the measurements come to.
struct Findings {
  std::vector<Group> groups;
  std::vector<HostRate> hosts;
  std::vector<int> slow;  // hosts far below the median
  int rounds = 0;
  std::string summary() const;  // one line: what was found, and how sure that is
  std::string to_text(std::span<const std::string> names) const;
};

// Asks for rounds of measurements, and draws conclusions. One thread.
class Prober {
 public:
  // one_pair_at_a_time: where hosts share cores, so that round trips do not disturb each other.
  Prober(int hosts, bool one_pair_at_a_time);
  std::optional<Round> next();  // nullopt: done
  // By flow of the last round: nanoseconds of the shortest round trip, or bytes/s. 0: nothing came.
  void record(std::span<const uint64_t> figures);
  Findings findings() const;

 private:
  enum class Phase { latency, matrix, lone, rates, suspects, done };
  void plan_latency();
  void plan_lone();
  void plan_rates();
  void plan_suspects();
  void record_round_trips(std::span<const uint64_t> figures);
  void record_rates(std::span<const uint64_t> figures);
  std::vector<HostRate> host_rates(std::vector<int>* slow) const;
  std::vector<bool> dissolved_groups(const std::vector<HostRate>& rates) const;
  uint64_t median_rate() const;
  std::vector<int> leaf_groups() const;

  const int hosts_;
  const bool one_pair_at_a_time_;
  Phase phase_ = Phase::latency;
  std::deque<Round> planned_;
  Round current_;
  int cut_of_current_ = -1;
  std::deque<int> cut_of_planned_;  // beside planned_: the group that a round cuts, or -1
  Pairs round_trips_;
  Racks racks_;
  std::vector<Group> groups_;
  std::vector<uint64_t> best_;        // by host: largest sum of flows in or out in one round
  std::vector<uint64_t> met_others_;  // by host: likewise, in rounds about suspects
  std::vector<int> partner_;          // by host: the only host that it met inside its group, or -1
  std::vector<bool> suspect_;         // by host: met another one
  int rounds_ = 0;
};

// Hosts called `names` (by host), switches named after `known`'s groups with the same hosts, else
// probed0, ... `source` stands behind every figure: who measured, and when.
Fabric to_fabric(const Findings& findings, std::span<const std::string> names, const Fabric& known,
                 const std::string& source);

}  // namespace sennit::probe
