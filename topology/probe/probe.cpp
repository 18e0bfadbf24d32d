// probe.cpp: the rounds of a probe, and what follows from their figures. See
// topology/probe/probe.hpp.
#include "topology/probe/probe.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/index.hpp"
#include "base/status.hpp"
#include "topology/fabric/units.hpp"
#include "topology/probe/cluster.hpp"

namespace sennit::probe {
namespace {

constexpr int kPasses = 4;         // over all pairs
constexpr int kMostInMatrix = 64;  // hosts
constexpr double kSlow = 0.6;      // of the median: a host below is looked at again
// of what its hosts can send: a cut that carries more is no bottleneck
constexpr double kScarce = 0.85;
// of the same, what the worse direction of such a cut carries at least
constexpr double kScarceOneWay = 0.6;
// how much better a suspect did with others than its partner did, where the partner is the slow one
constexpr double kClearlyBetter = 1.3;

// Ring over the hosts, `step` apart.
void add_ring(const std::vector<int>& hosts, int step, std::vector<Flow>* flows) {
  const int n = static_cast<int>(hosts.size());
  for (int i = 0; n > 1 && i < n; i++)
    flows->push_back({hosts[index(i)], hosts[index((i + step + n) % n)]});
}

}  // namespace

Prober::Prober(int hosts, bool one_pair_at_a_time)
    : hosts_(hosts),
      one_pair_at_a_time_(one_pair_at_a_time),
      round_trips_(hosts),
      racks_(hosts <= kMostInMatrix ? hosts : 0),
      best_(index(hosts), 0),
      met_others_(index(hosts), 0),
      partner_(index(hosts), -1),
      suspect_(index(hosts), false) {
  if (hosts <= kMostInMatrix) {
    phase_ = Phase::matrix;
    if (hosts > 1) planned_.push_back(racks_.everybody());
  } else {
    plan_latency();
  }
}

// All pairs: everybody meets everybody in n - 1 rounds (n even), the circle method; several times,
// so that what else the hosts did at one moment does not tell.
void Prober::plan_latency() {
  const int places = hosts_ + hosts_ % 2;
  for (int turn = 0; turn < kPasses * (places - 1); turn++) {
    const int r = turn % (places - 1);
    Round round{true, false, {}};
    for (int i = 0; i < places / 2; i++) {
      const int a = i == 0 ? places - 1 : (r + i) % (places - 1),
                b = (r - i + places - 1) % (places - 1);
      if (a >= hosts_ || b >= hosts_) continue;
      round.flows.push_back({std::min(a, b), std::max(a, b)});
      if (!one_pair_at_a_time_) continue;
      planned_.push_back(round);
      round.flows.clear();
    }
    if (!round.flows.empty()) planned_.push_back(round);
  }
}

void Prober::plan_lone() {
  bool needs_round_trips = false;
  std::vector<Round> rounds = racks_.lone_rounds(&needs_round_trips);
  if (needs_round_trips) plan_latency();
  for (Round& round : rounds) planned_.push_back(std::move(round));
}

std::optional<Round> Prober::next() {
  while (planned_.empty() && phase_ != Phase::done) {
    switch (phase_) {
      case Phase::matrix:
        plan_lone();
        phase_ = Phase::lone;
        break;
      case Phase::lone:
        groups_ = racks_.groups();
        plan_rates();
        phase_ = Phase::rates;
        break;
      case Phase::latency:
        groups_ = cluster(hosts_, round_trips_.all());
        plan_rates();
        phase_ = Phase::rates;
        break;
      case Phase::rates:
        plan_suspects();
        phase_ = Phase::suspects;
        break;
      default:
        phase_ = Phase::done;
    }
  }
  if (planned_.empty()) return std::nullopt;
  current_ = std::move(planned_.front());
  planned_.pop_front();
  cut_of_current_ = -1;
  if (!cut_of_planned_.empty()) {
    cut_of_current_ = cut_of_planned_.front();
    cut_of_planned_.pop_front();
  }
  rounds_++;
  return current_;
}

void Prober::record(std::span<const uint64_t> figures) {
  SENNIT_CHECK(figures.size() == current_.flows.size());
  if (current_.latency) return record_round_trips(figures);
  if (phase_ == Phase::matrix) return racks_.record(current_, figures);
  if (phase_ == Phase::lone) return racks_.place_lone(current_, figures, round_trips_);
  record_rates(figures);
}

void Prober::record_round_trips(std::span<const uint64_t> figures) {
  for (size_t i = 0; i < figures.size(); i++) {
    const Flow& f = current_.flows[i];
    uint64_t& shortest = round_trips_.at(f.from, f.to);
    if (shortest == 0 || (figures[i] != 0 && figures[i] < shortest)) shortest = figures[i];
    round_trips_.at(f.to, f.from) = shortest;
  }
}

void Prober::record_rates(std::span<const uint64_t> figures) {
  std::vector<uint64_t> out(index(hosts_), 0), in(index(hosts_), 0);
  for (size_t i = 0; i < figures.size(); i++) {
    out[index(current_.flows[i].from)] += figures[i];
    in[index(current_.flows[i].to)] += figures[i];
  }
  for (int h = 0; h < hosts_; h++) {
    best_[index(h)] = std::max({best_[index(h)], out[index(h)], in[index(h)]});
    if (phase_ == Phase::suspects)
      met_others_[index(h)] = std::max({met_others_[index(h)], out[index(h)], in[index(h)]});
  }
  if (cut_of_current_ < 0) return;
  Group& group = groups_[index(cut_of_current_)];
  group.egress_bytes_per_s = 0;
  group.ingress_bytes_per_s = 0;
  for (const int h : group.hosts) {
    group.egress_bytes_per_s += out[index(h)];
    group.ingress_bytes_per_s += in[index(h)];
  }
}

// Groups without groups inside.
std::vector<int> Prober::leaf_groups() const {
  std::vector<bool> inner(groups_.size(), false);
  for (const Group& g : groups_)
    if (g.parent >= 0) inner[index(g.parent)] = true;
  std::vector<int> leaves;
  for (size_t g = 0; g < groups_.size(); g++)
    if (!inner[g]) leaves.push_back(static_cast<int>(g));
  return leaves;
}

void Prober::plan_rates() {
  Round forth, back;
  for (const int leaf : leaf_groups()) {
    const std::vector<int>& hosts = groups_[index(leaf)].hosts;
    add_ring(hosts, 1, &forth.flows);
    if (hosts.size() > 2) add_ring(hosts, -1, &back.flows);
    if (hosts.size() == 2) {
      partner_[index(hosts[0])] = hosts[1];
      partner_[index(hosts[1])] = hosts[0];
    }
  }
  for (Round* round : {&forth, &back}) {
    if (round->flows.empty()) continue;
    planned_.push_back(std::move(*round));
    cut_of_planned_.push_back(-1);
  }
  for (size_t g = 1; g < groups_.size(); g++) {
    const std::vector<int>& inside = groups_[g].hosts;
    std::vector<int> outside;
    for (int h = 0; h < hosts_; h++)
      if (!std::binary_search(inside.begin(), inside.end(), h)) outside.push_back(h);
    Round cut;
    const size_t flows = std::max(inside.size(), outside.size());
    for (size_t i = 0; i < flows; i++) {
      const int a = inside[i % inside.size()], b = outside[i % outside.size()];
      cut.flows.push_back({a, b});
      cut.flows.push_back({b, a});
    }
    planned_.push_back(std::move(cut));
    cut_of_planned_.push_back(static_cast<int>(g));
  }
}

uint64_t Prober::median_rate() const {
  std::vector<uint64_t> sorted = best_;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

// Two hosts that only met each other and were slow: which of them? Each meets a good one from
// elsewhere, alone. Where a cut has shown one of them to be good, it is the other.
void Prober::plan_suspects() {
  const double limit = kSlow * static_cast<double>(median_rate());
  const auto slow = [&](int host) { return static_cast<double>(best_[index(host)]) < limit; };
  for (int h = 0; h < hosts_; h++) {
    if (partner_[index(h)] < 0 || !slow(h) || !slow(partner_[index(h)])) continue;
    for (int good = 0; good < hosts_; good++) {
      if (slow(good)) continue;
      suspect_[index(h)] = true;
      planned_.push_back({false, false, {{h, partner_[index(h)]}, {h, good}}});
      break;
    }
  }
  cut_of_planned_.assign(planned_.size(), -1);
}

// What each host can send; those that are slow are put into `slow`.
std::vector<HostRate> Prober::host_rates(std::vector<int>* slow_hosts) const {
  std::vector<HostRate> rates;
  const uint64_t median = median_rate();
  const auto low = [&](int host) {
    return static_cast<double>(best_[index(host)]) < kSlow * static_cast<double>(median);
  };
  for (int h = 0; h < hosts_; h++) {
    HostRate rate{best_[index(h)], best_[index(h)] > 0};
    const int partner = partner_[index(h)];
    // It did better elsewhere than its partner did: the partner is the slow one, and this host's
    // own rate was never seen.
    const bool better_elsewhere =
        suspect_[index(h)] && static_cast<double>(met_others_[index(h)]) >
                                  kClearlyBetter * static_cast<double>(met_others_[index(partner)]);
    const bool better_in_a_cut =
        partner >= 0 && low(partner) && !low(h) && rate.bytes_per_s < median;
    const bool unmet = partner < 0 && groups_.size() > 1 &&
                       std::any_of(groups_.begin() + 1, groups_.end(), [&](const Group& g) {
                         return g.hosts.size() == 1 && g.hosts[0] == h;
                       });
    if (!rate.measured || better_elsewhere || better_in_a_cut || unmet)
      rate = {std::max(median, rate.bytes_per_s), false};
    else if (low(h))
      slow_hosts->push_back(h);
    rates.push_back(rate);
  }
  return rates;
}

// From the inside out: what a group's members can send at all, and whether its cut carries that.
std::vector<bool> Prober::dissolved_groups(const std::vector<HostRate>& rates) const {
  std::vector<uint64_t> demand(groups_.size(), 0);
  std::vector<bool> dissolved(groups_.size(), false);
  const auto sum_outside = [&](const Group& g) {
    uint64_t sum = 0;
    for (int h = 0; h < hosts_; h++)
      if (!std::binary_search(g.hosts.begin(), g.hosts.end(), h))
        sum += rates[index(h)].bytes_per_s;
    return sum;
  };
  for (const int leaf : leaf_groups())
    for (const int h : groups_[index(leaf)].hosts)
      demand[index(leaf)] += rates[index(h)].bytes_per_s;
  for (size_t g = groups_.size(); g-- > 1;) {  // parents come before their children
    const Group& group = groups_[g];
    const auto [less, carried] = std::minmax(group.egress_bytes_per_s, group.ingress_bytes_per_s);
    const auto asked = static_cast<double>(std::min(demand[g], sum_outside(group)));
    dissolved[g] = static_cast<double>(carried) >= kScarce * asked &&
                   static_cast<double>(less) >= kScarceOneWay * asked;
    demand[index(group.parent)] += dissolved[g] ? demand[g] : carried;
  }
  return dissolved;
}

Findings Prober::findings() const {
  Findings result;
  result.rounds = rounds_;
  result.hosts = host_rates(&result.slow);
  const std::vector<bool> dissolved = dissolved_groups(result.hosts);
  // by old index: where the group, or what took it in, is now
  std::vector<int> now(groups_.size(), 0);
  for (size_t g = 0; g < groups_.size(); g++) {
    if (dissolved[g]) {
      now[g] = now[index(groups_[g].parent)];
      continue;
    }
    now[g] = static_cast<int>(result.groups.size());
    Group group = groups_[g];
    if (group.parent >= 0) group.parent = now[index(group.parent)];
    result.groups.push_back(std::move(group));
  }
  return result;
}

}  // namespace sennit::probe
