// common.cpp: see collectives/common.hpp.
#include "collectives/common.hpp"

#include <algorithm>

#include "cost/rates.hpp"

namespace sennit {
namespace {

class FunctionBlueprint : public Blueprint {
 public:
  FunctionBlueprint(std::function<Program(int)> program, std::optional<Visits> turns)
      : program_(std::move(program)), turns_(std::move(turns)) {}
  Program program(int position) const override { return program_(position); }
  bool uniform() const override { return turns_.has_value(); }
  int mirrored(int peer) const override { return turns_ ? turns_->from(0, peer) : -1; }

 private:
  const std::function<Program(int)> program_;
  const std::optional<Visits> turns_;
};

}  // namespace

void copy_own(ProgramBuilder& builder, const Request& request, Range range) {
  if (!request.in_place) builder.copy(builder.output({&range, 1}), builder.input({&range, 1}));
}

void combine(ProgramBuilder& builder, Operand target, std::span<const Operand> sources,
             bool finish) {
  if (sources.size() == 1)
    builder.copy(target, sources[0], finish);
  else
    builder.reduce(target, sources, finish);
}

std::unique_ptr<Blueprint> make_blueprint(std::function<Program(int)> program,
                                          std::optional<Visits> turns) {
  return std::make_unique<FunctionBlueprint>(std::move(program), std::move(turns));
}

uint64_t block_bytes(const Request& request, int block) {
  return request.count_of(block) * type_bytes(request.type);
}

std::vector<uint64_t> block_offsets(const Request& request, int ranks) {
  std::vector<uint64_t> offsets(index(ranks) + 1, 0);
  for (int i = 0; i < ranks; i++)
    offsets[index(i) + 1] = offsets[index(i)] + block_bytes(request, i);
  return offsets;
}

uint64_t total_bytes(const Request& request, int ranks) {
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return request.count * type_bytes(request.type);
    case Collective::barrier:
      return 0;
    default:
      return block_offsets(request, ranks).back();
  }
}

namespace {

int slower_group(const TierTree& tree, int a, int b, const CostModel& cost) {
  return planning_latency_ns(tree, b, cost) > planning_latency_ns(tree, a, cost) ? b : a;
}

}  // namespace

int slowest_group(const TierTree& tree, const CostModel& cost) {
  int slowest = 0;
  for (size_t group = 1; group < tree.groups.size(); group++)
    if (tree.groups[group].children > 0)
      slowest = slower_group(tree, slowest, static_cast<int>(group), cost);
  return slowest;
}

int slowest_group(const TierTree& tree, int position, const CostModel& cost) {
  int slowest = 0;
  for (int group = tree.groups[index(tree.leaf_of_position[index(position)])].parent; group >= 0;
       group = tree.groups[index(group)].parent)
    slowest = slower_group(tree, slowest, group, cost);
  return slowest;
}

int farthest(const std::vector<uint64_t>& reached_ns) {
  return static_cast<int>(std::ranges::max_element(reached_ns) - reached_ns.begin());
}

void add_latency(const TierTree& tree, int group, uint64_t messages, uint64_t bytes,
                 const CostModel& cost, Estimate* estimate) {
  const auto add = [&](uint64_t* sum_ns, uint64_t one_ns) {
    *sum_ns = saturated(*sum_ns + Wide{messages} * one_ns);
  };
  add(&estimate->latency_ns, planning_latency_ns(tree, group, cost));
  if (bytes <= cost.eager_bytes) return;
  const uint64_t ns = asking_ns(tree, group, cost);
  if (ns == 0 || messages == 0) return;
  if (estimate->asking.empty() || estimate->asking.back().bytes != bytes)
    estimate->asking.push_back({.bytes = bytes});
  add(&estimate->asking.back().ns, ns);
}

void add_latency_of_neighbours(const TierTree& tree, uint64_t messages, uint64_t bytes,
                               const CostModel& cost, Estimate* estimate) {
  for (size_t group = 0; group < tree.groups.size(); group++)
    if (const int32_t children = tree.groups[group].children; children > 0)
      add_latency(tree, static_cast<int>(group), messages * (index(children) - 1), bytes, cost,
                  estimate);
}

void set_readings(uint64_t busiest, uint64_t all, uint64_t bytes, Estimate* estimate) {
  estimate->reduce_bytes = saturated(Wide{busiest} * bytes);
  estimate->reduce_bytes_of_others = saturated(Wide{all - std::min(all, busiest)} * bytes);
}

namespace {

// f(group) for every group around `inside` that does not hold `outside`, from within.
template <typename F>
void cross(const TierTree& tree, int inside, int outside, F&& f) {
  for (int group = tree.leaf_of_position[index(inside)];;) {
    const Group& g = tree.groups[index(group)];
    if (g.parent < 0 || (outside >= g.first && outside < g.first + g.size)) return;
    f(index(group));
    group = g.parent;
  }
}

}  // namespace

uint64_t message_ns(const TierTree& tree, const GroupRates& rates, int a, int b, uint64_t bytes) {
  uint64_t narrowest = ~uint64_t{0};
  cross(tree, a, b, [&](size_t group) { narrowest = std::min(narrowest, rates.egress[group]); });
  cross(tree, b, a, [&](size_t group) { narrowest = std::min(narrowest, rates.ingress[group]); });
  return transfer_ns(bytes, narrowest);
}

void Load::Boundary::operator+=(const Boundary& other) {
  out_bytes += other.out_bytes;
  in_bytes += other.in_bytes;
  out_messages += other.out_messages;
  in_messages += other.in_messages;
}

void Load::Boundary::operator-=(const Boundary& other) {
  out_bytes -= other.out_bytes;
  in_bytes -= other.in_bytes;
  out_messages -= other.out_messages;
  in_messages -= other.in_messages;
}

void Load::add_within(int group, int from, int to, uint64_t bytes, uint64_t messages) {
  const Boundary out{.out_bytes = bytes, .out_messages = messages};
  const Boundary in{.in_bytes = bytes, .in_messages = messages};
  noted_ = true;
  crossed_[index(tree_.leaf_of_position[index(from)])] += out;
  crossed_[index(tree_.leaf_of_position[index(to)])] += in;
  crossed_[index(group)] -= out;
  crossed_[index(group)] -= in;
}

const std::vector<Load::Boundary>& Load::sums() {
  for (size_t i = crossed_.size(); noted_ && i-- > 1;)  // children come after their parents
    crossed_[index(tree_.groups[i].parent)] += crossed_[i];
  noted_ = false;
  return crossed_;
}

uint64_t Load::Boundary::ns(uint64_t egress, uint64_t ingress, uint64_t message_bytes) const {
  const auto wire_ns = [&](Wide bytes, uint64_t messages, uint64_t bytes_per_s) {
    if (bytes > 0) bytes += Wide{messages} * message_bytes;
    return saturated(bytes * kNsPerSecond / bytes_per_s);
  };
  return std::max(wire_ns(out_bytes, out_messages, egress),
                  wire_ns(in_bytes, in_messages, ingress));
}

void Load::set_times(const CostModel& cost, Estimate* estimate) {
  const std::vector<Boundary>& crossed = sums();
  const GroupRates rates = planning_rates(tree_, cost);
  std::vector<uint64_t> tier_ns(tree_.tiers.size(), 0), payload_ns = tier_ns;
  for (size_t i = 1; i < crossed.size(); i++) {
    const auto ns = [&](uint64_t message_bytes) {
      return crossed[i].ns(rates.egress[i], rates.ingress[i], message_bytes);
    };
    const size_t tier = tree_.groups[i].tier;
    tier_ns[tier] = std::max(tier_ns[tier], ns(cost.message_bytes));
    if (cost.message_bytes > 0) payload_ns[tier] = std::max(payload_ns[tier], ns(0));
  }
  if (cost.message_bytes > 0)
    for (size_t tier = 0; tier < tier_ns.size(); tier++)
      estimate->headers_ns.push_back(tier_ns[tier] - payload_ns[tier]);
  estimate->tier_ns = std::move(tier_ns);
}

uint64_t Load::way_ns(const CostModel& cost) {
  const std::vector<Boundary>& crossed = sums();
  const GroupRates rates = planning_rates(tree_, cost);
  std::vector<uint64_t> way(crossed.size(), 0);
  for (size_t i = 1; i < way.size(); i++) {  // children come after their parents
    const uint64_t own = crossed[i].ns(rates.egress[i], rates.ingress[i], cost.message_bytes);
    way[i] = saturated(Wide{way[index(tree_.groups[i].parent)]} + own);
  }
  return *std::ranges::max_element(way);
}

std::vector<uint64_t> Load::tier_bytes() {
  const std::vector<Boundary>& crossed = sums();
  std::vector<uint64_t> bytes(tree_.tiers.size(), 0);
  for (size_t i = 1; i < crossed.size(); i++) {
    uint64_t& tier = bytes[tree_.groups[i].tier];
    tier = saturated(tier + crossed[i].out_bytes);
  }
  return bytes;
}

}  // namespace sennit
