// symmetry.cpp: the refinement over all programs. Where all ranks do the same,
// simulate/uniform_symmetry.cpp does without it. See simulate/symmetry.hpp.
#include "simulate/symmetry.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "simulate/simulate.hpp"

namespace sennit::simulation {
namespace {

uint64_t length_colour(const GroupCall& call, const Program& program, const Operand& operand) {
  uint64_t units = 0, hash = operand.ranges > 0;
  for (const Range& range : program.ranges_of(operand)) units += range.end - range.begin;
  const uint64_t elements = elements_of(call, program, operand, 0);
  const uint64_t exact = exact_elements(call);
  if (elements >= exact && call.request->counts.empty()) {
    const int kept = std::bit_width(exact), bits = std::bit_width(units);
    return mix(hash, units >> std::max(0, bits - kept));
  }
  for (uint32_t chunk = 0; chunk < call.chunks; chunk++)
    hash = mix(hash, elements_of(call, program, operand, chunk));
  return hash;
}

class Refinement {
 public:
  Refinement(const TierTree& tree, std::span<const GroupCall> calls) : tree_(tree), calls_(calls) {
    for (uint32_t p = 0; p < calls.size(); p++) {
      first_member_.push_back(position_.size());
      position_.insert(position_.end(), calls[p].positions.begin(), calls[p].positions.end());
      call_.resize(position_.size(), p);
    }
    first_member_.push_back(position_.size());
    colour_.resize(position_.size());
    shape_.resize(position_.size());
  }

  Status read();
  void refine();
  void tell_all_apart();
  Symmetry take() const;

 private:
  std::span<const int32_t> peers(size_t member) const {
    return {peers_.data() + first_peer_[member], first_peer_[member + 1] - first_peer_[member]};
  }
  void add(size_t member, size_t first_member, Look look);
  void add_like(size_t member, size_t first_member, size_t other, size_t first_other);
  Status meet();
  size_t round();
  void colour_groups();

  const TierTree& tree_;
  const std::span<const GroupCall> calls_;
  std::vector<size_t> first_member_;  // by call
  std::vector<int32_t> position_;     // by member, as the next three
  std::vector<uint32_t> call_;
  std::vector<uint64_t> colour_;
  std::vector<uint32_t> shape_;
  std::vector<uint64_t> group_;  // by group: colour
  std::vector<uint64_t> held_;   // by position: colour of its members
  std::vector<Look::Shape> shapes_;
  std::unordered_map<uint64_t, uint32_t> shape_of_hash_;
  std::vector<size_t> first_peer_{0};     // by member; CSR into the next three
  std::vector<int32_t> peers_;            // members, in the order in which the program meets them
  std::vector<uint32_t> number_at_peer_;  // which peer of that peer this rank is
  std::vector<uint8_t> crossing_;         // the tier of the group that holds both
};

void Refinement::add(size_t member, size_t first_member, Look look) {
  for (const int32_t peer : look.peers) peers_.push_back(static_cast<int32_t>(first_member) + peer);
  first_peer_.push_back(peers_.size());
  const auto [found, added] =
      shape_of_hash_.try_emplace(look.hash, static_cast<uint32_t>(shapes_.size()));
  if (added) shapes_.push_back(std::move(look.shape));
  shape_[member] = found->second;
  colour_[member] = look.hash;
}

// Member `other` of another call runs the same program.
void Refinement::add_like(size_t member, size_t first_member, size_t other, size_t first_other) {
  colour_[member] = colour_[other];
  shape_[member] = shape_[other];
  for (size_t i = first_peer_[other]; i < first_peer_[other + 1]; i++)
    peers_.push_back(peers_[i] + static_cast<int32_t>(first_member) -
                     static_cast<int32_t>(first_other));
  first_peer_.push_back(peers_.size());
}

Status Refinement::read() {
  std::unordered_map<const Blueprint*, size_t> known;  // the first call that has it
  for (size_t p = 0; p < calls_.size(); p++) {
    const GroupCall& call = calls_[p];
    const size_t first = first_member_[p], after = first_member_[p + 1];
    const size_t like = first_member_[known.try_emplace(call.blueprint, p).first->second];
    for (size_t member = first; member < after; member++) {
      if (like != first) {
        add_like(member, first, like + member - first, like);
        continue;
      }
      add(member, first, look_at(call, call.blueprint->program(static_cast<int>(member - first))));
      for (const int32_t peer : peers(member))
        if (index(peer) < first || index(peer) >= after || index(peer) == member)
          return {SENNIT_INTERNAL, fmt::format("simulate: position {} sends to {}", member - first,
                                               peer - static_cast<int32_t>(first))};
    }
  }
  return meet();
}

// Every send has its receive.
Status Refinement::meet() {
  number_at_peer_.assign(peers_.size(), kNone);
  crossing_.assign(peers_.size(), 0);
  for (size_t member = 0; member < position_.size(); member++) {
    const Look::Shape& mine = shapes_[shape_[member]];
    for (uint32_t i = 0; i < peers(member).size(); i++) {
      const size_t peer = index(peers(member)[i]);
      const auto known = peers(peer);
      const auto number = static_cast<uint32_t>(
          std::find(known.begin(), known.end(), static_cast<int32_t>(member)) - known.begin());
      const Look::Shape& theirs = shapes_[shape_[peer]];
      const size_t received = number < known.size() ? theirs.receives[number].size() : 0;
      const size_t sent = number < known.size() ? theirs.sends[number].size() : 0;
      if (mine.sends[i].size() != received || mine.receives[i].size() != sent)
        return {SENNIT_INTERNAL,
                fmt::format(
                    "simulate: of {} messages from position {} to {}, {} are received; and of {} "
                    "back, {}",
                    mine.sends[i].size(), position_[member], position_[peer], received, sent,
                    mine.receives[i].size())};
      number_at_peer_[first_peer_[member] + i] = number;
      crossing_[first_peer_[member] + i] =
          tree_.groups[index(tree_.common_group(position_[member], position_[peer]))].tier;
    }
  }
  return {};
}

// Groups by what they are and hold, from below, then by what holds them, from above.
void Refinement::colour_groups() {
  std::fill(held_.begin(), held_.end(), 0);
  for (size_t member = 0; member < position_.size(); member++)  // in any order
    held_[index(position_[member])] += mix(1, colour_[member]);
  group_ = group_colours(tree_, held_);
}

// How many colours there are then.
size_t Refinement::round() {
  colour_groups();
  std::vector<uint64_t> next(colour_.size());
  for (size_t member = 0; member < colour_.size(); member++) {
    uint64_t hash =
        mix(colour_[member], group_[index(tree_.leaf_of_position[index(position_[member])])]);
    for (size_t i = first_peer_[member]; i < first_peer_[member + 1]; i++) {
      hash = mix(hash, colour_[index(peers_[i])]);
      hash = mix(hash, static_cast<uint64_t>(number_at_peer_[i]) << 8 | crossing_[i]);
    }
    next[member] = hash;
  }
  colour_ = std::move(next);
  return std::unordered_set<uint64_t>(colour_.begin(), colour_.end()).size();
}

void Refinement::refine() {
  held_.resize(index(tree_.ranks()));
  for (size_t before = 0, now = round(); now != before; now = round()) before = now;
  colour_groups();
}

void Refinement::tell_all_apart() {
  group_.resize(tree_.groups.size());
  std::iota(colour_.begin(), colour_.end(), 0);
  std::iota(group_.begin(), group_.end(), 0);
}

Symmetry Refinement::take() const {
  Symmetry result;
  class_groups(group_, &result);
  std::unordered_map<uint64_t, uint32_t> number;
  std::vector<size_t> first_of_class;  // member
  for (size_t member = 0; member < colour_.size(); member++) {
    const auto [found, added] =
        number.try_emplace(colour_[member], static_cast<uint32_t>(number.size()));
    if (added) {
      result.classes.emplace_back();
      first_of_class.push_back(member);
    }
    result.class_of_member.push_back(found->second);
    result.classes[found->second].ranks++;
  }
  for (size_t i = 0; i < result.classes.size(); i++) {
    Symmetry::RankClass& c = result.classes[i];
    const size_t member = first_of_class[i];
    c.call = call_[member];
    c.position = position_[member];
    const GroupCall& call = calls_[c.call];
    const size_t first = first_member_[c.call];
    Request light = *call.request;  // prepare() keeps a copy for every rank
    light.counts.clear();
    Plan plan;
    plan.parameters.chunks = call.chunks;
    c.prepared = prepare(light, plan, call.blueprint->program(static_cast<int>(member - first)));
    c.partner.assign(c.prepared->program.steps.size(), kNone);
    for (const int32_t peer : c.prepared->peers) {
      c.peer_class.push_back(result.class_of_member[first + index(peer)]);
      c.peer_position.push_back(position_[first + index(peer)]);
    }
    const Look::Shape& mine = shapes_[shape_[member]];
    for (uint32_t k = 0; k < mine.sends.size(); k++) {
      const Look::Shape& theirs = shapes_[shape_[index(peers(member)[k])]];
      const auto& met = theirs.receives[number_at_peer_[first_peer_[member] + k]];
      for (size_t s = 0; s < mine.sends[k].size(); s++) c.partner[mine.sends[k][s]] = met[s];
    }
  }
  return result;
}

}  // namespace

const Operand& moved_by(const Program& program, const Step& step) {
  return step.kind == StepKind::send ? program.operands[step.first_source] : step.target;
}

uint64_t elements_of(const GroupCall& call, const Program& program, const Operand& operand,
                     uint32_t chunk) {
  return call.layout().length(program, operand, {chunk, call.chunks});
}

uint64_t exact_elements(const GroupCall& call) {
  constexpr uint64_t kExact = 1024, kExactOfMany = 64;
  return call.positions.size() > index(kLongRing) ? kExactOfMany : kExact;
}

bool same_lengths(const GroupCall& call, const Program& a, const Program& b) {
  const uint64_t exact = exact_elements(call);
  const auto elements = [&](const Program& program, const Step& step) {
    return elements_of(call, program, moved_by(program, step), 0);
  };
  for (size_t i = 0; i < a.steps.size(); i++) {
    const uint64_t one = elements(a, a.steps[i]), other = elements(b, b.steps[i]);
    const uint64_t apart = one > other ? one - other : other - one;
    const bool rounded = std::min(one, other) >= exact && apart * exact <= one + exact;
    if (!rounded && length_colour(call, a, moved_by(a, a.steps[i])) !=
                        length_colour(call, b, moved_by(b, b.steps[i])))
      return false;
  }
  return true;
}

Look look_at(const GroupCall& call, const Program& program, bool lengths) {
  std::unordered_map<int32_t, uint32_t> number;
  Look look;
  uint64_t hash = mix(program.steps.size(), static_cast<uint64_t>(call.request->collective));
  hash = mix(mix(mix(hash, type_bytes(call.request->type)), call.chunks), call.request->count);
  for (uint32_t i = 0; i < program.steps.size(); i++) {
    const Step& step = program.steps[i];
    hash = mix(hash, static_cast<uint64_t>(step.kind) << 8 | step.tier);
    hash = mix(hash, step.sources);
    if (lengths) hash = mix(hash, length_colour(call, program, moved_by(program, step)));
    for (const uint32_t dep : program.deps_of(step)) hash = mix(hash, dep);
    if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
    const auto [found, added] = number.try_emplace(step.peer, static_cast<uint32_t>(number.size()));
    if (added) {
      look.peers.push_back(step.peer);
      look.shape.sends.emplace_back();
      look.shape.receives.emplace_back();
    }
    hash = mix(hash, found->second);
    auto& steps =
        (step.kind == StepKind::send ? look.shape.sends : look.shape.receives)[found->second];
    steps.push_back(i);  // tags count up
  }
  look.hash = hash;
  return look;
}

// From below, then from above.
std::vector<uint64_t> group_colours(const TierTree& tree, const std::vector<uint64_t>& held) {
  std::vector<uint64_t> colours(tree.groups.size());
  for (size_t g = tree.groups.size(); g-- > 0;) {
    const Group& group = tree.groups[g];
    uint64_t children = 0;  // in any order
    for (int c = group.first_child; c < group.first_child + group.children; c++)
      children += mix(1, colours[index(c)]);
    uint64_t hash =
        mix(children, static_cast<uint64_t>(group.size) << 16 | group.tier << 8 | group.planes);
    hash =
        mix(mix(mix(hash, group.egress.bytes_per_s), group.ingress.bytes_per_s), group.latency_ns);
    hash = mix(hash, group.wiring());
    colours[g] = group.children == 0 ? mix(hash, held[index(group.first)]) : hash;
  }
  for (size_t g = 1; g < tree.groups.size(); g++)
    colours[g] = mix(colours[g], colours[index(tree.groups[g].parent)]);
  return colours;
}

void class_groups(const std::vector<uint64_t>& colours, Symmetry* symmetry) {
  std::unordered_map<uint64_t, uint32_t> number;
  for (const uint64_t colour : colours) {
    const auto [found, added] = number.try_emplace(colour, static_cast<uint32_t>(number.size()));
    if (added) symmetry->groups_of_class.push_back(0);
    symmetry->class_of_group.push_back(found->second);
    symmetry->groups_of_class[found->second]++;
  }
}

GroupCall whole_tree(const TierTree& tree, const Request& request, uint32_t chunks,
                     const Blueprint& blueprint) {
  GroupCall call{&request, chunks, &blueprint, std::vector<int32_t>(index(tree.ranks()))};
  std::iota(call.positions.begin(), call.positions.end(), 0);
  return call;
}

Result<Symmetry> find_symmetry(const TierTree& tree, std::span<const GroupCall> calls,
                               const SimulateOptions& options) {
  const bool use = options.symmetry && options.cable_hash == 0;
  if (use && calls.size() == 1)
    if (std::optional<Symmetry> one = one_class(tree, calls[0])) return *std::move(one);
  if (use && calls.size() == 1 && tree.ranks() > options.every_rank_up_to && options.grain_ns == 0)
    if (std::optional<Symmetry> few = classes_by_kind(tree, calls[0], options.most_programs))
      return *std::move(few);
  size_t members = 0;
  for (const GroupCall& call : calls) members += call.positions.size();
  if (members > options.most_programs)
    return invalid(fmt::format("simulate: the programs of {} ranks", members));
  SENNIT_RETURN_IF_ERROR(check_memory(calls, use));
  Refinement refinement(tree, calls);
  SENNIT_RETURN_IF_ERROR(refinement.read());
  if (use)
    refinement.refine();
  else
    refinement.tell_all_apart();
  return refinement.take();
}

}  // namespace sennit::simulation
