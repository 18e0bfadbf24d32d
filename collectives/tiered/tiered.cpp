// tiered.cpp: the core family: reduce-scatter from the nearest tier outwards, all-gather from the
// farthest inwards.
//
// All-reduce is one after the other, broadcast an all-gather of the root's block alone, reduce its
// reverse, barrier an all-reduce of nothing. Every piece crosses every tier as few times as
// arithmetic allows; shares among siblings fit their capacities (collectives/tiered/shares.hpp), so
// that the least possible time of the busiest pipe is met. Ring, Rabenseifner, BlueConnect (Cho et
// al., 2019) and 2- or 3-level schemes are special cases. Per group with children c of n: sum of
// bytes out of the children all-reduce 2(n-1)M, others (n-1)M, plus what the group itself sends.
// Messages per rank: 2(n-1) or (n-1) a stage. Scratch: reducing collectives at most M and partial
// sums; gathering ones none.
#include <algorithm>
#include <map>

#include "collectives/algorithm.hpp"
#include "collectives/common.hpp"
#include "collectives/tiered/count.hpp"
#include "collectives/tiered/emit.hpp"
#include "collectives/tiered/estimate.hpp"
#include "collectives/tiered/forest.hpp"
#include "collectives/tiered/whole.hpp"
#include "cost/rates.hpp"
#include "schedule/layout.hpp"

namespace sennit {
namespace {

using namespace tiered;  // NOLINT: this file is its front

// all stages with whole pieces are not worth comparing beyond
constexpr uint64_t kSmallBytes = 256 * 1024;
constexpr uint64_t kMediumBytes = 4 << 20;  // nor the outermost few

bool one_vector(const Request& request) {
  return request.collective == Collective::all_reduce || request.collective == Collective::barrier;
}

Shares::Pattern pattern_of(const Request& request) {
  return one_vector(request) ? Shares::Pattern::all_reduce : Shares::Pattern::all_gather;
}

// In the direction of all-gather: reduce-scatter and reduce run it backwards, all-reduce both ways.
GroupRates directed_rates(const TierTree& tree, const Request& request, const CostModel& cost) {
  GroupRates rates = planning_rates(tree, cost);
  if (request.collective == Collective::reduce_scatter || request.collective == Collective::reduce)
    std::swap(rates.egress, rates.ingress);
  if (one_vector(request)) {
    for (size_t i = 0; i < rates.egress.size(); i++)
      rates.egress[i] = std::min(rates.egress[i], rates.ingress[i]);
    rates.ingress = rates.egress;
  }
  return rates;
}

// By which programs share data out, whatever a message costs.
GroupRates sharing_rates(const TierTree& tree, const Request& request) {
  return directed_rates(tree, request, CostModel{});
}

int whole_stages(const Request& request, const Parameters& parameters) {
  return request.collective == Collective::barrier ? kAllStages : parameters.whole_stages;
}

class TieredBlueprint : public Blueprint {
 public:
  TieredBlueprint(const TierTree& tree, const Request& request, const Parameters& parameters,
                  const GroupRates& rates)
      : tree_(tree),
        request_(request),
        whole_stages_(whole_stages(request, parameters)),
        forest_(tree, request, parameters.radices, pattern_of(request), rates) {
    if (whole_stages_ > 0) bases_ = whole_bases(forest_.tree(), whole_stages_);
  }

  bool uniform() const override {
    if (request_.collective == Collective::broadcast || request_.collective == Collective::reduce)
      return false;
    return std::ranges::all_of(forest_.tree().shapes(),
                               [](const Shape& shape) { return shape.children.size() <= 1; });
  }

  // Stage by stage, the peer as far before as `peer` is behind.
  int mirrored(int peer) const override {
    if (!uniform()) return -1;
    const StageTree& stages = forest_.tree();
    int there = 0;
    for (int at = stages.leaf(peer); stages.node(at).parent >= 0; at = stages.node(at).parent) {
      const StageNode& parent = stages.node(stages.node(at).parent);
      const int32_t child = at - parent.first_child;
      there += (parent.children - child) % parent.children * stages.node(at).size;
    }
    return there;
  }

  // By the depth of the innermost stage node that holds both.
  int exchange_of(int position, int peer) const override {
    const StageTree& stages = forest_.tree();
    const StageNode* at = &stages.node(stages.leaf(position));
    while (peer < at->first || peer >= at->first + at->size) at = &stages.node(at->parent);
    return at->depth;
  }

  std::optional<Counts> count() const {
    if (tree_.ranks() == 1) return std::nullopt;
    std::optional<Counts> counts = tiered::count(tree_, request_, forest_, whole_stages_, bases_);
    if (!counts || !request_.reduces()) return counts;  // what only gathers needs no scratch
    const std::vector<uint32_t> kind = kinds();         // numbered as they first appear
    uint32_t known = 0;
    for (size_t i = 0; i < kind.size(); i++) {
      if (kind[i] != known) continue;
      counts->kinds.push_back(static_cast<int>(i));
      known++;
    }
    return counts;
  }

  // By the nodes on the way to the rank, which are the same where shapes and loads around it are.
  std::vector<uint32_t> kinds() const override {
    std::map<std::vector<uint32_t>, uint32_t> known;
    std::vector<uint32_t> kinds;
    for (int position = 0; position < tree_.ranks(); position++) {
      std::vector<uint32_t> nodes;
      for (const Forest::Step& step : forest_.path(position)) nodes.push_back(step.node);
      const auto number = static_cast<uint32_t>(known.size());
      kinds.push_back(known.try_emplace(std::move(nodes), number).first->second);
    }
    return kinds;
  }

  Program program(int position) const override {
    Emitter emitter(tree_, request_, position);
    if (tree_.ranks() == 1) {
      emitter.copy_all();
      return emitter.finish();
    }
    emit(emitter, position);  // its moves are gone when the program is finished
    return emitter.finish();
  }

  const Forest& forest() const { return forest_; }

 private:
  void emit(Emitter& emitter, int position) const {
    const std::vector<StageMoves> stages = forest_.moves(position, whole_stages_);
    if (request_.collective == Collective::all_gather ||
        request_.collective == Collective::broadcast) {
      emitter.gather(stages);
    } else if (!one_vector(request_)) {
      emitter.scatter(stages);
    } else {
      std::vector<StageMoves> whole;
      if (whole_stages_ > 0) whole = whole_moves(forest_, bases_, whole_stages_, position);
      emitter.all_reduce(stages, whole);
    }
  }

  const TierTree& tree_;
  const Request& request_;
  const int whole_stages_;
  const Forest forest_;
  std::vector<int32_t> bases_;
};

// Who of the ranks whose messages `program` receives sends it most; -1: nobody sends anything.
int greatest_sender(const Program& program, const Layout& layout) {
  uint64_t most = 0;
  int sender = -1;
  for (const Step& step : program.steps) {
    if (step.kind != StepKind::recv) continue;
    const uint64_t elements = layout.length(program, step.target, {});
    if (elements > most) sender = step.peer;
    most = std::max(most, elements);
  }
  return sender;
}

// From the root of a reduce back along whoever sends most: what one of these ranks reads at most,
// and what all of them read.
struct Readings {
  uint64_t most = 0, all = 0;
};
Readings readings(const Blueprint& blueprint, const Request& request) {
  const Layout layout{.count = request.count};
  Readings readings;
  std::vector<int> way;
  for (int at = request.root; at >= 0 && std::ranges::find(way, at) == way.end();) {
    way.push_back(at);
    const Program program = blueprint.program(at);
    const uint64_t read = read_bytes(program, layout, type_bytes(request.type));
    readings.most = std::max(readings.most, read);
    readings.all += read;
    at = greatest_sender(program, layout);
  }
  return readings;
}

// Most ranks of a reduce read equal shares, but everything comes together at the root, in as many
// pieces as the shares make: its program, and those on the way to it, tell what is read.
std::vector<Estimate> estimate_reduces(const TierTree& tree, const Request& request,
                                       std::span<const Parameters> candidates,
                                       const GroupRates& rates, const CostModel& cost) {
  const GroupRates shared_by = sharing_rates(tree, request);
  std::vector<Estimate> all;
  for (const Parameters& parameters : candidates) {
    const TieredBlueprint blueprint(tree, request, parameters, shared_by);
    const Forest& forest = blueprint.forest();
    all.push_back(tiered::estimate(tree, request, forest.tree(), forest.shares(), rates, 0, cost));
    if (cost.reduce_bytes_per_s == kFreeReduction) continue;
    const Readings reading = readings(blueprint, request);
    set_readings(reading.most, reading.all, 1, &all.back());
  }
  return all;
}

class Tiered : public Algorithm {
 public:
  std::string_view name() const override { return "tiered"; }
  Takes takes(Collective collective) const override {
    const bool whole = collective == Collective::all_reduce || collective == Collective::barrier;
    return {.radices = 64, .whole_stages = whole ? kAllStages : uint8_t{0}};
  }

  bool applies(const TierTree&, const Request& request) const override {
    switch (request.collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::broadcast:
      case Collective::reduce:
      case Collective::barrier:
        return true;
      default:
        return false;
    }
  }

  std::vector<Parameters> candidates(const TierTree& tree, const Request& request) const override {
    const std::vector<FanOut> fan_outs = tiered::fan_outs(tree);
    int32_t widest = 0;
    for (const FanOut& f : fan_outs) widest = std::max(widest, f.children);
    std::vector<Parameters> result(1);
    // A radix that cuts as another does is the same.
    std::vector<Cuts> known(1, cuts(fan_outs, {}));
    for (const uint16_t radix : {16, 8, 4, 2}) {
      if (radix >= widest) continue;
      Cuts cut = cuts(fan_outs, {&radix, 1});
      if (std::ranges::find(known, cut) != known.end()) continue;
      known.push_back(std::move(cut));
      result.emplace_back();
      result.back().radices = {radix};
    }
    if (!one_vector(request)) return result;
    const std::vector<Parameters> direct = result;
    if (request.collective == Collective::barrier) result.clear();
    const bool small = payload_bytes(request, tree.ranks()) <= static_cast<double>(kSmallBytes);
    if (small || request.collective == Collective::barrier)
      for (Parameters p : direct) {
        p.whole_stages = kAllStages;
        result.push_back(p);
      }
    if (request.collective != Collective::all_reduce || tree.tiers.size() <= 2) return result;
    if (small) {
      result.emplace_back();
      result.back().whole_stages = 1;
    }
    // The latency of a stage once instead of twice, for pieces that the inner stages have made
    // small.
    if (payload_bytes(request, tree.ranks()) <= static_cast<double>(kMediumBytes))
      for (const uint16_t radix : {16, 8}) {
        if (radix >= widest) continue;
        const Cuts cut = cuts(fan_outs, {&radix, 1});
        for (const uint8_t whole : {1, 2, 3})
          if (whole < cut.stages && !(whole == 1 && small && cut == known[0]))
            result.push_back({.chunks = 1, .radices = {radix}, .whole_stages = whole});
      }
    return result;
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters& parameters,
                    const CostModel& cost) const override {
    return estimates(tree, request, {&parameters, 1}, cost)[0];
  }

  // Stages and shares are those of all candidates with these radices.
  std::vector<Estimate> estimates(const TierTree& tree, const Request& request,
                                  std::span<const Parameters> candidates,
                                  const CostModel& cost) const override {
    const GroupRates rates = directed_rates(tree, request, cost);
    if (request.collective == Collective::reduce)
      return estimate_reduces(tree, request, candidates, rates, cost);
    std::vector<Estimate> all(candidates.size());
    for (size_t first = 0; first < all.size(); first++) {
      if (!all[first].tier_ns.empty()) continue;  // with one before
      const std::vector<uint16_t>& radices = candidates[first].radices;
      const StageTree stages(tree, request, radices, rates);
      const Shares shares(stages, pattern_of(request));
      for (size_t i = first; i < all.size(); i++)
        if (candidates[i].radices == radices)
          all[i] = tiered::estimate(tree, request, stages, shares, rates,
                                    whole_stages(request, candidates[i]), cost);
    }
    return all;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters& parameters, const CostModel& cost,
                                      const Estimate& estimate) const override {
    SharedCoresEstimate shared;
    shared.path_ns = path_ns(request, estimate);
    if (!cost.shared_cores.crowded()) return shared;  // the rest takes as long as the estimate
    shared.fills_twice = !has_root(request.collective);
    const StageTree stages(tree, request, parameters.radices, directed_rates(tree, request, cost));
    const Shares shares(stages, pattern_of(request));
    shared.all_messages =
        tiered::all_messages(request, stages, shares, whole_stages(request, parameters));
    return shared;
  }

  std::optional<Counts> count(const TierTree& tree, const Request& request,
                              const Parameters& parameters) const override {
    return TieredBlueprint(tree, request, parameters, sharing_rates(tree, request)).count();
  }

  // One direct stage per tier adds a group's children in their order, whole or split.
  bool fixes_order(const Request& request, const Parameters& parameters) const override {
    return !request.reduces() ||
           (request.collective == Collective::all_reduce && parameters.radices.empty());
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters& parameters) const override {
    return std::make_unique<TieredBlueprint>(tree, request, parameters,
                                             sharing_rates(tree, request));
  }
};

}  // namespace
SENNIT_ALGORITHM_ENTRY(Tiered)
}  // namespace sennit
