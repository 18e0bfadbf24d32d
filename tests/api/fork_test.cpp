// fork_test.cpp: what a forked child may do with the communicators, works and memory that it
// inherited: nothing, at once, and without harm to its parent's job. The pattern is that of
// PyTorch's data loaders: a rank forks workers again and again while it and its threads are within
// collectives; they work on memory, send something through a pipe and end in every way that there
// is.
//
// ctest alone: it forks out of many threads, and judges how soon the children end
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include <fmt/core.h>

#include "base/net/socket.hpp"
#include "sennit/sennit.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/trials.hpp"
#include "tests/support/usable_transports.hpp"
#include "transports/transport.hpp"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SENNIT_TEST_TSAN
#elif __has_feature(address_sanitizer)
#define SENNIT_TEST_ASAN
#endif
#endif

#ifdef SENNIT_TEST_TSAN  // which by itself ends a child that starts threads
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

// Whether this process is a worker. There the leak sanitizer knows nothing of the stacks of the
// parent's threads: what only they held looks lost.
static bool g_worker = false;
extern "C" int __lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier)
extern "C" int __lsan_is_turned_off() { return g_worker; }

using namespace std::chrono_literals;
using sennit_test::Processes;
using Clock = std::chrono::steady_clock;

namespace {

// clang 14's sanitizers leave their allocators locked in a child, if another thread was within. The
// thread sanitizer's is met only by a child that allocates much, as one does that starts a job.
#ifdef SENNIT_TEST_ASAN
constexpr bool kThreadsMayWork = false;
#else
constexpr bool kThreadsMayWork = true;
#endif
#ifdef SENNIT_SANITIZED
constexpr bool kWorkersMayStartJobsBesideThreads = false;
#else
constexpr bool kWorkersMayStartJobsBesideThreads = true;
#endif

// Until all other threads of this process wait in the kernel for something to come, with nothing
// locked. Of futexes that is a condition variable's, which alone waits by FUTEX_WAIT_BITSET here.
void wait_until_threads_rest() {
  const auto rests = [](const std::filesystem::path& task) {
    int call = -1;  // "running" is no number
    uint64_t futex = 0;
    uint64_t operation = 0;
    std::ifstream(task / "syscall") >> call >> std::hex >> futex >> operation;
    if (call == SYS_futex) return (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    constexpr int kRests[] = {SYS_epoll_wait, SYS_epoll_pwait, SYS_poll,
                              SYS_ppoll,      SYS_nanosleep,   SYS_clock_nanosleep};
    return std::ranges::find(kRests, call) != std::end(kRests);
  };
  EXPECT_TRUE(sennit_test::eventually([&] {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      if (task.path().filename() != std::to_string(gettid()) && !rests(task.path())) return false;
    return true;
  })) << "a thread is at work still";
}

constexpr int kRanks = 3;
constexpr int kRounds = sennit_test::trials(40);
// For a worker that only works on memory, or a job that only ends.
constexpr Clock::duration kSoon = sennit_test::kSanitized ? 20s : 4s;
constexpr auto kLimit = 60s;       // only who hangs takes so long
constexpr size_t kCount = 20'000;  // more than an early message holds

// Of a job's ranks, how many have come to a place, over all places.
sennit_test::Arrivals* g_arrivals = nullptr;

// Destroyed by exit(), in the rank and in the workers that end so.
std::optional<sennit::Communicator> g_static;

// Some rank's child. What it has to say comes through a pipe; "" is all well.
using Voice = sennit_test::Process::Voice;
class Worker : public sennit_test::Process {
 public:
  template <typename F>
  explicit Worker(F&& body)
      : Process([&](const Voice& voice) {
          g_worker = true;
          body(voice);
        }) {}
  // What it said, or what is wrong with how it ended. `killed`: it is to die of SIGKILL.
  std::string outcome(bool killed = false, Clock::duration limit = kLimit) {
    return Process::outcome(limit, killed ? SIGKILL : 0);
  }
};

// The calls that do not return INVALID_ARGUMENT, of all that there are.
std::string not_refused(sennit_comm_t comm, sennit_work_t work, void* memory) {
  std::string wrong;
  const auto expect = [&](const char* name, sennit_status_t status) {
    if (status != SENNIT_INVALID_ARGUMENT)
      wrong += fmt::format("{}: {}; ", name, sennit_status_name(status));
    else if (!strstr(sennit_last_error(), "fork"))
      wrong += fmt::format("{} says: {}; ", name, sennit_last_error());
  };
  float x[8] = {};
  int n = 0;
  size_t one[kRanks] = {1, 1, 1};
  const float scalar = 2;
  sennit_comm_t made = nullptr;
  sennit_work_t started = nullptr;
  sennit_op_t op = SENNIT_SUM;
  void* allocated = nullptr;
  expect("all_reduce", sennit_all_reduce(x, x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm));
  expect("all_reduce of much",
         sennit_all_reduce(memory, memory, kCount, SENNIT_FLOAT32, SENNIT_SUM, comm));
  expect("all_reduce_start",
         sennit_all_reduce_start(x, x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm, &started));
  expect("all_gather", sennit_all_gather(x, x, 1, SENNIT_FLOAT32, comm));
  expect("all_gather_v", sennit_all_gather_v(x, x, one, nullptr, SENNIT_FLOAT32, comm));
  expect("reduce_scatter", sennit_reduce_scatter(x, x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm));
  expect("broadcast", sennit_broadcast(x, x, 1, SENNIT_FLOAT32, 0, comm));
  expect("all_to_all", sennit_all_to_all(x, x, 1, SENNIT_FLOAT32, comm));
  expect("barrier", sennit_barrier(comm));
  expect("send", sennit_send(x, 1, SENNIT_FLOAT32, 1, comm));
  expect("recv", sennit_recv(x, 1, SENNIT_FLOAT32, 1, comm));
  expect("send_tagged", sennit_send_tagged(x, 1, SENNIT_FLOAT32, 1, 3, comm));
  expect("recv_tagged",
         sennit_recv_tagged(x, 1, SENNIT_FLOAT32, SENNIT_ANY_SOURCE, 3, comm, nullptr));
  const int list[] = {0, 1};
  expect("create_group", sennit_comm_create_group(comm, list, 2, 0, &made));
  expect("split", sennit_comm_split(comm, 0, 0, &made));
  expect("dup", sennit_comm_dup(comm, &made));
  expect("finalize", sennit_comm_finalize(comm));
  expect("abort", sennit_comm_abort(comm));
  expect("get_async_error", sennit_comm_get_async_error(comm));
  expect("failed_ranks", sennit_comm_failed_ranks(comm, &n, 1, &n));
  expect("rank", sennit_comm_rank(comm, &n));
  expect("size", sennit_comm_size(comm, &n));
  expect("fabric_position", sennit_comm_fabric_position(comm, &n));
  expect("op_create_premul_sum", sennit_op_create_premul_sum(&op, &scalar, SENNIT_FLOAT32, comm));
  expect("op_create_premul_sum_in_stream",
         sennit_op_create_premul_sum_in_stream(&op, &scalar, SENNIT_FLOAT32, comm));
  expect("op_destroy", sennit_op_destroy(SENNIT_OP_CUSTOM_BASE, comm));
  expect("mem_alloc", sennit_mem_alloc(comm, 100, &allocated));
  expect("mem_free", sennit_mem_free(comm, memory));
  expect("mem_register", sennit_mem_register(comm, x, sizeof x));
  expect("mem_deregister", sennit_mem_deregister(comm, x));
  expect("work_test", sennit_work_test(work));
  expect("work_wait", sennit_work_wait(work, -1));
  expect("work_source", sennit_work_source(work, &n));
  return wrong;
}

// A rank of the job: its communicator, memory of sennit's, a work that was started and not waited
// for.
struct Rank {
  sennit_comm_t comm = nullptr, second = nullptr;
  float* memory = nullptr;
  sennit_work_t work = nullptr;
  float in = 1, out = 0;
  int rank = 0;
  int places = 0;  // where this rank met the others

  std::string start() {
    sennit_comm_t first = nullptr;
    void* allocated = nullptr;
    if (sennit_comm_init_env(&first, nullptr) != SENNIT_OK) return sennit_last_error();
    g_static.emplace(first);
    comm = first;
    if (sennit_comm_dup(comm, &second) != SENNIT_OK || sennit_comm_rank(comm, &rank) != SENNIT_OK ||
        sennit_mem_alloc(comm, kCount * sizeof(float), &allocated) != SENNIT_OK)
      return sennit_last_error();
    memory = static_cast<float*>(allocated);
    return "";
  }
  // A small and a large all-reduce; "" if both are right.
  static std::string reduce(sennit_comm_t comm, float* memory) {
    for (const size_t count : {size_t{2}, kCount}) {
      std::fill(memory, memory + count, 1.0f);
      if (sennit_all_reduce(memory, memory, count, SENNIT_FLOAT32, SENNIT_SUM, comm) != SENNIT_OK)
        return sennit_last_error();
      for (size_t i = 0; i < count; i++)
        if (memory[i] != kRanks) return fmt::format("element {} of {} is {}", i, count, memory[i]);
    }
    return "";
  }
  std::string reduce() const { return reduce(comm, memory); }
  std::string start_work() {
    return sennit_all_reduce_start(&in, &out, 1, SENNIT_FLOAT32, SENNIT_SUM, second, &work) ==
                   SENNIT_OK
               ? ""
               : sennit_last_error();
  }
  std::string wait_for_work() {
    const sennit_status_t status = sennit_work_wait(work, -1);
    sennit_work_free(std::exchange(work, nullptr));
    return status != SENNIT_OK ? sennit_last_error() : out != kRanks ? fmt::format("{}", out) : "";
  }
  // Where threads may not work while a rank forks, ranks fork between be_quiet() and
  // meet_others(): the first returns when no rank has anything under way within sennit, the second
  // when all have forked.
  void be_quiet() {
    if (kThreadsMayWork) return;
    while (work && sennit_work_test(work) == SENNIT_IN_PROGRESS) std::this_thread::sleep_for(1ms);
    meet_others();
    std::this_thread::sleep_for(20ms);  // for what other ranks' last messages have threads do
    wait_until_threads_rest();
  }
  void meet_others() {
    if (kThreadsMayWork) return;
    g_arrivals->add();
    if (!g_arrivals->await(kRanks * ++places, kLimit)) abort();
  }
  std::string end() {
    std::string text;
    if (sennit_comm_finalize(second) != SENNIT_OK || sennit_comm_finalize(comm) != SENNIT_OK)
      text = sennit_last_error();
    sennit_comm_destroy(second);
    g_static.reset();
    return text.empty() ? "well" : text;
  }
};

// What data loaders' workers do with what they inherited, one after the other.
enum Way { leave_at_once, call_all, destroy_all, free_work, run_destructors, be_killed, kWays };

void work_as(Way way, Rank& rank, const Voice& worker) {
  float sum = 0;
  for (size_t i = 0; i < kCount; i++) sum += rank.memory[i];
  if (sum < 0) worker.say("memory is damaged");
  switch (way) {
    case call_all:
      worker.say(not_refused(rank.comm, rank.work, rank.memory));
      break;
    case destroy_all:
      if (sennit_comm_destroy(rank.second) != SENNIT_OK) worker.say(sennit_last_error());
      g_static.reset();
      break;
    case free_work:
      if (sennit_work_free(rank.work) != SENNIT_OK) worker.say(sennit_last_error());
      break;
    case run_destructors:
      exit(0);
    case be_killed:
      pause();
      break;
    default:
      break;
  }
}

// How long workers took. A busy machine may let any of them wait, but not all that end one way.
class Paces {
 public:
  Paces() { least_.fill(Clock::duration::zero()); }
  std::string outcome(Way way, Worker& worker) {
    const auto begin = Clock::now();
    std::string text = worker.outcome(way == be_killed);
    const Clock::duration took = Clock::now() - begin;
    Clock::duration& least = least_[static_cast<size_t>(way)];
    if (least == Clock::duration::zero() || took < least) least = took;
    return text;
  }
  // "" where some of every kind ended soon.
  std::string late() const {
    for (size_t way = 0; way < least_.size(); way++)
      if (least_[way] > kSoon) return fmt::format("all workers of way {} ended late", way);
    return "";
  }

 private:
  std::array<Clock::duration, kWays> least_;  // zero: there was none
};

class Forked : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!sennit_test::works_here(sennit_test::transport_named(GetParam())))
      GTEST_SKIP() << GetParam() << " does not work here";
  }
  static void expect_well(const std::function<std::string(int)>& f) {
    sennit_test::Arrivals arrivals;
    g_arrivals = &arrivals;
    Processes ranks(kRanks, f, {{"SENNIT_TRANSPORTS", GetParam()}});
    const auto reports = ranks.reports(3 * kLimit);
    for (size_t r = 0; r < reports.size(); r++)
      EXPECT_EQ(reports[r].value_or("did not end"), "well") << "rank " << r;
  }
};

TEST_P(Forked, WorkersEndInEveryWayBetweenCollectives) {
  expect_well([](int) -> std::string {
    Rank rank;
    if (std::string text = rank.start(); !text.empty()) return text;
    Paces paces;
    for (int i = 0; i < kRounds; i++) {
      const auto way = static_cast<Way>((i + rank.rank) % kWays);
      if (std::string text = rank.start_work(); !text.empty()) return text;
      rank.be_quiet();
      Worker worker([&](const Voice& w) { work_as(way, rank, w); });
      rank.meet_others();
      if (std::string text = rank.reduce(); !text.empty())
        return fmt::format("round {}: {}", i, text);
      if (way == be_killed) worker.signal(SIGKILL);
      if (const std::string text = paces.outcome(way, worker); !text.empty())
        return fmt::format("round {}, way {}: {}", i, static_cast<int>(way), text);
      if (std::string text = rank.wait_for_work(); !text.empty())
        return fmt::format("round {}: {}", i, text);
      if (std::string text = rank.reduce(); !text.empty())
        return fmt::format("round {}: {}", i, text);
    }
    if (const std::string late = paces.late(); !late.empty()) return late;
    return rank.end();
  });
}

// Other threads of the rank hold locks, and are in the middle of changes, when it forks.
TEST_P(Forked, WhileOtherThreadsAreWithinCollectives) {
  if (!kThreadsMayWork) GTEST_SKIP() << "not with an address sanitizer";
  expect_well([](int) -> std::string {
    Rank rank;
    if (std::string text = rank.start(); !text.empty()) return text;
    std::atomic<bool> over = false;
    std::string of_thread, of_workers;
    Paces paces;
    std::thread thread([&] {  // until all ranks' workers are done
      for (float more = 1; more > 0 && of_thread.empty();) {
        of_thread = rank.reduce();
        const float mine = over ? 0 : 1;
        if (of_thread.empty() &&
            sennit_all_reduce(&mine, &more, 1, SENNIT_FLOAT32, SENNIT_MAX, rank.comm))
          of_thread = sennit_last_error();
      }
    });
    for (int i = 0; i < kRounds && of_workers.empty(); i++) {
      const auto way = static_cast<Way>(i % be_killed);
      Worker worker([&](const Voice& w) {
        if (way == call_all) {
          float x = 0;
          if (sennit_barrier(rank.comm) != SENNIT_INVALID_ARGUMENT ||
              sennit_mem_free(rank.comm, rank.memory) != SENNIT_INVALID_ARGUMENT ||
              sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, rank.second) !=
                  SENNIT_INVALID_ARGUMENT)
            w.say("not refused");
        } else {
          work_as(way, rank, w);
        }
      });
      of_workers = paces.outcome(way, worker);
    }
    if (of_workers.empty()) of_workers = paces.late();
    over = true;
    thread.join();
    if (!of_thread.empty() || !of_workers.empty()) return of_thread + of_workers;
    return rank.end();
  });
}

// They end, with all destructors, when their parent's job is long over, which waits for none of
// them.
TEST_P(Forked, WorkersThatOutliveTheJob) {
  sennit_test::Arrivals late;
  const auto outlive = [&](int) -> std::string {
    Rank rank;
    if (std::string text = rank.start(); !text.empty()) return text;
    if (std::string text = rank.start_work(); !text.empty()) return text;
    int over[2];
    if (pipe2(over, O_CLOEXEC) != 0) return "pipe";
    std::vector<Worker> workers;
    rank.be_quiet();
    for (const Way way : {leave_at_once, destroy_all, call_all, run_destructors})
      workers.emplace_back([&](const Voice& w) {
        char byte;
        close(over[1]);
        if (read(over[0], &byte, 1) != 0) w.say("woken");
        work_as(way, rank, w);
      });
    rank.meet_others();
    if (std::string text = rank.reduce(); !text.empty()) return text;
    if (std::string text = rank.wait_for_work(); !text.empty()) return text;
    const auto begin = Clock::now();
    if (const std::string text = rank.end(); text != "well") return text;
    if (Clock::now() - begin >= kSoon) late.add();
    close(over[1]);
    for (Worker& worker : workers)
      if (const std::string said = worker.outcome(); !said.empty()) return said;
    return "well";
  };
  const auto end_of_job = [&]() -> Clock::duration {
    const int before = late.count();
    expect_well(outlive);
    return late.count() > before ? kSoon : Clock::duration::zero();
  };
  EXPECT_LT(
      sennit_test::least_time(std::chrono::ceil<std::chrono::milliseconds>(kSoon), end_of_job),
      kSoon)
      << "the job takes long to end";
}

// A rank that is killed is missed at once, though workers of it live on and hold copies of its
// connections.
TEST_P(Forked, WorkersDoNotKeepTheirDeadParentAlive) {
  int over[2];  // when the survivors have ended
  ASSERT_EQ(pipe2(over, O_CLOEXEC), 0);
  Processes ranks(kRanks,
                  [&](int r) -> std::string {
                    if (r == 1) close(over[1]);
                    Rank rank;
                    if (std::string text = rank.start(); !text.empty()) return text;
                    if (std::string text = rank.reduce(); !text.empty()) return text;
                    if (r == 1) {
                      if (fork() == 0) {
                        char byte;
                        _exit(static_cast<int>(read(over[0], &byte, 1)));
                      }
                      kill(getpid(), SIGKILL);
                    }
                    const std::string text = rank.reduce();
                    int failed = -1, n = 0;
                    sennit_comm_failed_ranks(rank.comm, &failed, 1, &n);
                    sennit_comm_destroy(rank.second);  // it leaves, and does not die as well
                    g_static.reset();
                    // And not by its silence, some time later.
                    return n == 1 && failed == 1 &&
                                   text.find("connection closed without goodbye") != text.npos
                               ? "well"
                               : fmt::format("{} failed, {}: {}", n, failed, text);
                  },
                  {{"SENNIT_TRANSPORTS", GetParam()}});
  close(over[0]);
  close(over[1]);
  const auto reports = ranks.reports(kLimit);
  for (const size_t r : {0, 2})
    EXPECT_EQ(reports[r].value_or("did not end"), "well") << "rank " << r;
}

// A job of `size` threads of this process, from its start to its end.
std::string own_job(int size) {
  std::vector<sennit_comm_t> comms(static_cast<size_t>(size));
  if (sennit_comm_init_local(comms.data(), size, nullptr) != SENNIT_OK) return sennit_last_error();
  std::vector<std::string> texts(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); r++)
    threads.emplace_back([&, r] {
      std::vector<float> x(kCount, 1);
      for (int i = 0; i < 3 && texts[r].empty(); i++) {
        std::fill(x.begin(), x.end(), 1.0f);
        if (sennit_all_reduce(x.data(), x.data(), kCount, SENNIT_FLOAT32, SENNIT_SUM, comms[r]) !=
            SENNIT_OK)
          texts[r] = sennit_last_error();
        else if (x[0] != static_cast<float>(size) || x[kCount - 1] != x[0])
          texts[r] = fmt::format("{} instead of {}", x[0], size);
      }
      if (sennit_comm_finalize(comms[r]) != SENNIT_OK) texts[r] += sennit_last_error();
      sennit_comm_destroy(comms[r]);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts)
    if (!text.empty()) return text;
  return "";
}

// A worker may make a job of its own, and its workers again.
TEST_P(Forked, WorkersMakeJobsOfTheirOwn) {
  expect_well([](int) -> std::string {
    Rank rank;
    if (std::string text = rank.start(); !text.empty()) return text;
    std::atomic<bool> over = false;
    std::string of_thread;
    std::thread thread;
    if (kWorkersMayStartJobsBesideThreads)
      thread = std::thread([&] {
        for (float more = 1; more > 0 && of_thread.empty();) {
          of_thread = rank.reduce();
          const float mine = over ? 0 : 1;
          if (of_thread.empty() &&
              sennit_all_reduce(&mine, &more, 1, SENNIT_FLOAT32, SENNIT_MAX, rank.comm))
            of_thread = sennit_last_error();
        }
      });
    std::string of_workers;
    for (int i = 0; i < 3 && of_workers.empty(); i++) {
      rank.be_quiet();
      Worker worker([&](const Voice& w) {
        if (!sennit_test::transport_named(GetParam()).works_after_fork) {
          if (own_job(2).find("fork") == std::string::npos)
            w.say(fmt::format("{} is not refused", GetParam()));
          unsetenv("SENNIT_TRANSPORTS");  // then the others serve
        }
        w.say(own_job(2));
        g_static.reset();
        Worker below([](const Voice& b) { b.say(own_job(3)); });
        w.say(below.outcome());
        w.say(own_job(2));
      });
      rank.meet_others();
      of_workers = worker.outcome();
    }
    over = true;
    if (thread.joinable()) thread.join();
    if (!of_thread.empty() || !of_workers.empty()) return of_thread + of_workers;
    return rank.end();
  });
}

// Over every transport of this build that connects processes.
std::vector<const char*> between_processes() {
  std::vector<const char*> names;
  for (const sennit::TransportFactory& factory : sennit::transports())
    if (!sennit_test::within_one_process(factory.name)) names.push_back(factory.name.data());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Over, Forked, testing::ValuesIn(between_processes()),
                         [](const auto& test) { return std::string(test.param); });

// Ranks that are threads of one process, over loopback: each forks.
TEST(ForkedThreads, WorkersOfRanksThatAreThreads) {
  if (!kThreadsMayWork) GTEST_SKIP() << "not with an address sanitizer";
  Worker process([](const Voice& out) {
    sennit_comm_t comms[kRanks];
    if (sennit_comm_init_local(comms, kRanks, nullptr) != SENNIT_OK)
      return out.say(sennit_last_error());
    std::string texts[kRanks];
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; r++)
      threads.emplace_back([&, r] {
        std::vector<float> memory(kCount);
        for (int i = 0; i < kRounds && texts[r].empty(); i++) {
          Worker worker([&](const Voice& w) {
            if (i % 4 == 0)
              for (const sennit_comm_t comm : comms) sennit_comm_destroy(comm);
            if (i % 4 == 1 && sennit_barrier(comms[r]) != SENNIT_INVALID_ARGUMENT)
              w.say("not refused");
            if (kWorkersMayStartJobsBesideThreads && i % 8 == 2) w.say(own_job(2));
          });
          texts[r] = Rank::reduce(comms[r], memory.data()) + worker.outcome();
        }
        if (sennit_comm_finalize(comms[r]) != SENNIT_OK) texts[r] += sennit_last_error();
        sennit_comm_destroy(comms[r]);
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : texts) out.say(text);
  });
  EXPECT_EQ(process.outcome(false, 3 * kLimit), "");
}

// A group that the parent opened is not the child's.
TEST(ForkedThreads, AnOpenGroupStaysWithTheParent) {
  Worker process([](const Voice& out) {
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_local(&comm, 1, nullptr) != SENNIT_OK) return out.say(sennit_last_error());
    float x = 3, y = 0;
    sennit_group_start();
    if (sennit_all_reduce(&x, &y, 1, SENNIT_FLOAT32, SENNIT_SUM, comm) != SENNIT_OK)
      return out.say(sennit_last_error());
    for (const bool by_exit : {false, true}) {
      Worker worker([&](const Voice& w) {
        if (by_exit) exit(0);
        if (sennit_group_end() != SENNIT_INVALID_ARGUMENT) w.say("the group's end is not refused");
        w.say(own_job(2));
      });
      out.say(worker.outcome());
    }
    if (sennit_group_end() != SENNIT_OK || y != 3) out.say("the parent's group is lost");
    sennit_comm_destroy(comm);
  });
  EXPECT_EQ(process.outcome(false, 3 * kLimit), "");
}

// Only the process that made an id has the socket that it names, which sends others on to a child
// that is rank 0.
TEST(ForkedThreads, AnInheritedUniqueIdIsThatOfAnotherProcess) {
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK);
  if (!kWorkersMayStartJobsBesideThreads) wait_until_threads_rest();  // the one that keeps the port
  Worker worker([&](const Voice& w) {
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_rank(&comm, 2, &id, 0, nullptr) != SENNIT_OK)
      return w.say(sennit_last_error());
    if (sennit_comm_finalize(comm) != SENNIT_OK) w.say(sennit_last_error());
    sennit_comm_destroy(comm);
  });
  sennit_comm_t comm = nullptr;
  ASSERT_EQ(sennit_comm_init_rank(&comm, 2, &id, 1, nullptr), SENNIT_OK) << sennit_last_error();
  EXPECT_EQ(sennit_comm_finalize(comm), SENNIT_OK);
  EXPECT_EQ(sennit_comm_destroy(comm), SENNIT_OK);
  EXPECT_EQ(worker.outcome(), "");
  EXPECT_EQ(sennit_comm_init_rank(&comm, 1, &id, 0, nullptr), SENNIT_INVALID_ARGUMENT);
  EXPECT_TRUE(strstr(sennit_last_error(), "each id starts one job only")) << sennit_last_error();
}

// The stream sockets of this process, but those of this host only (AF_UNIX).
int stream_sockets() {
  int n = 0;
  for (int fd = 3; fd < 1024; fd++) {
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX) n++;
  }
  return n;
}

// Jobs that start and end in another thread while one of these lives.
class Starts {
 public:
  explicit Starts(const std::string& transports, int threads = 1) {
    setenv("SENNIT_TRANSPORTS", transports.c_str(), 1);
    for (int i = 0; i < threads; i++)
      threads_.emplace_back([this](const std::stop_token& over) {
        while (!over.stop_requested())
          if (const std::string text = own_job(2); !text.empty()) failed_ = true;
      });
  }
  bool well() const { return !failed_; }

 private:
  std::atomic<bool> failed_ = false;
  std::vector<std::jthread> threads_;
};

// At whatever moment it comes: a child that held a copy of a connection would keep it open.
TEST(ForkedWhileStarting, ChildrenHaveNoneOfTheSockets) {
  Worker process([](const Voice& out) {
    using namespace sennit;
    const std::jthread connecting([&](const std::stop_token& over) {
      const auto listener = listen_on(*parse_address("127.0.0.1", 0));
      while (listener && !over.stop_requested()) {
        int error = 0;
        Address from;
        const auto made = connect_to(local_address(*listener), &error);
        const int accepted = accept_from(*listener, &from);
        for (const int fd : {made ? *made : -1, accepted}) close_socket(fd);
      }
      close_socket(*listener);
    });
    int forks = 0, with_sockets = 0;
    for (const auto end = Clock::now() + 2s; Clock::now() < end; forks++) {
      const pid_t pid = fork();  // no words, nothing is allocated
      if (pid == 0) _exit(stream_sockets() > 0);
      int state = 0;
      waitpid(pid, &state, 0);
      with_sockets += state != 0;
    }
    if (with_sockets > 0)
      out.say(fmt::format("{} of {} children have sockets", with_sockets, forks));
  });
  EXPECT_EQ(process.outcome(false, 3 * kLimit), "");
}

// Threads of the parent may be within hwloc, libsodium and this library.
TEST(ForkedWhileStarting, ChildrenStartJobs) {
  if (!kWorkersMayStartJobsBesideThreads) GTEST_SKIP() << "not with a sanitizer";
  Worker process([](const Voice& out) {
    const Starts starts("shm", 2);
    for (const auto end = Clock::now() + 3s; Clock::now() < end;) {
      Worker worker([](const Voice& w) { w.say(own_job(1)); });
      if (const std::string text = worker.outcome(); !text.empty()) return out.say(text);
    }
    if (!starts.well()) out.say("the jobs of the parent fail");
  });
  EXPECT_EQ(process.outcome(false, 3 * kLimit), "");
}

// A thread of the parent may be waiting for the other ranks, which takes as long as they do:
// neither the fork nor the child waits for it.
TEST(ForkedWhileStarting, NobodyWaitsForAStartFromTheEnvironment) {
  if (!kThreadsMayWork) GTEST_SKIP() << "not with an address sanitizer";
  Worker process([](const Voice& out) {
    const sennit::ReservedPort port, of_child;
    const auto environment = [](uint16_t number, const char* size) {
      setenv("RANK", "0", 1);
      setenv("WORLD_SIZE", size, 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("SENNIT_PORT", std::to_string(number).c_str(), 1);
      setenv("SENNIT_SECRET", "a secret for the tests", 1);
      setenv("SENNIT_ARRIVAL_TIMEOUT", "60000", 1);  // a fork that waits for the start ends then
    };
    environment(port.number(), "2");
    sennit_comm_t comm = nullptr;
    std::atomic<bool> over = false;
    std::thread starting([&] {
      if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) out.say(sennit_last_error());
      over = true;
    });
    while (stream_sockets() < 3 && !over) std::this_thread::yield();  // two keep the ports
    Worker worker([&](const Voice& w) {
      environment(of_child.number(), "1");
      sennit_comm_t own = nullptr;
      if (sennit_comm_init_env(&own, nullptr) != SENNIT_OK) return w.say(sennit_last_error());
      sennit_comm_destroy(own);
    });
    out.say(worker.outcome());
    if (over) out.say("the start was over before");
    Worker other([&](const Voice& w) {  // the rank that was missing
      environment(port.number(), "2");
      setenv("RANK", "1", 1);
      sennit_comm_t second = nullptr;
      if (sennit_comm_init_env(&second, nullptr) != SENNIT_OK) return w.say(sennit_last_error());
      sennit_comm_finalize(second);
      sennit_comm_destroy(second);
    });
    starting.join();
    if (comm) {
      sennit_comm_finalize(comm);
      sennit_comm_destroy(comm);
    }
    out.say(other.outcome());
  });
  EXPECT_EQ(process.outcome(false, 3 * kLimit), "");
}

}  // namespace
