// model.cpp: see tests/random/model.hpp: what each event of a program must return, by what
// disturbs its communicator.
#include "tests/random/model.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/random/contents.hpp"

namespace random_programs {
namespace {

bool has(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// What fails a communicator, and from which ranks' doing.
struct Disturbance {
  int event;
  int status;
  std::vector<int> origins;
  std::vector<bool> over;  // events of the origin, if it is one, that surely come before
};

class Maker {
 public:
  explicit Maker(const Program& program) : program_(program) {}

  Model make() {
    try {
      find_comms_and_works();
      find_steps();
      find_disturbances();
      find_calm();
      for (int e = 0; e < events(); e++)
        for (int r = 0; r < program_.ranks(); r++)
          if (has(parts_[index(e)], r)) model_.allowed[index(e)][index(r)] = allowed(e, r);
      check_certain();
      find_tidy();
    } catch (const std::string& why) {
      model_.invalid = why;
    }
    return std::move(model_);
  }

 private:
  static size_t index(int i) { return static_cast<size_t>(i); }
  int events() const { return static_cast<int>(program_.events.size()); }
  const Event& event(int e) const { return program_.events[index(e)]; }
  // Of a wait, the event that started the work.
  int start_of(int e) const {
    const bool of_work = event(e).action == Action::wait || event(e).action == Action::free_work;
    return of_work ? model_.start_of_work[index(event(e).work)] : e;
  }
  int comm_of(int e) const { return event(start_of(e)).comm; }
  const Comm& comm(int c) const { return model_.comms[index(c)]; }

  void require(bool holds, int e, const char* why) const {
    if (!holds) throw fmt::format("event {} ({}): {}", e, to_text(event(e)), why);
  }

  void add_comm(int number, Comm made) {
    if (index(number) >= model_.comms.size()) model_.comms.resize(index(number) + 1);
    model_.comms[index(number)] = std::move(made);
  }

  void find_comms_and_works() {
    for (int e = 0; e < events(); e++) {
      const Event& ev = event(e);
      if (ev.comm >= 0)
        require(index(ev.comm) < model_.comms.size() && comm(ev.comm).made_by >= 0, e,
                "no such communicator yet");
      const auto thread = [&](size_t i) { return i < ev.threads.size() ? ev.threads[i] : 0; };
      if (ev.action == Action::init) {
        require(!ev.members.empty(), e, "a job without members");
        add_comm(ev.made, {e, e, 0, ev.members, thread(0)});
      } else if (ev.action == Action::dup) {
        add_comm(ev.made, {comm(ev.comm).job, e, 0, comm(ev.comm).members, thread(0)});
      } else if (ev.action == Action::create_group) {
        require(!ev.members.empty(), e, "a group without members");
        for (const int r : ev.members)
          require(has(comm(ev.comm).members, r), e, "one that the communicator does not have");
        add_comm(ev.made, {comm(ev.comm).job, e, 0, ev.members, thread(0)});
      } else if (ev.action == Action::split) {
        add_parts(e);
      } else if (ev.work >= 0 && (ev.action == Action::call || ev.action == Action::message)) {
        if (index(ev.work) >= model_.start_of_work.size())
          model_.start_of_work.resize(index(ev.work) + 1, -1);
        model_.start_of_work[index(ev.work)] = e;
      } else if (ev.work >= 0) {
        require(index(ev.work) < model_.start_of_work.size() && start_of(e) >= 0, e,
                "no such work yet");
      }
    }
  }

  void add_parts(int e) {
    const Event& ev = event(e);
    std::map<int, std::vector<std::pair<int, int>>> parts;  // by color: key and place
    const Comm parent = comm(ev.comm);
    for (size_t i = 0; i < parent.members.size(); i++) {
      const size_t rank = index(parent.members[i]);
      require(rank < ev.colors.size() && rank < ev.keys.size(), e, "a member without color or key");
      if (ev.colors[rank] >= 0)
        parts[ev.colors[rank]].emplace_back(ev.keys[rank], static_cast<int>(i));
    }
    for (auto& [color, chosen] : parts) {
      std::sort(chosen.begin(), chosen.end());
      Comm made{parent.job,
                e,
                color,
                {},
                index(color) < ev.threads.size() ? ev.threads[index(color)] : 0};
      for (const auto& [key, place] : chosen) made.members.push_back(parent.members[index(place)]);
      add_comm(ev.made + color, std::move(made));
    }
  }

  std::vector<int> who(int e) const {
    const Event& ev = event(e);
    std::vector<int> ranks;
    switch (ev.action) {
      case Action::init:
      case Action::create_group:
        ranks = ev.members;
        break;
      case Action::group_begin:
      case Action::group_end:
        ranks = ev.ranks;
        break;
      case Action::bad_call:
      case Action::abort:
      case Action::kill:
      case Action::fork_child:
        ranks = {ev.rank};
        break;
      default: {
        const Event& start = event(start_of(e));
        if (start.action == Action::message) {
          ranks = {start.rank};
          if (start.peer != start.rank) ranks.push_back(start.peer);
        } else {
          ranks = comm(start.comm).members;
        }
      }
    }
    std::erase_if(ranks, [&](int r) {
      return model_.dies[index(r)] >= 0 || (!ev.ranks.empty() && !has(ev.ranks, r));
    });
    return ranks;
  }

  int thread_of(int e, int rank) const {
    const Event& ev = event(e);
    const int threads = program_.threads[index(rank)];
    // also one of its own
    if (ev.action == Action::abort || ev.action == Action::kill || ev.action == Action::fork_child)
      if (ev.thread >= 0) return ev.thread;
    if (ev.thread >= 0) return ev.thread % threads;
    const int c = ev.action == Action::init ? ev.made : comm_of(e);
    return c >= 0 ? comm(c).thread % threads : 0;
  }

  void find_steps() {
    const size_t n = index(program_.ranks());
    model_.dies.assign(n, -1);
    model_.steps.resize(n);
    model_.waits.assign(n, std::vector<std::vector<int>>(index(events())));
    model_.allowed.assign(index(events()), std::vector<uint32_t>(n, 0));
    model_.group_of.assign(index(events()), -1);
    thread_.assign(index(events()), std::vector<int>(n, -1));
    for (int e = 0; e < events(); e++) {
      parts_.push_back(who(e));
      require(!parts_.back().empty() || event(e).action != Action::init, e, "nobody takes part");
      for (const int r : parts_.back()) add_step(e, r);
      if (event(e).action == Action::kill) model_.dies[index(event(e).rank)] = e;
      if (event(e).action == Action::group_begin) open_.push_back(e);
      if (event(e).action == Action::group_end) close_group(e);
      if (!open_.empty()) in_group_.push_back(e);
    }
    require(open_.empty(), events() - 1, "a group that does not end");
  }

  void close_group(int e) {
    require(!open_.empty(), e, "no group is open");
    open_.pop_back();
    if (!open_.empty()) return;
    for (const int x : in_group_) {
      if (event(x).action == Action::call || event(x).action == Action::message)
        model_.group_of[index(x)] = e;
      if (event(x).comm < 0) continue;
      // whoever uses the communicator next waits for the group's end
      for (const int r : parts_[index(x)]) {
        require(
            has(event(e).ranks, r) && thread_[index(x)][index(r)] == thread_[index(e)][index(r)], x,
            "in a group of another thread");
        before_[{r, event(x).comm}] = {e};
      }
    }
    in_group_.clear();
  }

  void add_step(int e, int r) {
    const Event& ev = event(e);
    const int t = thread_of(e, r);
    thread_[index(e)][index(r)] = t;
    auto& threads = model_.steps[index(r)];
    threads.resize(std::max(threads.size(), index(t) + 1));
    threads[index(t)].push_back(e);
    std::vector<int> wanted = ev.after;
    const int c = ev.action == Action::init ? ev.made : comm_of(e);
    if (ev.action == Action::init && static_cast<How>(ev.what) == How::env) {
      // Nothing in the environment tells one job of these ranks from the next: all must start them
      // in the same order.
      const auto before = last_from_env_.find(r);
      if (before != last_from_env_.end()) wanted.push_back(before->second);
      last_from_env_[r] = e;
    }
    // Beside what the communicator's own thread does.
    const bool elsewhere = ev.action == Action::create_group && ev.thread >= 0;
    if (c >= 0 && (ev.action == Action::abort || elsewhere)) {
      wanted.push_back(comm(c).made_by);
      before_[{r, c}].push_back(e);
    } else if (c >= 0) {
      const std::vector<int>& before = before_[{r, c}];
      wanted.insert(wanted.end(), before.begin(), before.end());
      before_[{r, c}] = {e};
    }
    if (ev.action == Action::split || ev.action == Action::dup || ev.action == Action::create_group)
      for (size_t made = 0; made < model_.comms.size(); made++)
        if (model_.comms[made].made_by == e) before_[{r, static_cast<int>(made)}] = {e};
    for (const int x : wanted) {
      require(x >= 0 && x < e && has(parts_[index(x)], r), e,
              "comes after an event that is none of its rank's");
      if (thread_[index(x)][index(r)] != t) model_.waits[index(r)][index(e)].push_back(x);
    }
  }

  // ---- statuses ----

  void find_disturbances() {
    disturbances_.resize(model_.comms.size());
    for (int e = 0; e < events(); e++) {
      const Event& ev = event(e);
      if (ev.action == Action::abort && !parts_[index(e)].empty())
        disturbances_[index(ev.comm)].push_back(
            {e, SENNIT_ABORTED, {ev.rank}, surely_over(e, ev.rank)});
      if (ev.action == Action::kill)
        for (size_t c = 0; c < model_.comms.size(); c++)
          if (has(model_.comms[c].members, ev.rank))
            disturbances_[c].push_back({e, SENNIT_PEER_FAILED, {ev.rank}, surely_over(e, ev.rank)});
      if (ev.deviants.empty()) continue;
      const std::vector<int> origins =
          ev.action == Action::message ? ev.deviants : comm(ev.comm).members;
      disturbances_[index(ev.comm)].push_back({e, SENNIT_MISMATCH, origins, {}});
    }
  }

  void find_calm() {
    for (const auto& of_comm : disturbances_) model_.calm.push_back(of_comm.empty());
  }

  // The events of `rank` that are surely over before it comes to event `e`: those before it in its
  // thread, those that it waits for, and theirs.
  std::vector<bool> surely_over(int e, int rank) const {
    std::vector<bool> over(program_.events.size(), false);
    std::vector<int> from = {e};
    while (!from.empty()) {
      const int x = from.back();
      from.pop_back();
      std::vector<int> earlier = model_.waits[index(rank)][index(x)];
      const auto& thread = model_.steps[index(rank)][index(thread_[index(x)][index(rank)])];
      const auto at = std::lower_bound(thread.begin(), thread.end(), x);
      if (at != thread.begin()) earlier.push_back(*std::prev(at));
      for (const int y : earlier) {
        if (over[index(y)]) continue;
        over[index(y)] = true;
        from.push_back(y);
      }
    }
    return over;
  }

  // The last event on `c` that the origin surely has behind it when the disturbance begins.
  int fence(const Disturbance& d, int c) const {
    if (d.status == SENNIT_MISMATCH) return d.event - 1;
    for (int e = d.event - 1; e >= 0; e--)
      if (d.over[index(e)] && comm_of(e) == c) return e;
    return -1;
  }

  // Whether what was over at event `end` was so before any disturbance could be felt.
  bool surely_before(int end, int c, int rank) const {
    for (const Disturbance& d : disturbances_[index(c)]) {
      if (own_death(d, rank)) continue;
      bool fenced = false;
      for (const int origin : d.origins) {
        const int last = fence(d, c);
        for (int y = end + 1; y <= last && !fenced; y++)
          fenced = event(y).comm == c && event(y).work < 0 && model_.group_of[index(y)] < 0 &&
                   waits_for_all(event(y)) && comm(c).members.size() > 1 &&
                   event(y).ranks.empty() && has(parts_[index(y)], origin);
        if (fenced) break;
      }
      if (!fenced && !only_me(d, c, end)) return false;
    }
    return true;
  }
  // A communicator of one rank: order within the thread is all there is.
  bool only_me(const Disturbance& d, int c, int end) const {
    return comm(c).members.size() == 1 && d.status == SENNIT_ABORTED && end <= fence(d, c);
  }

  // Whether the call that began at `start` on `rank` cannot have gone well.
  bool surely_fails(int start, int c, int rank) const {
    for (const Disturbance& d : disturbances_[index(c)]) {
      if (start < d.event || own_death(d, rank)) continue;
      if (start == d.event && has(d.origins, rank)) return true;  // who only sent may be through
      for (const int origin : d.origins)
        if (origin == rank || needs(event(start), comm(c), rank, origin)) return true;
    }
    return false;
  }

  // Of which it feels nothing.
  static bool own_death(const Disturbance& d, int rank) {
    return d.status == SENNIT_PEER_FAILED && d.origins[0] == rank;
  }

  uint32_t statuses(int c, int rank) const {
    uint32_t all = 0;
    for (const Disturbance& d : disturbances_[index(c)])
      if (!own_death(d, rank)) all |= bit(d.status);
    return all;
  }

  // Of handing in a call, without waiting for it: it fails only where the rank knows already.
  uint32_t of_submission(int e, int c, int rank) const {
    if (surely_before(e, c, rank)) return bit(SENNIT_OK);
    for (const Disturbance& d : disturbances_[index(c)])
      if (e > d.event && has(d.origins, rank)) return statuses(c, rank);
    return statuses(c, rank) | bit(SENNIT_OK);
  }
  uint32_t of_completion(int start, int end, int c, int rank) const {
    if (surely_fails(start, c, rank)) return statuses(c, rank);
    if (surely_before(end, c, rank)) return bit(SENNIT_OK);
    return statuses(c, rank) | bit(SENNIT_OK);
  }

  // A job starts for all; only a death can come before all know.
  uint32_t of_start(int e, int rank) const {
    return surely_before(e, event(e).made, rank) ? bit(SENNIT_OK) : only_deaths(event(e).made);
  }
  uint32_t only_deaths(int c) const {
    uint32_t all = bit(SENNIT_OK);
    for (const Disturbance& d : disturbances_[index(c)])
      if (d.status == SENNIT_PEER_FAILED) all |= bit(d.status);
    return all;
  }

  uint32_t of_group(int e, int rank) const {
    uint32_t all = bit(SENNIT_OK);
    bool fails = false;
    for (int x = 0; x < e; x++) {
      if (model_.group_of[index(x)] != e || !has(parts_[index(x)], rank)) continue;
      const uint32_t one = of_completion(x, e, event(x).comm, rank);
      all |= one;
      // What was refused when it was handed in is no part of the group any more.
      fails |= !(one & bit(SENNIT_OK)) && of_submission(x, event(x).comm, rank) == bit(SENNIT_OK);
    }
    return fails ? all & ~bit(SENNIT_OK) : all;
  }

  uint32_t of_wait(int e, int rank) const {
    const Event& ev = event(e);
    const int start = start_of(e), c = event(start).comm;
    if (static_cast<Wait>(ev.what) == Wait::inside_group)
      return bit(SENNIT_INVALID_ARGUMENT) | skipped(start, c, rank);
    uint32_t all = of_completion(start, e, c, rank);
    if (static_cast<Wait>(ev.what) == Wait::look) all |= bit(SENNIT_IN_PROGRESS);
    return all | skipped(start, c, rank);
  }
  uint32_t skipped(int start, int c, int rank) const {
    return of_submission(start, c, rank) == bit(SENNIT_OK) ? 0 : bit(kSkipped);
  }

  uint32_t allowed(int e, int r) const {
    const Event& ev = event(e);
    const int c = comm_of(e);
    switch (ev.action) {
      case Action::call:
      case Action::message:
        if (ev.work >= 0 || model_.group_of[index(e)] >= 0) return of_submission(e, c, r);
        return of_completion(e, e, c, r);
      case Action::split:
      case Action::dup:
      case Action::finalize:
        return of_completion(e, e, c, r);
      case Action::init:
        return of_start(e, r);
      case Action::create_group:  // only a death is in its way
        return surely_before(e, c, r) ? bit(SENNIT_OK) : only_deaths(c);
      case Action::group_end:
        return of_group(e, r);
      case Action::wait:
        return of_wait(e, r);
      case Action::bad_call:
        return bit(SENNIT_INVALID_ARGUMENT) | (of_submission(e, c, r) & ~bit(SENNIT_OK));
      case Action::query:
        return of_submission(e, c, r);
      case Action::free_work:
        return bit(SENNIT_OK) | skipped(start_of(e), c, r);
      default:
        return bit(SENNIT_OK);
    }
  }

  void find_tidy() {
    std::set<int> comms, works;
    for (const Event& ev : program_.events) {
      if (ev.action == Action::destroy) comms.insert(ev.comm);
      if (ev.action == Action::free_work) works.insert(ev.work);
    }
    for (size_t c = 0; c < model_.comms.size(); c++)
      model_.tidy &= model_.comms[c].made_by < 0 || comms.count(static_cast<int>(c)) > 0;
    for (size_t w = 0; w < model_.start_of_work.size(); w++)
      model_.tidy &= model_.start_of_work[w] < 0 || works.count(static_cast<int>(w)) > 0;
  }

  // A communicator of which it is not sure that all its members have it cannot be used; but where
  // one of them died while the others were still starting, all calls fail, and those who are not
  // even started have nothing to call with.
  void check_certain() {
    for (int e = 0; e < events(); e++) {
      const int c = event(e).action == Action::init ? -1 : comm_of(e);
      if (c < 0) continue;
      const int made_by = comm(c).made_by;
      for (const int r : comm(c).members) {
        if (!model_.takes_part(made_by, r) ||
            model_.allowed[index(made_by)][index(r)] == bit(SENNIT_OK))
          continue;
        require(event(made_by).action == Action::init, e, "a communicator that may not be there");
        if (model_.takes_part(e, r)) model_.allowed[index(e)][index(r)] |= bit(kSkipped);
      }
    }
  }

  const Program& program_;
  Model model_;
  std::vector<std::vector<int>> parts_;   // [event]: ranks
  std::vector<std::vector<int>> thread_;  // [event][rank]
  // rank, communicator: what its next event comes after
  std::map<std::pair<int, int>, std::vector<int>> before_;
  std::map<int, int> last_from_env_;                    // rank: event
  std::vector<int> open_, in_group_;                    // groups
  std::vector<std::vector<Disturbance>> disturbances_;  // by communicator
};

}  // namespace

Model make_model(const Program& program) { return Maker(program).make(); }

int place_of(const Comm& comm, int rank) {
  const auto found = std::find(comm.members.begin(), comm.members.end(), rank);
  return found == comm.members.end() ? -1 : static_cast<int>(found - comm.members.begin());
}

bool waits_for_all(const Event& event) {
  switch (event.action) {
    case Action::split:
    case Action::dup:
    case Action::finalize:
      return true;
    case Action::call:
      switch (static_cast<Collective>(event.what)) {
        case Collective::barrier:
          return true;
        case Collective::all_reduce:
        case Collective::reduce_scatter:
        case Collective::all_gather:
        case Collective::all_to_all:
          return event.count > 0;
        default:
          return false;
      }
    default:
      return false;
  }
}

}  // namespace random_programs
