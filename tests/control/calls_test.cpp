// calls_test.cpp: calls that stall, differ or are aborted: all ranks of a job are told the same.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/control/fixture.hpp"
#include "tests/support/eventually.hpp"

namespace sennit {
namespace {

using test::LocalJob;

CallDescriptor call(uint32_t comm, uint32_t seq, uint64_t signature, const std::string& what) {
  CallDescriptor result;
  result.comm = comm;
  result.seq = seq;
  result.signature = signature;
  result.text = fmt::format("{}, in call {} of communicator {}", what, seq, comm);
  return result;
}

struct Calling : ::testing::Test {
  static constexpr int kSize = 20;  // two levels
  LocalJob job{kSize};
  // What was wrong: a start that this arrival time-out was too short for.
  std::string begin(int64_t arrival_ms) {
    job.controls.clear();
    LocalJob fresh(kSize);
    std::swap(job, fresh);
    for (auto& options : job.options) options.arrival_timeout_ms = arrival_ms;
    if (!job.start()) return "it does not start";
    for (int r = 0; r < kSize; r++) set_members(r, 1, 0, kSize);
    return "";
  }
  void set_members(int rank, uint32_t comm, int first, int last) {
    std::vector<int> members;
    for (int r = first; r < last; r++) members.push_back(r);
    const MutexLock lock(job.recorder(rank).mutex);
    job.recorder(rank).members[comm] = members;
  }
  void set_call(int rank, const CallDescriptor& descriptor) {
    const MutexLock lock(job.recorder(rank).mutex);
    job.recorder(rank).calls[descriptor.comm] = descriptor;
  }
  // The same error on all of these, and nothing on the others.
  void expect_error(uint32_t comm, int first, int last, ErrorKind kind, const std::string& text) {
    for (int r = 0; r < kSize; r++) {
      test::Recorder& recorder = job.recorder(r);
      const bool told = recorder.wait(r >= first && r < last ? 60'000 : 50,
                                      [&] { return recorder.communicators.count(comm) > 0; });
      ASSERT_EQ(told, r >= first && r < last) << "rank " << r;
      if (!told) continue;
      const MutexLock lock(recorder.mutex);  // it may be told a second time
      EXPECT_EQ(recorder.communicators[comm].kind(), kind);
      EXPECT_EQ(recorder.communicators[comm].text(), text) << "rank " << r;
    }
    job.leave();
  }
};

TEST_F(Calling, AMismatchIsToldToAll) {
  ASSERT_EQ(begin(60'000), "");
  const auto common = call(1, 17, 100, "all_reduce count 1000 float32 sum");
  const auto odd = call(1, 17, 200, "all_reduce count 1024 float32 sum");
  for (int r = 0; r < kSize; r++) set_call(r, r == 18 ? odd : common);
  job[19].report_mismatch(common, 18);
  expect_error(1, 0, kSize, SENNIT_MISMATCH,
               "call 17 on communicator 1: rank 18 called all_reduce count 1024 float32 sum; ranks "
               "0-17,19 called "
               "all_reduce count 1000 float32 sum");
}

TEST_F(Calling, AStallFindsTheMismatchToo) {
  ASSERT_EQ(begin(60'000), "");
  const auto common = call(1, 3, 1, "broadcast count 8 int32 root 0");
  const auto odd = call(1, 3, 2, "broadcast count 8 int32 root 4");
  for (int r = 0; r < kSize; r++) set_call(r, r == 0 ? odd : common);
  for (int r = 0; r < kSize; r++) job[r].report_stall(r == 0 ? odd : common);
  expect_error(1, 0, kSize, SENNIT_MISMATCH,
               "call 3 on communicator 1: rank 0 called broadcast count 8 int32 root 4; ranks 1-19 "
               "called broadcast "
               "count 8 int32 root 0");
}

TEST_F(Calling, ARankThatDoesNotArriveIsNamed) {
  const auto common = call(1, 4, 1, "barrier");
  std::string want;
  const auto wait_for_7 = [&](int64_t arrival_ms) -> std::string {
    if (std::string wrong = begin(arrival_ms); !wrong.empty()) return wrong;
    for (int r = 0; r < kSize; r++)
      if (r != 7) set_call(r, common);
    test::Recorder& recorder = job.recorder(3);
    EXPECT_TRUE(sennit_test::eventually([&] {
      for (int r = 0; r < kSize; r++)
        if (r != 7) job[r].report_stall(common);
      return recorder.wait(400, [&] { return recorder.communicators.count(1) > 0; });
    }));
    want = fmt::format(
        "rank 7 did not arrive in call 4 on communicator 1 (barrier) within {} ms; "
        "it has called nothing there",
        arrival_ms);
    const MutexLock lock(recorder.mutex);
    const std::string text = recorder.communicators[1].text();
    return text == want ? "" : text;
  };
  EXPECT_EQ(sennit_test::at_some_timeout(1500, wait_for_7), "");
  expect_error(1, 0, kSize, SENNIT_TIMED_OUT, want);
}

TEST_F(Calling, AGroupWithTheSameNumberIsLeftAlone) {
  ASSERT_EQ(begin(60'000), "");
  for (int r = 0; r < kSize; r++) set_members(r, 2, r < 8 ? 0 : 8, r < 8 ? 8 : kSize);
  for (int r = 0; r < kSize; r++)
    set_call(r, call(2, 9, r == 12 ? 6 : r < 8 ? 5 : 7, r == 12 ? "reduce" : "gather"));
  job[10].report_stall(call(2, 9, 7, "gather"));
  expect_error(2, 8, kSize, SENNIT_MISMATCH,
               "call 9 on communicator 2: rank 12 called reduce; ranks 8-11,13-19 called gather");
}

TEST_F(Calling, AbortReachesAll) {
  ASSERT_EQ(begin(60'000), "");
  job[19].abort(1, "loss is NaN");
  test::Recorder& recorder = job.recorder(0);
  recorder.wait(60'000, [&] { return recorder.communicators.count(1) > 0; });
  std::string text;
  {
    const MutexLock lock(recorder.mutex);
    text = recorder.communicators[1].text();
  }
  EXPECT_EQ(text.find("communicator 1 was aborted by rank 19 (host "), 0u) << text;
  EXPECT_NE(text.find("): loss is NaN"), std::string::npos) << text;
  expect_error(1, 0, kSize, SENNIT_ABORTED, text);
}

}  // namespace
}  // namespace sennit
