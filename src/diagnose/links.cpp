// links.cpp: see diagnose/links.hpp.
#include "diagnose/links.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kLeastConfidence = 0.4;
// Where no capacity is known, edges are held against their like, which differ more.
constexpr double kLeastFactorAmongLike = 1.5;
// In so many chunks hypotheses are compared: what slows a schedule down does so in few chunks, too.
constexpr uint32_t kFewChunks = 16;

// What may be slow: boundaries, all by the same factor.
struct Hypothesis {
  std::vector<DirectedGroup> links;
  int tier = -1;
  bool both_ways = false;
  std::set<size_t> edges;  // that cross one of them
  double factor = 1;
  double misfit = 0;   // what it leaves unexplained
  double density = 0;  // the excess of these edges, by how many they are
};

bool fits_better(const Hypothesis& a, const Hypothesis& b) { return a.misfit < b.misfit; }

double part_of(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

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

class Solver {
 public:
  Solver(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
         const ObservedPlan& observed);
  std::optional<SlowLink> solve(double least_factor) const;

 private:
  // An edge over all calls.
  struct Edge {
    int from = 0, to = 0;
    double excess = 0;  // ln of how much longer it took than it should; at least 0
    double weight = 0;
  };
  void measure_excess();
  std::vector<Hypothesis> hypotheses() const;
  void add(std::vector<Hypothesis>* all, std::vector<DirectedGroup> links, int tier,
           bool both_ways) const;
  double misfit(const std::vector<double>& explained) const;
  void guess(Hypothesis* hypothesis) const;
  ExpectedPlan slowed(const std::vector<DirectedGroup>& links, double factor) const;
  void simulate(Hypothesis* hypothesis, double factor) const;
  void refine(std::vector<Hypothesis>* all) const;
  void match_time(Hypothesis* hypothesis) const;
  double throughput_factor(const std::vector<DirectedGroup>& links, size_t call) const;
  std::vector<double> throughput_factors(const std::vector<DirectedGroup>& links) const;
  SlowLink told(const std::vector<Hypothesis>& all, const Hypothesis& best) const;

  const TierTree& tree_;
  const PlanNote& plan_;
  const Blueprint& blueprint_;
  const ObservedPlan& observed_;
  ExpectedPlan expected_;  // empty: capacities are not known
  ExpectedPlan coarse_;    // the same in few chunks
  std::vector<Edge> edges_;
  std::map<std::pair<int, int>, std::vector<DirectedGroup>> ways_;
};

Solver::Solver(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
               const ObservedPlan& observed)
    : tree_(tree), plan_(plan), blueprint_(blueprint), observed_(observed) {
  if (tree.capacities_known()) {
    const uint32_t chunks = plan.parameters.chunks;
    expected_ = expected_edges(tree, plan.request, blueprint, chunks, {});
    coarse_ = chunks <= kFewChunks ? expected_
                                   : expected_edges(tree, plan.request, blueprint, kFewChunks, {});
  }
  for (const std::vector<EdgeTime>& call : observed.edges)
    for (const EdgeTime& edge : call)
      if (const auto [way, added] = ways_.try_emplace({edge.from, edge.to}); added)
        way->second = way_of(tree, edge.from, edge.to);
  measure_excess();
}

// Against what the simulator says; where it says nothing, against edges of the same tier. What
// makes all tiers slower is no link.
void Solver::measure_excess() {
  std::map<std::pair<int, int>, std::vector<double>> services;
  std::map<std::pair<int, int>, uint64_t> bytes;
  for (const std::vector<EdgeTime>& call : observed_.edges)
    for (const EdgeTime& edge : call) {
      services[{edge.from, edge.to}].push_back(edge.service_ns);
      bytes[{edge.from, edge.to}] = edge.bytes;
    }
  std::map<int, std::vector<double>> by_tier;
  std::vector<double> logs;
  for (const auto& [edge, all] : services) {
    const double service = median(all);
    const auto found = expected_.service_ns.find(edge);
    const bool known = found != expected_.service_ns.end() && found->second > 0;
    const double should = known ? found->second : static_cast<double>(bytes[edge]);
    if (service <= 0 || should <= 0 || bytes[edge] < kLeastEdgeBytes) continue;
    logs.push_back(std::log(service / should));
    by_tier[tree_.crossing_tier(edge.first, edge.second)].push_back(logs.back());
    edges_.push_back({edge.first, edge.second, 0, std::sqrt(service)});
  }
  constexpr double kLowerQuarter = 0.25;
  std::map<int, double> usual;
  double all_tiers = 1e9;
  for (const auto& [tier, of_tier] : by_tier) {
    usual[tier] = part_of(of_tier, kLowerQuarter);
    all_tiers = std::min(all_tiers, usual[tier]);
  }
  for (size_t e = 0; e < edges_.size(); e++) {
    const int tier = tree_.crossing_tier(edges_[e].from, edges_[e].to);
    const double base = expected_.service_ns.empty() ? usual[tier] : std::max(0.0, all_tiers);
    edges_[e].excess = std::max(0.0, logs[e] - base);
  }
}

void Solver::add(std::vector<Hypothesis>* all, std::vector<DirectedGroup> links, int tier,
                 bool both_ways) const {
  Hypothesis hypothesis{std::move(links), tier, both_ways, {}, 1, 0};
  for (size_t e = 0; e < edges_.size(); e++)
    for (const DirectedGroup& crossed : ways_.at({edges_[e].from, edges_[e].to}))
      if (std::find(hypothesis.links.begin(), hypothesis.links.end(), crossed) !=
          hypothesis.links.end())
        hypothesis.edges.insert(e);
  if (hypothesis.edges.empty()) return;
  guess(&hypothesis);
  all->push_back(std::move(hypothesis));
}

// Those with fewer links first: what explains as much by less is believed.
std::vector<Hypothesis> Solver::hypotheses() const {
  std::vector<Hypothesis> all;
  std::map<int, std::vector<DirectedGroup>> tiers;
  for (int g = 0; g < static_cast<int>(tree_.groups.size()); g++) {
    if (tree_.groups[index(g)].parent < 0) continue;
    for (const bool egress : {true, false}) {
      add(&all, {{g, egress}}, -1, false);
      tiers[tree_.groups[index(g)].tier].push_back({g, egress});
    }
  }
  for (int g = 0; g < static_cast<int>(tree_.groups.size()); g++)
    if (tree_.groups[index(g)].parent >= 0) add(&all, {{g, true}, {g, false}}, -1, true);
  // That all of a tier are slow only their capacities can tell.
  if (expected_.service_ns.empty()) return all;
  for (const auto& [tier, links] : tiers)
    if (links.size() > 2) add(&all, links, tier, true);
  return all;
}

// What is left of the excess.
double Solver::misfit(const std::vector<double>& explained) const {
  double left = 0, weight = 0;
  for (size_t e = 0; e < edges_.size(); e++) {
    left += edges_[e].weight * std::abs(edges_[e].excess - explained[e]);
    weight += edges_[e].weight;
  }
  return weight > 0 ? left / weight : 0;
}

// As though all that cross were slower alike. Some of them may hardly be: those that the schedule
// has wait for others anyway.
void Solver::guess(Hypothesis* hypothesis) const {
  constexpr double kUpperQuarter = 0.75;
  std::vector<double> inside, explained(edges_.size(), 0);
  for (const size_t e : hypothesis->edges) {
    inside.push_back(edges_[e].excess);
    hypothesis->density += edges_[e].weight * edges_[e].excess;
  }
  hypothesis->density /= std::sqrt(static_cast<double>(hypothesis->edges.size()));
  const double common = part_of(inside, kUpperQuarter);
  for (const size_t e : hypothesis->edges) explained[e] = common;
  hypothesis->misfit = misfit(explained);
  hypothesis->factor = std::exp(common);
}

// What is expected, in few chunks, where these are slower by the factor.
ExpectedPlan Solver::slowed(const std::vector<DirectedGroup>& links, double factor) const {
  Slower slower;
  for (const DirectedGroup& link : links) slower.emplace_back(link, factor);
  return expected_edges(tree_, plan_.request, blueprint_,
                        std::min(plan_.parameters.chunks, kFewChunks), slower);
}

// As the schedule runs where it is slower by the factor. Keeps what fits better.
void Solver::simulate(Hypothesis* hypothesis, double factor) const {
  const ExpectedPlan then = slowed(hypothesis->links, factor);
  std::vector<double> explained(edges_.size(), 0);
  for (size_t e = 0; e < edges_.size(); e++) {
    const auto slow = then.service_ns.find({edges_[e].from, edges_[e].to});
    const auto nominal = coarse_.service_ns.find({edges_[e].from, edges_[e].to});
    if (slow == then.service_ns.end() || nominal == coarse_.service_ns.end()) continue;
    if (slow->second > nominal->second && nominal->second > 0)
      explained[e] = std::log(slow->second / nominal->second);
  }
  const double left = misfit(explained);
  if (left >= hypothesis->misfit) return;
  hypothesis->misfit = left;
  hypothesis->factor = factor;
}

// Simulates the likeliest, slower by what they seem to be, and then the likeliest of those by a
// little more and less.
void Solver::refine(std::vector<Hypothesis>* all) const {
  constexpr size_t kLikely = 6, kLikeliest = 3;
  constexpr double kAround[] = {0.7, 0.85, 1.2, 1.5, 2.0}, kWorst = 1e9, kLeast = 1.05;
  std::stable_sort(all->begin(), all->end(), fits_better);
  const auto rest = all->begin() + static_cast<std::ptrdiff_t>(std::min(kLikely, all->size()));
  std::stable_sort(rest, all->end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.density > b.density; });
  if (all->size() > 2 * kLikely) all->resize(2 * kLikely);
  for (Hypothesis& hypothesis : *all) {
    std::vector<double> throughput = throughput_factors(hypothesis.links);
    const double guessed = hypothesis.factor;
    hypothesis.misfit = kWorst;
    simulate(&hypothesis, std::max(kLeast, guessed));
    simulate(&hypothesis, std::max(kLeast, median(std::move(throughput))));
  }
  std::stable_sort(all->begin(), all->end(), fits_better);
  for (size_t i = 0; i < std::min(kLikeliest, all->size()); i++) {
    const double first = (*all)[i].factor;
    for (const double around : kAround)
      if (first * around > 1) simulate(&(*all)[i], first * around);
  }
  std::stable_sort(all->begin(), all->end(), fits_better);
}

// Where a link binds, what calls take says best how slow it is: edges that wait in its queues
// differ more than that. There the time grows with the factor, so two steps come close.
void Solver::match_time(Hypothesis* hypothesis) const {
  constexpr double kBinds = 1.1, kAgrees = 1.7, kClose = 1.05;
  constexpr int kSteps = 2;
  const double well = observed_.well_ns > 0 ? observed_.well_ns : expected_.time_ns;
  if (well <= 0 || coarse_.time_ns <= 0) return;
  const double slower = median(observed_.time_ns) / well;
  double factor = hypothesis->factor;
  for (int step = 0; step < kSteps; step++) {
    const double then = slowed(hypothesis->links, factor).time_ns / coarse_.time_ns;
    if (slower < kBinds || then < kBinds) return;
    factor *= slower / then;
    if (std::max(slower / then, then / slower) < kClose) break;
  }
  if (std::max(factor / hypothesis->factor, hypothesis->factor / factor) < kAgrees)
    hypothesis->factor = std::max(1.0, factor);
}

// In one call: the capacity over what was carried while something waited to cross. 0: not known, or
// nothing crossed. Of several links, that of the slowest.
double Solver::throughput_factor(const std::vector<DirectedGroup>& links, size_t call) const {
  constexpr double kNsPerS = 1e9;
  double most = 0;
  for (const DirectedGroup& link : links) {
    const Group& group = tree_.groups[index(link.group)];
    const uint64_t capacity = (link.egress ? group.egress : group.ingress).bytes_per_s;
    std::vector<Stretch> serving;
    double bytes = 0;
    for (const EdgeTime& edge : observed_.edges[call]) {
      const std::vector<DirectedGroup>& way = ways_.at({edge.from, edge.to});
      if (std::find(way.begin(), way.end(), link) == way.end()) continue;
      bytes += static_cast<double>(edge.bytes);
      serving.insert(serving.end(), edge.serving.begin(), edge.serving.end());
    }
    if (capacity == 0 || bytes == 0) continue;
    most = std::max(most,
                    static_cast<double>(capacity) * union_of(std::move(serving)) / kNsPerS / bytes);
  }
  return most;
}

std::vector<double> Solver::throughput_factors(const std::vector<DirectedGroup>& links) const {
  std::vector<double> factors;
  for (size_t call = 0; call < observed_.calls.size(); call++)
    factors.push_back(throughput_factor(links, call));
  return factors;
}

SlowLink Solver::told(const std::vector<Hypothesis>& all, const Hypothesis& best) const {
  SlowLink slow;
  slow.suspects = best.links;
  slow.tier = best.tier;
  slow.both_ways = best.both_ways;
  if (best.both_ways && best.tier < 0) slow.suspects.pop_back();
  for (const Hypothesis& other : all)
    if (&other != &best && other.edges == best.edges && other.tier < 0 && best.tier < 0 &&
        other.both_ways == best.both_ways)
      slow.suspects.push_back(other.links.front());
  slow.factor = expected_.service_ns.empty() ? 0 : best.factor;
  // The last calls that it was slow in without a break.
  const std::vector<double> throughput = throughput_factors(best.links);
  const double halfway = (1 + median(throughput)) / 2;
  slow.since = throughput.size();
  while (slow.since > 0 && throughput[slow.since - 1] >= halfway) slow.since--;
  const double null = misfit(std::vector<double>(edges_.size(), 0));
  slow.confidence = null > 0 ? 1 - best.misfit / null : 0;
  const double took = median(observed_.time_ns);
  slow.cost = expected_.time_ns > 0 && took > expected_.time_ns ? 1 - expected_.time_ns / took : 0;
  return slow;
}

std::optional<SlowLink> Solver::solve(double least_factor) const {
  const double null = misfit(std::vector<double>(edges_.size(), 0));
  std::vector<Hypothesis> all = hypotheses();
  if (all.empty() || null <= 0) return std::nullopt;
  if (!expected_.service_ns.empty())
    refine(&all);
  else
    std::stable_sort(all.begin(), all.end(), fits_better);
  if (!expected_.service_ns.empty()) match_time(&all.front());
  const SlowLink slow = told(all, all.front());
  if (slow.confidence < kLeastConfidence) return std::nullopt;
  const bool absolute = !expected_.service_ns.empty();
  if (all.front().factor < (absolute ? least_factor : kLeastFactorAmongLike)) return std::nullopt;
  return slow;
}

}  // namespace

std::optional<SlowLink> find_slow_link(const TierTree& tree, const PlanNote& plan,
                                       const Blueprint& blueprint, const ObservedPlan& observed,
                                       double least_factor) {
  if (tree.ranks() > kMostRanksJudged) return std::nullopt;
  return Solver(tree, plan, blueprint, observed).solve(least_factor);
}

std::string link_name(const TierTree& tree, const DirectedGroup& link, bool both_ways) {
  const Group& group = tree.groups[index(link.group)];
  const std::string name =
      group.name.empty()
          ? fmt::format("the {} of position {}", tree.tiers[group.tier].name, group.first)
          : group.name;
  return both_ways ? name : (link.egress ? "out of " : "into ") + name;
}

}  // namespace sennit::diagnose
