// many_communicators_test.cpp: what communicators of fresh ids cost where their ranks share an
// older job: no descriptors, no threads, no memory that stays; and when they share nothing.
//
// ctest not-under-tsan: its ranks are processes, and there are a thousand communicators
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/process_counts.hpp"
#include "tests/support/processes.hpp"

namespace {

using sennit_test::descriptors;
using sennit_test::Processes;
using sennit_test::threads;

constexpr int kRanks = 4;
constexpr int kAlive = 64;
constexpr int kMade = 1000;
constexpr auto kLimit = std::chrono::minutes(4);

// Where the ranks' processes hand ids to each other, one for each communicator.
class Board {
 public:
  Board() {
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    entries_ = new (memory) Entry[kEntries];
  }
  ~Board() { munmap(entries_, kBytes); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // The id of communicator `number`, which one of the processes makes.
  sennit_unique_id_t id(int number, bool maker) const {
    Entry& entry = entries_[number];
    if (maker) {
      sennit_get_unique_id(&entry.id);
      entry.there.store(true);
    }
    while (!entry.there.load()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return entry.id;
  }

 private:
  struct Entry {
    sennit_unique_id_t id{};
    std::atomic<bool> there{false};
  };
  static constexpr size_t kEntries = 2 * kMade;
  static constexpr size_t kBytes = kEntries * sizeof(Entry);
  Entry* entries_;
};

// Thrown by a rank that cannot go on; its text is what the rank reports.
struct Failure {
  std::string text;
};

void check(sennit_status_t status, const char* what) {
  if (status != SENNIT_OK) throw Failure{std::string(what) + ": " + sennit_last_error()};
}

void expect_sum(sennit_comm_t comm, int size) {
  int rank = -1;
  check(sennit_comm_rank(comm, &rank), "rank");
  std::vector<int32_t> mine(100, rank + 1), sum(100);
  check(sennit_all_reduce(mine.data(), sum.data(), 100, SENNIT_INT32, SENNIT_SUM, comm),
        "all_reduce");
  if (sum != std::vector<int32_t>(100, size * (size + 1) / 2)) throw Failure{"a wrong sum"};
}

// What one job opens once, the first time that a rank sends to another one, waits asleep for it, or
// sends much: whenever that happens, it is not of a communicator.
constexpr int kOnceEach = 2 * kRanks;

// Connections are made when they are first used, so each rank sends to each.
void connect_all(sennit_comm_t comm) {
  std::vector<int32_t> mine(kRanks), got(kRanks);
  check(sennit_all_to_all(mine.data(), got.data(), 1, SENNIT_INT32, comm), "all_to_all");
  for (int round = 0; round < 2; round++) check(sennit_barrier(comm), "barrier");
}

sennit_comm_t join(const sennit_unique_id_t& id, int rank, int size,
                   const sennit_config_t* config = nullptr) {
  sennit_comm_t comm = nullptr;
  check(sennit_comm_init_rank(&comm, size, &id, rank, config), "init_rank");
  return comm;
}

void leave(sennit_comm_t comm) {
  check(sennit_comm_finalize(comm), "finalize");
  check(sennit_comm_destroy(comm), "destroy");
}

// Under a sanitizer nothing is counted: it keeps for a while what was freed, and looks for leaks
// itself.
size_t resident_bytes() {
#ifdef SENNIT_SANITIZED
  return 0;
#endif
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What is counted now, or what it has come to in a while: what serves an id ends after its start.
template <typename Count>
int settled(Count count, int at_most) {
  sennit_test::eventually([&] { return count() <= at_most; });
  return count();
}
void expect_at_most(int descriptors_before, int threads_allowed) {
  const int descriptors_allowed = descriptors_before + kOnceEach;
  if (const int now = settled(descriptors, descriptors_allowed); now > descriptors_allowed)
    throw Failure{std::to_string(now) + " descriptors, not " + std::to_string(descriptors_allowed)};
  if (const int now = settled(threads, threads_allowed); now > threads_allowed)
    throw Failure{std::to_string(now) + " threads, not " + std::to_string(threads_allowed)};
}

template <typename Body>
void run(Body body, const Processes::Environment& environment = {}) {
  Processes ranks(
      kRanks,
      [&](int rank) -> std::string {
        try {
          body(rank);
          return "ok";
        } catch (const Failure& failure) {
          return failure.text;
        }
      },
      environment);
  const auto reports = ranks.reports(kLimit);
  for (size_t r = 0; r < reports.size(); r++) EXPECT_EQ(reports[r].value_or("nothing"), "ok") << r;
}

TEST(FreshIds, SixtyFourAliveCostNoDescriptorsAndNoThreads) {
  const Board board;
  run([&](int process) {
    std::vector<sennit_comm_t> comms;
    comms.push_back(join(board.id(0, process == 0), process, kRanks));
    connect_all(comms[0]);
    const int descriptors_before = descriptors(), threads_before = threads();
    for (int k = 1; k < kAlive; k++) {
      // Each in its own order of ranks; who becomes rank 0 makes the id.
      const int rank = (process + k) % kRanks;
      comms.push_back(join(board.id(k, rank == 0), rank, kRanks));
    }
    expect_at_most(descriptors_before, threads_before);
    for (const sennit_comm_t comm : comms) expect_sum(comm, kRanks);
    expect_at_most(descriptors_before, threads_before);
    for (const sennit_comm_t comm : comms) leave(comm);
  });
}

TEST(FreshIds, AThousandMadeAndDestroyedLeaveNothing) {
  constexpr int kWarm = 100;
  constexpr size_t kRoomBytes = 4 << 20;  // recordings fill, and whoever reads them has a heap
  const Board board;
  run([&](int process) {
    const sennit_comm_t first = join(board.id(0, process == 0), process, kRanks);
    connect_all(first);
    const int descriptors_before = descriptors(), threads_before = threads();
    size_t bytes_before = 0;
    for (int k = 1; k <= kMade; k++) {
      const sennit_comm_t comm = join(board.id(k, process == 0), process, kRanks);
      expect_sum(comm, kRanks);
      leave(comm);
      if (k == kWarm) bytes_before = resident_bytes();
    }
    expect_at_most(descriptors_before, threads_before);
    if (const size_t now = resident_bytes(); now > bytes_before + kRoomBytes)
      throw Failure{std::to_string(now - bytes_before) + " bytes more"};
    leave(first);
  });
}

TEST(FreshIds, WithoutAnOlderJobLeaveNothing) {
  constexpr int kJobs = 30;
  const Board board;
  run([&](int process) {
    const int descriptors_before = descriptors(), threads_before = threads();
    for (int k = 0; k < kJobs; k++) {
      const sennit_comm_t comm = join(board.id(k, process == 0), process, kRanks);
      expect_sum(comm, kRanks);
      leave(comm);
    }
    expect_at_most(descriptors_before, threads_before);
  });
}

// What is made on an older job's connections does not need that job's own communicator, nor those
// of its ranks that are in no other.
TEST(FreshIds, OutliveTheJobThatTheyShare) {
  const Board board;
  run([&](int process) {
    const sennit_comm_t first = join(board.id(0, process == 0), process, kRanks);
    connect_all(first);
    const int descriptors_before = descriptors();
    if (process == 0) return leave(first);
    const sennit_comm_t second = join(board.id(1, process == 3), 3 - process, kRanks - 1);
    expect_at_most(descriptors_before, threads());
    leave(first);
    expect_sum(second, kRanks - 1);
    const sennit_comm_t third = join(board.id(2, process == 1), process - 1, kRanks - 1);
    expect_at_most(descriptors_before, threads());
    leave(second);
    expect_sum(third, kRanks - 1);
    leave(third);
  });
}

// Jobs that are not alike, or of which one has failed, have each their own connections.
TEST(FreshIds, ShareNothingWithAnotherKindOfJob) {
  const Board board;
  run([&](int process) {
    const sennit_comm_t first = join(board.id(0, process == 0), process, kRanks);
    expect_sum(first, kRanks);
    // A job has two, and where the coordinator is, which judges calls, one more.
    const int threads_of_a_job = process == 0 ? 3 : 2;
    const int threads_before = settled(threads, 1 + threads_of_a_job);
    sennit_config_t patient = SENNIT_CONFIG_INIT;
    patient.arrival_timeout_ms = 77'000;
    const sennit_comm_t second = join(board.id(1, process == 0), process, kRanks, &patient);
    if (threads() <= threads_before) throw Failure{"it shares a job of another patience"};
    // One rank's other patience is enough.
    const sennit_comm_t third =
        join(board.id(2, process == 0), process, kRanks, process == 2 ? &patient : nullptr);
    expect_sum(second, kRanks);
    expect_sum(third, kRanks);
    sennit_comm_abort(second);
    const int threads_then = settled(threads, 1 + 3 * threads_of_a_job);
    const sennit_comm_t fourth = join(board.id(3, process == 0), process, kRanks, &patient);
    if (threads() <= threads_then) throw Failure{"it shares a job that failed"};
    expect_sum(fourth, kRanks);
    sennit_comm_destroy(second);
    leave(fourth);
    leave(third);
    leave(first);
  });
}

// Ranks that are threads have contexts of their own, and any of them may carry the new rank.
TEST(FreshIds, OfThreadsShareAsWell) {
  constexpr int kThreads = 3;
  std::vector<sennit_comm_t> first(kThreads), second(kThreads);
  ASSERT_EQ(sennit_comm_init_local(first.data(), kThreads, nullptr), SENNIT_OK);
  const int descriptors_before = descriptors(), threads_before = threads();
  ASSERT_EQ(sennit_comm_init_local(second.data(), kThreads, nullptr), SENNIT_OK);
  EXPECT_LE(settled(descriptors, descriptors_before), descriptors_before);  // nothing was sent
  EXPECT_LE(settled(threads, threads_before), threads_before);
  std::vector<std::thread> ranks;
  for (int r = 0; r < kThreads; r++)
    ranks.emplace_back([&, r] {
      try {
        expect_sum(first[static_cast<size_t>(r)], kThreads);
        sennit_comm_destroy(first[static_cast<size_t>(r)]);
        expect_sum(second[static_cast<size_t>(r)], kThreads);
        leave(second[static_cast<size_t>(r)]);
      } catch (const Failure& failure) {
        ADD_FAILURE() << failure.text;
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

// A forked child has nothing of its parent's jobs to share.
TEST(FreshIds, OfAForkedChildShareNothing) {
  const Board board;
  run([&](int process) {
    const sennit_comm_t first = join(board.id(0, process == 0), process, kRanks);
    expect_sum(first, kRanks);
    sennit_test::Process child([&]() -> std::string {
      try {
        const sennit_comm_t own = join(board.id(1, process == 0), process, kRanks);
        expect_sum(own, kRanks);
        leave(own);
        return "ok";
      } catch (const Failure& failure) {
        return failure.text;
      }
    });
    if (const std::string said = child.outcome(); said != "ok") throw Failure{"child: " + said};
    expect_sum(first, kRanks);
    leave(first);
  });
}

// A rank that dies is dead to all communicators that it is in, and to no other.
TEST(FreshIds, FailTogetherWhereARankDies) {
  const Board board;
  sennit_test::Arrivals ready;
  Processes ranks(kRanks, [&](int process) -> std::string {
    try {
      const sennit_comm_t first = join(board.id(0, process == 0), process, kRanks);
      const sennit_comm_t second = join(board.id(1, process == 0), process, kRanks);
      sennit_comm_t third = nullptr;
      if (process != 3) third = join(board.id(2, process == 0), process, kRanks - 1);
      expect_sum(second, kRanks);
      ready.add();
      if (process == 3) pause();
      int32_t value = 1, sum = 0;
      if (sennit_all_reduce(&value, &sum, 1, SENNIT_INT32, SENNIT_SUM, second) !=
          SENNIT_PEER_FAILED)
        return std::string("the second: ") + sennit_last_error();
      if (sennit_all_reduce(&value, &sum, 1, SENNIT_INT32, SENNIT_SUM, first) != SENNIT_PEER_FAILED)
        return std::string("the first: ") + sennit_last_error();
      expect_sum(third, kRanks - 1);
      // Another one of the survivors, from a fresh id: not on what has failed.
      const sennit_comm_t fourth = join(board.id(3, process == 0), process, kRanks - 1);
      expect_sum(fourth, kRanks - 1);
      for (const sennit_comm_t comm : {first, second, third, fourth}) sennit_comm_destroy(comm);
      return "ok";
    } catch (const Failure& failure) {
      return failure.text;
    }
  });
  ASSERT_TRUE(ready.await(kRanks, std::chrono::seconds(60)));
  ranks.signal(3, SIGKILL);
  const auto reports = ranks.reports(kLimit);
  for (size_t r = 0; r < 3; r++) EXPECT_EQ(reports[r].value_or("nothing"), "ok") << r;
}

}  // namespace
