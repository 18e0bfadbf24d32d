// The symmetry of a collective whose ranks all do the same, without making all programs: an
// all-gather's names a range for every rank, and 24,576 of them take a minute. The programs of one
// rank and of its peers are made, and must turn out alike; by the tree's symmetry any rank could
// have been that one. Where the blueprint says what turning the tree makes of a peer, only a few of
// them are, of every tier at least one.
#include <algorithm>
#include <ranges>

#include "base/index.hpp"
#include "simulate/symmetry.hpp"

namespace sennit::simulation {
namespace {

// Whether no length of this program can differ from another rank's by the rounding of places to
// elements.
bool rounds_alike(const GroupCall& call, const Program& program) {
  const Layout layout = call.layout();
  if (layout.counts) return false;
  const auto whole = [&](uint64_t units) {
    return units % kUnits == 0 ||
           (layout.count % call.chunks == 0 &&
            static_cast<unsigned __int128>(layout.count / call.chunks) * units % kUnits == 0);
  };
  const auto alike = [&](const Operand& operand) {
    return elements_of(call, program, operand, 0) >= exact_elements(call) ||
           std::ranges::all_of(program.ranges_of(operand), [&](const Range& range) {
             return whole(range.begin) && whole(range.end - range.begin);
           });
  };
  return std::ranges::all_of(program.steps,
                             [&](const Step& step) { return alike(moved_by(program, step)); });
}

size_t number_of(const Look& look, int peer) {
  return index(std::ranges::find(look.peers, peer) - look.peers.begin());
}

// Of position 0, by step, of sends: the receive that it meets at the peer. None where a peer's
// program differs.
std::optional<std::vector<uint32_t>> partners(const TierTree& tree, const GroupCall& call,
                                              const Program& program) {
  constexpr size_t kMadeOfMirrored = 6;
  const Look mine = look_at(call, program, false);
  std::vector<uint32_t> partner(program.steps.size(), kNone);
  std::vector<uint32_t> number(call.positions.size(), kNone);  // by position: which peer it is
  for (size_t i = 0; i < mine.peers.size(); i++)
    number[index(mine.peers[i])] = static_cast<uint32_t>(i);
  const bool turns = !mine.peers.empty() && call.blueprint->mirrored(mine.peers.front()) >= 0;
  const size_t stride = turns ? mine.peers.size() / kMadeOfMirrored + 1 : 1;
  std::vector<bool> tier_made(tree.tiers.size(), false);
  for (size_t i = 0; i < mine.peers.size(); i++) {
    const uint32_t turned = turns ? number[index(call.blueprint->mirrored(mine.peers[i]))] : kNone;
    const std::vector<uint32_t>* met = turned == kNone ? nullptr : &mine.shape.receives[turned];
    std::optional<Look> theirs;
    const auto tier = index(tree.crossing_tier(0, mine.peers[i]));
    if (i % stride == 0 || !tier_made[tier]) {
      tier_made[tier] = true;
      const Program at_peer = call.blueprint->program(mine.peers[i]);
      theirs = look_at(call, at_peer, false);
      const size_t me = number_of(*theirs, 0);
      if (theirs->hash != mine.hash || me == theirs->peers.size() ||
          !same_lengths(call, program, at_peer))
        return std::nullopt;
      if (turns && (met == nullptr || *met != theirs->shape.receives[me])) return std::nullopt;
      met = &theirs->shape.receives[me];
    }
    if (met == nullptr || met->size() != mine.shape.sends[i].size()) return std::nullopt;
    for (size_t k = 0; k < met->size(); k++) partner[mine.shape.sends[i][k]] = (*met)[k];
  }
  return partner;
}

}  // namespace

bool is_all_of(const TierTree& tree, const GroupCall& call) {
  if (call.positions.size() != index(tree.ranks())) return false;
  for (size_t i = 0; i < call.positions.size(); i++)
    if (call.positions[i] != static_cast<int32_t>(i)) return false;
  return true;
}

std::optional<Symmetry> one_class(const TierTree& tree, const GroupCall& call) {
  if (!call.blueprint->uniform() || !is_all_of(tree, call) || !tree.is_uniform())
    return std::nullopt;
  Program program = call.blueprint->program(0);
  if (!rounds_alike(call, program)) return std::nullopt;
  std::optional<std::vector<uint32_t>> partner = partners(tree, call, program);
  if (!partner) return std::nullopt;
  Plan plan;
  plan.parameters.chunks = call.chunks;
  Symmetry::RankClass all;
  all.ranks = static_cast<uint32_t>(tree.ranks());
  all.prepared = prepare(*call.request, plan, std::move(program));
  all.partner = *std::move(partner);
  all.peer_class.assign(all.prepared->peers.size(), 0);
  all.peer_position = all.prepared->peers;
  Symmetry result;
  result.classes.push_back(std::move(all));
  result.class_of_member.assign(index(tree.ranks()), 0);
  result.groups_of_class.assign(tree.tiers.size(), 0);
  for (const Group& group : tree.groups) {
    result.class_of_group.push_back(group.tier);
    result.groups_of_class[group.tier]++;
  }
  return result;
}

}  // namespace sennit::simulation
