// player.cpp: see tests/random/player.hpp: a process's ranks and threads as they run their events.
#include "tests/random/player.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>

#include <fmt/core.h>

#include "tests/random/calls.hpp"
#include "tests/random/memory.hpp"

namespace random_programs {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSettles = std::chrono::seconds(20);
constexpr unsigned kChildSeconds = 20;
bool g_is_child = false;

// A call whose buffers are in use.
struct Running {
  Contents contents;
  Buffer send, recv;
  bool looked_at = false;
};

class RankPlayer {
 public:
  RankPlayer(const Program& program, const Model& model, int rank, Board* board)
      : program_(program),
        model_(model),
        rank_(rank),
        board_(board),
        comms_(model.comms.size(), nullptr),
        works_(model.start_of_work.size(), nullptr),
        failed_(model.comms.size(), SENNIT_OK),
        running_(2 * program.events.size()) {}

  void play_thread(size_t thread) {
    for (const int e : model_.steps[index(rank_)][thread]) {
      for (const int x : model_.waits[index(rank_)][index(e)]) wait_for(state(x));
      state(e) = Board::kUnderWay;
      const int status = play(e, event(e));
      judge(e, status);
      state(e) = Board::kOver + status;
      state(e).notify_all();
    }
  }
  sennit_comm_t& comm(int c) { return comms_[index(c)]; }

 private:
  static size_t index(int i) { return static_cast<size_t>(i); }
  const Event& event(int e) const { return program_.events[index(e)]; }
  std::atomic<int>& state(int e) { return board_->state[rank_][e]; }
  static void wait_for(std::atomic<int>& state) {
    for (int seen = state; seen < Board::kOver; seen = state) state.wait(seen);
  }

  void fail(int e, const std::string& what) {
    board_->fail(Wrong::result,
                 fmt::format("rank {}, event {}, {}: {}", rank_, e, to_text(event(e)), what));
  }

  void judge(int e, int status) {
    const uint32_t allowed = model_.allowed[index(e)][index(rank_)];
    if (!(allowed & bit(status))) {
      std::string names;
      for (int s = 0; s <= SENNIT_INTERNAL; s++)
        if (allowed & bit(s))
          names += fmt::format("{}{}", names.empty() ? "" : " or ",
                               sennit_status_name(static_cast<sennit_status_t>(s)));
      fail(e, fmt::format("{}, expected {}",
                          status == kSkipped
                              ? "has no handle"
                              : sennit_status_name(static_cast<sennit_status_t>(status)) +
                                    std::string(": ") + sennit_last_error(),
                          names));
    }
    stays_failed(e, status);
  }

  // Once a communicator has failed, later calls on it say the same.
  void stays_failed(int e, int status) {
    const Action action = event(e).action;
    if (event(e).comm < 0 ||
        !(action == Action::call || action == Action::message || action == Action::split ||
          action == Action::dup || action == Action::finalize || action == Action::query))
      return;
    int& failed = failed_[index(event(e).comm)];
    if (failed != SENNIT_OK && status != failed && status != kSkipped)
      fail(e, fmt::format("{} after {}", status, failed));
    if (status != kSkipped) failed = status;
  }

  int play(int e, const Event& ev) {
    if (ev.comm >= 0 && !comm(ev.comm)) return kSkipped;
    switch (ev.action) {
      case Action::init:
        return init(e, ev);
      case Action::split:
      case Action::dup:
        return split(ev);
      case Action::create_group:
        return create_group(ev);
      case Action::call:
        return call(e, ev);
      case Action::message:
        return message(e, ev);
      case Action::wait:
        return wait(e, ev);
      case Action::free_work:
        return free_work(e, ev);
      case Action::group_begin:
        return sennit_group_start();
      case Action::group_end:
        return group_end(e);
      case Action::bad_call:
        return bad_call(ev);
      case Action::query:
        return query(e, ev);
      case Action::abort:
        return sennit_comm_abort(comm(ev.comm));
      case Action::kill:
        ::kill(getpid(), SIGKILL);
        return SENNIT_INTERNAL;
      case Action::fork_child:
        return fork_child(e, ev);
      case Action::settle:
        return settle(e, ev);
      case Action::finalize:
        return sennit_comm_finalize(comm(ev.comm));
      case Action::destroy: {
        const sennit_status_t status = sennit_comm_destroy(comm(ev.comm));
        comm(ev.comm) = nullptr;
        return status;
      }
    }
    return SENNIT_INTERNAL;
  }

  // ---- communicators ----

  int init(int e, const Event& ev) {
    const int place = place_of(model_.comms[index(ev.made)], rank_),
              size = static_cast<int>(ev.members.size());
    if (static_cast<How>(ev.what) == How::env) return sennit_comm_init_env(&comm(ev.made), nullptr);
    int job = 0;
    for (int x = 0; x < e; x++) job += event(x).action == Action::init;
    Board::Id& id = board_->ids[job % kMostJobs];
    if (place == 0) {
      if (const sennit_status_t status = sennit_get_unique_id(&id.id); status != SENNIT_OK)
        return status;
      id.known = 1;
      // of other processes, too
      syscall(SYS_futex, &id.known, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
    }
    while (id.known == 0) syscall(SYS_futex, &id.known, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    return sennit_comm_init_rank(&comm(ev.made), size, &id.id, place, nullptr);
  }

  int split(const Event& ev) {
    if (ev.action == Action::dup) return sennit_comm_dup(comm(ev.comm), &comm(ev.made));
    const int color = ev.colors[index(rank_)];
    sennit_comm_t made = nullptr;
    const int status = sennit_comm_split(comm(ev.comm), color < 0 ? SENNIT_NO_COLOR : color,
                                         ev.keys[index(rank_)], &made);
    if (color >= 0) comm(ev.made + color) = made;
    if (color < 0 && made) return SENNIT_INTERNAL;
    return status;
  }

  int create_group(const Event& ev) {
    std::vector<int> ranks;
    for (const int r : ev.members) ranks.push_back(place_of(model_.comms[index(ev.comm)], r));
    return sennit_comm_create_group(comm(ev.comm), ranks.data(), static_cast<int>(ranks.size()),
                                    ev.tag, &comm(ev.made));
  }

  int query(int e, const Event& ev) {
    const Comm& mine = model_.comms[index(ev.comm)];
    int rank = -1, size = -1, position = -1;
    sennit_comm_rank(comm(ev.comm), &rank);
    sennit_comm_size(comm(ev.comm), &size);
    sennit_comm_fabric_position(comm(ev.comm), &position);
    if (rank != place_of(mine, rank_) || size != static_cast<int>(mine.members.size()) ||
        position < 0 || position >= size)
      fail(e, fmt::format("rank {} of {} at {}", rank, size, position));
    return sennit_comm_get_async_error(comm(ev.comm));
  }

  int settle(int e, const Event& ev) {
    const Comm& mine = model_.comms[index(ev.comm)];
    // Who is killed by a later event may be killed before it, by a thread of its own.
    std::vector<int> dead_by_now, dead_some_day, known(kMostRanks);
    for (size_t place = 0; place < mine.members.size(); place++)
      if (const int death = model_.dies[index(mine.members[place])]; death >= 0) {
        dead_some_day.push_back(static_cast<int>(place));
        if (death < e) dead_by_now.push_back(static_cast<int>(place));
      }
    for (const auto end = Clock::now() + kSettles; Clock::now() < end; usleep(1000)) {
      int count = 0;
      sennit_comm_failed_ranks(comm(ev.comm), known.data(), kMostRanks, &count);
      const std::span<const int> named(known.data(), static_cast<size_t>(count));
      if (std::ranges::includes(named, dead_by_now) && std::ranges::includes(dead_some_day, named))
        return SENNIT_OK;
    }
    return SENNIT_TIMED_OUT;
  }

  // ---- calls ----

  Running& running(int e, bool receiving = false) {
    std::unique_ptr<Running>& one = running_[2 * index(e) + receiving];
    if (!one) one = std::make_unique<Running>();
    return *one;
  }
  bool is_running(int e, bool receiving = false) const {
    return running_[2 * index(e) + receiving] != nullptr;
  }

  void take_buffers(Running& call, const Event& ev) {
    const Contents& c = call.contents;
    const auto kind = static_cast<Memory>(ev.memory);
    const auto fill = [&](Buffer& buffer, const Bytes& bytes) {
      buffer = Buffer(kind, bytes.size(), comm(ev.comm));
      std::copy(bytes.begin(), bytes.end(), buffer.at());
    };
    if (c.sends && (!c.in_place || c.send_is_whole)) fill(call.send, c.send);
    if (c.receives && !(c.in_place && c.send_is_whole)) fill(call.recv, c.recv);
  }

  Arguments arguments(const Running& call, const Event& ev, int root) {
    const Contents& c = call.contents;
    Arguments a;
    a.comm = comm(ev.comm);
    if (c.sends)
      a.send = c.in_place && !c.send_is_whole ? call.recv.at() + c.send_offset : call.send.at();
    if (c.receives)
      a.recv = c.in_place && c.send_is_whole ? call.send.at() + c.recv_offset : call.recv.at();
    if (root >= 0) a.root = place_of(model_.comms[index(ev.comm)], root);
    if (ev.work >= 0) a.work = &works_[index(ev.work)];
    return a;
  }

  int call(int e, const Event& ev) {
    const Event called = as_called_by(ev, rank_);
    const Comm& mine = model_.comms[index(ev.comm)];
    Running& call = running(e);
    call.contents = contents_of(called, mine, rank_, static_cast<unsigned>(e));
    take_buffers(call, called);
    Arguments a = arguments(call, called, called.root);
    a.op = static_cast<sennit_op_t>(called.op);
    if (called.op == kPremulSum) {
      unsigned char scalar[8];
      put_number(called.type, scalar_of(called, place_of(mine, rank_)), scalar);
      const auto type = static_cast<sennit_type_t>(called.type);
      if (sennit_op_create_premul_sum(&a.op, scalar, type, a.comm) != SENNIT_OK)
        return SENNIT_INTERNAL;
    }
    const sennit_status_t status = call_collective(called, call.contents, a);
    if (called.op == kPremulSum && sennit_op_destroy(a.op, a.comm) != SENNIT_OK)
      return SENNIT_INTERNAL;
    handed_in(e, ev, status);
    return status;
  }

  int message(int e, const Event& ev) {
    int status = SENNIT_OK;
    for (const bool receiving : {false, true}) {
      if (rank_ != (receiving ? ev.peer : ev.rank) || status != SENNIT_OK) continue;
      Running& call = running(e, receiving);
      const Event called = receiving ? as_called_by(ev, rank_) : ev;
      call.contents = contents_of_message(called, static_cast<unsigned>(e), !receiving);
      take_buffers(call, called);
      Arguments a = arguments(call, called, receiving ? ev.rank : ev.peer);
      int source = -1;
      // Within a group it is not known yet.
      const bool tells_source = receiving && ev.any && !a.work && model_.group_of[index(e)] < 0;
      if (tells_source) a.source = &source;
      status = call_message(called, !receiving, a);
      if (tells_source && status == SENNIT_OK && source != a.root)
        fail(e, fmt::format("its source is {}, expected {}", source, a.root));
    }
    handed_in(e, ev, static_cast<sennit_status_t>(status));
    return status;
  }

  // What was blocking is over now; so is what was refused.
  void handed_in(int e, const Event& ev, sennit_status_t status) {
    const bool waits = ev.work >= 0 || model_.group_of[index(e)] >= 0;
    if (waits && status == SENNIT_OK) return;
    if (ev.work >= 0) works_[index(ev.work)] = nullptr;
    over(e, status == SENNIT_OK);
  }

  // The call has left its buffers.
  void over(int e, bool went_well) {
    look_at(e, went_well);
    for (const bool receiving : {false, true}) {
      if (!is_running(e, receiving)) continue;
      Running& call = running(e, receiving);
      if (call.send.give_back(comm(event(e).comm)) != SENNIT_OK ||
          call.recv.give_back(comm(event(e).comm)) != SENNIT_OK)
        fail(e, std::string("its memory cannot be given back: ") + sennit_last_error());
      running_[2 * index(e) + receiving].reset();
    }
  }

  void look_at(int e, bool went_well) {
    for (const bool receiving : {false, true}) {
      if (!is_running(e, receiving)) continue;
      Running& call = running(e, receiving);
      if (!call.send.margins_are_whole() || !call.recv.margins_are_whole())
        fail(e, "wrote beyond its buffer");
      if (went_well && !call.looked_at) compare(e, call);
      call.looked_at |= went_well;
    }
  }

  void compare(int e, const Running& call) {
    const Contents& c = call.contents;
    const Buffer& result = c.in_place && c.send_is_whole ? call.send : call.recv;
    for (size_t i = c.from; c.receives && i < std::min(c.want.size(), c.to); i++) {
      if (result.at()[i] == c.want[i]) continue;
      return fail(e, fmt::format("byte {} of {} is {:02x}, expected {:02x}", i, c.want.size(),
                                 result.at()[i], c.want[i]));
    }
    if (c.sends && !c.in_place && !std::equal(c.send.begin(), c.send.end(), call.send.at()))
      fail(e, "changed what it was to send");
  }

  int group_end(int e) {
    const sennit_status_t status = sennit_group_end();
    for (int x = 0; x < e; x++) {
      if (model_.group_of[index(x)] != e || !model_.takes_part(x, rank_)) continue;
      if (event(x).work < 0) over(x, status == SENNIT_OK);
    }
    return status;
  }

  // ---- works ----

  int wait(int e, const Event& ev) {
    sennit_work_t work = works_[index(ev.work)];
    if (!work) return kSkipped;
    sennit_status_t status = SENNIT_IN_PROGRESS;
    switch (static_cast<Wait>(ev.what)) {
      case Wait::forever:
      case Wait::inside_group:
        status = sennit_work_wait(work, -1);
        break;
      case Wait::test:
        while ((status = sennit_work_test(work)) == SENNIT_IN_PROGRESS) sched_yield();
        break;
      case Wait::short_turns:
        while ((status = sennit_work_wait(work, 1)) == SENNIT_IN_PROGRESS) continue;
        break;
      case Wait::look:
        status = e % 2 ? sennit_work_test(work) : sennit_work_wait(work, 0);
        break;
    }
    if (status == SENNIT_OK && static_cast<Wait>(ev.what) != Wait::inside_group) {
      look_at(model_.start_of_work[index(ev.work)], true);
      check_source(e, event(model_.start_of_work[index(ev.work)]), work);
    }
    return status;
  }

  void check_source(int e, const Event& start, sennit_work_t work) {
    if (start.action != Action::message || rank_ != start.peer) return;
    int source = -1;
    const sennit_status_t status = sennit_work_source(work, &source);
    const int expected = place_of(model_.comms[index(start.comm)], start.rank);
    if (status != SENNIT_OK || source != expected)
      fail(e, fmt::format("{}: its source is {}, expected {}", sennit_status_name(status), source,
                          expected));
  }

  int free_work(int, const Event& ev) {
    sennit_work_t& work = works_[index(ev.work)];
    if (!work) return kSkipped;
    const int start = model_.start_of_work[index(ev.work)];
    const sennit_status_t status = sennit_work_free(work);
    work = nullptr;
    over(start, model_.calm[index(event(start).comm)]);  // it has waited, but does not say for what
    return status;
  }

  // ---- what must be refused ----

  int bad_call(const Event& ev) {
    const sennit_comm_t c = comm(ev.comm);
    const int size = static_cast<int>(model_.comms[index(ev.comm)].members.size());
    int x = 1, y = 0;
    sennit_work_t work = nullptr;
    switch (static_cast<Bad>(ev.what)) {
      case Bad::root:
        return sennit_broadcast(&x, &y, 1, SENNIT_INT32, size, c);
      case Bad::peer:
        return sennit_recv_start(&x, 1, SENNIT_INT32, -1, c, &work);
      case Bad::op:
        return sennit_all_reduce(&x, &y, 1, SENNIT_INT32, static_cast<sennit_op_t>(9), c);
      case Bad::type:
        return sennit_all_gather(&x, &y, 1, static_cast<sennit_type_t>(SENNIT_TYPE_COUNT), c);
      case Bad::null_buffer:
        return sennit_all_reduce(nullptr, &y, 1, SENNIT_INT32, SENNIT_SUM, c);
      case Bad::null_work:
        return sennit_barrier_start(c, nullptr);
      case Bad::foreign_op:
        return sennit_all_reduce(&x, &y, 1, SENNIT_INT32,
                                 static_cast<sennit_op_t>(SENNIT_OP_CUSTOM_BASE + 15), c);
    }
    return SENNIT_INTERNAL;
  }

  // ---- a child that inherits all this ----

  int fork_child(int e, const Event& ev) {
    const pid_t pid = fork();
    if (pid < 0) return SENNIT_OUT_OF_RESOURCES;
    if (pid == 0) be_child(ev);
    int status = 0;
    const bool ended = waitpid(pid, &status, 0) == pid;
#ifdef SENNIT_SANITIZED
    // clang 14's sanitizers leave their allocators locked in a child, if another thread was within.
    if (ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return SENNIT_OK;
#endif
    if (!ended || status != 0) fail(e, fmt::format("its child ended with status {:x}", status));
    return SENNIT_OK;
  }

  [[noreturn]] void be_child(const Event& ev) {
    alarm(kChildSeconds);
    g_is_child = true;
    const sennit_comm_t c = comm(ev.comm);
    int x = 1, wrong = 0;
    sennit_comm_t part = nullptr;
    switch (static_cast<Child>(ev.what)) {
      case Child::leaves:
        _exit(0);
      case Child::exits:
        std::exit(0);
      case Child::calls:
        wrong |=
            sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, c) != SENNIT_INVALID_ARGUMENT
                ? 1
                : 0;
        wrong |= sennit_comm_split(c, 0, 0, &part) != SENNIT_INVALID_ARGUMENT ? 2 : 0;
        wrong |= sennit_comm_finalize(c) != SENNIT_INVALID_ARGUMENT ? 4 : 0;
        _exit(wrong);
      case Child::destroys:
        std::exit(sennit_comm_destroy(c) == SENNIT_OK ? 0 : 8);
    }
    _exit(16);
  }

  const Program& program_;
  const Model& model_;
  const int rank_;
  Board* const board_;
  std::vector<sennit_comm_t> comms_;
  std::vector<sennit_work_t> works_;
  std::vector<int> failed_;
  std::vector<std::unique_ptr<Running>> running_;
};

}  // namespace

void play(const Program& program, const Model& model, const std::vector<int>& ranks, Board* board) {
  std::vector<std::unique_ptr<RankPlayer>> players;
  std::vector<std::thread> threads;
  for (const int rank : ranks)
    players.push_back(std::make_unique<RankPlayer>(program, model, rank, board));
  for (size_t i = 0; i < ranks.size(); i++) {
    const size_t of_rank = model.steps[static_cast<size_t>(ranks[i])].size();
    for (size_t t = i == 0 ? 1 : 0; t < of_rank; t++)
      threads.emplace_back([&players, i, t] { players[i]->play_thread(t); });
  }
  if (!ranks.empty() && !model.steps[static_cast<size_t>(ranks[0])].empty())
    players[0]->play_thread(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace random_programs

// A child has none of its parent's other threads: what only they pointed to looks leaked in it.
extern "C" int __lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier)
extern "C" int __lsan_is_turned_off() { return random_programs::g_is_child; }

// As tests/races.supp, for the command.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libudev.so\n"; }
