// From programs to GOAL, and what a GOAL must be to run: see goal/goal.hpp.
//
// A rank's operations are those of its program, chunk after chunk. A message's tag counts the
// messages of its pair through all chunks, so that matching by tag is the order in which they were
// sent.
#include "goal/goal.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "schedule/layout.hpp"
#include "schedule/prepared.hpp"

namespace sennit {
namespace {

class Writer {
 public:
  Writer(const TierTree& tree, const Request& request, uint32_t chunks, const CostModel& cost)
      : tree_(tree), request_(request), chunks_(chunks), cost_(cost) {
    layout_.count = request.count;
    if (!request.counts.empty()) layout_.counts = request.counts.data();
  }

  Goal::Rank write(const Program& program) {
    const size_t steps = program.steps.size();
    std::vector<bool> last(steps, true);                    // nothing of the chunk waits for it
    std::unordered_map<int32_t, uint32_t> sends, receives;  // per chunk, by peer
    for (const Step& step : program.steps) {
      for (const uint32_t dep : program.deps_of(step)) last[dep] = false;
      if (step.kind == StepKind::send) sends[step.peer]++;
      if (step.kind == StepKind::recv) receives[step.peer]++;
    }
    Goal::Rank rank;
    std::vector<uint32_t> ends;  // by chunk: the operation at which it is done
    for (uint32_t chunk = 0; chunk < chunks_; chunk++) {
      const auto first = static_cast<uint32_t>(rank.operations.size());
      for (uint32_t i = 0; i < steps; i++) {
        const Step& step = program.steps[i];
        rank.operations.push_back(operation(program, step, chunk));
        Goal::Operation& made = rank.operations.back();
        if (made.kind == OperationKind::send) made.tag = chunk * sends[step.peer] + step.tag;
        if (made.kind == OperationKind::recv) made.tag = chunk * receives[step.peer] + step.tag;
        for (const uint32_t dep : program.deps_of(step))
          rank.dependencies.push_back({first + i, first + dep, false});
        if (step.deps == 0 && chunk >= kLanes)
          rank.dependencies.push_back({first + i, ends[chunk - kLanes], false});
      }
      if (chunk + kLanes < chunks_ && steps > 0) {
        ends.push_back(static_cast<uint32_t>(rank.operations.size()));
        rank.operations.emplace_back();
        for (uint32_t i = 0; i < steps; i++)
          if (last[i]) rank.dependencies.push_back({ends.back(), first + i, false});
      }
    }
    return rank;
  }

 private:
  uint64_t bytes(const Program& program, const Operand& operand, uint32_t chunk) const {
    return layout_.length(program, operand, {chunk, chunks_}) * type_bytes(request_.type);
  }

  Goal::Operation operation(const Program& program, const Step& step, uint32_t chunk) const {
    Goal::Operation made;
    if (step.kind == StepKind::reduce || step.kind == StepKind::copy) {
      const uint64_t moved = step.sources * bytes(program, step.target, chunk);
      made.amount = scaled(moved, 1'000'000'000, cost_.reduce_bytes_per_s);
      return made;
    }
    const bool send = step.kind == StepKind::send;
    const Operand& operand = send ? program.operands[step.first_source] : step.target;
    made.amount = bytes(program, operand, chunk);
    if (made.amount == 0 && operand.ranges > 0 && request_.collective != Collective::barrier)
      return made;
    made.amount = std::max<uint64_t>(1, made.amount);
    made.kind = send ? OperationKind::send : OperationKind::recv;
    made.peer = tree_.rank_of_position[index(step.peer)];
    return made;
  }

  const TierTree& tree_;
  const Request& request_;
  const uint32_t chunks_;
  const CostModel& cost_;
  Layout layout_;
};

struct Channel {  // messages of one tag from one rank to another
  int32_t from = 0, to = 0;
  uint32_t tag = 0;
  bool operator==(const Channel&) const = default;
  bool operator<(const Channel& other) const {
    return std::tie(from, to, tag) < std::tie(other.from, other.to, other.tag);
  }
};

struct End {  // of a message: an operation, numbered through all ranks
  Channel channel;
  uint64_t operation = 0;
};

std::string text_of(const Channel& channel) {
  return fmt::format("from rank {} to {}, tag {}", channel.from, channel.to, channel.tag);
}

// Both ends of every message, in the order of channels and of operations.
Status collect_ends(const Goal& goal, std::vector<End>* sends, std::vector<End>* receives) {
  uint64_t number = 0;
  for (size_t r = 0; r < goal.ranks.size(); r++)
    for (const Goal::Operation& operation : goal.ranks[r].operations) {
      const auto me = static_cast<int32_t>(r);
      if (operation.kind == OperationKind::recv &&
          (operation.peer == kAnyRank || operation.tag == kAnyTag))
        return invalid(
            fmt::format("rank {}: a receive from any rank or of any tag cannot be matched "
                        "beforehand",
                        r));
      if (operation.kind == OperationKind::send)
        sends->push_back({{me, operation.peer, operation.tag}, number});
      if (operation.kind == OperationKind::recv)
        receives->push_back({{operation.peer, me, operation.tag}, number});
      number++;
    }
  for (std::vector<End>* ends : {sends, receives})
    std::sort(ends->begin(), ends->end(), [](const End& a, const End& b) {
      return a.channel != b.channel ? a.channel < b.channel : a.operation < b.operation;
    });
  return {};
}

// When operations start and end, as a graph: node 2 i is the start of operation i, 2 i + 1 its end.
class Order {
 public:
  explicit Order(const Goal& goal)
      : goal_(goal), waits_(2 * goal.operations(), 0), rounds_(waits_.size(), 0) {}

  void add(uint64_t before, uint64_t after, bool message = false) {
    edges_.push_back({before, after, message});
    waits_[after]++;
  }

  // False where something waits for itself.
  bool run() {
    std::sort(edges_.begin(), edges_.end(),
              [](const Edge& a, const Edge& b) { return a.before < b.before; });
    std::vector<size_t> first(waits_.size() + 1, 0);
    for (const Edge& edge : edges_) first[edge.before + 1]++;
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<uint64_t> ready;
    for (uint64_t node = 0; node < waits_.size(); node++)
      if (waits_[node] == 0) ready.push_back(node);
    uint64_t done = 0;
    while (!ready.empty()) {
      const uint64_t node = ready.back();
      ready.pop_back();
      done++;
      for (size_t e = first[node]; e < first[node + 1]; e++) {
        const Edge& edge = edges_[e];
        rounds_[edge.after] = std::max(rounds_[edge.after], rounds_[node] + (edge.message ? 1 : 0));
        if (--waits_[edge.after] == 0) ready.push_back(edge.after);
      }
    }
    return done == waits_.size();
  }

  uint64_t rounds() const {
    return rounds_.empty() ? 0 : *std::max_element(rounds_.begin(), rounds_.end());
  }

  // An operation that never ends.
  std::string stuck() const {
    uint64_t number = 0;
    for (size_t r = 0; r < goal_.ranks.size(); r++)
      for (size_t i = 0; i < goal_.ranks[r].operations.size(); i++, number++)
        if (waits_[2 * number + 1] > 0) return fmt::format("rank {}, operation {}", r, i + 1);
    return {};
  }

 private:
  struct Edge {
    uint64_t before, after;
    bool message;
  };
  const Goal& goal_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> waits_;
  std::vector<uint64_t> rounds_;  // by node: messages in the longest chain before it
};

void add_local(const Goal& goal, Order* order) {
  uint64_t base = 0;
  for (const Goal::Rank& rank : goal.ranks) {
    for (uint64_t i = 0; i < rank.operations.size(); i++)
      order->add(2 * (base + i), 2 * (base + i) + 1);
    for (const Goal::Dependency& d : rank.dependencies)
      order->add(2 * (base + d.on) + (d.on_start ? 0 : 1), 2 * (base + d.operation));
    base += rank.operations.size();
  }
}

std::vector<uint64_t> amounts(const Goal& goal) {
  std::vector<uint64_t> all;
  for (const Goal::Rank& rank : goal.ranks)
    for (const Goal::Operation& operation : rank.operations) all.push_back(operation.amount);
  return all;
}

}  // namespace

Result<Goal> make_goal(const TierTree& tree, const Request& request, const Blueprint& blueprint,
                       uint32_t chunks, const CostModel& cost) {
  SENNIT_RETURN_IF_ERROR(check_size(request, tree.ranks()));
  Writer writer(tree, request, std::max(1u, chunks), cost);
  Goal goal;
  goal.ranks.resize(index(tree.ranks()));
  uint64_t operations = 0;
  for (int position = 0; position < tree.ranks(); position++) {
    const Program program = blueprint.program(position);
    operations += program.steps.size() * std::max<uint64_t>(1, chunks);
    if (!program.steps.empty() && chunks > kLanes) operations += chunks - kLanes;  // where one ends
    if (operations > kMaxGoalOperations)
      return invalid(
          fmt::format("rank {} of {} is at {} operations already, and at most {} are "
                      "written: take fewer ranks, fewer chunks, or another algorithm",
                      position, tree.ranks(), operations, kMaxGoalOperations));
    goal.ranks[index(tree.rank_of_position[index(position)])] = writer.write(program);
  }
  return goal;
}

Result<GoalFacts> check_goal(const Goal& goal) {
  std::vector<End> sends, receives;
  SENNIT_RETURN_IF_ERROR(collect_ends(goal, &sends, &receives));
  const std::vector<uint64_t> bytes = amounts(goal);
  Order order(goal);
  add_local(goal, &order);
  GoalFacts facts;
  for (size_t i = 0; i < sends.size() || i < receives.size(); i++) {
    if (i == receives.size() || (i < sends.size() && sends[i].channel < receives[i].channel))
      return invalid(
          fmt::format("a message {} is sent and not received", text_of(sends[i].channel)));
    if (i == sends.size() || receives[i].channel < sends[i].channel)
      return invalid(
          fmt::format("a message {} is received and not sent", text_of(receives[i].channel)));
    const uint64_t send = sends[i].operation, receive = receives[i].operation;
    if (bytes[send] != bytes[receive])
      return invalid(fmt::format("a message {}: {} bytes are sent, {} received",
                                 text_of(sends[i].channel), bytes[send], bytes[receive]));
    facts.messages++;
    facts.bytes += bytes[send];
    order.add(2 * send, 2 * receive + 1, true);
    order.add(2 * receive, 2 * send + 1);  // a large one waits until its receive is posted
  }
  if (!order.run()) return invalid(fmt::format("{} waits for itself", order.stuck()));
  facts.rounds = order.rounds();
  return facts;
}

Status check_bytes(const Goal& goal, const TierTree& tree, const Request& request,
                   const Blueprint& blueprint, uint32_t chunks) {
  if (goal.ranks.size() != index(tree.ranks()))
    return invalid(fmt::format("{} ranks of {}", goal.ranks.size(), tree.ranks()));
  Layout layout;
  layout.count = request.count;
  if (!request.counts.empty()) layout.counts = request.counts.data();
  for (int position = 0; position < tree.ranks(); position++) {
    const int rank = tree.rank_of_position[index(position)];
    std::map<int32_t, uint64_t> scheduled, written;  // by receiver
    const Program program = blueprint.program(position);
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::send) continue;
      uint64_t& bytes = scheduled[tree.rank_of_position[index(step.peer)]];
      for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t elements = 0;
        for (const Range& range : program.ranges_of(program.operands[step.first_source]))
          elements += layout.length(range, {chunk, chunks});
        bytes +=
            request.collective == Collective::barrier ? 1 : elements * type_bytes(request.type);
      }
    }
    for (const Goal::Operation& operation : goal.ranks[index(rank)].operations)
      if (operation.kind == OperationKind::send) written[operation.peer] += operation.amount;
    std::erase_if(scheduled, [](const auto& entry) { return entry.second == 0; });
    if (scheduled != written)
      return invalid(fmt::format("rank {} does not send what its schedule does", rank));
  }
  return {};
}

}  // namespace sennit
