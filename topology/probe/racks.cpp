// racks.cpp: see topology/probe/racks.hpp.
#include "topology/probe/racks.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "topology/probe/cluster.hpp"

namespace sennit::probe {
namespace {

constexpr double kClearlyMore = 1.5;
constexpr double kTellingRoundTrip = 1.03;
constexpr double kFull = 0.7;        // of what the upper quartile of hosts moves in all
constexpr size_t kNearestPart = 10;  // of round trips between racks: a tenth are shorter

double median(std::vector<double>& figures) {
  const auto middle = figures.begin() + static_cast<ptrdiff_t>(figures.size() / 2);
  std::nth_element(figures.begin(), middle, figures.end());
  return *middle;
}

}  // namespace

Round Racks::everybody() const {
  Round all{false, true, {}};
  for (int a = 0; a < hosts_; a++)
    for (int b = 0; b < hosts_; b++)
      if (a != b) all.flows.push_back({a, b});
  return all;
}

void Racks::record(const Round& round, std::span<const uint64_t> rates) {
  for (size_t i = 0; i < rates.size(); i++)
    rates_.at(round.flows[i].from, round.flows[i].to) = rates[i];
}

bool Racks::was_lone(int host) const {
  return std::count(seen_.begin(), seen_.end(), seen_[index(host)]) == 1;
}

// Hosts are compared with the best that both ever got, so that racks of different sizes are alike.
// A host with a fast neighbour fills its own link; one that does not is slow or has none, and is
// left alone for now.
std::vector<int> Racks::by_rates() const {
  std::vector<double> best(index(hosts_), 1), sum(index(hosts_), 0);
  for (int a = 0; a < hosts_; a++)
    for (int b = 0; b < hosts_; b++) {
      if (a == b) continue;
      best[index(a)] = std::max(best[index(a)], rate(a, b));
      sum[index(a)] += rate(a, b);
    }
  std::vector<double> sorted = sum;
  std::sort(sorted.begin(), sorted.end());
  const double full = kFull * sorted[sorted.size() * 3 / 4];
  std::vector<int> strong;
  for (int h = 0; h < hosts_; h++)
    if (sum[index(h)] >= full) strong.push_back(h);
  const std::vector<int> sets = nearest_sets(static_cast<int>(strong.size()), [&](int i, int j) {
    const int a = strong[index(i)], b = strong[index(j)];
    return rate(a, b) / std::sqrt(best[index(a)] * best[index(b)]);
  });
  std::vector<int> result(index(hosts_));
  for (int h = 0; h < hosts_; h++) result[index(h)] = h;
  for (size_t i = 0; i < strong.size(); i++) result[index(strong[i])] = strong[index(sets[i])];
  return result;
}

// A round for each rack, and each lone host likewise: all that is in it sends to all racks outside,
// and its first host also to every lone host.
std::vector<Round> Racks::lone_rounds(bool* needs_round_trips) {
  seen_ = rack_of_ = by_rates();
  std::map<int, std::vector<int>> racks;
  for (int h = 0; h < hosts_; h++) racks[seen_[index(h)]].push_back(h);
  const bool all_alone = racks.size() == index(hosts_);
  *needs_round_trips = false;
  std::vector<Round> rounds;
  if (all_alone) return rounds;
  for (int h = 0; h < hosts_; h++) *needs_round_trips |= was_lone(h);
  for (const auto& [first, hosts] : racks) {
    Round round{false, true, {}};
    for (int h = 0; h < hosts_; h++)
      if (was_lone(h) && h != first) round.flows.push_back({first, h});
    if (round.flows.empty()) continue;
    for (const int a : hosts)
      for (int b = 0; b < hosts_; b++)
        if (!was_lone(b) && seen_[index(b)] != first) round.flows.push_back({a, b});
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// Round trips within racks and, at least, between them: whether h is as near to `other` as
// neighbours are. True where the two do not differ enough to tell.
bool Racks::looks_near(int h, int other, const Pairs& round_trips) const {
  std::vector<uint64_t> inside, across;
  for (int a = 0; a < hosts_; a++)
    for (int b = a + 1; b < hosts_; b++) {
      if (was_lone(a) || was_lone(b)) continue;
      (seen_[index(a)] == seen_[index(b)] ? inside : across).push_back(round_trips.at(a, b));
    }
  if (inside.empty() || across.empty()) return true;
  std::sort(inside.begin(), inside.end());
  std::sort(across.begin(), across.end());
  const auto near = static_cast<double>(inside[inside.size() / 2]),
             far = static_cast<double>(across[across.size() / kNearestPart]);
  if (far < kTellingRoundTrip * near) return true;
  std::vector<uint64_t> own;
  for (int b = 0; b < hosts_; b++)
    if (b != h && seen_[index(b)] == seen_[index(other)]) own.push_back(round_trips.at(h, b));
  std::sort(own.begin(), own.end());
  return !own.empty() && static_cast<double>(own[own.size() / 2]) < (near + far) / 2;
}

// What leaves the rack shares its uplink; a lone host that gets clearly more is inside, if it is
// near as well: the uplink may have had room where the other racks could not take more.
void Racks::place_lone(const Round& round, std::span<const uint64_t> rates,
                       const Pairs& round_trips) {
  std::vector<uint64_t> leaving;
  for (size_t i = 0; i < rates.size(); i++)
    if (!was_lone(round.flows[i].to)) leaving.push_back(rates[i]);
  std::sort(leaving.begin(), leaving.end());
  // Where nothing leaves there is one rack, and it is the lone hosts' as well.
  const double usual = leaving.empty() ? 0 : static_cast<double>(leaving[leaving.size() / 2]);
  for (size_t i = 0; i < rates.size(); i++) {
    const Flow& f = round.flows[i];
    if (!was_lone(f.to) || static_cast<double>(rates[i]) < std::max(1.0, kClearlyMore * usual))
      continue;
    if (!looks_near(f.to, f.from, round_trips)) continue;
    const int old = rack_of_[index(f.to)];
    for (int& rack : rack_of_)
      if (rack == old) rack = rack_of_[index(f.from)];
  }
}

double Racks::median_between(const std::vector<int>& some, const std::vector<int>& others) const {
  std::vector<double> rates;
  for (const int a : some)
    for (const int b : others) rates.push_back(rate(a, b));
  return median(rates);
}

// The sets, those joined that are nearest to each other.
Racks::HostSets Racks::join_nearest(const HostSets& sets) const {
  const int n = static_cast<int>(sets.size());
  const auto between = [&](int a, int b) { return median_between(sets[index(a)], sets[index(b)]); };
  std::vector<double> best(index(n), 1);
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++)
      if (a != b) best[index(a)] = std::max(best[index(a)], between(a, b));
  const std::vector<int> next = nearest_sets(
      n, [&](int a, int b) { return between(a, b) / std::min(best[index(a)], best[index(b)]); });
  std::map<int, std::vector<int>> joined;
  for (int i = 0; i < n; i++) {
    std::vector<int>& hosts = joined[next[index(i)]];
    hosts.insert(hosts.end(), sets[index(i)].begin(), sets[index(i)].end());
    std::sort(hosts.begin(), hosts.end());
  }
  HostSets result;
  for (auto& [first, hosts] : joined) result.push_back(std::move(hosts));
  return result;
}

// How sure a group is: the middle rate inside, against the middle one across.
double Racks::separation(const std::vector<int>& hosts) const {
  std::vector<double> inside, across;
  for (const int a : hosts)
    for (int b = 0; b < hosts_; b++) {
      if (a == b) continue;
      const bool in = std::binary_search(hosts.begin(), hosts.end(), b);
      (in ? inside : across).push_back(rate(a, b));
    }
  if (inside.empty() || across.empty()) return 0;
  return median(inside) / std::max(1.0, median(across));
}

std::vector<Group> Racks::groups() const {
  std::map<int, std::vector<int>> racks;
  for (int h = 0; h < hosts_; h++) racks[rack_of_[index(h)]].push_back(h);
  HostSets sets;
  for (auto& [first, hosts] : racks) sets.push_back(std::move(hosts));
  std::vector<HostSets> levels;  // from the inside out
  while (sets.size() > 1) {
    HostSets joined = join_nearest(sets);
    const bool nothing_joined = joined.size() == sets.size();
    levels.push_back(std::move(sets));
    sets = std::move(joined);
    if (nothing_joined) break;
  }
  std::vector<Group> groups(1);
  for (int h = 0; h < hosts_; h++) groups[0].hosts.push_back(h);
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    const size_t before = groups.size();
    for (const std::vector<int>& hosts : *level) {
      int parent = 0;
      for (size_t g = 1; g < before; g++)
        if (std::includes(groups[g].hosts.begin(), groups[g].hosts.end(), hosts.begin(),
                          hosts.end()))
          parent = static_cast<int>(g);
      if (groups[index(parent)].hosts.size() > hosts.size())
        groups.push_back({parent, hosts, 0, 0, separation(hosts)});
    }
  }
  return groups;
}

}  // namespace sennit::probe
