// order.cpp: joins all ranks' steps into one graph and puts them in order (build_order).
//
// The k-th send to a peer is joined with the peer's k-th receive: the message moves when the
// dependencies of both are done (the worst case: every send waits for its receive to be posted). A
// send whose receive may be exposed completes only when the reduces that read the slot are done. If
// every step completes under these rules in one order, it does in all: each rule only waits for
// completions, so the graph has no cycle. Cost: O(steps + dependencies), plus a sort of the
// messages by peer.
#include <fmt/core.h>

#include "base/index.hpp"
#include "verify/world.hpp"

namespace sennit::verifier {
namespace {

struct Message {
  int32_t from, to;
  uint32_t index;  // the how manieth between the two
  uint32_t step;
  auto key() const { return std::tuple(from, to, index); }
};

class Graph {
 public:
  Graph(World& world, Order& order) : world_(world), order_(order) {}

  std::string run() {
    number_steps();
    if (std::string error = match(); !error.empty()) return error;
    link();
    for (uint32_t step = 0; step < waiting_.size(); step++)
      if (waiting_[step] == 0) ready_.push_back(step);
    // Breadth first, so that ranks advance together.
    for (size_t next = 0; next < ready_.size(); next++) start(ready_[next]);
    return completed_ == waiting_.size() ? std::string() : describe_deadlock();
  }

 private:
  CompactStep& at(uint32_t step) {
    const int position = order_.position_of(step);
    return world_.programs[index(position)].steps[step - order_.first_step[index(position)]];
  }
  std::string text(uint32_t step) const {
    const int position = order_.position_of(step);
    return step_text(world_, position, step - order_.first_step[index(position)]);
  }

  void number_steps() {
    uint32_t next = 0;
    for (const CompactProgram& program : world_.programs) {
      order_.first_step.push_back(next);
      next += static_cast<uint32_t>(program.steps.size());
    }
    order_.first_step.push_back(next);
  }

  std::string match() {
    std::vector<Message> sends, receives;
    for (size_t p = 0; p < world_.programs.size(); p++) {
      const int32_t position = static_cast<int32_t>(p);
      const std::vector<CompactStep>& steps = world_.programs[p].steps;
      for (uint32_t i = 0; i < steps.size(); i++) {
        if (steps[i].kind == StepKind::send)
          sends.push_back({position, steps[i].peer, i, order_.first_step[p] + i});
        if (steps[i].kind == StepKind::recv)
          receives.push_back({steps[i].peer, position, i, order_.first_step[p] + i});
      }
    }
    number_messages(sends);
    number_messages(receives);
    for (size_t i = 0; i < std::max(sends.size(), receives.size()); i++) {
      const bool send_left =
          i < sends.size() && (i >= receives.size() || sends[i].key() < receives[i].key());
      const bool recv_left =
          i < receives.size() && (i >= sends.size() || receives[i].key() < sends[i].key());
      if (send_left) return text(sends[i].step) + ": the peer has no receive for it";
      if (recv_left) return text(receives[i].step) + ": the peer does not send it";
      CompactStep& send = at(sends[i].step);
      CompactStep& receive = at(receives[i].step);
      send.partner = receives[i].step;
      receive.partner = sends[i].step;
      const CompactProgram& sender = world_.programs[index(sends[i].from)];
      const std::string what =
          check_pairing(world_, sender.operands[send.first_source].list, receive.target.list);
      if (!what.empty())
        return fmt::format("{} and {} do not match: {}", text(sends[i].step),
                           text(receives[i].step), what);
    }
    return {};
  }

  // Order of steps in a program is the order of tags: the first stage has checked it.
  static void number_messages(std::vector<Message>& messages) {
    std::sort(messages.begin(), messages.end(),
              [](const Message& a, const Message& b) { return a.key() < b.key(); });
    for (size_t i = 0; i < messages.size(); i++) {
      const bool same =
          i > 0 && messages[i - 1].from == messages[i].from && messages[i - 1].to == messages[i].to;
      messages[i].index = same ? messages[i - 1].index + 1 : 0;
    }
  }

  // waiting_: dependencies left. dependents: who waits for a step, in one array.
  void link() {
    const size_t steps = order_.first_step.back();
    waiting_.assign(steps, 0);
    depth_.assign(steps, 0);
    holds_.assign(steps, 0);
    state_.assign(steps, State::waiting);
    first_dependent_.assign(steps + 1, 0);
    for_each_dependency([&](uint32_t step, uint32_t dep) {
      waiting_[step]++;
      first_dependent_[dep + 1]++;
    });
    for (size_t i = 0; i < steps; i++) first_dependent_[i + 1] += first_dependent_[i];
    dependents_.resize(first_dependent_.back());
    std::vector<uint32_t> filled(first_dependent_.begin(), first_dependent_.end() - 1);
    for_each_dependency([&](uint32_t step, uint32_t dep) { dependents_[filled[dep]++] = step; });
    for_each_exposure([&](uint32_t receive, uint32_t) { holds_[receive]++; });
  }

  template <typename F>
  void for_each_dependency(F&& visit) const {
    for (size_t p = 0; p < world_.programs.size(); p++) {
      const CompactProgram& program = world_.programs[p];
      for (uint32_t i = 0; i < program.steps.size(); i++)
        for (uint32_t d = 0; d < program.steps[i].deps; d++)
          visit(order_.first_step[p] + i,
                order_.first_step[p] + program.deps[program.steps[i].first_dep + d]);
    }
  }

  // visit(receive into an exposable slot, reduce that reads it)
  template <typename F>
  void for_each_exposure(F&& visit) const {
    for (size_t p = 0; p < world_.programs.size(); p++)
      for (uint32_t i = 0; i < world_.programs[p].steps.size(); i++)
        exposures_of(p, i, [&](uint32_t receive) { visit(receive, order_.first_step[p] + i); });
  }
  template <typename F>
  void exposures_of(size_t position, uint32_t index, F&& visit) const {
    const CompactProgram& program = world_.programs[position];
    const CompactStep& step = program.steps[index];
    if (step.kind != StepKind::reduce) return;
    for (uint32_t s = 0; s < step.sources; s++) {
      const CompactOperand& source = program.operands[step.first_source + s];
      if (source.space < kFirstSlotSpace) continue;
      const uint32_t receive = program.exposable[source.space - kFirstSlotSpace];
      if (receive != kNone) visit(order_.first_step[position] + receive);
    }
  }

  enum class State : uint8_t { waiting, started, completed };

  void start(uint32_t step) {
    state_[step] = State::started;
    const CompactStep& s = at(step);
    if (s.kind == StepKind::send || s.kind == StepKind::recv) {
      if (state_[s.partner] != State::started) return;
      const uint32_t send = s.kind == StepKind::send ? step : s.partner;
      const uint32_t receive = at(send).partner;
      depth_[send] = depth_[receive] = std::max(depth_[send], depth_[receive]) + 1;
      order_.rounds = std::max<uint64_t>(order_.rounds, depth_[send]);
      order_.sequence.push_back(send);
      complete(receive);
      if (holds_[receive] == 0) complete(send);
      return;
    }
    order_.sequence.push_back(step);
    const int position = order_.position_of(step);
    exposures_of(index(position), step - order_.first_step[index(position)], [&](uint32_t receive) {
      if (--holds_[receive] == 0) complete(at(receive).partner);
    });
    complete(step);
  }

  void complete(uint32_t step) {
    state_[step] = State::completed;
    completed_++;
    for (uint32_t i = first_dependent_[step]; i < first_dependent_[step + 1]; i++) {
      const uint32_t next = dependents_[i];
      depth_[next] = std::max(depth_[next], depth_[step]);
      if (--waiting_[next] == 0) ready_.push_back(next);
    }
  }

  // Follows what an unfinished step waits for until a step comes round again.
  std::string describe_deadlock() {
    uint32_t step = 0;
    while (state_[step] == State::completed) step++;
    std::vector<uint32_t> seen_at(state_.size(), kNone), path;
    while (seen_at[step] == kNone) {
      seen_at[step] = static_cast<uint32_t>(path.size());
      path.push_back(step);
      step = waits_for(step);
    }
    std::string cycle;
    for (size_t i = seen_at[step]; i < path.size() && i < seen_at[step] + 8; i++)
      cycle += text(path[i]) + " waits for ";
    return "deadlock: " + cycle + (path.size() > seen_at[step] + 8 ? "... waits for " : "") +
           text(step);
  }

  uint32_t waits_for(uint32_t step) {
    const int position = order_.position_of(step);
    const uint32_t base = order_.first_step[index(position)];
    const CompactProgram& program = world_.programs[index(position)];
    const CompactStep& s = at(step);
    if (state_[step] == State::waiting) {
      for (uint32_t d = 0; d < s.deps; d++)
        if (const uint32_t dep = base + program.deps[s.first_dep + d];
            state_[dep] != State::completed)
          return dep;
    }
    if (state_[s.partner] != State::completed) return s.partner;
    uint32_t reader = step;  // a send whose receive is exposed: to a reduce that still reads
    for_each_exposure([&](uint32_t receive, uint32_t reduce) {
      if (receive == s.partner && state_[reduce] != State::completed) reader = reduce;
    });
    return reader;
  }

  World& world_;
  Order& order_;
  std::vector<uint32_t> waiting_, depth_, first_dependent_, dependents_, ready_;
  std::vector<uint32_t> holds_;  // by receive: operands of reduces that still read its exposed slot
  std::vector<State> state_;
  size_t completed_ = 0;
};

}  // namespace

int Order::position_of(uint32_t step) const {
  return static_cast<int>(std::upper_bound(first_step.begin(), first_step.end(), step) -
                          first_step.begin()) -
         1;
}

std::string build_order(World& world, Order& order) { return Graph(world, order).run(); }

}  // namespace sennit::verifier
