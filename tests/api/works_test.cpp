// What surrounds a collective in the public interface, ranks as threads: works that overlap and
// complete by themselves, groups of sends and receives, splits and twins used at once, wrong
// arguments.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/ranks.hpp"

using sennit_test::Ranks;

namespace {

TEST(Works, OverlapAndCompleteInAnyOrder) {
  Ranks ranks(4);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    constexpr int kWorks = 12;
    std::vector<std::vector<int>> x(kWorks, std::vector<int>(5000, rank));
    std::vector<sennit_work_t> works(kWorks);
    for (size_t i = 0; i < kWorks; i++) {
      ASSERT_EQ(sennit_all_reduce_start(x[i].data(), x[i].data(), x[i].size(), SENNIT_INT32,
                                        SENNIT_SUM, comm, &works[i]),
                SENNIT_OK)
          << sennit_last_error();
    }
    for (size_t i = kWorks; i-- > 0;) {
      ASSERT_EQ(sennit_work_wait(works[i], -1), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(x[i][0], 6);
      EXPECT_EQ(x[i][4999], 6);
      sennit_work_free(works[i]);
    }
  });
}

// In nanoseconds these are more than 64 bits hold.
TEST(Works, AreWaitedForHoweverLongTheTimeIs) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  for (const int64_t timeout_ms : {int64_t{1} << 58, INT64_MAX}) {
    std::atomic<bool> waits{false};
    ranks.run([&](int rank, sennit_comm_t comm) {
      int x = rank;
      if (rank == 1) {
        while (!waits) std::this_thread::yield();
        ASSERT_EQ(sennit_send(&x, 1, SENNIT_INT32, 0, comm), SENNIT_OK) << sennit_last_error();
        return;
      }
      sennit_work_t work;
      const sennit_status_t started = sennit_recv_start(&x, 1, SENNIT_INT32, 1, comm, &work);
      waits = true;
      ASSERT_EQ(started, SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(sennit_work_wait(work, timeout_ms), SENNIT_OK) << timeout_ms;
      EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
      EXPECT_EQ(x, 1);
      sennit_work_free(work);
    });
  }
}

// Nobody calls into the library while the work runs: the helper thread must carry it.
TEST(Works, ProgressWithoutBeingWaitedFor) {
  Ranks ranks(3);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::vector<float> x(3'000'000, static_cast<float>(rank));
    sennit_work_t work;
    ASSERT_EQ(sennit_all_reduce_start(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_MAX,
                                      comm, &work),
              SENNIT_OK);
    // Each test moves a little at most, so there are few; the helper has to move the rest between.
    sennit_status_t status = SENNIT_IN_PROGRESS;
    for (auto pause = std::chrono::milliseconds(100);
         pause < std::chrono::minutes(1) && status == SENNIT_IN_PROGRESS; pause *= 2) {
      std::this_thread::sleep_for(pause);
      status = sennit_work_test(work);
    }
    EXPECT_EQ(status, SENNIT_OK);
    EXPECT_EQ(x.front(), 2.0f);
    sennit_work_free(work);
  });
}

// How often the helper threads of this process went to sleep.
long sleeps_of_helpers() {
  long sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line;
    bool helper = false;
    while (std::getline(status, line)) {
      if (line == "Name:\tsennit-helper") helper = true;
      if (helper && line.starts_with("voluntary_ctxt_switches:"))
        sleeps += std::stol(line.substr(line.find(':') + 1));
    }
  }
  return sleeps;
}

// To wake the helper takes longer than a small call: it looks by itself once in a while.
TEST(Works, SmallOnesThatAreWaitedForDoNotWakeTheHelper) {
  constexpr int kRanks = 2, kCalls = 2000;
  Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const auto calls = [](int n, sennit_comm_t comm) {
    for (int i = 0; i < n; i++) {
      int x = 1;
      sennit_work_t work;
      ASSERT_EQ(sennit_all_reduce_start(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm, &work),
                SENNIT_OK);
      ASSERT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
      sennit_work_free(work);
    }
  };
  ranks.run([&](int, sennit_comm_t comm) { calls(10, comm); });  // from then on there are helpers
  const long before = sleeps_of_helpers();
  const auto began = std::chrono::steady_clock::now();
  ranks.run([&](int, sennit_comm_t comm) { calls(kCalls, comm); });
  const long sleeps = sleeps_of_helpers() - before;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  const double looks = took.count() + 2;  // one a millisecond
  EXPECT_LT(static_cast<double>(sleeps), kRanks * (looks + kCalls / 10.0));
}

// Started, maybe completed, never waited for: finalize completes them, and their handles tell the
// results.
TEST(Works, FinalizeCompletesWhatNobodyWaitedFor) {
  std::vector<sennit_comm_t> comms(3);
  ASSERT_EQ(sennit_comm_init_local(comms.data(), 3, nullptr), SENNIT_OK) << sennit_last_error();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; rank++)
    threads.emplace_back([&, rank] {
      const sennit_comm_t comm = comms[static_cast<size_t>(rank)];
      std::vector<int> x(50'000, rank + 1), y(50'000, 1), out(9, rank), in(9, -1);
      sennit_work_t small, large, send, receive, lonely;
      ASSERT_EQ(
          sennit_all_reduce_start(x.data(), x.data(), 4, SENNIT_INT32, SENNIT_SUM, comm, &small),
          SENNIT_OK);
      ASSERT_EQ(sennit_all_reduce_start(y.data(), y.data(), y.size(), SENNIT_INT32, SENNIT_SUM,
                                        comm, &large),
                SENNIT_OK);
      ASSERT_EQ(sennit_send_start(out.data(), 9, SENNIT_INT32, (rank + 1) % 3, comm, &send),
                SENNIT_OK);
      ASSERT_EQ(sennit_recv_start(in.data(), 9, SENNIT_INT32, (rank + 2) % 3, comm, &receive),
                SENNIT_OK);
      while (sennit_work_test(small) == SENNIT_IN_PROGRESS) std::this_thread::yield();
      if (rank == 2) {  // what cannot complete is named, and the others are not kept waiting
        ASSERT_EQ(sennit_send_start(out.data(), 9, SENNIT_INT32, rank, comm, &lonely), SENNIT_OK);
        EXPECT_EQ(sennit_comm_finalize(comm), SENNIT_INVALID_ARGUMENT);
        EXPECT_STREQ(
            sennit_last_error(),
            "send to oneself: no receive waits for it; start that first, with sennit_recv_start");
        EXPECT_EQ(sennit_work_wait(lonely, -1), SENNIT_INVALID_ARGUMENT);
        EXPECT_EQ(sennit_work_free(lonely), SENNIT_OK);
      } else {
        EXPECT_EQ(sennit_comm_finalize(comm), SENNIT_OK) << sennit_last_error();
      }
      EXPECT_EQ(x[3], 6);
      EXPECT_EQ(y[49'999], 3);
      EXPECT_EQ(in, std::vector<int>(9, (rank + 2) % 3));
      EXPECT_EQ(sennit_work_wait(large, -1), SENNIT_OK);
      EXPECT_EQ(sennit_work_test(receive), SENNIT_OK);
      EXPECT_EQ(sennit_comm_destroy(comm), SENNIT_OK);
      for (const sennit_work_t work : {small, large, send, receive})
        EXPECT_EQ(sennit_work_free(work), SENNIT_OK);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Works, OfAnOpenGroupCannotBeWaitedFor) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    int x = 1, y = 1, from = 7, to = 0;
    sennit_work_t kept, given_up, send;
    sennit_group_start();
    ASSERT_EQ(sennit_all_reduce_start(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm, &kept), SENNIT_OK);
    ASSERT_EQ(sennit_all_reduce_start(&y, &y, 1, SENNIT_INT32, SENNIT_SUM, comm, &given_up),
              SENNIT_OK);
    int rank = 0;
    sennit_comm_rank(comm, &rank);
    ASSERT_EQ(sennit_send_start(&from, 1, SENNIT_INT32, rank, comm, &send), SENNIT_OK);
    ASSERT_EQ(sennit_recv(&to, 1, SENNIT_INT32, rank, comm), SENNIT_OK);
    sennit_group_start();
    EXPECT_EQ(sennit_group_end(), SENNIT_OK);  // an inner one starts nothing
    for (const sennit_work_t work : {kept, send}) {
      EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_INVALID_ARGUMENT);
      EXPECT_EQ(sennit_work_wait(work, 10), SENNIT_INVALID_ARGUMENT);
      EXPECT_EQ(sennit_work_test(work), SENNIT_INVALID_ARGUMENT);
      EXPECT_STREQ(sennit_last_error(),
                   "the work's group is still open: sennit_group_end starts its calls");
    }
    EXPECT_EQ(sennit_work_free(given_up), SENNIT_OK);
    ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(x, 2);
    EXPECT_EQ(y, 2);
    EXPECT_EQ(to, 7);
    EXPECT_EQ(sennit_work_wait(kept, -1), SENNIT_OK);
    EXPECT_EQ(sennit_work_test(send), SENNIT_OK);
    sennit_work_free(kept);
    sennit_work_free(send);
  });
}

// As programs do that have one thread for all devices of a host.
TEST(Works, OneThreadMakesTheCallsOfAllRanksInAGroup) {
  Ranks ranks(3);
  ASSERT_TRUE(ranks.ok());
  for (const size_t count : {size_t{1}, size_t{100'000}}) {
    std::vector<std::vector<int>> x(3, std::vector<int>(count, 1));
    sennit_group_start();
    for (int r = 0; r < 3; r++) {
      int* const mine = x[static_cast<size_t>(r)].data();
      EXPECT_EQ(sennit_all_reduce(mine, mine, count, SENNIT_INT32, SENNIT_SUM, ranks.comm(r)),
                SENNIT_OK);
    }
    EXPECT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    for (const std::vector<int>& mine : x) EXPECT_EQ(mine, std::vector<int>(count, 3));
  }
}

TEST(Works, AGroupWithACallThatIsOffMakesNoneOfIt) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    int x = 1, from = rank, to = -1;
    const int other = 1 - rank;
    sennit_work_t kept;
    sennit_group_start();
    EXPECT_EQ(sennit_send(&from, 1, SENNIT_INT32, other, comm), SENNIT_OK);
    EXPECT_EQ(sennit_all_reduce_start(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm, &kept), SENNIT_OK);
    EXPECT_EQ(sennit_recv(&to, 1, SENNIT_INT32, 2, comm), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, nullptr),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_group_end(), SENNIT_INVALID_ARGUMENT);
    EXPECT_TRUE(std::string_view(sennit_last_error()).starts_with("none of the group's calls"))
        << sennit_last_error();
    EXPECT_EQ(sennit_work_wait(kept, -1), SENNIT_INVALID_ARGUMENT);
    sennit_work_free(kept);
    EXPECT_EQ(x, 1);
    // The communicator is as it was, and the next group knows nothing of this one.
    sennit_group_start();
    EXPECT_EQ(sennit_send(&from, 1, SENNIT_INT32, other, comm), SENNIT_OK);
    EXPECT_EQ(sennit_recv(&to, 1, SENNIT_INT32, other, comm), SENNIT_OK);
    EXPECT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(to, other);
  });
}

// A call that is off before it comes to a communicator is one of the group's as well.
TEST(Groups, WithATypeThatIsNoneOrNoPlaceForTheWorkMakeNoCall) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    int x = 1;
    for (const bool type : {true, false}) {
      sennit_group_start();
      EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
      EXPECT_EQ(
          type ? sennit_barrier_start(comm, nullptr)
               : sennit_all_reduce(&x, &x, 1, static_cast<sennit_type_t>(99), SENNIT_SUM, comm),
          SENNIT_INVALID_ARGUMENT);
      EXPECT_EQ(sennit_group_end(), SENNIT_INVALID_ARGUMENT);
      EXPECT_TRUE(std::string_view(sennit_last_error()).starts_with("none of the group's calls"))
          << sennit_last_error();
      EXPECT_EQ(x, 1);
    }
  });
}

// As between two ranks: another count or type fails the communicator, on all its ranks.
TEST(PointToPoint, ToOneselfOfAnotherSizeOrType) {
  struct Receive {
    size_t count;
    sennit_type_t type;
    std::string what;
  };
  const std::vector<Receive> receives = {{2, SENNIT_INT32, "count 2 int32"},
                                         {1, SENNIT_FLOAT32, "count 1 float32"}};
  for (const Receive& other : receives) {
    Ranks ranks(3);
    ASSERT_TRUE(ranks.ok());
    ranks.run([&](int rank, sennit_comm_t comm) {
      int from[2] = {1, 2}, to[2] = {-1, -1};
      const std::string text =
          "on communicator 1 rank 1 called send count 1 int32 to itself, but recv " + other.what +
          " from itself";
      if (rank == 1) {
        sennit_work_t send, receive;
        ASSERT_EQ(sennit_send_start(from, 1, SENNIT_INT32, rank, comm, &send), SENNIT_OK);
        ASSERT_EQ(sennit_recv_start(to, other.count, other.type, rank, comm, &receive), SENNIT_OK);
        for (const sennit_work_t work : {send, receive}) {
          EXPECT_EQ(sennit_work_test(work), SENNIT_MISMATCH);
          EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_MISMATCH);
          EXPECT_EQ(sennit_last_error(), text);
          sennit_work_free(work);
        }
        EXPECT_EQ(to[0], -1);
      }
      EXPECT_EQ(sennit_barrier(comm), SENNIT_MISMATCH);
      EXPECT_EQ(sennit_last_error(), text);
    });
  }
}

TEST(PointToPoint, RingGroupAndSelf) {
  Ranks ranks(5);
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100'000}}) {
      std::vector<int> out(count, rank), in(count, -1), self(count, -1);
      sennit_group_start();
      sennit_send(out.data(), count, SENNIT_INT32, (rank + 1) % n, comm);
      sennit_recv(in.data(), count, SENNIT_INT32, (rank + n - 1) % n, comm);
      sennit_send(out.data(), count, SENNIT_INT32, rank, comm);
      sennit_recv(self.data(), count, SENNIT_INT32, rank, comm);
      ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(in, std::vector<int>(count, (rank + n - 1) % n));
      EXPECT_EQ(self, out);
    }
  });
}

TEST(Split, ByColorAndKeyAndNoColor) {
  Ranks ranks(7);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t part = nullptr;
    const int color = rank == 6 ? SENNIT_NO_COLOR : rank % 2;
    ASSERT_EQ(sennit_comm_split(comm, color, -rank, &part), SENNIT_OK) << sennit_last_error();
    if (rank == 6) {
      EXPECT_EQ(part, nullptr);
    } else {
      int size = 0, new_rank = -1, sum = rank;
      sennit_comm_size(part, &size);
      sennit_comm_rank(part, &new_rank);
      EXPECT_EQ(size, 3);
      EXPECT_EQ(new_rank, 2 - rank / 2);  // the key reverses the order
      ASSERT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, part), SENNIT_OK)
          << sennit_last_error();
      EXPECT_EQ(sum, rank % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
      ASSERT_EQ(sennit_comm_finalize(part), SENNIT_OK);
      sennit_comm_destroy(part);
    }
    sennit_comm_t twin = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &twin), SENNIT_OK) << sennit_last_error();
    // Two communicators from two threads at once.
    std::thread other([&] {
      for (int i = 0; i < 50; i++) {
        int x = 1;
        ASSERT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, twin), SENNIT_OK);
        ASSERT_EQ(x, 7);
      }
    });
    for (int i = 0; i < 50; i++) {
      std::vector<int> x(1000, 2);
      ASSERT_EQ(sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_INT32, SENNIT_SUM, comm),
                SENNIT_OK);
      ASSERT_EQ(x[999], 14);
    }
    other.join();
    sennit_comm_finalize(twin);
    sennit_comm_destroy(twin);
  });
}

TEST(Arguments, AreCheckedAndLeaveTheCommunicatorIntact) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    int x = 1;
    EXPECT_EQ(sennit_broadcast(&x, &x, 1, SENNIT_INT32, 2, comm), SENNIT_INVALID_ARGUMENT);
    EXPECT_STREQ(sennit_last_error(), "broadcast: root 2: expected 0 <= it < 2");
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, static_cast<sennit_type_t>(77), SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, static_cast<sennit_op_t>(9), comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(nullptr, &x, 1, SENNIT_INT32, SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, nullptr),
              SENNIT_INVALID_ARGUMENT);
    ASSERT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    EXPECT_EQ(x, 2);
  });
}

// Only two ranks can see that counts differ; all ranks of the communicator are told, the same.
TEST(VectorVariants, WithOtherCountsFailOnAllRanks) {
  constexpr size_t kLarge = 100'000;
  using Call =
      std::function<sennit_status_t(int rank, const size_t* counts, int* data, sennit_comm_t comm)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"gather_v",
       [](int, const size_t* counts, int* data, sennit_comm_t comm) {
         return sennit_gather_v(data, data + 4 * kLarge, counts, nullptr, SENNIT_INT32, 0, comm);
       }},
      {"scatter_v",
       [](int, const size_t* counts, int* data, sennit_comm_t comm) {
         return sennit_scatter_v(data, data + 4 * kLarge, counts, nullptr, SENNIT_INT32, 0, comm);
       }},
      {"all_to_all_v", [](int rank, const size_t* counts, int* data, sennit_comm_t comm) {
         // Each rank sends all others what `counts` says of it, and expects the same of them.
         const std::vector<size_t> mine(4, counts[rank]);
         size_t expected[4] = {3, kLarge, 2, kLarge};
         expected[rank] = counts[rank];
         return sennit_all_to_all_v(data, mine.data(), nullptr, data + 4 * kLarge, expected,
                                    nullptr, SENNIT_INT32, comm);
       }}};
  for (const auto& [name, call] : calls)
    for (const size_t other : {size_t{0}, size_t{1}, kLarge}) {
      SCOPED_TRACE(name + " " + std::to_string(other));
      Ranks ranks(4);
      ASSERT_TRUE(ranks.ok());
      std::vector<std::string> texts(4);
      ranks.run([&, call = call](int rank, sennit_comm_t comm) {
        std::vector<int> data(8 * kLarge);
        size_t counts[4] = {3, kLarge, 2, kLarge};
        if (rank == 2) counts[2] = other;  // the others expect 2
        sennit_status_t status = call(rank, counts, data.data(), comm);
        for (int i = 0; i < 1000 && status == SENNIT_OK; i++) status = sennit_barrier(comm);
        EXPECT_EQ(status, SENNIT_MISMATCH) << sennit_last_error();
        texts[static_cast<size_t>(rank)] = sennit_last_error();
      });
      EXPECT_NE(texts[0].find(" bytes where "), std::string::npos) << texts[0];
      EXPECT_NE(texts[0].find("communicator 1, call 1"), std::string::npos) << texts[0];
      for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    }
}

// The pointer is the thread's own and stays; a text that does not fit is cut.
TEST(LastError, StaysWhereItIs) {
  std::vector<sennit_comm_t> comms(1);
  ASSERT_EQ(sennit_comm_init_local(comms.data(), 1, nullptr), SENNIT_OK) << sennit_last_error();
  const char* const text = sennit_last_error();
  EXPECT_EQ(sennit_barrier(nullptr), SENNIT_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "the communicator is NULL");
  int x = 0;
  EXPECT_EQ(sennit_broadcast(&x, &x, 1, SENNIT_INT32, 5, comms[0]), SENNIT_INVALID_ARGUMENT);
  EXPECT_STREQ(text, "broadcast: root 5: expected 0 <= it < 1");
  EXPECT_EQ(sennit_last_error(), text);
  std::thread([&] {
    EXPECT_STREQ(sennit_last_error(), "");
    EXPECT_NE(sennit_last_error(), text);
  }).join();
  sennit_config_t config = SENNIT_CONFIG_INIT;
  const std::string long_name(10'000, 'x');
  config.algorithm = long_name.c_str();
  sennit_comm_t none = nullptr;
  EXPECT_NE(sennit_comm_init_local(&none, 1, &config), SENNIT_OK);
  EXPECT_EQ(std::string(text).substr(4000), std::string(91, 'x').append(" ..."));
  sennit_comm_destroy(comms[0]);
}

}  // namespace
