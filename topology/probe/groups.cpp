// groups.cpp: the hosts' groups, out of rates while everybody sends to everybody. See
// topology/probe/probe.hpp.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/index.hpp"
#include "topology/probe/probe.hpp"

namespace sennit::probe {
namespace {

constexpr double kClearlyMore = 1.5;
constexpr double kTellingRoundTrip = 1.03;
constexpr double kFull = 0.7;  // of what the upper quartile of hosts moves in all

}  // namespace

void Prober::plan_matrix() {
  Round all{false, true, {}};
  for (int a = 0; a < hosts_; a++)
    for (int b = 0; b < hosts_; b++)
      if (a != b) all.flows.push_back({a, b});
  if (!all.flows.empty()) planned_.push_back(std::move(all));
}

// Both directions count: what limits one seldom limits the other by chance.
double Prober::rate(int a, int b) const {
  return static_cast<double>(matrix_[cell(a, b)] + matrix_[cell(b, a)]) / 2;
}

// Hosts are compared with the best that both ever got, so that racks of different sizes are alike.
// A host with a fast neighbour fills its own link; one that does not is slow or has none, and is
// left alone for now.
std::vector<int> Prober::racks_by_rates() const {
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
void Prober::plan_lone() {
  rack_of_ = racks_by_rates();
  std::map<int, std::vector<int>> racks;
  for (int h = 0; h < hosts_; h++) racks[rack_of_[index(h)]].push_back(h);
  const auto lone = [&](int h) { return racks[rack_of_[index(h)]].size() == 1; };
  bool any = false;
  for (int h = 0; h < hosts_; h++) any |= lone(h);
  if (any && racks.size() < static_cast<size_t>(hosts_)) plan_latency();
  for (const auto& [first, hosts] : racks) {
    Round round{false, true, {}};
    for (int h = 0; h < hosts_; h++)
      if (lone(h) && h != first) round.flows.push_back({first, h});
    if (round.flows.empty() || racks.size() == static_cast<size_t>(hosts_)) continue;
    for (const int a : hosts)
      for (int b = 0; b < hosts_; b++)
        if (!lone(b) && rack_of_[index(b)] != first) round.flows.push_back({a, b});
    planned_.push_back(std::move(round));
  }
  racks_ = rack_of_;
}

// Round trips within racks and, at least, between them: whether h is as near to `other` as
// neighbours are. True where the two do not differ enough to tell.
bool Prober::looks_near(int h, int other) const {
  std::vector<uint64_t> inside, across;
  for (int a = 0; a < hosts_; a++)
    for (int b = a + 1; b < hosts_; b++) {
      const bool lone = std::count(racks_.begin(), racks_.end(), racks_[index(a)]) == 1 ||
                        std::count(racks_.begin(), racks_.end(), racks_[index(b)]) == 1;
      if (!lone)
        (racks_[index(a)] == racks_[index(b)] ? inside : across).push_back(round_trip(a, b));
    }
  if (inside.empty() || across.empty()) return true;
  std::sort(inside.begin(), inside.end());
  std::sort(across.begin(), across.end());
  const auto near = static_cast<double>(inside[inside.size() / 2]),
             far = static_cast<double>(across[across.size() / 10]);
  if (far < kTellingRoundTrip * near) return true;
  std::vector<uint64_t> own;
  for (int b = 0; b < hosts_; b++)
    if (b != h && racks_[index(b)] == racks_[index(other)]) own.push_back(round_trip(h, b));
  std::sort(own.begin(), own.end());
  return !own.empty() && static_cast<double>(own[own.size() / 2]) < (near + far) / 2;
}

// What leaves the rack shares its uplink; a lone host that gets clearly more is inside, if it is
// near as well: the uplink may have had room where the other racks could not take more.
void Prober::place_lone(std::span<const uint64_t> figures) {
  const auto lone = [&](int h) {
    return std::count(racks_.begin(), racks_.end(), racks_[index(h)]) == 1;
  };
  std::vector<uint64_t> leaving;
  for (size_t i = 0; i < figures.size(); i++)
    if (!lone(current_.flows[i].to)) leaving.push_back(figures[i]);
  std::sort(leaving.begin(), leaving.end());
  // Where nothing leaves there is one rack, and it is the lone hosts' as well.
  const double usual = leaving.empty() ? 0 : static_cast<double>(leaving[leaving.size() / 2]);
  for (size_t i = 0; i < figures.size(); i++) {
    const Flow& f = current_.flows[i];
    if (!lone(f.to) || static_cast<double>(figures[i]) < std::max(1.0, kClearlyMore * usual))
      continue;
    if (!looks_near(f.to, f.from)) continue;
    const int old = rack_of_[index(f.to)];
    for (int& rack : rack_of_)
      if (rack == old) rack = rack_of_[index(f.from)];
  }
}

// Racks, and what joins racks more closely than others, and so on upwards.
void Prober::group_by_rates() {
  std::vector<std::vector<std::vector<int>>> levels;  // from the inside out: sets of hosts
  std::map<int, std::vector<int>> sets;
  for (int h = 0; h < hosts_; h++) sets[rack_of_[index(h)]].push_back(h);
  while (sets.size() > 1) {
    levels.emplace_back();
    for (const auto& [first, hosts] : sets) levels.back().push_back(hosts);
    const auto& now = levels.back();
    const int n = static_cast<int>(now.size());
    const auto between = [&](int a, int b) {
      std::vector<double> rates;
      for (const int x : now[index(a)])
        for (const int y : now[index(b)]) rates.push_back(rate(x, y));
      std::nth_element(rates.begin(), rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2),
                       rates.end());
      return rates[rates.size() / 2];
    };
    std::vector<double> best(index(n), 1);
    for (int a = 0; a < n; a++)
      for (int b = 0; b < n; b++)
        if (a != b) best[index(a)] = std::max(best[index(a)], between(a, b));
    const std::vector<int> next = nearest_sets(
        n, [&](int a, int b) { return between(a, b) / std::min(best[index(a)], best[index(b)]); });
    sets.clear();
    for (int i = 0; i < n; i++) {
      std::vector<int>& joined = sets[next[index(i)]];
      joined.insert(joined.end(), now[index(i)].begin(), now[index(i)].end());
      std::sort(joined.begin(), joined.end());
    }
    if (sets.size() == now.size()) break;
  }
  groups_.assign(1, {});
  for (int h = 0; h < hosts_; h++) groups_[0].hosts.push_back(h);
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    const size_t before = groups_.size();
    for (const std::vector<int>& hosts : *level) {
      int parent = 0;
      for (size_t g = 1; g < before; g++)
        if (std::includes(groups_[g].hosts.begin(), groups_[g].hosts.end(), hosts.begin(),
                          hosts.end()))
          parent = static_cast<int>(g);
      if (groups_[index(parent)].hosts.size() > hosts.size())
        groups_.push_back({parent, hosts, 0, 0, 0});
    }
  }
  // How sure: the slowest pair inside against the fastest across, in the middle of both.
  for (size_t g = 1; g < groups_.size(); g++) {
    std::vector<double> inside, across;
    for (const int a : groups_[g].hosts)
      for (int b = 0; b < hosts_; b++) {
        if (a == b) continue;
        const bool in = std::binary_search(groups_[g].hosts.begin(), groups_[g].hosts.end(), b);
        (in ? inside : across).push_back(rate(a, b));
      }
    for (auto* rates : {&inside, &across}) std::sort(rates->begin(), rates->end());
    if (!inside.empty() && !across.empty())
      groups_[g].separation = inside[inside.size() / 2] / std::max(1.0, across[across.size() / 2]);
  }
}

}  // namespace sennit::probe
