// generator.cpp: see tests/random/generator.hpp. Events are appended in an order in which they
// could run one at a time (tests/random/program.hpp); what has to be certain before a communicator
// is disturbed is made so by a barrier (certain()), which tests/random/model.cpp checks.
#include "tests/random/generator.hpp"

#include <algorithm>
#include <map>
#include <random>

#include "sennit/sennit.h"
#include "tests/random/contents.hpp"
#include "tests/support/usable_transports.hpp"

namespace random_programs {
namespace {

const std::set<std::string> kFeatures = {
    "abort",         "again", "bad",     "create",   "env",       "fork",    "group",
    "group_wait",    "kill",  "large",   "mismatch", "new_abort", "options", "sealed",
    "split_at_once", "tags",  "threads", "two_jobs", "unwaited"};

class Generator {
 public:
  Generator(uint64_t seed, const GeneratorOptions& options)
      : options_(options),
        one_process_(sennit_test::within_one_process(options.transport)),
        random_(seed) {
    program_.seed = seed;
  }

  Program make() {
    program_.transport = options_.transport;
    choose_ranks();
    choose_options();
    const int jobs = with("again") ? 1 + static_cast<int>(chance(25)) +
                                         static_cast<int>(chance(8)) * between(1, 3)
                                   : 1;
    const bool env = with("env") && !one_process_ && chance(jobs > 1 ? 50 : 10);
    for (int job = 0; job < jobs && alive().size() > 1; job++) {
      init(env && dead_.empty());
      const bool two = with("two_jobs") && !env && chance(6);
      if (two) init(false);
      const int steps = jobs > 2 ? between(0, 6) : between(6, 26);
      const int when_killed = options_.kill && dead_.empty() ? between(0, steps) : -1;
      for (int i = 0; i <= steps; i++) {
        if (i == when_killed) kill();
        if (i < steps) step();
      }
      end_job();
    }
    return std::move(program_);
  }

 private:
  struct State {  // of a communicator
    std::vector<int> members;
    int thread = 0;
    bool disturbed = false;
    int last_split = -1, last_sync = -1, first = 0;
  };
  struct PendingWork {
    int number, comm;
    std::set<int> ranks;   // that have a handle
    std::set<int> waited;  // of these
    bool plain;
  };

  // ---- chance ----

  int between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  template <typename C>
  auto any(const C& list) {
    return *std::next(list.begin(), between(0, static_cast<int>(list.size()) - 1));
  }
  bool with(const char* feature) const { return options_.without.count(feature) == 0; }
  static size_t index(int i) { return static_cast<size_t>(i); }

  // ---- the frame ----

  void choose_ranks() {
    const int range = options_.most_ranks - options_.least_ranks;
    const int ranks = options_.least_ranks + std::min(between(0, range), between(0, range));
    const int usual = with("threads") ? any(std::vector<int>{1, 1, 2, 2, 3, 4}) : 1;
    for (int r = 0; r < ranks; r++)
      program_.threads.push_back(usual > 1 && chance(15) ? between(1, 4) : usual);
    most_threads_ = *std::max_element(program_.threads.begin(), program_.threads.end());
  }

  void choose_options() {
    if (!with("options")) return;
    if (chance(20)) program_.options.push_back("SENNIT_STALL=" + std::to_string(between(20, 300)));
    if (chance(10))
      program_.options.push_back("SENNIT_EAGER_BYTES=" +
                                 std::to_string(any(std::vector<int>{0, 100, 4096, 65536})));
    if (chance(10))
      program_.options.push_back("SENNIT_CHUNK_BYTES=" +
                                 std::to_string(any(std::vector<int>{64, 1000, 4096, 65536})));
    if (chance(5)) program_.options.push_back("SENNIT_REPRODUCIBLE=1");
    if (chance(10))
      program_.options.push_back(
          "SENNIT_ALGORITHM=" +
          any(std::vector<std::string>{"ring", "tiered", "direct", "double_tree"}));
    if (with("sealed") && sennit_test::can_be_sealed(options_.transport) && chance(25))
      program_.options.push_back("SENNIT_WIRE=sealed");
  }

  std::vector<int> alive() const {
    std::vector<int> ranks;
    for (int r = 0; r < program_.ranks(); r++)
      if (dead_.count(r) == 0) ranks.push_back(r);
    return ranks;
  }
  int random_thread() { return between(0, most_threads_ - 1); }

  int add(Event event) {
    program_.events.push_back(std::move(event));
    return static_cast<int>(program_.events.size()) - 1;
  }
  Event on(Action action, int c) {
    Event event;
    event.action = action;
    event.comm = c;
    return event;
  }

  void add_comm(int number, std::vector<int> members, int thread, int made_by) {
    State state;
    state.members = std::move(members);
    state.thread = thread;
    state.first = made_by;
    comms_[number] = std::move(state);
    next_comm_ = std::max(next_comm_, number + 1);
  }

  void init(bool env) {
    Event event;
    event.action = Action::init;
    event.what = static_cast<int>(env ? How::env : How::id);
    event.made = next_comm_;
    event.members = alive();
    if (!env && chance(30)) std::shuffle(event.members.begin(), event.members.end(), random_);
    event.threads = {chance(80) ? 0 : random_thread()};
    const int made_by = add(event);
    add_comm(event.made, event.members, event.threads[0], made_by);
    // Communicators for the other threads.
    for (int t = 1; t < most_threads_; t++)
      if (chance(60)) dup(event.made, t);
  }

  // ---- which communicators ----

  std::vector<int> calm() const {
    std::vector<int> list;
    for (const auto& [c, state] : comms_)
      if (!state.disturbed) list.push_back(c);
    return list;
  }
  int calm_one() {
    const std::vector<int> list = calm();
    return list.empty() ? -1 : any(list);
  }
  State& state(int c) { return comms_.at(c); }
  std::vector<int> living(int c) {
    std::vector<int> ranks = state(c).members;
    std::erase_if(ranks, [&](int r) { return dead_.count(r) > 0; });
    return ranks;
  }

  // ---- steps ----

  void step() {
    struct Choice {
      int weight;
      void (Generator::*step)();
      const char* feature;
    };
    static constexpr Choice kChoices[] = {
        {50, &Generator::step_call, nullptr},
        {12, &Generator::step_message, nullptr},
        {14, &Generator::step_group, "group"},
        {10, &Generator::step_split, nullptr},
        {8, &Generator::step_split_at_once, "split_at_once"},
        {6, &Generator::step_create, "create"},
        {14, &Generator::step_wait, nullptr},
        {5, &Generator::step_free, nullptr},
        {5, &Generator::step_bad, "bad"},
        {5, &Generator::step_query, nullptr},
        {3, &Generator::step_abort, "abort"},
        {3, &Generator::step_new_abort, "new_abort"},
        {2, &Generator::step_mismatch, "mismatch"},
        {1, &Generator::step_kill, "kill"},
        {4, &Generator::step_fork, "fork"},
        {5, &Generator::step_destroy, nullptr},
        {5, &Generator::step_call_disturbed, nullptr},
    };
    int all = 0;
    for (const Choice& choice : kChoices) all += choice.weight;
    int drawn = between(0, all - 1);
    for (const Choice& choice : kChoices) {
      drawn -= choice.weight;
      if (drawn >= 0) continue;
      if (choice.feature == nullptr || with(choice.feature)) (this->*choice.step)();
      return;
    }
  }

  int random_count(int type) {
    const int kind = between(0, 99), size = static_cast<int>(bytes_of_type(type));
    if (kind < 5) return 0;
    if (kind < 70 || !with("large")) return between(1, 20);
    if (kind < 88) return between(20, 3000);
    if (kind < 97)
      return std::max(1, any(std::vector<int>{4096, 8192, 16384, 65536}) / size + between(-1, 1));
    return std::max(1, any(std::vector<int>{131072, 262144, 600000}) / size + between(-1, 1));
  }

  Event random_call(int c) {
    Event event = on(Action::call, c);
    event.what = between(0, static_cast<int>(Collective::all_to_all_v));
    event.type = between(0, 11);
    event.count = random_count(event.type);
    if (static_cast<Collective>(event.what) == Collective::barrier) event.count = event.type = 0;
    const auto what = static_cast<Collective>(event.what);
    if (what == Collective::all_reduce || what == Collective::reduce ||
        what == Collective::reduce_scatter || what == Collective::reduce_scatter_v)
      event.op = random_op(event.type <= SENNIT_UINT64);
    const bool rooted = what == Collective::broadcast || what == Collective::reduce ||
                        what == Collective::gather || what == Collective::scatter ||
                        what == Collective::gather_v || what == Collective::scatter_v;
    if (rooted) event.root = any(state(c).members);
    event.in_place = chance(30);
    event.gaps = what >= Collective::all_gather_v && chance(40);
    event.memory = chance(60) ? 0 : between(0, 3);
    return event;
  }

  // Bitwise ones are of integers alone.
  int random_op(bool bitwise) {
    const int op = between(0, kPremulSum);
    return bitwise || op <= SENNIT_AVG || op == kPremulSum ? op : op - SENNIT_AVG;
  }

  // Adds the call, or what waits like it.
  int add_call(Event event, bool nonblocking) {
    const int c = event.comm;
    if (nonblocking) event.work = next_work_++;
    const int e = add(event);
    if (waits_for_all(event) && event.work < 0 && event.deviants.empty() && !in_group_)
      state(c).last_sync = e;
    if (nonblocking) {
      std::vector<int> ranks = living(c);
      if (event.action == Action::message) ranks = {event.rank, event.peer};
      works_.push_back({event.work, c, {ranks.begin(), ranks.end()}, {}, event.memory < 2});
    }
    return e;
  }

  void step_call() {
    if (const int c = calm_one(); c >= 0) add_call(random_call(c), chance(35));
  }
  // What comes to a communicator that has failed.
  void step_call_disturbed() {
    std::vector<int> list;
    for (const auto& [c, s] : comms_)
      if (s.disturbed) list.push_back(c);
    if (!list.empty()) add_call(random_call(any(list)), chance(25));
  }

  Event random_message(int c, bool to_itself) {
    const int rank = any(state(c).members);
    int peer = rank;
    do peer = any(state(c).members);
    while (peer == rank && !to_itself);
    return random_message(c, rank, peer);
  }
  Event random_message(int c, int rank, int peer) {
    Event event = on(Action::message, c);
    event.rank = rank;
    event.peer = peer;
    if (with("tags") && chance(60)) {
      // What may be received from any source has a tag that no other rank sends with, or it would
      // not be known whose message comes.
      const bool own = chance(60);
      event.tag = own ? 10 + rank : between(0, 2);
      event.any = own && rank != peer && chance(60);
    }
    event.type = between(0, 11);
    event.count = random_count(event.type);
    event.memory = chance(70) ? 0 : between(0, 3);
    return event;
  }
  void step_message() {
    if (const int c = calm_one(); c >= 0 && state(c).members.size() > 1)
      add_call(random_message(c, false), chance(40));
  }

  void step_group() {
    const int first = calm_one();
    if (first < 0) return;
    std::vector<int> same;  // of the same thread
    for (const int c : calm())
      if (state(c).thread == state(first).thread) same.push_back(c);
    Event frame;
    frame.action = Action::group_begin;
    frame.thread = state(first).thread;
    std::set<int> ranks;
    std::vector<int> used = {first};
    if (chance(40)) used.push_back(any(same));
    for (const int c : used) ranks.insert(state(c).members.begin(), state(c).members.end());
    frame.ranks.assign(ranks.begin(), ranks.end());
    add(frame);
    in_group_ = true;
    const bool nested = chance(25);
    if (nested) add(frame);
    fill_group(used);
    frame.action = Action::group_end;
    if (nested) add(frame);
    if (nested && chance(50)) add_call(random_call(first), false);
    add(frame);
    in_group_ = false;
  }

  void fill_group(const std::vector<int>& used) {
    for (int i = between(1, 4); i > 0; i--) {
      const int c = any(used);
      if (chance(40)) {  // a ring
        const std::vector<int>& m = state(c).members;
        for (size_t k = 0; k < m.size(); k++) {
          add_call(random_message(c, m[k], m[(k + 1) % m.size()]), false);
        }
      } else if (chance(30)) {
        add_call(random_message(c, true), false);
      } else {
        const bool nonblocking = chance(35);
        add_call(random_call(c), nonblocking);
        if (nonblocking && with("group_wait") && chance(50)) {
          Event wait = on(Action::wait, -1);
          wait.work = works_.back().number;
          wait.what = static_cast<int>(Wait::inside_group);
          add(wait);
        }
      }
    }
  }

  void dup(int c, int thread) {
    Event event = on(Action::dup, c);
    event.made = next_comm_;
    event.threads = {thread};
    const int e = add(event);
    state(c).last_split = e;
    state(c).last_sync = std::max(state(c).last_sync, -1);
    add_comm(event.made, state(c).members, thread, e);
  }

  std::vector<int> split(int c) {
    if (chance(25)) {
      dup(c, random_thread());
      return {next_comm_ - 1};
    }
    Event event = on(Action::split, c);
    event.made = next_comm_;
    event.colors.assign(index(program_.ranks()), -1);
    event.keys.assign(index(program_.ranks()), 0);
    const int colors = between(1, 3);
    const bool sorted = chance(50);
    std::map<int, std::vector<std::pair<std::pair<int, int>, int>>> parts;
    for (size_t i = 0; i < state(c).members.size(); i++) {
      const int rank = state(c).members[i];
      event.colors[index(rank)] = chance(10) ? -1 : between(0, colors - 1);
      event.keys[index(rank)] = sorted ? 0 : between(-3, 3);
      if (const int color = event.colors[index(rank)]; color >= 0)
        parts[color].push_back({{event.keys[index(rank)], static_cast<int>(i)}, rank});
    }
    for (int color = 0; color < colors; color++) event.threads.push_back(random_thread());
    const int e = add(event);
    state(c).last_split = e;
    std::vector<int> made;
    for (auto& [color, chosen] : parts) {
      std::sort(chosen.begin(), chosen.end());
      std::vector<int> members;
      for (const auto& [order, rank] : chosen) members.push_back(rank);
      add_comm(event.made + color, members, event.threads[index(color)], e);
      made.push_back(event.made + color);
    }
    next_comm_ = event.made + colors;
    return made;
  }

  void step_split() {
    if (const int c = calm_one(); c >= 0 && comms_.size() < 10) split(c);
  }

  // By some members alone, also beside what others do with the communicator.
  void step_create() {
    const int c = calm_one();
    if (c < 0 || comms_.size() > 10) return;
    Event event = on(Action::create_group, c);
    for (const int rank : state(c).members)
      if (chance(70)) event.members.push_back(rank);
    if (event.members.empty()) return;
    std::shuffle(event.members.begin(), event.members.end(), random_);
    event.made = next_comm_;
    if (chance(40)) {
      event.thread = random_thread();
      event.tag = event.made;
    }
    event.threads = {random_thread()};
    const int e = add(event);
    state(c).last_split = e;
    add_comm(event.made, event.members, event.threads[0], e);
    if (chance(70)) add_call(random_call(event.made), chance(20));
  }

  // Of two communicators by two threads.
  void step_split_at_once() {
    if (comms_.size() > 10) return;
    const int a = calm_one();
    if (a < 0) return;
    std::vector<int> others;
    for (const int c : calm())
      if (state(c).thread != state(a).thread && state(c).members.size() > 1) others.push_back(c);
    if (others.empty()) return;
    const int b = any(others);
    std::vector<int> made = split(a);
    for (const int c : split(b)) made.push_back(c);
    for (int i = between(0, 3); i > 0 && !made.empty(); i--)
      add_call(random_call(any(made)), chance(20));
  }

  void step_wait() {
    std::vector<size_t> open;
    for (size_t w = 0; w < works_.size(); w++)
      if (works_[w].waited.size() < works_[w].ranks.size()) open.push_back(w);
    if (open.empty()) return;
    wait_for(works_[any(open)], chance(50));
  }

  void wait_for(PendingWork& work, bool all) {
    std::vector<int> ranks;
    for (const int r : work.ranks)
      if (dead_.count(r) == 0 && work.waited.count(r) == 0 && (all || chance(50)))
        ranks.push_back(r);
    if (ranks.empty()) return;
    Event event = on(Action::wait, -1);
    event.work = work.number;
    event.ranks = ranks;
    event.what = between(0, static_cast<int>(Wait::look));
    add(event);
    if (static_cast<Wait>(event.what) != Wait::look) work.waited.insert(ranks.begin(), ranks.end());
  }

  void free_work(size_t w) {
    Event event = on(Action::free_work, -1);
    event.work = works_[w].number;
    for (const int r : works_[w].ranks)
      if (dead_.count(r) == 0) event.ranks.push_back(r);
    if (!event.ranks.empty()) add(event);
    works_.erase(works_.begin() + static_cast<ptrdiff_t>(w));
  }
  void step_free() {
    if (!works_.empty()) free_work(index(between(0, static_cast<int>(works_.size()) - 1)));
  }

  void step_bad() {
    const int c = any_comm();
    if (c < 0 || living(c).empty()) return;
    Event event = on(Action::bad_call, c);
    event.rank = any(living(c));
    event.what = between(0, static_cast<int>(Bad::foreign_op));
    add(event);
  }
  int any_comm() { return comms_.empty() ? -1 : any(comms_).first; }
  void step_query() {
    if (const int c = any_comm(); c >= 0) add(on(Action::query, c));
  }

  // ---- what fails communicators ----

  // Whoever is told that a split failed has no communicator, and others might: so all have left the
  // last one.
  void certain(int c) {
    if (state(c).last_split <= state(c).last_sync) return;
    Event event = on(Action::call, c);
    event.what = static_cast<int>(Collective::barrier);
    add_call(event, false);
  }

  void abort(int c, int rank, bool elsewhere) {
    certain(c);
    Event event = on(Action::abort, c);
    event.rank = rank;
    // the last: one of its own
    if (elsewhere) event.thread = between(0, program_.threads[index(rank)]);
    if (elsewhere && state(c).last_split >= 0) event.after = {state(c).last_sync};
    add(event);
    state(c).disturbed = true;
  }
  void step_abort() {
    const int c = calm_one();
    if (c < 0) return;
    abort(c, any(state(c).members), chance(50));
    for (int i = between(0, 2); i > 0; i--) add_call(random_call(c), chance(25));
  }
  // Of a communicator that others may not have yet.
  void step_new_abort() {
    const int parent = calm_one();
    if (parent < 0 || comms_.size() > 10) return;
    const std::vector<int> made = split(parent);
    if (made.empty()) return;
    const int c = any(made);
    abort(c, any(state(c).members), chance(30));
    for (int i = between(1, 3); i > 0; i--) add_call(random_call(c), chance(15));
  }

  void step_mismatch() {
    const int c = calm_one();
    if (c < 0 || state(c).members.size() < 2) return;
    certain(c);
    if (chance(25)) {  // who receives expects another count or type
      Event event = random_message(c, false);
      event.deviation = static_cast<int>(chance(50) ? Deviation::count : Deviation::type);
      event.deviants = {event.peer};
      event.count = std::clamp(event.count, 1, 5000);
      add_call(event, false);
      state(c).disturbed = true;
      return;
    }
    Event event = random_call(c);
    static constexpr Collective kAll[] = {Collective::all_reduce, Collective::reduce_scatter,
                                          Collective::all_gather, Collective::all_to_all,
                                          Collective::barrier};
    event.what = static_cast<int>(kAll[between(0, 4)]);
    const bool barrier = static_cast<Collective>(event.what) == Collective::barrier;
    const bool reduces = static_cast<Collective>(event.what) <= Collective::reduce_scatter;
    event.count = barrier ? 0 : std::clamp(event.count, 1, 5000);
    event.root = -1;
    event.gaps = 0;
    event.op = reduces ? random_op(false) : 0;
    if (barrier) event.type = 0;
    event.deviation =
        static_cast<int>(barrier ? Deviation::collective : static_cast<Deviation>(between(1, 4)));
    if (static_cast<Deviation>(event.deviation) == Deviation::op && !reduces)
      event.deviation = static_cast<int>(Deviation::count);
    const std::vector<int>& members = state(c).members;
    while (event.deviants.empty())
      for (const int r : members)
        if (chance(30) && event.deviants.size() + 1 < members.size()) event.deviants.push_back(r);
    add_call(event, false);
    state(c).disturbed = true;
  }

  void step_kill() {
    if (!one_process_ && alive().size() > 2 && (dead_.empty() || chance(20)) && !options_.kill)
      kill();
  }
  void kill() {
    if (one_process_ || comms_.empty()) return;
    Event event;
    event.action = Action::kill;
    event.rank = any(alive());
    event.thread = between(0, program_.threads[index(event.rank)]);  // the last: one of its own
    for (const auto& [c, s] : comms_) {
      if (std::find(s.members.begin(), s.members.end(), event.rank) == s.members.end()) continue;
      if (!s.disturbed) certain(c);
      if (s.last_split >= 0) event.after.push_back(s.last_sync);
      state(c).disturbed = true;
    }
    for (const auto& [members, sync] : destroyed_)
      if (members.count(event.rank) > 0) event.after.push_back(sync);
    const bool later = !event.after.empty();
    // Who never came to the start of a job is waited for, as long as for any that is late.
    for (size_t e = 0; e < program_.events.size(); e++) {
      const Event& start = program_.events[e];
      if (start.action == Action::init &&
          std::find(start.members.begin(), start.members.end(), event.rank) != start.members.end())
        event.after.push_back(static_cast<int>(e));
    }
    if (!later) event.after.push_back(after_something(event.rank));
    std::erase_if(event.after, [](int e) { return e < 0; });
    add(event);
    dead_.insert(event.rank);
  }
  // In a thread of its own a kill would otherwise come at the very beginning.
  int after_something(int rank) {
    std::vector<int> own;
    for (size_t e = 0; e < program_.events.size(); e++) {
      const Event& event = program_.events[e];
      const bool all_take_part = event.action == Action::split || event.action == Action::dup ||
                                 event.action == Action::call;
      const auto found = comms_.find(all_take_part ? event.comm : -1);
      if (found == comms_.end()) continue;
      const std::vector<int>& members = found->second.members;
      if (std::find(members.begin(), members.end(), rank) != members.end())
        own.push_back(static_cast<int>(e));
    }
    return own.empty() ? -1 : any(own);
  }

  void step_fork() {
    const int c = any_comm();
    if (c < 0 || living(c).empty()) return;
    Event event = on(Action::fork_child, c);
    event.rank = any(living(c));
    event.what = between(0, static_cast<int>(Child::destroys));
    add(event);
  }

  // ---- ends ----

  void destroy(int c) {
    settle(c);
    if (state(c).last_split >= 0) {
      if (!state(c).disturbed) certain(c);
      destroyed_.push_back(
          {{state(c).members.begin(), state(c).members.end()}, state(c).last_sync});
    }
    if (chance(60)) {
      if (!with("unwaited"))
        for (PendingWork& work : works_)
          if (work.comm == c) wait_for_sure(work);
      add(on(Action::finalize, c));
    }
    // Memory that the library knows needs the communicator to go back.
    for (size_t w = works_.size(); w-- > 0;)
      if (works_[w].comm == c && (!works_[w].plain || chance(70))) free_work(w);
    add(on(Action::destroy, c));
    comms_.erase(c);
  }
  void wait_for_sure(PendingWork& work) {
    Event event = on(Action::wait, -1);
    event.work = work.number;
    for (const int r : work.ranks)
      if (dead_.count(r) == 0) event.ranks.push_back(r);
    if (!event.ranks.empty()) add(event);
  }
  void settle(int c) {
    for (const int r : state(c).members)
      if (dead_.count(r) > 0) {
        add(on(Action::settle, c));
        return;
      }
  }
  // One communicator before the end: also a parent before its children. (The last of a job goes
  // with the job.)
  void step_destroy() {
    if (comms_.size() > 2) destroy(any_comm());
  }

  void end_job() {
    while (!comms_.empty()) {
      if (chance(40)) step_wait();
      destroy(any_comm());
    }
    while (!works_.empty()) free_work(index(between(0, static_cast<int>(works_.size()) - 1)));
  }

  const GeneratorOptions& options_;
  const bool one_process_;  // has all ranks: none is killed, or comes by the environment
  std::mt19937_64 random_;
  Program program_;
  std::map<int, State> comms_;  // those that are not destroyed
  std::vector<PendingWork> works_;
  std::set<int> dead_;
  // communicators that were split: members, last event that all waited in
  std::vector<std::pair<std::set<int>, int>> destroyed_;
  int most_threads_ = 1, next_comm_ = 0, next_work_ = 0;
  bool in_group_ = false;
};

}  // namespace

const std::set<std::string>& feature_names() { return kFeatures; }

Program generate(uint64_t seed, const GeneratorOptions& options) {
  return Generator(seed, options).make();
}

}  // namespace random_programs
