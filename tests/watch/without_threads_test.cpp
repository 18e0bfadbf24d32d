// without_threads_test.cpp: a rank whose system has no thread left for its watch is in the job all
// the same.
// ctest not-under-tsan: it has one thread
#include <malloc.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "record/recording.hpp"
#include "tests/support/making_threads.hpp"
#include "watch/watch.hpp"

namespace sennit::watch {
namespace {

// Rank 0 judges, too, for which it has a thread more.
TEST(WatchWithoutThreads, LetsTheJobGoOnAndSaysSo) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const std::unique_ptr<Recording> recording = Recording::in_memory(8);
    WatchSetting setting;
    setting.recording = recording.get();
    setting.rank = rank;
    setting.placements = {{"h0", 0, ""}, {"h1", 0, ""}};
    setting.period = std::chrono::hours(1);
    setting.stall = std::chrono::seconds(1);
    Watch watch;
    testing::internal::CaptureStderr();
    sennit_test::g_before_thread = [] { return EAGAIN; };
    EXPECT_NO_THROW(watch.start(setting));
    sennit_test::g_before_thread = nullptr;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("no thread left for watching"), std::string::npos) << said;
    watch.message_stalls(std::chrono::hours(1));  // is told nobody: there is no control to do it
    watch.stop();
  }
}

// As at a rank with SENNIT_WATCH=0, while the others have it on.
TEST(WatchWithoutThreads, KeepsNothingOfWhatOthersTell) {
#ifdef SENNIT_SANITIZED
  GTEST_SKIP() << "mallinfo2() does not see what a sanitizer's allocator gives";
#endif
  constexpr int kDigests = 10'000;
  constexpr size_t kLittle = 1 << 20;
  const std::vector<std::byte> digest(1024);
  Watch watch;
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < kDigests; i++) watch.told(1, 1, digest);
  EXPECT_LT(mallinfo2().uordblks, before + kLittle);
}

}  // namespace
}  // namespace sennit::watch
