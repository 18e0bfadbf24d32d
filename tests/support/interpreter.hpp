// interpreter.hpp: runs the programs of all ranks on small arrays and compares with what the
// collective means.
//
// An independent judge beside the symbolic verifier: it knows nothing of contributor sets, it just
// executes. Every rank runs every chunk of its program; steps run in random order as their
// dependencies allow. Messages are eager (complete at the sender at once, data as of then),
// rendezvous (both sides must be posted), or exposed (rendezvous, and the receiver's slot is the
// sender's memory until the last reduce has read it), so that a missing dependency shows as wrong
// data and a cyclic wait as a deadlock. The data, and what must come out:
// tests/support/interpreter_data.hpp.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/core.h>

#include "collectives/algorithm.hpp"
#include "tests/support/interpreter_data.hpp"

namespace sennit {

class Interpreter {
 public:
  Interpreter(const TierTree& tree, const Request& request, const Blueprint& blueprint,
              const Circumstances& execution, uint64_t seed)
      : request_(request),
        execution_(execution),
        n_(tree.ranks()),
        random_(seed),
        data_(request, execution_, n_, random_) {
    programs_.resize(static_cast<size_t>(n_));
    for (int p = 0; p < n_; p++) programs_[static_cast<size_t>(p)] = blueprint.program(p);
  }

  // Empty, or what went wrong.
  std::string run() {
    for (int p = 0; p < n_; p++)
      for (int c = 0; c < execution_.chunks; c++) add_instance(p, c);
    for (size_t i = 0; i < instances_.size(); i++)
      for (uint32_t s = 0; s < instances_[i].waiting.size(); s++)
        if (instances_[i].waiting[s] == 0) make_ready({i, s});
    while (error_.empty()) {
      if (ready_.empty()) {
        if (delayed_.empty()) break;
        if (done_without_late_rank()) return "a rank left the barrier before all had entered it";
        ready_.swap(delayed_);
        late_may_run_ = true;
      }
      const size_t pick = random_() % ready_.size();
      std::swap(ready_[pick], ready_.back());
      const StepId id = ready_.back();
      ready_.pop_back();
      start(id);
    }
    if (error_.empty()) check_completed();
    if (error_.empty()) error_ = data_.check();
    return error_;
  }

 private:
  struct StepId {
    size_t instance;
    uint32_t step;
  };
  struct Instance {
    int rank = 0, chunk = 0;
    const Program* program = nullptr;
    // by step; holds: reduces that still read an exposed message
    std::vector<uint32_t> waiting, holds;
    std::vector<std::vector<uint32_t>> dependents;
    std::vector<bool> completed;
    std::vector<std::unordered_map<uint64_t, Cell*>> slots;  // element of a block -> where it lies
    std::vector<std::unique_ptr<Cell[]>> memory;
    std::map<uint32_t, StepId> exposed_by;  // slot -> the send that filled it
    size_t left = 0;
  };
  // (from, to, chunk, tag)
  using MessageKey = std::tuple<int, int, int, uint32_t>;
  struct Message {
    bool sent = false, posted = false;
    StepId send{}, recv{};
    std::vector<Cell> data;
  };

  void add_instance(int rank, int chunk) {
    Instance& instance = instances_.emplace_back();
    const Program& program = programs_[static_cast<size_t>(rank)];
    instance.rank = rank;
    instance.chunk = chunk;
    instance.program = &program;
    instance.left = program.steps.size();
    instance.holds.resize(program.steps.size());
    instance.completed.resize(program.steps.size());
    instance.dependents.resize(program.steps.size());
    for (uint32_t s = 0; s < program.steps.size(); s++) {
      instance.waiting.push_back(program.steps[s].deps);
      for (const uint32_t dep : program.deps_of(program.steps[s]))
        instance.dependents[dep].push_back(s);
    }
    for (const Slot& slot : program.slots) {
      auto& map = instance.slots.emplace_back();
      data_.for_each_element(
          rank, chunk, Buffer::slot, {program.ranges.data() + slot.first_range, slot.ranges},
          [&](uint64_t block, uint64_t element) {
            auto& cell = instance.memory.emplace_back(std::make_unique<Cell[]>(1));
            cell[0] = {random_(), 1000};
            map[key(block, element)] = cell.get();
          });
    }
  }

  static uint64_t key(uint64_t block, uint64_t element) { return block << 20 | element; }

  std::vector<Cell*> cells(Instance& instance, const Operand& o, bool target) {
    std::vector<Cell*> all;
    if (target && o.buffer == Buffer::input) fail(instance, "the input is written");
    for (const Range& range : instance.program->ranges_of(o)) {
      if (range.begin >= kUnits) fail(instance, "a range does not begin in its block");
      for (uint64_t b = range.block;
           o.buffer != Buffer::slot && b * kUnits < range.block * kUnits + range.end; b++)
        if (!data_.has_block(instance.rank, o.buffer, b)) {
          fail(instance, "a block that is not there");
          return all;
        }
    }
    data_.for_each_element(instance.rank, instance.chunk, o.buffer, instance.program->ranges_of(o),
                           [&](uint64_t block, uint64_t element) {
                             if (o.buffer == Buffer::slot) {
                               auto& slot = instance.slots[o.slot];
                               const auto it = slot.find(key(block, element));
                               if (it == slot.end())
                                 return fail(instance, "a place outside the slot");
                               all.push_back(it->second);
                             } else {
                               all.push_back(&data_.cell(instance.rank, o.buffer, block, element));
                             }
                           });
    return all;
  }

  void fail(const Instance& instance, const std::string& what) {
    if (error_.empty())
      error_ = fmt::format("position {}, chunk {}: {}", instance.rank, instance.chunk, what);
  }
  const Step& step_of(StepId id) const { return instances_[id.instance].program->steps[id.step]; }

  void make_ready(StepId id) {
    const bool late = instances_[id.instance].rank == execution_.late_rank && !late_may_run_;
    (late ? delayed_ : ready_).push_back(id);
  }

  void complete(StepId id) {
    Instance& instance = instances_[id.instance];
    if (instance.completed[id.step]) return fail(instance, "a step completes twice");
    instance.completed[id.step] = true;
    instance.left--;
    for (const uint32_t next : instance.dependents[id.step])
      if (--instance.waiting[next] == 0) make_ready({id.instance, next});
  }

  void start(StepId id) {
    Instance& instance = instances_[id.instance];
    const Step& step = step_of(id);
    if (step.kind == StepKind::send || step.kind == StepKind::recv) return message(id, step);
    std::vector<std::vector<Cell*>> sources;
    for (const Operand& o : instance.program->sources_of(step))
      sources.push_back(cells(instance, o, false));
    const std::vector<Cell*> target = cells(instance, step.target, true);
    if (step.sources > 1 && !request_.reduces() && request_.collective != Collective::barrier)
      fail(instance, "adds up in a collective that only moves");
    for (const auto& source : sources)
      if (source.size() != target.size()) return fail(instance, "operands of different length");
    for (size_t e = 0; e < target.size(); e++) {
      Cell sum;
      for (const auto& source : sources) {
        sum.value += source[e]->value;
        sum.finished += source[e]->finished;
        sum.order =
            &source == &sources[0]
                ? source[e]->order
                : (sum.order * 0x9e3779b97f4a7c15ull ^ (sum.order >> 29)) + source[e]->order * 3;
      }
      if (step.finish) sum.finished++;
      *target[e] = sum;
    }
    for (const Operand& o : instance.program->sources_of(step))
      if (o.buffer == Buffer::slot)
        if (const auto it = instance.exposed_by.find(o.slot); it != instance.exposed_by.end())
          if (--instances_[it->second.instance].holds[it->second.step] == 0) complete(it->second);
    complete(id);
  }

  void message(StepId id, const Step& step) {
    Instance& instance = instances_[id.instance];
    const bool is_send = step.kind == StepKind::send;
    const MessageKey at{is_send ? instance.rank : step.peer, is_send ? step.peer : instance.rank,
                        instance.chunk, step.tag};
    Message& m = messages_[at];
    if (is_send ? m.sent : m.posted) return fail(instance, "a message has two ends of one kind");
    (is_send ? m.sent : m.posted) = true;
    (is_send ? m.send : m.recv) = id;
    if (is_send && execution_.delivery == Delivery::eager) {
      for (const Cell* cell : source_cells(id)) m.data.push_back(*cell);
      complete(id);
    }
    if (!m.sent || !m.posted) return;
    deliver(m);
  }

  std::vector<Cell*> source_cells(StepId send) {
    Instance& from = instances_[send.instance];
    return cells(from, from.program->sources_of(step_of(send))[0], false);
  }

  void deliver(Message& m) {
    Instance& to = instances_[m.recv.instance];
    const Step& recv = step_of(m.recv);
    const std::vector<Cell*> target = cells(to, recv.target, true);
    const bool slot =
        recv.target.buffer == Buffer::slot && to.program->slots[recv.target.slot].may_expose;
    if (execution_.delivery == Delivery::eager) {
      if (m.data.size() != target.size())
        return fail(to, "a message of another length than its receive");
      for (size_t e = 0; e < target.size(); e++) *target[e] = m.data[e];
      return complete(m.recv);
    }
    const std::vector<Cell*> source = source_cells(m.send);
    if (source.size() != target.size())
      return fail(to, "a message of another length than its receive");
    const uint32_t readers = slot ? reads_of(*to.program, recv.target.slot) : 0;
    if (execution_.delivery == Delivery::exposed && readers > 0) {
      size_t e = 0;
      data_.for_each_element(to.rank, to.chunk, Buffer::slot, to.program->ranges_of(recv.target),
                             [&](uint64_t block, uint64_t element) {
                               to.slots[recv.target.slot][key(block, element)] = source[e++];
                             });
      to.exposed_by[recv.target.slot] = m.send;
      instances_[m.send.instance].holds[m.send.step] = readers;
      return complete(m.recv);
    }
    for (size_t e = 0; e < target.size(); e++) *target[e] = *source[e];
    complete(m.send);
    complete(m.recv);
  }

  static uint32_t reads_of(const Program& program, uint32_t slot) {
    uint32_t reads = 0;
    for (const Step& step : program.steps)
      for (const Operand& o : program.sources_of(step))
        reads += o.buffer == Buffer::slot && o.slot == slot;
    return reads;
  }

  bool done_without_late_rank() const {
    if (request_.collective != Collective::barrier || n_ == 1) return false;
    for (const Instance& instance : instances_)
      if (instance.rank != execution_.late_rank && instance.left == 0) return true;
    return false;
  }

  void check_completed() {
    for (const Instance& instance : instances_)
      for (uint32_t s = 0; s < instance.completed.size(); s++)
        if (!instance.completed[s])
          return fail(instance,
                      fmt::format("deadlock: step {} of\n{}", s, instance.program->to_text()));
  }

  const Request& request_;
  const Circumstances execution_;
  const int n_;
  std::mt19937_64 random_;
  std::vector<Program> programs_;
  CollectiveData data_;
  std::vector<Instance> instances_;
  std::map<MessageKey, Message> messages_;
  std::vector<StepId> ready_, delayed_;
  bool late_may_run_ = false;
  std::string error_;
};

}  // namespace sennit
