// shrink.cpp: see tests/random/shrink.hpp: what can be left out of a program, and what goes with
// it.
#include "tests/random/shrink.hpp"

#include <algorithm>

namespace random_programs {
namespace {

using Clock = std::chrono::steady_clock;

// Without events [from, to); what hangs on them goes as well.
Program without_events(const Program& program, size_t from, size_t to) {
  Program rest = program;
  std::vector<bool> gone(program.events.size(), false);
  for (size_t e = from; e < to; e++) gone[e] = true;
  std::vector<int> lost_comms, lost_works;
  const auto lost = [](const std::vector<int>& list, int value) {
    return value >= 0 && std::find(list.begin(), list.end(), value) != list.end();
  };
  std::vector<int> moved(program.events.size(), -1);
  int kept = 0;
  rest.events.clear();
  for (size_t e = 0; e < program.events.size(); e++) {
    Event event = program.events[e];
    const bool of_work = event.action == Action::wait || event.action == Action::free_work;
    if (gone[e] || lost(lost_comms, event.comm) || (of_work && lost(lost_works, event.work))) {
      if (event.made >= 0)
        for (int c = 0; c < std::max<int>(1, static_cast<int>(event.threads.size())); c++)
          lost_comms.push_back(event.made + c);
      if (!of_work && event.work >= 0) lost_works.push_back(event.work);
      continue;
    }
    for (int& x : event.after) x = moved[static_cast<size_t>(x)];
    std::erase(event.after, -1);
    moved[e] = kept++;
    rest.events.push_back(std::move(event));
  }
  return rest;
}

// Without one rank, which stays in the numbering.
Program without_rank(const Program& program, int rank) {
  Program rest = program;
  std::vector<size_t> gone;
  for (size_t e = 0; e < rest.events.size(); e++) {
    Event& event = rest.events[e];
    const bool had_ranks = !event.ranks.empty();
    std::erase(event.members, rank);
    std::erase(event.deviants, rank);
    std::erase(event.ranks, rank);
    if (rank < static_cast<int>(event.colors.size())) event.colors[static_cast<size_t>(rank)] = -1;
    const bool deviates = event.deviation == 0 || !event.deviants.empty();
    if (event.rank == rank || event.peer == rank || event.root == rank ||
        (had_ranks && event.ranks.empty()) || !deviates)
      gone.push_back(e);
    const bool of_members = event.action == Action::init || event.action == Action::create_group;
    if (of_members && event.members.empty()) gone.push_back(e);
    // the others' numbers have holes
    if (event.action == Action::init) event.what = static_cast<int>(How::id);
  }
  for (size_t i = gone.size(); i-- > 0;) rest = without_events(rest, gone[i], gone[i] + 1);
  return rest;
}

class Shrinker {
 public:
  Shrinker(Runner& runner, Shrunk best, int repeats, Clock::time_point end)
      : runner_(runner), best_(std::move(best)), repeats_(repeats), end_(end) {}

  Shrunk run() {
    for (bool better = true; better && Clock::now() < end_;) {
      better = fewer_events();
      for (int r = best_.program.ranks() - 1; r >= 0; r--)
        better |= try_one(without_rank(best_.program, r));
      better |= simpler();
    }
    return std::move(best_);
  }

 private:
  bool try_one(Program candidate) {
    if (candidate == best_.program || Clock::now() >= end_ || candidate.events.empty())
      return false;
    if (!make_model(candidate).invalid.empty()) return false;
    for (int i = 0; i < repeats_ && Clock::now() < end_; i++) {
      best_.tries++;
      Outcome outcome = runner_.run(candidate);
      if (outcome.kind != best_.outcome.kind) continue;  // also where nothing is wrong
      best_.program = std::move(candidate);
      best_.outcome = std::move(outcome);
      return true;
    }
    return false;
  }

  bool fewer_events() {
    bool better = false;
    for (size_t part = std::max<size_t>(1, best_.program.events.size() / 2); part > 0; part /= 2)
      for (size_t from = best_.program.events.size(); from > 0;) {
        from = from > part ? from - part : 0;
        const size_t to = std::min(from + part, best_.program.events.size());
        if (from < to) better |= try_one(without_events(best_.program, from, to));
        from = std::min(from, best_.program.events.size());
      }
    return better;
  }

  bool simpler() {
    bool better = false;
    Program one = best_.program;
    one.options.clear();
    better |= try_one(one);
    for (size_t e = 0; e < best_.program.events.size(); e++) {
      one = best_.program;
      Event& event = one.events[e];
      event.memory = event.in_place = event.gaps = 0;
      if (event.count > 1) event.count = 1;
      better |= try_one(one);
    }
    one = best_.program;
    for (int& threads : one.threads) threads = 1;
    return better | try_one(one);
  }

  Runner& runner_;
  Shrunk best_;
  const int repeats_;
  const Clock::time_point end_;
};

}  // namespace

Shrunk shrink(Runner& runner, const Program& failing, const Outcome& outcome, int repeats,
              std::chrono::seconds limit) {
  return Shrinker(runner, {failing, outcome, 0}, repeats, Clock::now() + limit).run();
}

}  // namespace random_programs
