// links.cpp: see diagnose/links.hpp.
#include "diagnose/links.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/median.hpp"
#include "diagnose/excess.hpp"
#include "diagnose/link_traffic.hpp"
#include "diagnose/synthesis.hpp"

namespace sennit::diagnose {
namespace {

constexpr std::string_view kOutOf = "out of ", kInto = "into ";
// By less than so many deviations an edge differs by chance.
constexpr double kChance = 2;
constexpr double kLeastConfidence = 0.35, kLeastConfidenceAmongLike = 0.4;
// As little as what the simulator shows may explain of the ratios alone.
constexpr double kLeastConfidenceIfShown = 0.1;
// Of all that is to be explained, as much may be left; by a whole tier less, as where many wait for
// one link they are slower alike, too.
constexpr double kMostLeft = 0.8, kMostLeftByTier = 0.32;
// Of two that explain the same edges one is as good as the other where it leaves no more than so
// much more of what there is to explain.
constexpr double kAsGood = 0.01;
// Calls that take longer by less than they did, or than the simulator says, are well.
constexpr double kLeastSlower = 1.03, kLeastSlowerThanSimulated = 1.05;
// What blames more has to explain more: of a second direction, or of a whole tier, so much.
constexpr double kSecond = 0.03;
// A link is believed by the simulator alone only where it leaves no more than this.
constexpr double kMostUnlike = 0.3, kMostUnlikeRoughly = 0.42;
constexpr size_t kLikely = 12;  // of all that may be slow, so many are looked at closely
// Where no capacity is known, edges are held against their like, which differ more.
constexpr double kLeastFactorAmongLike = 1.5;
// What may be slow: boundaries, all by the same factor.
struct Hypothesis {
  std::vector<DirectedGroup> links;
  int tier = -1;
  bool both_ways = false;
  std::vector<uint32_t> edges = {};  // that cross one of them, ascending
  double factor = 1;
  double misfit = 0;  // the part of what there is to explain that it leaves
  // How much it explains of the excess of these edges: of 1, and by how many they are.
  double confidence = 0, gain = 0;
  double score = 0;                   // less is better
  std::optional<Likeness> like = {};  // to what was observed, where that was simulated
  double apart = 0;  // by how much edges are slower than it explains: a quarter of them by more
  double needs = 0;  // by how much it has to be slower at least, for calls to take so long; 0: any
};

// Of those that the same edges cross the one that has to be slower by less is likelier.
bool scores_better(const Hypothesis& a, const Hypothesis& b) {
  return a.score != b.score ? a.score < b.score : a.needs < b.needs;
}

// Whether what the hypothesis explains is more than edges are slow by anyway, of which some explain
// it by chance. Many are faster than expected where all wait for one link, and say nothing.
bool stands_out(const Hypothesis& hypothesis) {
  constexpr double kTimes = 3;
  return hypothesis.gain >= kTimes * hypothesis.apart;
}

bool explains_with(double least_confidence, const Hypothesis& hypothesis) {
  return hypothesis.confidence >= least_confidence && stands_out(hypothesis) &&
         hypothesis.misfit <= (hypothesis.tier >= 0 ? kMostLeftByTier : kMostLeft);
}

// What does not explain its own edges explains nothing, however well it fits the rest.
bool explains(const Hypothesis& hypothesis) { return explains_with(kLeastConfidence, hypothesis); }

// Edges that take turns on a slow link become slower by different factors, of which no single one
// explains much. The simulator may show them so.
bool may_be_shown(const Hypothesis& hypothesis) {
  return hypothesis.tier < 0 && explains_with(kLeastConfidenceIfShown, hypothesis);
}

bool fits_better(const Hypothesis& a, const Hypothesis& b) {
  if (explains(a) != explains(b)) return explains(a);
  return scores_better(a, b);
}

bool has_cables(const TierTree& tree) {
  return std::any_of(tree.groups.begin(), tree.groups.end(),
                     [](const Group& group) { return group.cables > 1; });
}

// Of several cables some carry more flows than others, as hashes have it: what is slow there may
// have been so always, and others wait for it. Only what was before tells; or where a link is slow
// anyway, and it is asked whether it still is.
bool hashes_blur(const TierTree& tree, const PlanNote& plan, const ObservedPlan& observed) {
  return observed.well_service_ns.empty() && plan.slow.empty() && has_cables(tree);
}

class Solver {
 public:
  // `expected`: by what edges are held against; empty where that is not known, or what was before
  // is. `simulated`: what the plan takes where all is well; null where nothing is to be simulated,
  // which is done within the limits.
  Solver(const TierTree& tree, const PlanNote& plan, const ExpectedPlan& expected,
         const ObservedPlan& observed, const Blueprint& blueprint, const ExpectedPlan* simulated,
         const SimulationLimits& limits);
  LinkFinding solve(double least_factor);

 private:
  using Edge = Excess::Edge;

  bool costs_time() const;
  bool is_planned_around(const SlowLink& slow) const;
  void find_crossings();
  bool is_link(int group) const;
  std::vector<Hypothesis> hypotheses() const;
  void add(std::vector<Hypothesis>* all, std::vector<DirectedGroup> links, int tier,
           bool both_ways) const;
  bool takes_first(const Hypothesis& hypothesis, uint32_t e) const;
  std::vector<double> explained_by(const Hypothesis& hypothesis) const;
  void explain(Hypothesis* hypothesis) const;
  void measure_apart(Hypothesis* hypothesis) const;
  void compare(std::vector<Hypothesis>* all) const;
  TookAndWell took_and_well() const;
  std::vector<Hypothesis*> to_simulate(const Synthesis& synthesis,
                                       std::vector<Hypothesis>* all) const;
  void compare_by_synthesis(std::vector<Hypothesis>* all) const;
  std::vector<uint32_t> slower_by(const Hypothesis& hypothesis) const;
  double most_factor(const Hypothesis& hypothesis) const {
    return traffic_.most_factor(hypothesis.links, hypothesis.tier >= 0, excess_.well_ns());
  }
  bool is_shown(const Hypothesis& hypothesis) const;
  bool is_believed(const Hypothesis& hypothesis) const;
  bool is_unlike(const Hypothesis& hypothesis) const;
  bool is_refuted(const Hypothesis& hypothesis) const;
  bool is_slow_enough(const Hypothesis& hypothesis, double told, double least_factor) const;
  SlowLink told(const std::vector<Hypothesis>& all, const Hypothesis& best) const;

  const TierTree& tree_;
  const PlanNote& plan_;
  const ObservedPlan& observed_;
  const LinkTraffic traffic_;
  const Excess excess_;
  const std::vector<Edge>& edges_;  // of excess_
  const Blueprint& blueprint_;
  const ExpectedPlan* const simulated_;
  const SimulationLimits limits_;
  const bool simulates_roughly_;                 // many ranks, or several cables as one
  std::vector<std::vector<uint32_t>> crossing_;  // by directed group: edges, ascending
};

Solver::Solver(const TierTree& tree, const PlanNote& plan, const ExpectedPlan& expected,
               const ObservedPlan& observed, const Blueprint& blueprint,
               const ExpectedPlan* simulated, const SimulationLimits& limits)
    : tree_(tree),
      plan_(plan),
      observed_(observed),
      traffic_(tree, observed),
      excess_(tree, expected, observed, traffic_),
      edges_(excess_.edges()),
      blueprint_(blueprint),
      simulated_(simulated),
      limits_(limits),
      simulates_roughly_(has_cables(tree) || tree.ranks() > kMostRanksFinely) {
  find_crossings();
}

void Solver::find_crossings() {
  crossing_.resize(2 * tree_.groups.size());
  for (uint32_t e = 0; e < edges_.size(); e++)
    for (const DirectedGroup& link : traffic_.way_of_edge(edges_[e].at))
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
  explain(&hypothesis);
  if (tier < 0) hypothesis.needs = most_factor(hypothesis);
  all->push_back(std::move(hypothesis));
}

// Where ranks of a host are joined by its memory alone, what is slow is a core, also where they are
// told apart by NUMA node.
bool Solver::is_link(int group) const {
  const Group& of = tree_.groups[index(group)];
  if (of.parent < 0 || of.egress.known() || of.ingress.known()) return of.parent >= 0;
  for (int around = of.parent; around >= 0; around = tree_.groups[index(around)].parent)
    if (tree_.tiers[tree_.groups[index(around)].tier].is_host()) return false;
  return true;
}

// Those with fewer links first: what explains as much by less is believed.
std::vector<Hypothesis> Solver::hypotheses() const {
  std::vector<Hypothesis> all;
  std::map<int, std::vector<DirectedGroup>> tiers;
  for (int g = 0; g < static_cast<int>(tree_.groups.size()); g++) {
    if (!is_link(g)) continue;
    for (const bool egress : {true, false}) {
      add(&all, {{g, egress}}, -1, false);
      tiers[tree_.groups[index(g)].tier].push_back({g, egress});
    }
  }
  for (int g = 0; g < static_cast<int>(tree_.groups.size()); g++)
    if (is_link(g)) add(&all, {{g, true}, {g, false}}, -1, true);
  // That all of a tier are slow only their capacities can tell.
  if (!excess_.absolute()) return all;
  for (const auto& [tier, links] : tiers)
    if (links.size() > 2) add(&all, links, tier, true);
  return all;
}

// Of a boundary that is slow in both directions: whether the edge crosses it in the first.
bool Solver::takes_first(const Hypothesis& hypothesis, uint32_t e) const {
  if (!hypothesis.both_ways || hypothesis.tier >= 0) return false;
  const std::vector<DirectedGroup>& way = traffic_.way_of_edge(edges_[e].at);
  return std::find(way.begin(), way.end(), hypothesis.links.front()) != way.end();
}

// Of each of its edges, how much slower it is by the hypothesis: as much as the middle one of
// those that cross the same tier in the same direction. Those are bound by the link alike, and
// others perhaps by something else. Where it is too little to be told from chance it is nothing,
// so that what blames more explains no more. Of several cables some may be slow: there it is the
// middle one of those that are slower at all, and whatever is not half as slow takes another
// cable.
std::vector<double> Solver::explained_by(const Hypothesis& hypothesis) const {
  // Edges of one tier differ more from one another than from what they should be.
  constexpr double kLeastAmongLike = 0.15, kLeastOfItself = 0.03, kHalf = 0.5;
  const double least = excess_.absolute() ? kLeastOfItself : kLeastAmongLike;
  const bool cables = tree_.groups[index(hypothesis.links.front().group)].cables > 1;
  const auto like = [&](uint32_t e) {
    return std::pair<int, bool>(edges_[e].tier, takes_first(hypothesis, e));
  };
  std::map<std::pair<int, bool>, std::vector<std::pair<double, double>>> weighted;
  for (const uint32_t e : hypothesis.edges)
    if (const double excess = excess_.of(edges_[e]); !cables || excess > least)
      weighted[like(e)].emplace_back(excess, edges_[e].weight);
  std::map<std::pair<int, bool>, double> alike;
  for (auto& [which, of_which] : weighted) {
    const double middle = weighted_median(std::move(of_which));
    alike[which] = middle < least ? 0 : middle;
  }
  std::vector<double> explained;
  for (const uint32_t e : hypothesis.edges) {
    const auto found = alike.find(like(e));
    const double slower = found != alike.end() ? found->second : 0;
    const bool on_another = cables && excess_.of(edges_[e]) < kHalf * slower;
    explained.push_back(on_another ? 0 : slower);
  }
  return explained;
}

// What it leaves of the excess of edges and of the whole call: no link makes a call slower than it
// is itself. An edge that is slower by no more than the whole call may have waited for others, so
// what it leaves of edges that are slower by more counts besides, and how unlike its own edges are.
void Solver::explain(Hypothesis* hypothesis) const {
  const std::vector<double> explained = explained_by(*hypothesis);
  double before = 0, after = 0, weight = 0, most = 0, beyond = 0;
  double most_of_way[2] = {0, 0};
  for (size_t i = 0; i < explained.size(); i++) {
    const Edge& edge = edges_[hypothesis->edges[i]];
    const double left = std::abs(excess_.of(edge) - explained[i]);
    before += edge.weight * excess_.of(edge);
    after += edge.weight * left;
    beyond += edge.weight * std::max(0.0, excess_.beyond_call(edge) - left);
    weight += edge.weight;
    most = std::max(most, explained[i]);
    double& most_of_this = most_of_way[takes_first(*hypothesis, hypothesis->edges[i]) ? 1 : 0];
    most_of_this = std::max(most_of_this, explained[i]);
  }
  const double edges_left =
      excess_.of_all() > 0 ? (excess_.of_all() - before + after) / excess_.of_all() : 1;
  const double time_left =
      excess_.of_call() > 0 ? std::max(0.0, excess_.of_call() - most) / excess_.of_call() : 0;
  const double beyond_left =
      excess_.all_beyond_call() > 0 ? 1 - beyond / excess_.all_beyond_call() : 1;
  hypothesis->misfit = excess_.absolute() ? (edges_left + time_left) / 2 : edges_left;
  hypothesis->confidence = before > 0 ? 1 - after / before : 0;
  hypothesis->gain = (before - after) / weight * std::sqrt(static_cast<double>(explained.size()));
  hypothesis->factor = std::exp(most);
  constexpr double kBeyond = 0.2, kUnlike = 0.35;
  // What blames more has to explain more: of edges that are not slower, so much of their part.
  constexpr double kIdle = 0.02;
  // Where the two directions are slow by different factors something else makes one of them so: of
  // a ring, that the next waits for this one.
  constexpr double kUnlikeWays = 0.15;
  const bool two_ways = hypothesis->both_ways && hypothesis->tier < 0 && most > 0;
  const double unlike_ways = two_ways ? 1 - std::min(most_of_way[0], most_of_way[1]) / most : 0;
  const auto idle = static_cast<double>(std::count(explained.begin(), explained.end(), 0.0));
  hypothesis->score = hypothesis->misfit + kBeyond * beyond_left +
                      kUnlike * (1 - hypothesis->confidence) +
                      (hypothesis->both_ways ? kSecond : 0) + kUnlikeWays * unlike_ways +
                      kIdle * idle / static_cast<double>(edges_.size());
}

// By how much edges are slower than it explains.
void Solver::measure_apart(Hypothesis* hypothesis) const {
  constexpr double kUpperQuarter = 0.75;
  const std::vector<double> explained = explained_by(*hypothesis);
  std::vector<std::pair<double, double>> apart;
  for (const Edge& edge : edges_) apart.emplace_back(excess_.of(edge), edge.weight);
  for (size_t i = 0; i < explained.size(); i++) {
    const uint32_t e = hypothesis->edges[i];
    apart[e].first = std::max(0.0, excess_.of(edges_[e]) - explained[i]);
  }
  for (size_t e = 0; e < edges_.size(); e++)
    if (apart[e].first < kChance * edges_[e].chance) apart[e].first = 0;
  hypothesis->apart = weighted_median(std::move(apart), kUpperQuarter);
}

// The first becomes the one that is believed. Of those that explain as much the ones with fewer
// links come first.
void Solver::compare(std::vector<Hypothesis>* all) const {
  std::stable_sort(all->begin(), all->end(), scores_better);
  if (!excess_.absolute()) return;
  const auto likely = all->begin() + static_cast<std::ptrdiff_t>(std::min(kLikely, all->size()));
  for (auto it = all->begin(); it != (simulated_ ? all->end() : likely); ++it) measure_apart(&*it);
  std::stable_sort(all->begin(), likely, fits_better);
  if (simulated_ && (explains(all->front()) || may_be_shown(all->front())))
    compare_by_synthesis(all);
}

TookAndWell Solver::took_and_well() const {
  TookAndWell both;
  both.took_ns = median(observed_.time_ns);
  both.well_ns = observed_.well_ns;
  for (const Edge& edge : edges_) {
    const EdgeTime& time = (*observed_.edges.front())[edge.at];
    const auto well = observed_.well_service_ns.find({time.from, time.to});
    both.edges.push_back({time.from, time.to, edge.service_ns,
                          well != observed_.well_service_ns.end() ? well->second : 0,
                          kChance * edge.chance * edge.service_ns});
  }
  return both;
}

// Those that are simulated: the first, then what is likely by how much longer edges took, and then
// by how many times as long, also what the simulator alone may show.
std::vector<Hypothesis*> Solver::to_simulate(const Synthesis& synthesis,
                                             std::vector<Hypothesis>* all) const {
  const size_t most = std::min(kLikely, limits_.messages / simulated_->messages);
  std::vector<std::pair<double, Hypothesis*>> by_time;
  for (Hypothesis& one : *all)
    if (explains(one)) by_time.emplace_back(synthesis.left_if_alike(one.edges), &one);
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Hypothesis*> chosen = {&all->front()};
  const auto choose = [&](Hypothesis* one, size_t until) {
    if (chosen.size() < until && std::find(chosen.begin(), chosen.end(), one) == chosen.end())
      chosen.push_back(one);
  };
  for (const auto& [left, one] : by_time) choose(one, 1 + most / 2);
  std::vector<Hypothesis*> by_score;
  for (Hypothesis& one : *all)
    if (explains(one) || may_be_shown(one)) by_score.push_back(&one);
  std::stable_sort(by_score.begin(), by_score.end(),
                   [](const auto* a, const auto* b) { return scores_better(*a, *b); });
  for (Hypothesis* const one : by_score) choose(one, most);
  return chosen;
}

// Whether the simulator shows with it most of what was observed. On emulated trees it leaves 0.05
// to 0.38 with the link that is slow, and 0.3 to 0.6 with others, or where none is slow. Where it
// is rough it leaves 0.3 to 0.4 with a slow NIC, and 0.5 to 1 with racks that wait for it.
bool Solver::is_shown(const Hypothesis& hypothesis) const {
  const double most = simulates_roughly_ ? kMostUnlikeRoughly : kMostUnlike;
  return hypothesis.like && hypothesis.like->left <= most;
}

bool Solver::is_believed(const Hypothesis& hypothesis) const {
  return explains(hypothesis) || (is_shown(hypothesis) && may_be_shown(hypothesis));
}

// Whether it explains the ratios but poorly, and was simulated finely, and shows next to nothing.
bool Solver::is_unlike(const Hypothesis& hypothesis) const {
  constexpr double kLeastUnlike = 0.46, kPoorly = 0.45;
  return !simulates_roughly_ && hypothesis.like && hypothesis.like->left > kLeastUnlike &&
         hypothesis.score > kPoorly;
}

// Who waits for whom in a schedule decides which other edges a slow link makes slow, and how edges
// that share a link take turns decides what they took while all was well. Both the simulator knows.
// Where it shows by far better what was observed if another one is slow, that is believed. It is
// not searched for where the first shows most, and where it is known what is chance, nearly all.
// The search ends once a far better one leaves no more than it may where the simulator is not
// rough.
void Solver::compare_by_synthesis(std::vector<Hypothesis>* all) const {
  constexpr double kFarBetter = 0.15, kFarBetterThanChance = 0.06, kNearlyNothing = 0.08;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool knows_chance = observed_.edges.size() > 1;
  const double far = knows_chance ? kFarBetterThanChance : kFarBetter;
  const double little = knows_chance ? kNearlyNothing : kMostUnlike;
  const Synthesis synthesis(tree_, plan_, blueprint_, *simulated_, took_and_well());
  const auto score = [](const Hypothesis& one) {
    const double left = one.like ? one.like->left : kInfinity;
    return left + (one.both_ways ? kSecond : 0);
  };
  Hypothesis *const first = &all->front(), *best = first;
  bool far_better = false;
  for (Hypothesis* const one : to_simulate(synthesis, all)) {
    // Of a tier the quickest call tells that, which is asked later on (is_refuted).
    const double could = one->tier < 0 ? most_factor(*one) : 0;
    const double hopeless = one == first ? kInfinity : score(*first) - far;
    one->like = synthesis.likeness(one->links, could > 0 ? could : kInfinity, hopeless);
    if (is_shown(*one) && score(*one) < score(*best)) best = one;
    far_better = is_shown(*best) && score(*best) + far < score(*first);
    if (far_better && best->like->left <= kMostUnlike) break;
    if (first->like && first->like->left <= little) break;
  }
  if (far_better && !(simulates_roughly_ && is_refuted(*best))) std::rotate(first, best, best + 1);
}

// Whether edges are slower than it can explain: what they wait for is something else, as a core.
// Where the simulator shows them so they are slower by much because they were served in no time
// while all was well, between others.
bool Solver::is_refuted(const Hypothesis& hypothesis) const {
  constexpr double kWellShown = 0.25, kAbove = 1.3, kAboveOfTier = 1.15;
  if (hypothesis.tier < 0 && hypothesis.like && hypothesis.like->left <= kWellShown) return false;
  const double most = most_factor(hypothesis);
  if (most <= 0) return false;
  if (hypothesis.tier >= 0) return hypothesis.factor > kAboveOfTier * most;
  // The edges of a single link wait for one another as well, the longer the slower it is.
  return hypothesis.factor > kAbove * most * std::sqrt(std::max(1.0, most));
}

// Its edges that it explains something of.
std::vector<uint32_t> Solver::slower_by(const Hypothesis& hypothesis) const {
  const std::vector<double> explained = explained_by(hypothesis);
  std::vector<uint32_t> slower;
  for (size_t i = 0; i < explained.size(); i++)
    if (explained[i] > 0) slower.push_back(hypothesis.edges[i]);
  return slower;
}

SlowLink Solver::told(const std::vector<Hypothesis>& all, const Hypothesis& best) const {
  SlowLink slow;
  slow.suspects = best.links;
  slow.tier = best.tier;
  slow.both_ways = best.both_ways;
  if (best.both_ways && best.tier < 0) slow.suspects.pop_back();
  // Others that the same edges are slow by are as good.
  const std::vector<uint32_t> its = slower_by(best);
  for (const Hypothesis& other : all)
    if (&other != &best && other.tier < 0 && best.tier < 0 && other.both_ways == best.both_ways &&
        other.misfit <= best.misfit + kAsGood && slower_by(other) == its)
      slow.suspects.push_back(other.links.front());
  const double most = most_factor(best);
  slow.factor = !excess_.absolute() ? 0 : most > 0 ? std::min(best.factor, most) : best.factor;
  // Edges that are served between others became slower by more than the link did, or by less.
  if (is_shown(best) && best.tier < 0 && !simulates_roughly_) slow.factor = best.like->factor;
  for (const uint32_t e : best.edges) {
    const EdgeTime& edge = (*observed_.edges.front())[edges_[e].at];
    slow.edges[{edge.from, edge.to}] = std::exp(excess_.of(edges_[e]));
  }
  if (!excess_.known_before()) slow.since = traffic_.first_slow_call(best.links);
  slow.confidence = excess_.absolute() ? best.confidence : 1 - best.misfit;
  const double took = median(observed_.time_ns);
  const double well = excess_.well_ns();
  slow.cost = well > 0 && took > well ? 1 - well / took : 0;
  return slow;
}

// Whether calls take longer than they should at all.
bool Solver::costs_time() const {
  const bool remembered = observed_.well_ns > 0;
  return !excess_.absolute() ||
         excess_.call_excess() >= std::log(remembered ? kLeastSlower : kLeastSlowerThanSimulated);
}

// Whether the plan was made because this is slow, so that it hardly costs time any more.
bool Solver::is_planned_around(const SlowLink& slow) const {
  const auto is_known = [&](const DirectedGroup& link) {
    const std::string& name = tree_.groups[index(link.group)].name;
    return std::any_of(plan_.slow.begin(), plan_.slow.end(), [&](const SlowBoundary& known) {
      return known.group == name && known.egress == link.egress;
    });
  };
  return std::any_of(slow.suspects.begin(), slow.suspects.end(), [&](const DirectedGroup& link) {
    return is_known(link) && (!slow.both_ways || is_known({link.group, !link.egress}));
  });
}

// A link with room to spare is simulated to be slow by much where calls take a little longer. So
// its edges have to be slower by as much as is asked for, or the whole call.
bool Solver::is_slow_enough(const Hypothesis& hypothesis, double told, double least_factor) const {
  if (!excess_.absolute()) return hypothesis.factor >= kLeastFactorAmongLike;
  return told >= least_factor &&
         (hypothesis.factor >= least_factor || std::exp(excess_.of_call()) >= least_factor);
}

LinkFinding Solver::solve(double least_factor) {
  if (hashes_blur(tree_, plan_, observed_)) return {};
  // Slower alike, edges are slow by something, and so is a call that no boundary makes slow.
  const double least = std::log(least_factor);
  const LinkFinding well{std::nullopt, excess_.absolute() && !edges_.empty() &&
                                           excess_.common() < least &&
                                           excess_.call_excess() < least};
  if (!costs_time() && plan_.slow.empty()) return well;
  std::vector<Hypothesis> all = hypotheses();
  if (all.empty() || excess_.of_all() <= 0) return well;
  compare(&all);
  const Hypothesis& best = all.front();
  if (is_refuted(best) || is_unlike(best)) return {};
  SlowLink slow = told(all, best);
  if (!is_slow_enough(best, slow.factor, least_factor)) return well;
  if ((!costs_time() && !is_planned_around(slow)) ||
      (excess_.absolute() ? !is_believed(best) : slow.confidence < kLeastConfidenceAmongLike))
    return {};
  return {std::move(slow), false};
}

// Whether the first and another one can be simulated; not where the plan itself could not be.
bool can_simulate_two(const ExpectedPlan& plan, const SimulationLimits& limits) {
  return plan.time_ns > 0 && plan.messages > 0 && 2 * plan.messages <= limits.messages;
}

// Whether the tree and the plan of the calls are known, and small enough.
bool are_known(Plans& plans, const ObservedPlan& observed) {
  const TierTree* const tree = plans.tree(observed.comm);
  return tree && tree->ranks() <= kMostRanksJudged && plans.note(observed.comm, observed.plan) &&
         plans.blueprint(observed.comm, observed.plan, true);
}

}  // namespace

LinkFinding find_slow_link(Plans& plans, const ObservedPlan& observed, double least_factor,
                           const SimulationLimits& limits) {
  if (!are_known(plans, observed)) return {};
  const TierTree& tree = *plans.tree(observed.comm);
  const PlanNote& plan = *plans.note(observed.comm, observed.plan);
  const bool known = !observed.well_service_ns.empty() || !tree.capacities_known();
  // Of a plan that was made around a slow link it is not known what edges take while all is well.
  const bool synthesized = tree.capacities_known() && tree.ranks() <= limits.ranks &&
                           (limits.cables || !has_cables(tree)) && plan.slow.empty();
  const ExpectedPlan none;
  const ExpectedPlan& simulated =
      known && !synthesized
          ? none
          : plans.expected(observed.comm, observed.plan, median(observed.time_ns));
  return Solver(tree, plan, known ? none : simulated, observed,
                *plans.blueprint(observed.comm, observed.plan, true),
                synthesized && can_simulate_two(simulated, limits) ? &simulated : nullptr, limits)
      .solve(least_factor);
}

std::string link_name(const TierTree& tree, const DirectedGroup& link, bool both_ways) {
  const Group& group = tree.groups[index(link.group)];
  const std::string name =
      group.name.empty()
          ? fmt::format("the {} of position {}", tree.tiers[group.tier].name, group.first)
          : group.name;
  return both_ways ? name : fmt::format("{}{}", link.egress ? kOutOf : kInto, name);
}

std::vector<SlowBoundary> slow_boundaries(const std::vector<std::string>& link_names,
                                          double factor) {
  constexpr double kWhole = 1000;
  std::vector<SlowBoundary> slow;
  if (factor <= 1) return slow;
  const auto permille = static_cast<uint32_t>(std::clamp(kWhole / factor + 0.5, 1.0, kWhole));
  for (const std::string& link : link_names) {
    const bool out = link.starts_with(kOutOf), in = link.starts_with(kInto);
    const std::string group = link.substr(out ? kOutOf.size() : in ? kInto.size() : 0);
    for (const bool egress : {true, false})
      if (!(egress ? in : out)) slow.push_back({group, egress, permille});
  }
  return slow;
}

}  // namespace sennit::diagnose
