// program_interpreter.hpp: runs the programs of all ranks on small vectors of symbols, for tests of
// algorithms.
//
// Apart from the verifier on purpose: it works on elements, as an executor does, so that it also checks the
// rounding of units to elements. Messages are rendezvous (a send completes with its receive), steps run in a
// random order that their dependencies allow. Every value carries a sum and a hash of how it was summed, so
// that "the same bits on all ranks" can be compared. Slow and simple.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "algorithm.hpp"

namespace sennit::testing {

struct Value {
  uint64_t sum = 0;
  uint64_t how = 0;  // 0: never written
  uint32_t finished = 0;
  bool operator==(const Value&) const = default;
};

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a + 0x9e3779b97f4a7c15ull) ^ (b * 0xbf58476d1ce4e5b9ull);
  x ^= x >> 31;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 29);
}

// The input of a rank: element e of block b.
inline Value input_value(int rank, uint64_t block, uint64_t element) {
  const uint64_t x = mix(mix(static_cast<uint64_t>(rank), block), element);
  return {x, x | 1, 0};
}

class Interpreter {
 public:
  Interpreter(const TierTree& tree, const Request& request, const Blueprint& blueprint)
      : tree_(tree), request_(request), n_(tree.ranks()) {
    for (int r = 0; r < n_; r++) programs_.push_back(blueprint.program(r));
    sent_units_.assign(tree.groups.size(), 0);
    received_units_.assign(tree.groups.size(), 0);
  }

  // Empty: every output is right. Else what is wrong.
  std::string run(uint64_t seed) {
    std::mt19937_64 random(seed);
    make_memory();
    std::vector<std::vector<uint32_t>> waiting(programs_.size());
    std::vector<std::vector<std::vector<uint32_t>>> followers(programs_.size());
    struct Ready {
      int rank;
      uint32_t step;
    };
    std::vector<Ready> ready;
    size_t left = 0;
    for (int r = 0; r < n_; r++) {
      const Program& p = program(r);
      waiting[at(r)].assign(p.steps.size(), 0);
      followers[at(r)].resize(p.steps.size());
      left += p.steps.size();
      for (uint32_t s = 0; s < p.steps.size(); s++) {
        for (const uint32_t d : p.deps_of(p.steps[s])) {
          if (d >= s) return fmt::format("rank {} step {} depends on {}", r, s, d);
          followers[at(r)][d].push_back(s);
        }
        waiting[at(r)][s] = p.steps[s].deps;
        if (p.steps[s].deps == 0) ready.push_back({r, s});
      }
    }
    std::map<std::tuple<int, int, uint32_t>, Ready> posted_sends, posted_receives;  // (from, to, tag)
    const auto complete = [&](Ready done) {
      left--;
      for (const uint32_t f : followers[at(done.rank)][done.step])
        if (--waiting[at(done.rank)][f] == 0) ready.push_back({done.rank, f});
    };
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      const Ready now = ready.back();
      ready.pop_back();
      const Step& step = program(now.rank).steps[now.step];
      if (step.kind == StepKind::send || step.kind == StepKind::recv) {
        const bool send = step.kind == StepKind::send;
        if (step.peer < 0 || step.peer >= n_ || step.peer == now.rank)
          return fmt::format("rank {} step {}: peer {}", now.rank, now.step, step.peer);
        if (step.tier != tree_.crossing_tier(now.rank, step.peer))
          return fmt::format("rank {} step {}: tier {}", now.rank, now.step, step.tier);
        const auto key = send ? std::make_tuple(now.rank, step.peer, step.tag)
                              : std::make_tuple(step.peer, now.rank, step.tag);
        auto& mine = send ? posted_sends : posted_receives;
        auto& theirs = send ? posted_receives : posted_sends;
        const auto match = theirs.find(key);
        if (match == theirs.end()) {
          mine.emplace(key, now);
          continue;
        }
        const Ready other = match->second;
        theirs.erase(match);
        const Ready from = send ? now : other, to = send ? other : now;
        if (std::string wrong = transfer(from.rank, from.step, to.rank, to.step); !wrong.empty())
          return wrong;
        complete(from);
        complete(to);
      } else {
        if (std::string wrong = compute(now.rank, step); !wrong.empty())
          return fmt::format("rank {} step {}: {}", now.rank, now.step, wrong);
        complete(now);
      }
    }
    if (left > 0) {
      for (const auto& [key, who] : posted_sends)
        return fmt::format("{} steps never ran; {} waits to send to {}", left, std::get<0>(key),
                           std::get<1>(key));
      for (const auto& [key, who] : posted_receives)
        return fmt::format("{} steps never ran; {} waits for {}", left, std::get<1>(key), std::get<0>(key));
      return fmt::format("{} steps never ran", left);
    }
    return check();
  }

  const Program& program(int rank) const { return programs_[at(rank)]; }
  // Units over each group's boundary.
  const std::vector<uint64_t>& sent_units() const { return sent_units_; }
  const std::vector<uint64_t>& received_units() const { return received_units_; }

 private:
  using Memory = std::map<uint64_t, std::vector<Value>>;  // by block

  static size_t at(int rank) { return static_cast<size_t>(rank); }

  bool one_block() const {
    return request_.collective == Collective::all_reduce || request_.collective == Collective::broadcast ||
           request_.collective == Collective::reduce || request_.collective == Collective::barrier;
  }
  uint64_t elements(uint64_t block) const {
    return one_block() ? request_.count : request_.count_of(static_cast<int>(block));
  }
  uint64_t blocks() const { return one_block() ? 1 : static_cast<uint64_t>(n_); }

  void make_memory() {
    inputs_.assign(programs_.size(), {});
    outputs_.assign(programs_.size(), {});
    slots_.assign(programs_.size(), {});
    for (int r = 0; r < n_; r++) {
      for (uint64_t b = 0; b < blocks(); b++) {
        std::vector<Value> in(elements(b));
        for (uint64_t e = 0; e < in.size(); e++) in[e] = input_value(r, b, e);
        const bool has_input =
            (request_.collective != Collective::all_gather || b == static_cast<uint64_t>(r)) &&
            (request_.collective != Collective::broadcast || r == request_.root);
        if (has_input) inputs_[at(r)][b] = in;
        const bool has_output =
            (request_.collective != Collective::reduce_scatter || b == static_cast<uint64_t>(r)) &&
            (request_.collective != Collective::reduce || r == request_.root);
        if (request_.in_place)
          outputs_[at(r)][b] = has_input ? in : std::vector<Value>(in.size());
        else if (has_output)
          outputs_[at(r)][b] = std::vector<Value>(in.size());
      }
      slots_[at(r)].resize(program(r).slots.size());
    }
  }

  // Elements that a range covers: f(block, element).
  template <typename F>
  void visit(const Range& range, F&& f) const {
    using Wide = unsigned __int128;
    uint64_t block = range.block, begin = range.begin, left = range.end - range.begin;
    while (left > 0) {
      const uint64_t units = std::min(left, kUnits - begin), count = elements(block);
      const uint64_t first = static_cast<uint64_t>(Wide{count} * begin / kUnits);
      const uint64_t last = static_cast<uint64_t>(Wide{count} * (begin + units) / kUnits);
      for (uint64_t e = first; e < last; e++) f(block, e);
      left -= units;
      begin = 0;
      block++;
    }
  }

  std::vector<Value*> resolve(int rank, const Operand& o, bool write, std::string* wrong) {
    std::vector<Value*> result;
    const Program& p = program(rank);
    for (const Range& r : p.ranges_of(o))
      visit(r, [&](uint64_t block, uint64_t element) {
        if (o.buffer == Buffer::slot) {
          auto& slot = slots_[at(rank)][o.slot];
          if (slot.empty())
            for (uint32_t i = 0; i < p.slots[o.slot].ranges; i++)
              visit(p.ranges[p.slots[o.slot].first_range + i], [&](uint64_t b, uint64_t e) {
                slot[{b, e}] = Value{};
              });
          const auto it = slot.find({block, element});
          if (it == slot.end()) {
            *wrong = fmt::format("slot {} has no block {} element {}", o.slot, block, element);
            return;
          }
          result.push_back(&it->second);
          return;
        }
        Memory& memory =
            o.buffer == Buffer::input && !request_.in_place ? inputs_[at(rank)] : outputs_[at(rank)];
        if (write && o.buffer == Buffer::input) *wrong = "writes the input";
        const auto it = memory.find(block);
        if (it == memory.end() || element >= it->second.size())
          *wrong = fmt::format("no block {} element {} in its buffer", block, element);
        else
          result.push_back(&it->second[element]);
      });
    return result;
  }

  uint64_t units(int rank, const Operand& o) const {
    uint64_t sum = 0;
    for (const Range& r : program(rank).ranges_of(o)) sum += r.end - r.begin;
    return sum;
  }

  std::string transfer(int from, uint32_t send, int to, uint32_t recv) {
    std::string wrong;
    const Step& s = program(from).steps[send];
    const Operand source = program(from).sources_of(s)[0], target = program(to).steps[recv].target;
    const auto a = resolve(from, source, false, &wrong);
    const auto b = resolve(to, target, true, &wrong);
    if (!wrong.empty() || a.size() != b.size() || units(from, source) != units(to, target))
      return fmt::format("{} step {} to {} step {}: {} and {} elements; {}", from, send, to, recv, a.size(),
                         b.size(), wrong);
    for (size_t i = 0; i < a.size(); i++) {
      if (a[i]->how == 0) return fmt::format("{} step {}: sends what was never written", from, send);
      *b[i] = *a[i];
    }
    const uint64_t count = units(from, source);
    for (int g = tree_.leaf_of_position[at(from)]; g > 0; g = tree_.groups[static_cast<size_t>(g)].parent) {
      const Group& group = tree_.groups[static_cast<size_t>(g)];
      if (to < group.first || to >= group.first + group.size) sent_units_[static_cast<size_t>(g)] += count;
    }
    for (int g = tree_.leaf_of_position[at(to)]; g > 0; g = tree_.groups[static_cast<size_t>(g)].parent) {
      const Group& group = tree_.groups[static_cast<size_t>(g)];
      if (from < group.first || from >= group.first + group.size)
        received_units_[static_cast<size_t>(g)] += count;
    }
    return {};
  }

  std::string compute(int rank, const Step& step) {
    std::string wrong;
    const auto target = resolve(rank, step.target, true, &wrong);
    std::vector<Value> result(target.size());
    for (uint32_t s = 0; s < step.sources; s++) {
      const auto source = resolve(rank, program(rank).sources_of(step)[s], false, &wrong);
      if (source.size() != target.size()) return fmt::format("source {} has another length; {}", s, wrong);
      for (size_t i = 0; i < source.size(); i++) {
        if (source[i]->how == 0) return "reads what was never written";
        result[i].sum += source[i]->sum;
        result[i].how = s == 0 ? source[i]->how : mix(result[i].how, source[i]->how) | 1;
        result[i].finished += source[i]->finished;
      }
    }
    for (size_t i = 0; i < target.size(); i++) {
      if (step.finish) result[i].finished++;
      *target[i] = result[i];
    }
    return wrong;
  }

  std::string check() const {
    for (int r = 0; r < n_; r++)
      for (uint64_t b = 0; b < blocks(); b++) {
        if (request_.collective == Collective::reduce_scatter && b != static_cast<uint64_t>(r)) continue;
        if (request_.collective == Collective::reduce && r != request_.root) continue;
        for (uint64_t e = 0; e < elements(b); e++) {
          const Value& got = outputs_[at(r)].at(b)[e];
          Value want;
          if (request_.reduces()) {
            for (int q = 0; q < n_; q++) want.sum += input_value(q, b, e).sum;
            want.finished = 1;
            want.how = request_.collective == Collective::all_reduce ? outputs_[0].at(b)[e].how : got.how;
          } else {
            want = input_value(
                request_.collective == Collective::broadcast ? request_.root : static_cast<int>(b), b, e);
          }
          if (got != want)
            return fmt::format(
                "rank {} block {} element {}: {}{}{}", r, b, e, got.sum == want.sum ? "" : "wrong sum ",
                got.how == want.how ? "" : "other bits ",
                got.finished == want.finished ? "" : fmt::format("finished {} times", got.finished));
        }
      }
    return {};
  }

  const TierTree& tree_;
  const Request& request_;
  const int n_;
  std::vector<Program> programs_;
  std::vector<Memory> inputs_, outputs_;
  std::vector<std::vector<std::map<std::pair<uint64_t, uint64_t>, Value>>> slots_;
  std::vector<uint64_t> sent_units_, received_units_;
};

}  // namespace sennit::testing
