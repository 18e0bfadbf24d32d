// order.cpp: see command/topo/order.hpp. In fabric order a ring leaves every group exactly once,
// which is the fewest that is possible. A ring's time is set by the link that it crosses too often
// for its capacity: max over groups of crossings / egress. How many of all pairs cross a tier does
// not depend on the order. Cost: O(ranks * depth).
#include "command/topo/order.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/index.hpp"
#include "command/topo/model/fold.hpp"
#include "command/topo/model/wording.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit::topo {
namespace {

struct Ring {
  std::vector<int64_t> of_tier;   // edges that leave a group of the tier or of one below it
  std::vector<int64_t> of_group;  // edges that leave the group
};

// `position(r)`: where the ring's r-th member is.
template <typename Position>
Ring count(const TierTree& tree, Position position) {
  Ring ring{std::vector<int64_t>(tree.tiers.size()), std::vector<int64_t>(tree.groups.size())};
  for (int r = 0; r < tree.ranks(); r++) {
    const int from = position(r), to = position((r + 1) % tree.ranks());
    if (from == to) continue;
    const int common = tree.common_group(from, to);
    for (int g = tree.leaf_of_position[index(from)]; g != common; g = tree.groups[index(g)].parent)
      ring.of_group[index(g)]++;
    for (int tier = 0; tier < tree.groups[index(common)].tier; tier++) ring.of_tier[index(tier)]++;
  }
  return ring;
}

std::vector<double> pairs_by_tier(const TierTree& tree) {
  const auto pairs = [](double n) { return n * (n - 1) / 2; };
  std::vector<double> sums(tree.tiers.size());
  for (const Group& group : tree.groups) {
    double crossing = pairs(group.size);
    for (int c = group.first_child; c < group.first_child + group.children; c++)
      crossing -= pairs(tree.groups[index(c)].size);
    for (int tier = 0; tier < group.tier; tier++) sums[index(tier)] += crossing;
  }
  return sums;
}

class Verdict {  // on a ring in the present order, against the best
 public:
  Verdict(const TierTree& tree, const std::vector<std::string>& hosts, const Ring& now,
          const Ring& best)
      : tree_(tree), hosts_(hosts), now_(now), best_(best) {}

  std::string text() const {
    bool known = true;
    int64_t most_now = 0, most_best = 0;
    for (size_t g = 1; g < tree_.groups.size(); g++) {
      if (!between_hosts(g)) continue;
      known &= tree_.groups[g].egress.known();
      most_now = std::max(most_now, now_.of_group[g]);
      most_best = std::max(most_best, best_.of_group[g]);
    }
    if (known) return with_capacities();
    if (most_now <= most_best) return "no group is left more often than in the best order\n";
    return fmt::format(
        "a group is left {} times by the ring, where {} would do; what that costs depends on "
        "capacities that are unknown\n",
        most_now, most_best);
  }

 private:
  const std::string& host(int position) const {
    return hosts_[index(tree_.rank_of_position[index(position)])];
  }

  // Whether leaving the group means leaving a host: what ranks of one host tell each other is not
  // compared.
  bool between_hosts(size_t g) const {
    const Group& around = tree_.groups[index(tree_.groups[g].parent)];
    return host(around.first) != host(around.first + around.size - 1);
  }
  double seconds(size_t g, const Ring& ring) const {  // per byte of the ring
    return static_cast<double>(ring.of_group[g]) /
           static_cast<double>(tree_.groups[g].egress.bytes_per_s);
  }
  // The group that sets the ring's time.
  size_t busiest(const Ring& ring) const {
    size_t worst = 0;
    for (size_t g = 1; g < tree_.groups.size(); g++)
      if (between_hosts(g) && (worst == 0 || seconds(g, ring) > seconds(worst, ring))) worst = g;
    return worst;
  }
  std::string with_capacities() const {
    const size_t now = busiest(now_), best = busiest(best_);
    if (now == 0) return "all ranks are on one host\n";
    const Group& group = tree_.groups[now];
    const std::string link =
        fmt::format("{} at {}", group.name.empty() ? host(group.first) : group.name,
                    readable_rate(group.egress.bytes_per_s));
    const double ratio = seconds(now, now_) / seconds(best, best_);
    if (ratio < 1.005)
      return fmt::format("a ring is as fast as in the best order; its slowest link: {}\n", link);
    return fmt::format(
        "a ring leaves {} {} times, and takes {:.1f} times as long as in the best order\n", link,
        now_.of_group[now], ratio);
  }

  const TierTree& tree_;
  const std::vector<std::string>& hosts_;
  const Ring &now_, &best_;
};

// What a ring in the order of `hosts` crosses, and what one in the best order would. `one_each`: no
// host has two ranks.
std::string compared(const TierTree& tree, const std::vector<std::string>& hosts,
                     const std::vector<std::string>& best_hosts, bool one_each) {
  const Ring now = count(tree, [&](int r) { return tree.position_of_rank[index(r)]; });
  const Ring best = count(tree, [](int r) { return r; });
  const std::vector<double> pairs = pairs_by_tier(tree);
  const double all = static_cast<double>(tree.ranks()) * (tree.ranks() - 1) / 2;
  std::string text = fmt::format("{:<12} {:>14} {:>14} {:>10}\n", "leaving a", "neighbours now",
                                 "in best order", "all pairs");
  for (int tier = tree.root().tier - 1; tier >= 0; tier--) {
    if (tier == 0 && !one_each) continue;  // every message leaves its rank
    text += fmt::format("{:<12} {:>14} {:>14} {:>9.1f}%\n",
                        tier == 0 ? "host" : tree.tiers[index(tier)].name, now.of_tier[index(tier)],
                        best.of_tier[index(tier)], 100 * pairs[index(tier)] / all);
  }
  text += "\n" + Verdict(tree, hosts, now, best).text();
  if (best_hosts == hosts) return text + "the present order is the best\n";
  std::vector<std::string> named = best_hosts;
  named.erase(std::unique(named.begin(), named.end()), named.end());
  return text + fmt::format("best order: {}\n", fold_names(named));
}

}  // namespace

Result<OrderReport> compare_orders(const Fabric& fabric, const HostOrder& order) {
  OrderReport report;
  std::vector<Placement> ranks;
  for (const std::string& host : order.hosts) ranks.push_back({host, -1, ""});
  const Result<TierTree> tree = contract(fabric, ranks);
  if (!tree) return tree.status();
  for (const int32_t rank : tree->rank_of_position) report.best.push_back(order.hosts[index(rank)]);
  std::vector<std::string> hosts = order.hosts;
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  const bool one_each = hosts.size() == order.hosts.size();  // then a rank is its host
  report.text = fmt::format("{} on {} ({})\n\n", plural(tree->ranks(), "rank"),
                            plural(static_cast<int>(hosts.size()), "host"), order.from);
  HostIndex known;
  for (size_t v = 0; v < fabric.vertices.size(); v++)
    if (fabric.vertices[v].kind == VertexKind::host)
      known.add(fabric.vertices[v].name, static_cast<int>(v));
  for (const std::string& host : hosts)
    if (known.find(host) < 0) report.strangers.push_back(host);
  report.text += tree->ranks() == 1 ? "one rank crosses nothing\n"
                                    : compared(*tree, order.hosts, report.best, one_each);
  if (!report.strangers.empty())
    report.text +=
        fmt::format("not in the fabric, so put last: {}\n", fold_names(report.strangers));
  return report;
}

}  // namespace sennit::topo
