// verdict_test.cpp: what is said of jobs of real processes that hang, fail, are late or are well,
// by what their ranks recorded.
//
// ctest quiet: it judges who comes late by milliseconds
#include "diagnose/recorded/verdict.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "record/recording.hpp"
#include "sennit/sennit.h"
#include "tests/support/processes.hpp"
#include "tests/support/test_folder.hpp"

using namespace std::chrono_literals;

namespace sennit::diagnose {
namespace {

using sennit_test::Arrivals;
using sennit_test::Processes;

void all_reduce(sennit_comm_t comm, size_t count) {
  std::vector<float> x(count, 1);
  sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_SUM, comm);
}

class VerdictOf : public testing::Test {
 protected:
  // A job of `ranks`, each of which runs body(rank, comm) and then leaves.
  void start(int ranks, const std::function<void(int, sennit_comm_t)>& body) {
    processes_ = std::make_unique<Processes>(
        ranks,
        [body](int rank) {
          sennit_comm_t comm = nullptr;
          if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
            return std::string(sennit_last_error());
          body(rank, comm);
          sennit_comm_destroy(comm);
          return std::string("left");
        },
        Processes::Environment{{"SENNIT_TRACE", folder_.path()}, {"SENNIT_STALL", "100"}});
  }
  Verdict judged(bool running = true) {
    std::vector<std::string> passed_over;
    const Result<JobRecording> job = read_job({{folder_.path()}, {}, {}}, &passed_over);
    if (!job) return {};
    Plans plans(*job);
    JudgeOptions options;
    options.quiet_ns = 500'000'000;
    options.least_cost = 0.2;  // of a busy machine's ranks some come late by less
    if (running) options.now_ns = realtime_ns();
    return judge(*job, plans, options);
  }
  // Asks until these ranks are found to be behind, and those, if given, to wait. On a busy machine
  // a rank that has not come to its call yet is rightly found to be behind as well, for a while.
  Verdict awaited(const std::vector<int>& behind,
                  const std::optional<std::vector<int>>& waiting = std::nullopt) {
    Verdict verdict;
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!(verdict.hang && verdict.ranks == behind &&
             (!waiting || verdict.hang->waiting == *waiting)) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(50ms);
      verdict = judged();
    }
    return verdict;
  }
  void end() { processes_->reports(60s); }
  // A busy machine's ranks do go without a core, and nothing else may be said of them.
  static void expect_well(const Verdict& verdict) {
    EXPECT_TRUE(verdict.kind == VerdictKind::well || verdict.kind == VerdictKind::starved_rank)
        << verdict.sentence;
  }
  // As though the host's real time had been set on, or back, since the ranks began.
  void set_real_time(std::chrono::nanoseconds on) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      uint64_t began_ns = 0;
      constexpr auto kAt = static_cast<std::streamoff>(offsetof(RecordingHeader, realtime_ns));
      file.seekg(kAt);
      file.read(reinterpret_cast<char*>(&began_ns), sizeof began_ns);
      began_ns -= static_cast<uint64_t>(on.count());
      file.seekp(kAt);
      file.write(reinterpret_cast<const char*>(&began_ns), sizeof began_ns);
    }
  }

  Arrivals arrived_;   // ranks have come to where the test wants them
  Arrivals released_;  // the test lets the ranks go on
  trainer::TestFolder folder_;
  std::unique_ptr<Processes> processes_;
};

TEST_F(VerdictOf, ARankThatDoesNotCall) {
  start(4, [this](int rank, sennit_comm_t comm) {
    for (int i = 0; i < 3; i++) all_reduce(comm, 1000);
    if (rank == 2) released_.await(1, 60s);
    all_reduce(comm, 1 << 20);
  });
  const Verdict verdict = awaited({2}, {{0, 1, 3}});
  EXPECT_EQ(verdict.kind, VerdictKind::hang) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{2});
  ASSERT_TRUE(verdict.hang);
  EXPECT_EQ(verdict.hang->cause, HangCause::not_called);
  EXPECT_EQ(verdict.hang->seq, 4u);
  EXPECT_EQ(verdict.hang->waiting, (std::vector<int>{0, 1, 3}));
  EXPECT_NE(verdict.sentence.find("rank 2 is behind: it has not called all_reduce of 4MiB float32 "
                                  "sum (number 4 of communicator 1); ranks 0-1,3 have waited for"),
            std::string::npos)
      << verdict.sentence;
  ASSERT_FALSE(verdict.evidence.empty());
  EXPECT_NE(verdict.evidence[0].find("is in no call; its last, all_reduce of 4000B"),
            std::string::npos)
      << verdict.evidence[0];
  released_.add();
  end();
  EXPECT_EQ(judged(false).kind == VerdictKind::hang, false) << "it went on";
}

TEST_F(VerdictOf, ARankThatIsStopped) {
  start(3, [this](int, sennit_comm_t comm) {
    int stop = 0;
    arrived_.add();
    while (!stop) {  // all ranks end in the same call
      stop = released_.await(1, 0ms);
      sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
      all_reduce(comm, 1 << 18);
    }
  });
  ASSERT_TRUE(arrived_.await(3, 30s));
  std::this_thread::sleep_for(200ms);  // until they call
  processes_->signal(1, SIGSTOP);
  const Verdict verdict = awaited({1});
  EXPECT_EQ(verdict.ranks, std::vector<int>{1}) << verdict.sentence;
  std::string evidence;
  for (const std::string& line : verdict.evidence) evidence += line + "\n";
  EXPECT_NE(evidence.find("is stopped (SIGSTOP)"), std::string::npos) << evidence;
  processes_->signal(1, SIGCONT);
  released_.add();
  end();
}

// How long a call has been open is told by the clock that its rank records by.
TEST_F(VerdictOf, AJobThatGoesOnAsRealTimeIsSetAnew) {
  start(2, [this](int, sennit_comm_t comm) {
    int stop = 0;
    arrived_.add();
    while (!stop) {
      stop = released_.await(1, 0ms);
      sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
      all_reduce(comm, 1 << 18);
    }
  });
  ASSERT_TRUE(arrived_.await(2, 30s));
  set_real_time(1h);
  for (int look = 0; look < 10; look++) {
    const Verdict verdict = judged();  // without a core for a second, a rank is in its call so long
    EXPECT_LT(verdict.hang ? verdict.hang->since_ns : 0, uint64_t{60'000'000'000});
  }
  released_.add();
  end();
}

TEST_F(VerdictOf, ARankThatDoesNotCallAsRealTimeIsSetBack) {
  start(2, [this](int rank, sennit_comm_t comm) {
    all_reduce(comm, 1000);
    arrived_.add();
    if (rank == 1) released_.await(1, 60s);
    all_reduce(comm, 1 << 18);
  });
  ASSERT_TRUE(arrived_.await(2, 30s));
  set_real_time(-1h);
  const Verdict verdict = awaited({1}, {{0}});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{1}) << verdict.sentence;
  EXPECT_LT(verdict.hang->since_ns, uint64_t{60'000'000'000});
  released_.add();
  end();
}

// Each is in a call of one communicator, for which the other would have to leave its own.
TEST_F(VerdictOf, RanksThatWaitForEachOther) {
  start(2, [](int rank, sennit_comm_t comm) {
    sennit_comm_t other = nullptr;
    sennit_comm_dup(comm, &other);
    all_reduce(rank == 0 ? comm : other, 1000);
    all_reduce(rank == 0 ? other : comm, 1000);
  });
  const Verdict verdict = awaited({0, 1});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.hang->cause, HangCause::waits_itself) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, (std::vector<int>{0, 1}));
}

TEST_F(VerdictOf, AReceiveThatNobodySendsTo) {
  start(3, [this](int rank, sennit_comm_t comm) {
    float x = 0;
    all_reduce(comm, 10);
    if (rank == 2) sennit_recv(&x, 1, SENNIT_FLOAT32, 0, comm);
    if (rank == 0) {
      released_.await(1, 60s);
      sennit_send(&x, 1, SENNIT_FLOAT32, 2, comm);
    }
    if (rank == 1) released_.await(1, 60s);
  });
  const Verdict verdict = awaited({0}, {{2}});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.hang->cause, HangCause::not_called) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{0});
  EXPECT_EQ(verdict.hang->waiting, std::vector<int>{2});
  released_.add();
  end();
}

// From whoever it may be: nobody can be blamed, but it is seen.
TEST_F(VerdictOf, AReceiveFromAnybody) {
  start(2, [this](int rank, sennit_comm_t comm) {
    float x = 0;
    if (rank == 0) sennit_recv(&x, 1, SENNIT_FLOAT32, SENNIT_ANY_SOURCE, comm);
    released_.await(1, 60s);
    if (rank == 1) sennit_send(&x, 1, SENNIT_FLOAT32, 0, comm);
  });
  const Verdict verdict = awaited({}, {{0}});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.hang->cause, HangCause::unknown) << verdict.sentence;
  EXPECT_EQ(verdict.hang->waiting, std::vector<int>{0});
}

// 0 waits for 1, 1 for 2, and 2 for nobody, all in messages of the same number.
TEST_F(VerdictOf, AChainOfMessages) {
  start(3, [this](int rank, sennit_comm_t comm) {
    float x = 0;
    if (rank < 2) sennit_recv(&x, 1, SENNIT_FLOAT32, rank + 1, comm);
    if (rank == 2) released_.await(1, 60s);
    if (rank > 0) sennit_send(&x, 1, SENNIT_FLOAT32, rank - 1, comm);
  });
  const Verdict verdict = awaited({2}, {{1}});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.hang->cause, HangCause::not_called) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{2}) << verdict.sentence;
  released_.add();
  end();
}

// A receive that is posted early, and that nobody waits for yet, is no hang.
TEST_F(VerdictOf, AReceiveThatNobodyWaitsFor) {
  start(2, [this](int rank, sennit_comm_t comm) {
    float x = 0;
    sennit_work_t work = nullptr;
    if (rank == 0) sennit_recv_start(&x, 1, SENNIT_FLOAT32, 1, comm, &work);
    released_.await(1, 60s);
    if (rank == 1) sennit_send(&x, 1, SENNIT_FLOAT32, 0, comm);
    if (rank == 0) sennit_work_wait(work, -1);
    if (rank == 0) sennit_work_free(work);
  });
  std::this_thread::sleep_for(1500ms);
  expect_well(judged());
  released_.add();
  end();
}

// All groups of a split have one number, and are told apart all the same.
TEST_F(VerdictOf, AGroupOfASplit) {
  start(4, [this](int rank, sennit_comm_t comm) {
    sennit_comm_t half = nullptr;
    sennit_comm_split(comm, rank % 2, rank, &half);
    for (int i = 0; i < 3; i++) all_reduce(half, rank % 2 == 0 ? 1000 : 3000);
    if (rank == 3) released_.await(1, 60s);
    all_reduce(half, rank % 2 == 0 ? 1000 : 3000);
    released_.await(1, 60s);
    sennit_comm_destroy(half);
  });
  const Verdict verdict = awaited({3}, {{1}});
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{3}) << verdict.sentence;
  EXPECT_EQ(verdict.hang->waiting, std::vector<int>{1}) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("all_reduce of 12000B float32 sum"), std::string::npos)
      << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("of ranks 1,3)"), std::string::npos) << verdict.sentence;
  released_.add();
  end();
}

// Of a rank whose recording is elsewhere nothing is known, and nobody else is blamed.
TEST_F(VerdictOf, ARankThatIsRecordedElsewhere) {
  start(3, [this](int rank, sennit_comm_t comm) {
    all_reduce(comm, 1000);
    if (rank == 2) released_.await(1, 60s);
    all_reduce(comm, 1000);
  });
  ASSERT_EQ(awaited({2}, {{0, 1}}).ranks, std::vector<int>{2});
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    if (entry.path().string().ends_with("-2")) std::filesystem::remove(entry.path());
  const Verdict verdict = judged();
  ASSERT_TRUE(verdict.hang) << verdict.sentence;
  EXPECT_EQ(verdict.hang->cause, HangCause::unknown) << verdict.sentence;
  EXPECT_TRUE(verdict.ranks.empty());
  released_.add();
  end();
}

// Ranks that go on after a death, on a communicator that the dead was no member of, are well.
TEST_F(VerdictOf, RanksThatWentOn) {
  start(3, [this](int rank, sennit_comm_t comm) {
    sennit_comm_t rest = nullptr;
    sennit_comm_split(comm, rank == 1 ? SENNIT_NO_COLOR : 0, rank, &rest);
    arrived_.add();
    float x = 1;
    while (sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm) == SENNIT_OK) {
    }
    for (int i = 0; i < 100; i++) all_reduce(rest, 10);
    arrived_.add();
    released_.await(1, 60s);
    sennit_comm_destroy(rest);
  });
  ASSERT_TRUE(arrived_.await(3, 30s));
  std::this_thread::sleep_for(200ms);
  processes_->signal(1, SIGKILL);
  ASSERT_TRUE(arrived_.await(5, 30s));
  std::this_thread::sleep_for(1s);  // longer than what counts as quiet
  const Verdict verdict = judged();
  EXPECT_NE(verdict.kind, VerdictKind::hang) << verdict.sentence;
  EXPECT_NE(verdict.kind, VerdictKind::failed) << verdict.sentence;
  released_.add();
  end();
}

TEST_F(VerdictOf, ARankThatWasKilled) {
  start(3, [this](int, sennit_comm_t comm) {
    arrived_.add();
    for (int i = 0; i < 1'000'000; i++) {
      float x = 1;
      if (sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm) != SENNIT_OK) return;
    }
  });
  ASSERT_TRUE(arrived_.await(3, 30s));
  std::this_thread::sleep_for(200ms);
  processes_->signal(1, SIGKILL);
  end();
  const Verdict verdict = judged(false);
  EXPECT_EQ(verdict.kind, VerdictKind::failed) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("rank 1 "), std::string::npos) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("died"), std::string::npos) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{1});
  EXPECT_EQ(verdict.evidence.back(), "rank 1 ended without leaving the job, or was killed");
}

TEST_F(VerdictOf, AJobOfWhichAllRanksWereKilled) {
  start(2, [this](int, sennit_comm_t comm) {
    all_reduce(comm, 1000);
    arrived_.add();
    released_.await(1, 60s);
  });
  ASSERT_TRUE(arrived_.await(2, 30s));
  // At once: nobody is left who could say that another one died.
  for (const int signal : {SIGSTOP, SIGKILL})
    for (const int rank : {0, 1}) processes_->signal(rank, signal);
  end();
  const Verdict verdict = judged(false);
  EXPECT_EQ(verdict.kind, VerdictKind::gone) << verdict.sentence;
  EXPECT_EQ(headline(verdict), "ranks 0-1 ended without leaving the job, or were killed");
  EXPECT_EQ(verdict.ranks, (std::vector<int>{0, 1}));
  EXPECT_FALSE(verdict.next.empty());
}

TEST_F(VerdictOf, ARankThatComesLate) {
  start(3, [](int rank, sennit_comm_t comm) {
    for (int i = 0; i < 30; i++) {
      std::this_thread::sleep_for(rank == 1 ? 40ms : 5ms);
      all_reduce(comm, 1000);
    }
  });
  end();
  const Verdict verdict = judged(false);
  EXPECT_EQ(verdict.kind, VerdictKind::late_rank) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{1});
  EXPECT_GT(verdict.cost, 0.5) << verdict.sentence;
  EXPECT_TRUE(
      std::any_of(verdict.evidence.begin(), verdict.evidence.end(),
                  [](const std::string& line) { return line.starts_with("rank 1 is process "); }));
  EXPECT_NE(verdict.sentence.find("it waits, as for input"), std::string::npos) << verdict.sentence;
  EXPECT_TRUE(std::any_of(
      verdict.ruled_out.begin(), verdict.ruled_out.end(),
      [](const std::string& line) { return line.find("goes without a core") != line.npos; }))
      << "that all had cores is known";
}

// As to the first call of a training step: in the median call it is on time.
TEST_F(VerdictOf, ARankThatComesLateToEveryThirdCall) {
  start(3, [](int rank, sennit_comm_t comm) {
    for (int i = 0; i < 72; i++) {
      std::this_thread::sleep_for(rank == 1 && i % 3 == 0 ? 40ms : 1ms);
      all_reduce(comm, 1000);
    }
  });
  end();
  const Verdict verdict = judged(false);
  EXPECT_EQ(verdict.kind, VerdictKind::late_rank) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{1});
}

TEST_F(VerdictOf, ARankThatComputesForLonger) {
  start(3, [](int rank, sennit_comm_t comm) {
    for (int i = 0; i < 30; i++) {
      const auto begin = std::chrono::steady_clock::now();
      while (rank == 1 && std::chrono::steady_clock::now() < begin + 40ms) continue;
      all_reduce(comm, 1000);
    }
  });
  end();
  const Verdict verdict = judged(false);
  EXPECT_EQ(verdict.kind, VerdictKind::late_rank) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector<int>{1});
  EXPECT_NE(verdict.sentence.find("it computes"), std::string::npos) << verdict.sentence;
}

TEST_F(VerdictOf, WhatBelongsToAnotherUserIsSaid) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root, to be another user";
  start(2, [](int, sennit_comm_t comm) { all_reduce(comm, 1000); });
  end();
  constexpr uid_t kNobody = 65534;
  std::vector<std::string> passed_over;
  const auto read_as_nobody = [&](std::filesystem::perms of_folder) {
    std::filesystem::permissions(folder_.path(), of_folder);
    EXPECT_EQ(seteuid(kNobody), 0);
    const Result<JobRecording> job = read_job({{folder_.path()}, {}, {}}, &passed_over);
    EXPECT_EQ(seteuid(0), 0);
    return job ? "" : job.status().text();
  };
  using std::filesystem::perms;
  EXPECT_EQ(read_as_nobody(perms::owner_all), folder_.path() + ": Permission denied");
  const std::string error = read_as_nobody(perms::all & ~perms::others_write);
  EXPECT_NE(error.find("there is no recording of a rank"), std::string::npos) << error;
  ASSERT_EQ(passed_over.size(), 2u);
  EXPECT_NE(passed_over[0].find("it is another user's"), std::string::npos) << passed_over[0];
}

TEST_F(VerdictOf, RanksThatAreWell) {
  start(3, [](int, sennit_comm_t comm) {
    for (int i = 0; i < 30; i++) {
      std::this_thread::sleep_for(10ms);
      all_reduce(comm, 1000);
    }
  });
  end();
  const Verdict verdict = judged(false);
  expect_well(verdict);
  EXPECT_FALSE(verdict.ruled_out.empty());
}

}  // namespace
}  // namespace sennit::diagnose
