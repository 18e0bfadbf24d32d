// link_traffic.cpp: see diagnose/link_traffic.hpp.
#include "diagnose/link_traffic.hpp"

#include <algorithm>
#include <utility>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kNsPerS = 1e9;

// How long at least one of the stretches lasts.
double union_of(std::vector<Stretch> stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin_ns < b.begin_ns; });
  double sum = 0, end = -1;
  for (const Stretch& stretch : stretches) {
    const double from = std::max(stretch.begin_ns, end);
    if (stretch.end_ns > from) sum += stretch.end_ns - from;
    end = std::max(end, stretch.end_ns);
  }
  return sum;
}

}  // namespace

LinkTraffic::LinkTraffic(const TierTree& tree, const ObservedPlan& observed)
    : tree_(tree), observed_(observed), over_(2 * tree.groups.size()) {
  for (const EdgeTime& edge : *observed.edges.front()) {
    ways_.push_back(way_of(tree, edge.from, edge.to));
    for (const DirectedGroup& link : ways_.back())
      over_[number_of(link)].push_back(ways_.size() - 1);
  }
}

// All calls have the same edges in the same order, which ascends where there are several calls; but
// for what was lost of one: nullptr.
const EdgeTime* LinkTraffic::edge_of(size_t call, size_t at) const {
  const EdgeTime& first = (*observed_.edges.front())[at];
  const std::vector<EdgeTime>& edges = *observed_.edges[call];
  const auto ends = [](const EdgeTime& edge) { return std::pair(edge.from, edge.to); };
  if (at < edges.size() && ends(edges[at]) == ends(first)) return &edges[at];
  const auto found =
      std::lower_bound(edges.begin(), edges.end(), first,
                       [&](const EdgeTime& a, const EdgeTime& b) { return ends(a) < ends(b); });
  return found != edges.end() && ends(*found) == ends(first) ? &*found : nullptr;
}

std::vector<const EdgeTime*> LinkTraffic::edges_over(const DirectedGroup& link, size_t call) const {
  std::vector<const EdgeTime*> over;
  for (const size_t at : over_[number_of(link)])
    if (const EdgeTime* const edge = edge_of(call, at)) over.push_back(edge);
  return over;
}

// Bytes/s; 0: not known.
uint64_t LinkTraffic::capacity_of(const DirectedGroup& link) const {
  const Group& group = tree_.groups[index(link.group)];
  return (link.egress ? group.egress : group.ingress).bytes_per_s;
}

// In one call: the capacity over what was carried while something waited to cross. 0: not known, or
// nothing crossed. Of several links, that of the slowest.
double LinkTraffic::throughput_factor(const std::vector<DirectedGroup>& links, size_t call) const {
  double most = 0;
  for (const DirectedGroup& link : links) {
    const uint64_t capacity = capacity_of(link);
    std::vector<Stretch> serving;
    double bytes = 0;
    for (const EdgeTime* const edge : edges_over(link, call)) {
      bytes += static_cast<double>(edge->bytes);
      serving.insert(serving.end(), edge->serving.begin(), edge->serving.end());
    }
    if (capacity == 0 || bytes == 0) continue;
    most = std::max(most,
                    static_cast<double>(capacity) * union_of(std::move(serving)) / kNsPerS / bytes);
  }
  return most;
}

double LinkTraffic::most_factor(const std::vector<DirectedGroup>& links, bool of_tier,
                                double well_ns) const {
  // What is slow hits all links of a tier alike, and is there in the quickest call too.
  const double took_ns =
      of_tier && observed_.quickest_ns > 0 ? observed_.quickest_ns : median(observed_.time_ns);
  std::vector<double> factors;
  for (const DirectedGroup& link : links) {
    const uint64_t capacity = capacity_of(link);
    double bytes = 0;
    for (const EdgeTime* const edge : edges_over(link, observed_.edges.size() - 1))
      bytes += static_cast<double>(edge->bytes);
    if (bytes == 0) continue;
    if (capacity == 0 || tree_.groups[index(link.group)].cables > 1) return 0;
    // A link may be faster than its capacity was said to be: it carried the same before.
    const double carried_before = well_ns > 0 ? bytes * kNsPerS / well_ns : 0;
    const double could = std::max(static_cast<double>(capacity), carried_before);
    factors.push_back(could * took_ns / kNsPerS / bytes);
  }
  return factors.empty() ? 0 : median(std::move(factors));
}

size_t LinkTraffic::first_slow_call(const std::vector<DirectedGroup>& links) const {
  std::vector<double> throughput;
  for (size_t call = 0; call < observed_.calls.size(); call++)
    throughput.push_back(throughput_factor(links, call));
  const double halfway = (1 + median(throughput)) / 2;
  size_t first = throughput.size();
  while (first > 0 && throughput[first - 1] >= halfway) first--;
  return first;
}

}  // namespace sennit::diagnose
