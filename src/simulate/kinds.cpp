// kinds.cpp: the classes of a collective whose ranks are of a few kinds: one rank for all of a
// kind, the one in the middle.
//
// A broadcast has no symmetry. Each of a root's peers has its turn, and so has each of theirs,
// until no two of 24,576 ranks do the same at the same time. But they do the same in another order:
// the blueprint tells of which kind each rank is (Blueprint::kinds), and only the kinds' programs
// are made. What a kind sends to another kind in one exchange meets, first to first, what that one
// receives of it. A root sends to seven what each of them receives once: then the receive waits for
// all seven, and each loads a seventh of a link. Of all to one, one message stands for all of them,
// and fills as many receives.
//
// The time is not exact. simulate_symmetry_test holds it against that of all ranks.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "simulate/symmetry.hpp"

namespace sennit::simulation {
namespace {

// Of shorter pieces one rank may have one, and the next none. Where cuts are rounded, such are left
// over.
constexpr uint64_t kLeastElements = 4;
// At most one part in so many of what goes one way in an exchange.
constexpr uint64_t kLeftOver = 64;

struct Kinds {
  std::vector<uint32_t> of;     // by position
  std::vector<uint32_t> ranks;  // by kind
  std::vector<int> middle;      // by kind: a position
};

Kinds read_kinds(std::vector<uint32_t> of) {
  Kinds kinds{std::move(of), {}, {}};
  std::vector<std::vector<int>> positions;
  for (size_t i = 0; i < kinds.of.size(); i++) {
    if (kinds.of[i] >= positions.size()) positions.resize(kinds.of[i] + 1);
    positions[kinds.of[i]].push_back(static_cast<int>(i));
  }
  for (const std::vector<int>& like : positions) {
    kinds.ranks.push_back(static_cast<uint32_t>(like.size()));
    kinds.middle.push_back(like[like.size() / 2]);
  }
  return kinds;
}

bool is_message(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::recv;
}

bool is_short(const GroupCall& call, const Program& program, const Step& step) {
  const Operand& moved = moved_by(program, step);
  return moved.ranges > 0 && elements_of(call, program, moved, 0) < kLeastElements;
}

// Whether short pieces are no more than what is left over, in every exchange of this rank.
bool lengths_are_alike(const GroupCall& call, const Program& program, int position) {
  struct Elements {
    uint64_t all = 0, of_short = 0;
  };
  std::map<std::pair<StepKind, int>, Elements> moved;
  for (const Step& step : program.steps) {
    if (!is_message(step)) continue;
    const uint64_t elements = elements_of(call, program, moved_by(program, step), 0);
    Elements& sum = moved[{step.kind, call.blueprint->exchange_of(position, step.peer)}];
    sum.all += elements;
    if (is_short(call, program, step)) sum.of_short += elements + 1;
  }
  return std::ranges::all_of(
      moved, [](const auto& of) { return of.second.of_short * kLeftOver <= of.second.all; });
}

// What a kind sends to another in one exchange, and what that one receives of it: steps of either
// program in their order.
struct Traffic {
  std::vector<uint32_t> sends, receives;
};
using Way = std::tuple<uint32_t, uint32_t, int>;  // from, to, exchange

std::map<Way, Traffic> traffic_of(const GroupCall& call, const Kinds& kinds,
                                  const std::vector<Symmetry::RankClass>& classes) {
  std::map<Way, Traffic> traffic;
  for (uint32_t k = 0; k < classes.size(); k++) {
    const Program& program = classes[k].prepared->program;
    for (uint32_t i = 0; i < program.steps.size(); i++) {
      const Step& step = program.steps[i];
      if (!is_message(step) || is_short(call, program, step)) continue;
      const uint32_t other = kinds.of[index(step.peer)];
      const int exchange = call.blueprint->exchange_of(classes[k].position, step.peer);
      if (step.kind == StepKind::send)
        traffic[{k, other, exchange}].sends.push_back(i);
      else
        traffic[{other, k, exchange}].receives.push_back(i);
    }
  }
  return traffic;
}

// Lays the shorter list over the longer one: each of these meets one of those.
void meet(const Traffic& traffic, Symmetry::RankClass& from, Symmetry::RankClass& to) {
  const size_t sends = traffic.sends.size(), receives = traffic.receives.size();
  if (sends == 0 || receives == 0) return;
  if (sends >= receives) {
    for (size_t i = 0; i < sends; i++) {
      const uint32_t receive = traffic.receives[i * receives / sends];
      from.partner[traffic.sends[i]] = receive;
      to.fills[receive]++;
    }
    return;
  }
  for (size_t i = receives; i-- > 0;) {  // backwards, so that a list begins with its first
    const uint32_t send = traffic.sends[i * sends / receives], receive = traffic.receives[i];
    to.also[receive] = std::exchange(from.partner[send], receive);
    to.fills[receive]++;
  }
}

// Whether the kinds' programs come to an end when each stands for all: no step waits for itself.
bool comes_to_an_end(const std::vector<Symmetry::RankClass>& classes) {
  std::vector<std::vector<uint32_t>> waits;  // by kind and step: for so many others
  std::vector<std::pair<uint32_t, uint32_t>> done;
  size_t left = 0;
  for (uint32_t k = 0; k < classes.size(); k++) {
    const Prepared& prepared = *classes[k].prepared;
    waits.push_back(prepared.initial_deps);
    for (size_t i = 0; i < prepared.program.steps.size(); i++)
      if (prepared.program.steps[i].kind == StepKind::recv) waits[k][i] += classes[k].fills[i];
    for (uint32_t i = 0; i < waits[k].size(); i++)
      if (waits[k][i] == 0) done.emplace_back(k, i);
    left += waits[k].size();
  }
  const auto one_less = [&](uint32_t kind, uint32_t step) {
    if (--waits[kind][step] == 0) done.emplace_back(kind, step);
  };
  for (; !done.empty(); left--) {
    const auto [kind, step] = done.back();
    done.pop_back();
    const Symmetry::RankClass& at = classes[kind];
    for (uint32_t i = at.prepared->first_dependent[step];
         i < at.prepared->first_dependent[step + 1]; i++)
      one_less(kind, at.prepared->dependents[i]);
    if (at.partner[step] == kNone) continue;
    const uint32_t to = at.peer_class[at.prepared->peer_slot[step]];
    for (uint32_t receive = at.partner[step]; receive != kNone; receive = classes[to].also[receive])
      one_less(to, receive);
  }
  return left == 0;
}

// Groups of a class are alike, hold as many ranks of each kind, and are in groups like them. False:
// ranks of one kind are in groups that differ.
bool find_group_classes(const TierTree& tree, const Kinds& kinds, Symmetry& result) {
  class_groups(group_colours(tree, {kinds.of.begin(), kinds.of.end()}), &result);
  const auto leaf_class = [&](size_t position) {
    return result.class_of_group[index(tree.leaf_of_position[position])];
  };
  for (size_t position = 0; position < kinds.of.size(); position++)
    if (leaf_class(position) != leaf_class(index(kinds.middle[kinds.of[position]]))) return false;
  return true;
}

}  // namespace

std::optional<Symmetry> classes_by_kind(const TierTree& tree, const GroupCall& call,
                                        size_t most_kinds) {
  // Without a root too much hangs on who meets whom, where groups are unequal: times were off by up
  // to 1.7.
  if (!has_root(call.request->collective) || !is_all_of(tree, call) || call.layout().counts)
    return std::nullopt;
  std::vector<uint32_t> told = call.blueprint->kinds();
  if (told.empty()) return std::nullopt;
  const Kinds kinds = read_kinds(std::move(told));
  if (kinds.ranks.size() > std::min(most_kinds, kinds.of.size() / 2)) return std::nullopt;
  Symmetry result;
  result.by_kind = true;
  if (!find_group_classes(tree, kinds, result)) return std::nullopt;
  Plan plan;
  plan.parameters.chunks = call.chunks;
  for (size_t k = 0; k < kinds.ranks.size(); k++) {
    Program program = call.blueprint->program(kinds.middle[k]);
    if (!lengths_are_alike(call, program, kinds.middle[k])) return std::nullopt;
    Symmetry::RankClass kind;
    kind.position = kinds.middle[k];
    kind.ranks = kinds.ranks[k];
    kind.prepared = prepare(*call.request, plan, std::move(program));
    const size_t steps = kind.prepared->program.steps.size();
    kind.partner.assign(steps, kNone);
    kind.also.assign(steps, kNone);
    kind.fills.assign(steps, 0);
    kind.peer_position = kind.prepared->peers;
    for (const int32_t peer : kind.peer_position) kind.peer_class.push_back(kinds.of[index(peer)]);
    result.classes.push_back(std::move(kind));
  }
  for (const auto& [way, traffic] : traffic_of(call, kinds, result.classes))
    meet(traffic, result.classes[std::get<0>(way)], result.classes[std::get<1>(way)]);
  if (!comes_to_an_end(result.classes)) return std::nullopt;
  result.class_of_member = kinds.of;
  return result;
}

}  // namespace sennit::simulation
