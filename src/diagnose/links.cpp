// links.cpp: see diagnose/links.hpp.
#include "diagnose/links.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kLeastConfidence = 0.2, kLeastConfidenceAmongLike = 0.4;
// Of all that is to be explained, as much may be left.
constexpr double kMostLeft = 0.8;
// Edges that should take as long say something of their rate, whatever they move.
constexpr double kLeastServiceNs = 500'000;
// Calls that take longer than they should by less are well.
constexpr double kLeastSlower = 1.04;
// Where no capacity is known, edges are held against their like, which differ more.
constexpr double kLeastFactorAmongLike = 1.5;
// How exactly is simulated: the more ranks, the longer it takes.
struct Effort {
  int most_ranks;
  uint32_t most_chunks;  // of what is expected
  // In so few hypotheses are compared: what slows a schedule down does so in few chunks, too.
  uint32_t few_chunks;
  double fine_parts, coarse_parts;  // of a call: its times are multiples of one
  // So many are simulated: that fit best, that are slowest, some of whose edges are; and so many of
  // those by other factors as well.
  size_t likely, dense, peaked, likeliest;
};
constexpr Effort kEfforts[] = {{32, kMostChunks, 16, 8192, 8192, 2, 3, 3, 2},
                               {80, kMostChunks, 16, 4096, 4096, 2, 3, 3, 2},
                               {256, kMostChunks, 8, 4096, 2048, 2, 3, 3, 2},
                               {kMostRanksJudged, 2, 1, 1024, 256, 1, 1, 1, 0}};

// What may be slow: boundaries, all by the same factor.
struct Hypothesis {
  std::vector<DirectedGroup> links;
  int tier = -1;
  bool both_ways = false;
  std::vector<uint32_t> edges = {};  // that cross one of them, ascending
  double factor = 1;
  double misfit = 0;  // what it leaves unexplained
  // By how many they are: the excess of the middle one of these edges, and of all that have much.
  double density = 0, peaks = 0;
  // How much it explains of the excess of these edges: of 1, and by how many they are.
  double confidence = 0, gain = 0;
  double apart = 0;  // by how much edges are slower than it explains: a quarter of them by more
  bool simulated = false;
};

// Whether what the hypothesis explains is more than edges are slow by anyway, of which some explain
// it by chance. Many are faster than expected where all wait for one link, and say nothing.
bool stands_out(const Hypothesis& hypothesis) {
  constexpr double kTimes = 3;
  return hypothesis.gain >= kTimes * hypothesis.apart;
}

// What does not explain its own edges explains nothing, however well it fits the rest.
bool explains(const Hypothesis& hypothesis) {
  return hypothesis.confidence >= kLeastConfidence && stands_out(hypothesis);
}

bool fits_better(const Hypothesis& a, const Hypothesis& b) {
  constexpr double kHalfMore = 1.5;
  if (explains(a) != explains(b)) return explains(a);
  return a.misfit * (kHalfMore - a.confidence) < b.misfit * (kHalfMore - b.confidence);
}

double part_of(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Of values with weights, the one that has this part of the weights below it.
double middle_of(std::vector<std::pair<double, double>> weighted, double part = 0.5) {
  if (weighted.empty()) return 0;
  std::sort(weighted.begin(), weighted.end());
  double all = 0, below = 0;
  for (const auto& [value, weight] : weighted) all += weight;
  for (const auto& [value, weight] : weighted)
    if ((below += weight) >= part * all) return value;
  return weighted.back().first;
}

// Of logarithms, the mean without a tenth at either end: it varies less than the median.
double usual_log(const std::vector<double>& values) {
  constexpr size_t kTenth = 10;
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(std::max(1.0, value)));
  std::sort(logs.begin(), logs.end());
  const size_t out = logs.size() / kTenth;
  double sum = 0;
  for (size_t i = out; i < logs.size() - out; i++) sum += logs[i];
  return sum / static_cast<double>(logs.size() - 2 * out);
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

size_t number_of(const DirectedGroup& link) {
  return 2 * index(link.group) + (link.egress ? 0 : 1);
}

class Solver {
 public:
  Solver(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
         const ObservedPlan& observed);
  std::optional<SlowLink> solve(double least_factor);

 private:
  // An edge over all calls.
  struct Edge {
    int from = 0, to = 0;
    double excess = 0;  // ln of how much longer it took than it should; below 0: it was faster
    double weight = 0;
  };
  bool costs_time() const;
  bool absolute() const { return !expected_.service_ns.empty(); }
  void expect();
  void measure_excess();
  void find_crossings();
  std::vector<Hypothesis> hypotheses() const;
  void add(std::vector<Hypothesis>* all, std::vector<DirectedGroup> links, int tier,
           bool both_ways) const;
  double misfit(const std::vector<double>& explained, double explained_time, double common) const;
  double misfit_of_nothing() const;
  double common_to_all(const std::vector<double>& explained) const;
  void hold_inside(Hypothesis* hypothesis, const std::vector<double>& explained,
                   double common) const;
  void guess(Hypothesis* hypothesis) const;
  ExpectedPlan slowed(const std::vector<DirectedGroup>& links, double factor) const;
  bool simulate(Hypothesis* hypothesis, double factor) const;
  void search_factor(Hypothesis* hypothesis) const;
  size_t choose_likely(std::vector<Hypothesis>* all) const;
  void refine(std::vector<Hypothesis>* all) const;
  void match_time(Hypothesis* hypothesis) const;
  double throughput_factor(const std::vector<DirectedGroup>& links, size_t call) const;
  std::vector<double> throughput_factors(const std::vector<DirectedGroup>& links) const;
  SlowLink told(const std::vector<Hypothesis>& all, const Hypothesis& best) const;

  const TierTree& tree_;
  const PlanNote& plan_;
  const Blueprint& blueprint_;
  const ObservedPlan& observed_;
  Effort effort_ = kEfforts[0];
  double scale_ns_ = 0;     // about what a call takes
  ExpectedPlan expected_;   // empty: capacities are not known
  ExpectedPlan coarse_;     // the same in few chunks
  double time_excess_ = 0;  // ln, of whole calls
  std::vector<Edge> edges_;
  std::vector<std::vector<uint32_t>> crossing_;  // by directed group: edges, ascending
  std::map<std::pair<int, int>, std::vector<DirectedGroup>> ways_;
  // Of all edges together, and of each: their weights times what none explains.
  double all_weight_ = 0, all_excess_ = 0, usual_excess_ = 0;
};

Solver::Solver(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
               const ObservedPlan& observed)
    : tree_(tree), plan_(plan), blueprint_(blueprint), observed_(observed) {
  if (tree.capacities_known()) expect();
  for (const std::vector<EdgeTime>& call : observed.edges)
    for (const EdgeTime& edge : call)
      if (const auto [way, added] = ways_.try_emplace({edge.from, edge.to}); added)
        way->second = way_of(tree, edge.from, edge.to);
  measure_excess();
  find_crossings();
}

void Solver::expect() {
  effort_ = *std::find_if(std::begin(kEfforts), std::end(kEfforts) - 1,
                          [&](const Effort& effort) { return tree_.ranks() <= effort.most_ranks; });
  const uint32_t chunks = std::min(plan_.parameters.chunks, effort_.most_chunks);
  scale_ns_ = median(observed_.time_ns);
  if (plan_.predicted_ns > 0)
    scale_ns_ = std::min(scale_ns_, static_cast<double>(plan_.predicted_ns));
  const auto grain_ns = static_cast<uint64_t>(scale_ns_ / effort_.fine_parts);
  expected_ = expected_edges(tree_, plan_.request, blueprint_, chunks, {}, grain_ns);
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
    const bool tells = bytes[edge] >= kLeastEdgeBytes || (known && should >= kLeastServiceNs);
    if (service <= 0 || should <= 0 || !tells) continue;
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
  const double common = by_tier.empty() ? 0 : std::max(0.0, all_tiers);
  for (size_t e = 0; e < edges_.size(); e++) {
    const int tier = tree_.crossing_tier(edges_[e].from, edges_[e].to);
    edges_[e].excess = absolute() ? logs[e] - common : std::max(0.0, logs[e] - usual[tier]);
    all_weight_ += edges_[e].weight;
    all_excess_ += edges_[e].weight * std::abs(edges_[e].excess);
  }
  usual_excess_ = common_to_all(std::vector<double>(edges_.size(), 0));
  if (expected_.time_ns <= 0) return;
  const bool well = observed_.well_ns > 0;
  time_excess_ = usual_log(observed_.time_ns) -
                 std::log(well ? observed_.well_ns : expected_.time_ns) - (well ? 0 : common);
}

void Solver::find_crossings() {
  crossing_.resize(2 * tree_.groups.size());
  for (uint32_t e = 0; e < edges_.size(); e++)
    for (const DirectedGroup& link : ways_.at({edges_[e].from, edges_[e].to}))
      crossing_[number_of(link)].push_back(e);
}

void Solver::add(std::vector<Hypothesis>* all, std::vector<DirectedGroup> links, int tier,
                 bool both_ways) const {
  Hypothesis hypothesis{std::move(links), tier, both_ways};
  for (const DirectedGroup& link : hypothesis.links) {
    const std::vector<uint32_t>& its = crossing_[number_of(link)];
    hypothesis.edges.insert(hypothesis.edges.end(), its.begin(), its.end());
  }
  if (hypothesis.edges.empty()) return;
  std::sort(hypothesis.edges.begin(), hypothesis.edges.end());
  hypothesis.edges.erase(std::unique(hypothesis.edges.begin(), hypothesis.edges.end()),
                         hypothesis.edges.end());
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
  if (!absolute()) return all;
  for (const auto& [tier, links] : tiers)
    if (links.size() > 2) add(&all, links, tier, true);
  return all;
}

// By a little, all may be faster or slower than expected.
double Solver::common_to_all(const std::vector<double>& explained) const {
  constexpr double kMost = 0.05;
  if (!absolute()) return 0;
  std::vector<std::pair<double, double>> left;
  for (size_t e = 0; e < edges_.size(); e++)
    left.emplace_back(edges_[e].excess - explained[e], edges_[e].weight);
  return std::clamp(middle_of(std::move(left)), -kMost, kMost);
}

// How much it explains of the excess of the edges that the hypothesis is about; below 0: it makes
// it worse.
void Solver::hold_inside(Hypothesis* hypothesis, const std::vector<double>& explained,
                         double common) const {
  double before = 0, after = 0, weight = 0;
  for (const uint32_t e : hypothesis->edges) {
    const double excess = edges_[e].excess - common;
    before += edges_[e].weight * std::abs(excess);
    after += edges_[e].weight * std::abs(excess - explained[e]);
    weight += edges_[e].weight;
  }
  hypothesis->confidence = before > 0 ? 1 - after / before : 0;
  hypothesis->gain =
      (before - after) / weight * std::sqrt(static_cast<double>(hypothesis->edges.size()));
}

// What is left of the excess of edges and of the whole call. common: common_to_all(explained).
double Solver::misfit(const std::vector<double>& explained, double explained_time,
                      double common) const {
  constexpr double kWeightOfTime = 0.5;
  double sum = 0, weight = all_weight_;
  for (size_t e = 0; e < edges_.size(); e++)
    sum += edges_[e].weight * std::abs(edges_[e].excess - explained[e] - common);
  if (absolute()) {
    sum += kWeightOfTime * all_weight_ * std::abs(time_excess_ - explained_time - common);
    weight += kWeightOfTime * all_weight_;
  }
  return weight > 0 ? sum / weight : 0;
}

double Solver::misfit_of_nothing() const {
  return misfit(std::vector<double>(edges_.size(), 0), 0, usual_excess_);
}

// As though all that cross were slower alike, and the rest as expected. Some of them may hardly be:
// those that the schedule has wait for others anyway.
void Solver::guess(Hypothesis* hypothesis) const {
  constexpr double kUpperQuarter = 0.75, kMuch = 0.04, kMost = 1;
  std::vector<double> inside;
  std::vector<std::pair<double, double>> weighted;
  for (const uint32_t e : hypothesis->edges) {
    inside.push_back(std::max(0.0, edges_[e].excess));
    weighted.emplace_back(edges_[e].excess - usual_excess_, edges_[e].weight);
    hypothesis->peaks +=
        edges_[e].weight * std::max(0.0, std::min(edges_[e].excess, kMost) - usual_excess_ - kMuch);
  }
  hypothesis->peaks /= std::sqrt(static_cast<double>(hypothesis->edges.size()));
  hypothesis->density =
      middle_of(std::move(weighted)) * std::sqrt(static_cast<double>(hypothesis->edges.size()));
  const double common = part_of(inside, kUpperQuarter);
  double left = all_excess_;
  for (const uint32_t e : hypothesis->edges)
    left += edges_[e].weight * (std::abs(edges_[e].excess - common) - std::abs(edges_[e].excess));
  hypothesis->misfit = all_weight_ > 0 ? left / all_weight_ : 0;
  hypothesis->factor = std::exp(common - usual_excess_);
}

// What is expected, in few chunks, where these are slower by the factor.
ExpectedPlan Solver::slowed(const std::vector<DirectedGroup>& links, double factor) const {
  Slower slower;
  for (const DirectedGroup& link : links) slower.emplace_back(link, factor);
  return expected_edges(tree_, plan_.request, blueprint_,
                        std::min(plan_.parameters.chunks, effort_.few_chunks), slower,
                        static_cast<uint64_t>(scale_ns_ / effort_.coarse_parts));
}

// As the schedule runs where it is slower by the factor. Keeps what fits better.
bool Solver::simulate(Hypothesis* hypothesis, double factor) const {
  const ExpectedPlan then = slowed(hypothesis->links, factor);
  std::vector<double> explained(edges_.size(), 0);
  for (size_t e = 0; e < edges_.size(); e++) {
    const auto slow = then.service_ns.find({edges_[e].from, edges_[e].to});
    const auto nominal = coarse_.service_ns.find({edges_[e].from, edges_[e].to});
    if (slow == then.service_ns.end() || nominal == coarse_.service_ns.end()) continue;
    if (slow->second > 0 && nominal->second > 0)
      explained[e] = std::log(slow->second / nominal->second);
  }
  const bool timed = then.time_ns > 0 && coarse_.time_ns > 0;
  const double explained_time = timed ? std::log(then.time_ns / coarse_.time_ns) : 0;
  const double common = common_to_all(explained);
  Hypothesis then_is = *hypothesis;
  then_is.simulated = true;
  then_is.misfit = misfit(explained, explained_time, common);
  hold_inside(&then_is, explained, common);
  std::vector<std::pair<double, double>> apart;
  for (size_t e = 0; e < edges_.size(); e++)
    apart.emplace_back(std::max(0.0, edges_[e].excess - explained[e] - common), edges_[e].weight);
  constexpr double kUpperQuarter = 0.75;
  then_is.apart = middle_of(std::move(apart), kUpperQuarter);
  then_is.factor = factor;
  if (hypothesis->simulated && !fits_better(then_is, *hypothesis)) return false;
  *hypothesis = std::move(then_is);
  return true;
}

// By a little more and less, and on in the direction that fits better.
void Solver::search_factor(Hypothesis* hypothesis) const {
  constexpr double kSteps[] = {1.25, 0.85}, kLeast = 1.03;
  constexpr int kMostSteps = 3;
  for (const double step : kSteps) {
    bool better = true;
    for (int i = 0; i < kMostSteps && better; i++) {
      const double next = std::max(kLeast, hypothesis->factor * step);
      better = next != hypothesis->factor && simulate(hypothesis, next);
      if (better && i + 1 == kMostSteps) return;
    }
  }
}

// The first `many` become those that fit best, whose middle edge is slowest, and of which some
// edges are much slower: of a slow link the schedule may have few edges wait, or most.
size_t Solver::choose_likely(std::vector<Hypothesis>* all) const {
  using Better = bool (*)(const Hypothesis&, const Hypothesis&);
  const std::pair<Better, size_t> orders[] = {
      {fits_better, effort_.likely},
      {[](const Hypothesis& a, const Hypothesis& b) { return a.density > b.density; },
       effort_.dense},
      {[](const Hypothesis& a, const Hypothesis& b) { return a.peaks > b.peaks; }, effort_.peaked}};
  size_t chosen = 0;
  for (const auto& [better, many] : orders) {
    std::stable_sort(all->begin() + static_cast<std::ptrdiff_t>(chosen), all->end(), better);
    chosen = std::min(chosen + many, all->size());
  }
  return chosen;
}

// Simulates the likeliest, slower by what they seem to be, and then the likeliest of those by a
// little more and less. No link alone makes a call slower than it is itself.
void Solver::refine(std::vector<Hypothesis>* all) const {
  constexpr double kLeast = 1.05, kFarOff = 2;
  const double least = std::max(kLeast, std::exp(time_excess_));
  const size_t tried = choose_likely(all);
  for (size_t i = 0; i < tried; i++) simulate(&(*all)[i], std::max(least, (*all)[i].factor));
  const auto end = all->begin() + static_cast<std::ptrdiff_t>(tried);
  std::stable_sort(all->begin(), end, fits_better);
  // What does not explain its own edges yet may do so by another factor.
  std::vector<Hypothesis*> by_misfit;
  for (size_t i = 0; i < tried; i++) by_misfit.push_back(&(*all)[i]);
  std::stable_sort(by_misfit.begin(), by_misfit.end(),
                   [](const auto* a, const auto* b) { return a->misfit < b->misfit; });
  const double misfit = by_misfit.front()->misfit;
  for (size_t i = 0; i < std::min(effort_.likeliest, tried); i++) {
    if (&(*all)[i] != by_misfit[i] && (*all)[i].misfit < kFarOff * misfit)
      search_factor(&(*all)[i]);
    search_factor(by_misfit[i]);
  }
  std::stable_sort(all->begin(), end, fits_better);
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
    if (slower < kBinds) return;
    const double then = slowed(hypothesis->links, factor).time_ns / coarse_.time_ns;
    if (then < kBinds) return;
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
  slow.factor = absolute() ? best.factor : 0;
  // The last calls that it was slow in without a break.
  const std::vector<double> throughput = throughput_factors(best.links);
  const double halfway = (1 + median(throughput)) / 2;
  slow.since = throughput.size();
  while (slow.since > 0 && throughput[slow.since - 1] >= halfway) slow.since--;
  slow.confidence = best.confidence;
  if (const double null = misfit_of_nothing(); !absolute())
    slow.confidence = null > 0 ? 1 - best.misfit / null : 0;
  const double took = median(observed_.time_ns);
  slow.cost = expected_.time_ns > 0 && took > expected_.time_ns ? 1 - expected_.time_ns / took : 0;
  return slow;
}

// Whether calls take longer than they should at all. A plan that was made around a slow link
// hardly does.
bool Solver::costs_time() const {
  return !absolute() || !plan_.slow.empty() || time_excess_ >= std::log(kLeastSlower);
}

std::optional<SlowLink> Solver::solve(double least_factor) {
  if (!costs_time()) return std::nullopt;
  if (absolute()) coarse_ = slowed({}, 1);
  const double null = misfit_of_nothing();
  std::vector<Hypothesis> all = hypotheses();
  if (all.empty() || null <= 0) return std::nullopt;
  if (absolute())
    refine(&all);
  else
    std::stable_sort(all.begin(), all.end(), fits_better);
  const SlowLink slow = told(all, all.front());
  if (slow.confidence < (absolute() ? kLeastConfidence : kLeastConfidenceAmongLike) ||
      (absolute() && (all.front().misfit > kMostLeft * null || !stands_out(all.front()))))
    return std::nullopt;
  if (absolute()) match_time(&all.front());
  if (all.front().factor < (absolute() ? least_factor : kLeastFactorAmongLike)) return std::nullopt;
  return told(all, all.front());
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
