// synthesis.cpp: see diagnose/synthesis.hpp.
#include "diagnose/synthesis.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

double service_of(const ExpectedPlan& plan, int from, int to) {
  const auto found = plan.service_ns.find({from, to});
  return found != plan.service_ns.end() ? found->second : 0;
}

}  // namespace

Synthesis::Synthesis(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
                     const ExpectedPlan& well, TookAndWell of)
    : tree_(tree), plan_(plan), blueprint_(blueprint), well_(well), of_(std::move(of)) {
  if (of_.well_ns <= 0) of_.well_ns = well.time_ns;
  for (const TookAndWell::OfEdge& edge : of_.edges) {
    const double well_ns = edge.well_ns > 0 ? edge.well_ns : service_of(well, edge.from, edge.to);
    became_ns_.push_back(std::max(0.0, edge.took_ns - well_ns));
    if (became_ns_.back() > edge.chance_ns) all_became_ns_ += became_ns_.back();
  }
}

// In time, and not in ratios: what is short says little, and is short by chance. What became faster
// has more for itself where others wait, and says nothing. Where ranks work between messages all
// edges are slower by less than simulated ones, so that it is asked which are, and in which
// proportion. What is slower by far more waits for something else, as a core. What chance explains
// is not left.
double Synthesis::left_of_edges(const ExpectedPlan& slow) const {
  std::vector<double> shown_ns;
  std::vector<std::pair<double, double>> shares;  // how much of what is shown there was, and weight
  for (size_t e = 0; e < of_.edges.size(); e++) {
    const TookAndWell::OfEdge& edge = of_.edges[e];
    shown_ns.push_back(std::max(
        0.0, service_of(slow, edge.from, edge.to) - service_of(well_, edge.from, edge.to)));
    if (shown_ns[e] > 0) shares.emplace_back(became_ns_[e] / shown_ns[e], shown_ns[e]);
  }
  constexpr double kMostShare = 1.3;
  const double share = std::min(kMostShare, weighted_median(std::move(shares)));
  double left = 0;
  for (size_t e = 0; e < shown_ns.size(); e++)
    if (const double apart_ns = std::abs(became_ns_[e] - share * shown_ns[e]);
        apart_ns > of_.edges[e].chance_ns)
      left += apart_ns;
  return all_became_ns_ > 0 ? left / all_became_ns_ : 1;
}

double Synthesis::left_of_time(const ExpectedPlan& slow) const {
  const double became = of_.took_ns - of_.well_ns, shown = slow.time_ns - well_.time_ns;
  return became > 0 ? std::abs(became - shown) / became : 1;
}

double Synthesis::left_if_alike(const std::vector<uint32_t>& edges) const {
  std::vector<double> of_these;
  for (const uint32_t e : edges) of_these.push_back(became_ns_[e]);
  const double usual = median(of_these);
  double left = all_became_ns_;
  for (const double one : of_these) left += std::abs(one - usual) - one;
  return all_became_ns_ > 0 ? left / all_became_ns_ : 1;
}

// A link that is hardly used makes nothing slower until it is slow by far, and from there on the
// call takes longer in proportion. So it is simulated as slow as it may be first, then by as much
// less as the call took too long, and then by what the two tell.
std::optional<Likeness> Synthesis::likeness(const std::vector<DirectedGroup>& links, double most,
                                            double hopeless) const {
  constexpr int kTries = 3;
  constexpr double kNear = 0.06;  // of what the call became slower by
  constexpr double kMayChange = 0.2;
  struct Tried {
    double factor, time_ns;
  };
  // As long as the whole call would take.
  const double should_ns = well_.time_ns + std::max(0.0, of_.took_ns - of_.well_ns);
  constexpr double kSlowEnough = 2;  // that it shows, where it is not known how slow it may be
  double factor = std::max(1.0, std::isinf(most) ? kSlowEnough * should_ns / well_.time_ns : most);
  std::optional<Likeness> best;
  std::optional<Tried> before;
  for (int tries = 0; tries < kTries; tries++) {
    Slower slower;
    for (const DirectedGroup& link : links) slower.emplace_back(link, factor);
    const ExpectedPlan slow =
        expected_of(slowed_down(tree_, slower), plan_, blueprint_, of_.took_ns);
    if (slow.time_ns <= 0) break;
    const double of_edges = left_of_edges(slow), left = (of_edges + left_of_time(slow)) / 2;
    if (!best || left < best->left) best = {left, factor};
    const double too_long_ns = slow.time_ns - should_ns;
    if (std::abs(too_long_ns) <= kNear * (should_ns - well_.time_ns)) break;
    if (of_edges / 2 > hopeless + (tries == 0 ? kMayChange : 0)) break;
    const bool tells = before && before->time_ns != slow.time_ns;
    const double next =
        tells ? factor - too_long_ns * (before->factor - factor) / (before->time_ns - slow.time_ns)
              : factor * should_ns / slow.time_ns;
    before = {factor, slow.time_ns};
    factor = std::clamp(next, 1.0, std::max(1.0, most));
    if (factor == before->factor) break;
  }
  return best;
}

}  // namespace sennit::diagnose
