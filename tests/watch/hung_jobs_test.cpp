// hung_jobs_test.cpp: real jobs that hang: a rank that is stopped, a message that is lost; what
// every rank says of it, and the copies of what they did that it leaves. And one that only goes on
// slowly, because a rank is stopped and continued in turns.
//
// ctest quiet: where nobody gets a core everybody is silent
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "record/recording.hpp"
#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/making_threads.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/test_folder.hpp"

using namespace std::chrono_literals;

namespace sennit::diagnose {
namespace {

using sennit_test::Arrivals;
using sennit_test::eventually;
using sennit_test::Processes;

void all_reduce(sennit_comm_t comm, size_t count) {
  std::vector<float> x(count, 1);
  sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_SUM, comm);
}

class HungJob : public testing::Test {
 protected:
  // Each rank appends what it is told to the file heard-RANK, and runs body(rank, comm).
  void start(int ranks, const std::function<void(int, sennit_comm_t)>& body,
             Processes::Environment more = {}) {
    more.insert({{"SENNIT_STALL", "200"}, {"SENNIT_DUMP", dumps_.path()}});
    ranks_ = ranks;
    processes_ = std::make_unique<Processes>(
        ranks,
        [this, body](int rank) {
          sennit_comm_t comm = nullptr;
          if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
            return std::string(sennit_last_error());
          std::ofstream heard(folder_ / ("heard-" + std::to_string(rank)));
          sennit_comm_on_verdict(comm, write, &heard);
          body(rank, comm);
          sennit_comm_destroy(comm);
          return std::string("left");
        },
        more);
  }
  static void write(const char* json, void* file) {
    *static_cast<std::ofstream*>(file) << json << std::endl;
  }
  std::string heard(int rank) const {
    std::stringstream text;
    text << std::ifstream(folder_ / ("heard-" + std::to_string(rank))).rdbuf();
    return text.str();
  }
  // Whether this rank has been told one thing that has all these texts. Of a rank that gets no core
  // for a while it may have been told something else before.
  bool was_told(int rank, const std::vector<std::string>& texts) const {
    std::istringstream lines(heard(rank));
    for (std::string line; std::getline(lines, line);)
      if (std::ranges::all_of(texts,
                              [&](const auto& text) { return line.find(text) != line.npos; }))
        return true;
    return false;
  }
  void wait_for(int rank, const std::vector<std::string>& texts) const {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!was_told(rank, texts)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end)
          << fmt::format("{} was not told:\n", fmt::join(texts, " with ")) << heard(rank);
      std::this_thread::sleep_for(50ms);
    }
  }
  // By the copies, once all ranks have made theirs. A call hangs once nothing moves for so long.
  Verdict dumped(uint64_t quiet_ns = 100'000'000) const {
    for (int tries = 0; tries < 600; tries++) {
      std::vector<std::string> passed_over;
      const Result<JobRecording> job = read_job({{dumps_.path()}, {}, {}}, &passed_over);
      if (job && job->missing.empty()) {
        Plans plans(*job);
        JudgeOptions options;
        options.quiet_ns = quiet_ns;
        options.now_ns = realtime_ns();
        return judge(*job, plans, options);
      }
      std::this_thread::sleep_for(50ms);
    }
    ADD_FAILURE() << "not all ranks have left a copy";
    return {};
  }

  int ranks_ = 0;
  Arrivals arrived_, released_, called_;
  trainer::TestFolder folder_, dumps_;
  std::unique_ptr<Processes> processes_;
};

TEST_F(HungJob, ARankThatIsStoppedDoesNotAnswer) {
  start(3, [this](int, sennit_comm_t comm) {
    int stop = 0;
    arrived_.add();
    while (!stop) {  // all ranks end in the same call
      stop = released_.await(1, 0ms);
      sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
      all_reduce(comm, 1 << 16);
    }
  });
  ASSERT_TRUE(arrived_.await(3, 60s));
  processes_->signal(1, SIGSTOP);
  for (const int rank : {0, 2})
    wait_for(rank, {"\"cause\":\"silent\"", "\"blamed_ranks\":[1]",
                    "rank 1 does not answer: stopped, or"});
  processes_->signal(1, SIGCONT);
  wait_for(0, {"\"verdict\":\"hang\",\"withdrawn\":true"});
  released_.add();
  for (const std::optional<std::string>& report : processes_->reports(240s))
    EXPECT_EQ(report.value_or("killed"), "left");
}

TEST_F(HungJob, ARankThatIsStoppedInTurnsGetsNoCore) {
  start(3,
        [this](int rank, sennit_comm_t comm) {
          int stop = 0;
          arrived_.add();
          while (!stop) {
            stop = released_.await(1, 0ms);
            sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
            all_reduce(comm, 1 << 16);
            if (rank == 1) called_.add();
          }
        },
        {{"SENNIT_WATCH", "0.2"}});
  ASSERT_TRUE(arrived_.await(3, 60s));
  // It goes on for a call or two, however long these take on a busy machine, and is stopped again.
  const auto stop_once = [&] {
    processes_->signal(1, SIGSTOP);
    std::this_thread::sleep_for(100ms);
    const int before = called_.count();
    processes_->signal(1, SIGCONT);
    called_.await(before + 2, 60s);
  };
  EXPECT_TRUE(eventually(
      [&] {
        return was_told(0, {"\"verdict\":\"starved_rank\",\"withdrawn\":false",
                            "\"blamed_ranks\":[1]", "rank 1 gets no core for"});
      },
      stop_once))
      << heard(0);
  EXPECT_FALSE(was_told(0, {"late_rank", "\"blamed_ranks\":[1]"})) << heard(0);
  // The recordings know it as well. On a busy machine their copies are of moments that are further
  // apart than 100 ms, and of times in which the others got no core either.
  Verdict verdict;
  EXPECT_TRUE(eventually(
      [&] {
        for (const int rank : {0, 1, 2}) processes_->signal(rank, SIGUSR2);
        verdict = dumped(JudgeOptions().quiet_ns);
        return verdict.kind == VerdictKind::starved_rank && verdict.ranks == std::vector<int>{1};
      },
      stop_once))
      << verdict.sentence;
  EXPECT_GT(verdict.cost, 0.2) << verdict.sentence;
  wait_for(0, {"\"verdict\":\"starved_rank\",\"withdrawn\":true"});
  released_.add();
  for (const std::optional<std::string>& report : processes_->reports(240s))
    EXPECT_EQ(report.value_or("killed"), "left");
}

TEST_F(HungJob, AMessageThatIsLostIsNamedWithItsStep) {
  const int kCalls = 40;
  start(4,
        [&](int, sennit_comm_t comm) {
          for (int i = 0; i < kCalls; i++) all_reduce(comm, 1 << 16);
        },
        {{"SENNIT_FAULTS", "rank=2,drop=60"}, {"SENNIT_ARRIVAL_TIMEOUT", "60000"}});
  for (int rank = 0; rank < ranks_; rank++)
    wait_for(rank, {"\"cause\":\"lost_message\"", "\"blamed_ranks\":[2]",
                    "what rank 2 sent to rank", "\"where\":{\"step\":"});
  // The copies say the same, when the job is gone. Some may be of what was told before.
  Verdict verdict;
  EXPECT_TRUE(eventually([&] {
    for (int rank = 0; rank < ranks_; rank++) processes_->signal(rank, SIGUSR2);
    verdict = dumped();
    return verdict.hang && verdict.hang->cause == HangCause::lost_message;
  })) << verdict.sentence;
  processes_.reset();
  verdict = dumped();
  EXPECT_EQ(verdict.kind, VerdictKind::hang) << verdict.sentence;
  ASSERT_TRUE(verdict.hang);
  EXPECT_EQ(verdict.hang->cause, HangCause::lost_message) << verdict.sentence;
  EXPECT_EQ(verdict.ranks, std::vector{2});
}

TEST_F(HungJob, ASignalHasARankLeaveACopyAndGoOn) {
  start(2, [this](int, sennit_comm_t comm) {
    int stop = 0;
    while (!stop) {
      arrived_.add();
      stop = released_.await(1, 1ms);
      sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
    }
  });
  ASSERT_TRUE(arrived_.await(10, 60s));
  for (const int rank : {0, 1}) processes_->signal(rank, SIGUSR2);
  const Verdict verdict = dumped();
  EXPECT_NE(verdict.kind, VerdictKind::gone) << verdict.sentence;
  EXPECT_NE(verdict.kind, VerdictKind::failed) << verdict.sentence;
  std::vector<std::string> passed_over;
  const Result<JobRecording> job = read_job({{dumps_.path()}, {}, {}}, &passed_over);
  ASSERT_TRUE(job);
  for (const RankRecording& rank : job->ranks) {
    EXPECT_EQ(rank.state, RankState::running);
    EXPECT_GT(rank.events.size(), 5u);
    EXPECT_FALSE(rank.notes.empty());
  }
  released_.add();
  for (const std::optional<std::string>& report : processes_->reports(240s))
    EXPECT_EQ(report.value_or("killed"), "left");
}

// Where the limit of threads was reached after the job had started.
TEST_F(HungJob, ACopyNeedsNoThreadOfItsOwn) {
  start(2,
        [this](int, sennit_comm_t comm) {
          sennit_test::g_before_thread = [] {
            char name[16] = "";
            prctl(PR_GET_NAME, name);
            return std::string(name) == "sennit-watch" ? EAGAIN : 0;
          };
          int stop = 0;
          while (!stop) {
            arrived_.add();
            stop = released_.await(1, 1ms);
            sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
          }
        },
        {{"SENNIT_WATCH", "0.05"}});
  ASSERT_TRUE(arrived_.await(10, 60s));
  for (const int rank : {0, 1}) processes_->signal(rank, SIGUSR2);
  EXPECT_NE(dumped().kind, VerdictKind::gone);
  released_.add();
  for (const std::optional<std::string>& report : processes_->reports(240s))
    EXPECT_EQ(report.value_or("killed"), "left");
}

// As where the folder is slow, and something happens while a copy is being written.
TEST_F(HungJob, ACopyThatIsAskedForWhileOneIsMadeIsMadeLater) {
  start(2,
        [this](int, sennit_comm_t comm) {
          int stop = 0;
          while (!stop) {
            arrived_.add();
            stop = released_.await(1, 1ms);
            sennit_all_reduce(&stop, &stop, 1, SENNIT_INT32, SENNIT_MAX, comm);
          }
        },
        {{"SENNIT_WATCH", "0.05"}});
  ASSERT_TRUE(arrived_.await(10, 60s));
  processes_->signal(0, SIGUSR2);
  std::string copy;
  ASSERT_TRUE(eventually([&] {
    for (const auto& entry : std::filesystem::directory_iterator(dumps_.path()))
      if (entry.path().string().ends_with("-0")) copy = entry.path().string();
    return !copy.empty();
  }));
  // Who writes to a pipe waits until somebody reads it.
  ASSERT_EQ(mkfifo((copy + kUnfinishedRecording).c_str(), 0600), 0);
  const int pipe = open((copy + kUnfinishedRecording).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  processes_->signal(0, SIGUSR2);
  pollfd begun{pipe, POLLIN, 0};
  ASSERT_EQ(poll(&begun, 1, 60'000), 1);
  processes_->signal(0, SIGUSR2);
  std::this_thread::sleep_for(300ms);  // so that it is seen meanwhile
  std::filesystem::remove(copy);
  ASSERT_EQ(fcntl(pipe, F_SETFL, 0), 0);
  std::vector<char> bytes(1 << 16);
  while (read(pipe, bytes.data(), bytes.size()) > 0) continue;
  close(pipe);
  EXPECT_TRUE(eventually([&] { return std::filesystem::is_regular_file(copy); }))
      << "the pipe is in its place still";
  released_.add();
  for (const std::optional<std::string>& report : processes_->reports(240s))
    EXPECT_EQ(report.value_or("killed"), "left");
}

TEST_F(HungJob, AFailureHasTheRanksThatAreLeftLeaveACopy) {
  start(3, [](int rank, sennit_comm_t comm) {
    all_reduce(comm, 1000);
    if (rank == 1) raise(SIGKILL);
    for (int calls = 0; calls < 1000; calls++) all_reduce(comm, 1000);
  });
  for (const int rank : {0, 2}) EXPECT_EQ(processes_->reports(240s)[size_t(rank)], "left");
  std::vector<std::string> passed_over;
  const Result<JobRecording> job = read_job({{dumps_.path()}, {}, {}}, &passed_over);
  ASSERT_TRUE(job) << job.status().text();
  EXPECT_EQ(job->missing, std::vector<int>{1});
  Plans plans(*job);
  const Verdict verdict = judge(*job, plans, {});
  EXPECT_EQ(verdict.kind, VerdictKind::failed) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("rank 1"), std::string::npos) << verdict.sentence;
}

}  // namespace
}  // namespace sennit::diagnose
