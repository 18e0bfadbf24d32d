#include "simulate_symmetry.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "layout.hpp"

namespace sennit::simulation {
namespace {

constexpr uint64_t kExactElements = 1024;  // lengths below are told apart to the element
constexpr uint32_t kNone = ~uint32_t{0};

size_t index(int i) { return static_cast<size_t>(i); }

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull;
  return hash ^ (hash >> 32);
}

// What is alike in all ranks of one shape: who is met at which step, by the peer's number within the program.
struct Shape {
  std::vector<std::vector<uint32_t>> sends, receives;  // by peer: steps, by tag
};

class Refinement {
 public:
  Refinement(const TierTree& tree, const Request& request, uint32_t chunks)
      : tree_(tree), chunks_(chunks), colour_(index(tree.ranks())), shape_(index(tree.ranks())) {
    layout_.count = request.count;
    if (!request.counts.empty()) layout_.counts = request.counts.data();
  }

  Status read(const Blueprint& blueprint);
  void refine();
  void tell_all_apart();
  Symmetry take(const Request& request, const Blueprint& blueprint) const;

 private:
  std::span<const int32_t> peers(int position) const {
    return {peers_.data() + first_peer_[index(position)],
            first_peer_[index(position) + 1] - first_peer_[index(position)]};
  }
  uint64_t length_colour(const Program& program, const Operand& operand) const;
  uint64_t add_program(const Program& program);
  Status meet();
  size_t round();
  void colour_groups();

  const TierTree& tree_;
  const uint32_t chunks_;
  Layout layout_;
  std::vector<uint64_t> colour_;  // by position
  std::vector<uint64_t> group_;   // by group: colour
  std::vector<uint32_t> shape_;   // by position
  std::vector<Shape> shapes_;
  std::unordered_map<uint64_t, uint32_t> shape_of_hash_;
  std::vector<size_t> first_peer_{0};     // by position; CSR into the next three
  std::vector<int32_t> peers_;            // in the order in which the program meets them
  std::vector<uint32_t> number_at_peer_;  // which peer of that peer this rank is
  std::vector<uint8_t> crossing_;         // the tier of the group that holds both
};

uint64_t Refinement::length_colour(const Program& program, const Operand& operand) const {
  uint64_t units = 0, elements = 0, hash = operand.ranges > 0;
  for (const Range& range : program.ranges_of(operand)) {
    units += range.end - range.begin;
    elements += layout_.length(range, {0, chunks_});
  }
  if (elements >= kExactElements && !layout_.counts)  // about 11 bits of it
    return mix(hash, units >> (std::bit_width(units) > 11 ? std::bit_width(units) - 11 : 0));
  for (uint32_t chunk = 0; chunk < chunks_; chunk++) {
    elements = 0;
    for (const Range& range : program.ranges_of(operand)) elements += layout_.length(range, {chunk, chunks_});
    hash = mix(hash, elements);
  }
  return hash;
}

// Its peers go to peers_.
uint64_t Refinement::add_program(const Program& program) {
  std::unordered_map<int32_t, uint32_t> number;
  Shape shape;
  uint64_t hash = program.steps.size();
  for (uint32_t i = 0; i < program.steps.size(); i++) {
    const Step& step = program.steps[i];
    hash = mix(hash, static_cast<uint64_t>(step.kind) << 8 | step.tier);
    hash = mix(hash, step.sources);
    if (step.kind != StepKind::send) hash = mix(hash, length_colour(program, step.target));
    if (step.kind == StepKind::send)
      hash = mix(hash, length_colour(program, program.operands[step.first_source]));
    for (const uint32_t dep : program.deps_of(step)) hash = mix(hash, dep);
    if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
    const auto [found, added] = number.try_emplace(step.peer, static_cast<uint32_t>(number.size()));
    if (added) {
      peers_.push_back(step.peer);
      shape.sends.emplace_back();
      shape.receives.emplace_back();
    }
    hash = mix(hash, found->second);
    auto& steps = (step.kind == StepKind::send ? shape.sends : shape.receives)[found->second];
    steps.push_back(i);  // tags count up
  }
  first_peer_.push_back(peers_.size());
  const auto [found, added] = shape_of_hash_.try_emplace(hash, static_cast<uint32_t>(shapes_.size()));
  if (added) shapes_.push_back(std::move(shape));
  shape_[first_peer_.size() - 2] = found->second;
  return hash;
}

Status Refinement::read(const Blueprint& blueprint) {
  for (int position = 0; position < tree_.ranks(); position++) {
    colour_[index(position)] = add_program(blueprint.program(position));
    for (const int32_t peer : peers(position))
      if (peer < 0 || peer >= tree_.ranks() || peer == position)
        return {SENNIT_INTERNAL, fmt::format("simulate: position {} sends to {}", position, peer)};
  }
  return meet();
}

// Every send has its receive.
Status Refinement::meet() {
  number_at_peer_.assign(peers_.size(), kNone);
  crossing_.assign(peers_.size(), 0);
  for (int position = 0; position < tree_.ranks(); position++) {
    const Shape& mine = shapes_[shape_[index(position)]];
    for (uint32_t i = 0; i < peers(position).size(); i++) {
      const int32_t peer = peers(position)[i];
      const auto known = peers(peer);
      const auto number =
          static_cast<uint32_t>(std::find(known.begin(), known.end(), position) - known.begin());
      const Shape& theirs = shapes_[shape_[index(peer)]];
      const size_t received = number < known.size() ? theirs.receives[number].size() : 0;
      const size_t sent = number < known.size() ? theirs.sends[number].size() : 0;
      if (mine.sends[i].size() != received || mine.receives[i].size() != sent)
        return {SENNIT_INTERNAL,
                fmt::format("simulate: of {} messages from position {} to {}, {} are received; and of {} "
                            "back, {}",
                            mine.sends[i].size(), position, peer, received, sent, mine.receives[i].size())};
      number_at_peer_[first_peer_[index(position)] + i] = number;
      crossing_[first_peer_[index(position)] + i] =
          tree_.groups[index(tree_.common_group(position, peer))].tier;
    }
  }
  return {};
}

// Groups by what they are and hold, from below, then by what holds them, from above.
void Refinement::colour_groups() {
  for (size_t g = tree_.groups.size(); g-- > 0;) {
    const Group& group = tree_.groups[g];
    uint64_t children = 0;  // in any order
    for (int c = group.first_child; c < group.first_child + group.children; c++)
      children += mix(1, group_[index(c)]);
    uint64_t hash = mix(children, static_cast<uint64_t>(group.size) << 16 | group.tier << 8 | group.planes);
    hash = mix(mix(mix(hash, group.egress.bytes_per_s), group.ingress.bytes_per_s), group.latency_ns);
    group_[g] = group.children == 0 ? mix(hash, colour_[index(group.first)]) : hash;
  }
  for (size_t g = 1; g < tree_.groups.size(); g++)
    group_[g] = mix(group_[g], group_[index(tree_.groups[g].parent)]);
}

// How many colours there are then.
size_t Refinement::round() {
  colour_groups();
  std::vector<uint64_t> next(colour_.size());
  for (int position = 0; position < tree_.ranks(); position++) {
    uint64_t hash = mix(colour_[index(position)], group_[index(tree_.leaf_of_position[index(position)])]);
    for (size_t i = first_peer_[index(position)]; i < first_peer_[index(position) + 1]; i++) {
      hash = mix(hash, colour_[index(peers_[i])]);
      hash = mix(hash, static_cast<uint64_t>(number_at_peer_[i]) << 8 | crossing_[i]);
    }
    next[index(position)] = hash;
  }
  colour_ = std::move(next);
  return std::unordered_set<uint64_t>(colour_.begin(), colour_.end()).size();
}

void Refinement::refine() {
  group_.resize(tree_.groups.size());
  for (size_t before = 0, now = round(); now != before; now = round()) before = now;
  colour_groups();
}

void Refinement::tell_all_apart() {
  group_.resize(tree_.groups.size());
  std::iota(colour_.begin(), colour_.end(), 0);
  std::iota(group_.begin(), group_.end(), 0);
}

Symmetry Refinement::take(const Request& request, const Blueprint& blueprint) const {
  Symmetry result;
  std::unordered_map<uint64_t, uint32_t> number;
  for (const uint64_t colour : group_) {
    const auto [found, added] = number.try_emplace(colour, static_cast<uint32_t>(number.size()));
    if (added) result.groups_of_class.push_back(0);
    result.class_of_group.push_back(found->second);
    result.groups_of_class[found->second]++;
  }
  number.clear();
  std::vector<uint32_t> class_of_position;
  for (int position = 0; position < tree_.ranks(); position++) {
    const auto [found, added] =
        number.try_emplace(colour_[index(position)], static_cast<uint32_t>(number.size()));
    if (added) result.classes.push_back({position, 0, nullptr, {}, {}});
    class_of_position.push_back(found->second);
    result.classes[found->second].ranks++;
  }
  Request light = request;  // prepare() keeps a copy for every rank
  light.counts.clear();
  Plan plan;
  plan.parameters.chunks = chunks_;
  for (Symmetry::RankClass& c : result.classes) {
    c.prepared = prepare(light, plan, blueprint.program(c.position));
    c.partner.assign(c.prepared->program.steps.size(), kNone);
    for (const int32_t peer : c.prepared->peers) c.peer_class.push_back(class_of_position[index(peer)]);
    const Shape& mine = shapes_[shape_[index(c.position)]];
    for (uint32_t i = 0; i < mine.sends.size(); i++) {
      const Shape& theirs = shapes_[shape_[index(peers(c.position)[i])]];
      const auto& met = theirs.receives[number_at_peer_[first_peer_[index(c.position)] + i]];
      for (size_t k = 0; k < mine.sends[i].size(); k++) c.partner[mine.sends[i][k]] = met[k];
    }
  }
  return result;
}

}  // namespace

Result<Symmetry> find_symmetry(const TierTree& tree, const Request& request, uint32_t chunks,
                               const Blueprint& blueprint, bool use) {
  Refinement refinement(tree, request, chunks);
  SENNIT_RETURN_IF_ERROR(refinement.read(blueprint));
  if (use)
    refinement.refine();
  else
    refinement.tell_all_apart();
  return refinement.take(request, blueprint);
}

}  // namespace sennit::simulation
