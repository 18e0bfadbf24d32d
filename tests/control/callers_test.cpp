// callers_test.cpp: between the threads that call the control plane and its own: what is waited for
// comes, or says why it will not.
#include "control/callers.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace sennit::control {
namespace {

constexpr int64_t kLongMs = 20'000;
const Callers::Blobs kBlobs = {{std::byte{1}}};

TEST(Callers, CommandsComeInOrderUntilTheEnd) {
  Callers callers;
  std::vector<int> done;
  EXPECT_TRUE(callers.post([&] { done.push_back(1); }));
  EXPECT_TRUE(callers.post([&] { done.push_back(2); }));
  for (const auto& command : callers.take_commands()) command();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  EXPECT_TRUE(callers.take_commands().empty());
  callers.end();
  EXPECT_FALSE(callers.post([] {}));
}

TEST(Callers, WaitForTheStart) {
  Callers callers;
  std::thread control([&] { callers.start_over({SENNIT_TIMED_OUT, "rank 3 did not come"}); });
  EXPECT_EQ(callers.wait_for_start().text(), "rank 3 did not come");
  control.join();
}

TEST(Callers, AStartThatNeverWasIsAnError) {
  Callers callers;
  callers.end();
  EXPECT_EQ(callers.wait_for_start().kind(), SENNIT_INTERNAL);
}

TEST(Callers, WaitNoLongerThanTheyWantTo) {
  Callers callers;
  const Interruption wanted([] { return true; });
  EXPECT_FALSE(callers.await_start(wanted));
  const Status status = callers.wait_for_result(0, "it", kLongMs, wanted).status();
  EXPECT_EQ(status.kind(), SENNIT_ABORTED);
  EXPECT_EQ(status.text(), "it: the start was aborted on this rank");
  callers.start_over({});
  callers.finish(0, kBlobs);
  EXPECT_TRUE(callers.await_start(wanted)) << "it is over";
  EXPECT_EQ(*callers.wait_for_result(0, "it", kLongMs, wanted), kBlobs);
}

TEST(Callers, GetResultsByNumberAlsoThoseThatWereEarly) {
  Callers callers;
  callers.finish(4, kBlobs);
  std::thread control([&] { callers.finish(3, Status{SENNIT_TIMED_OUT, "late"}); });
  EXPECT_EQ(callers.wait_for_result(3, "it", kLongMs).status().text(), "late");
  EXPECT_EQ(*callers.wait_for_result(4, "it", kLongMs), kBlobs);
  control.join();
  EXPECT_EQ(callers.wait_for_result(4, "it", 1).status().text(),
            "it: nothing came from rank 0 within 1 ms")
      << "a result is handed over once";
}

TEST(Callers, AFailureEndsTheWaitingAndAResultThatIsThereIsStillGiven) {
  Callers callers;
  EXPECT_TRUE(callers.failure().ok());
  callers.finish(1, kBlobs);
  std::thread control([&] { callers.fail({SENNIT_PEER_FAILED, "rank 1 died"}); });
  EXPECT_EQ(callers.wait_for_result(0, "it", kLongMs).status().text(), "rank 1 died");
  control.join();
  EXPECT_EQ(*callers.wait_for_result(1, "it", kLongMs), kBlobs);
}

TEST(Callers, ABrokenLinkDoesNotHideADeath) {
  Callers callers;
  callers.fail_if_well({SENNIT_LINK_FAILED, "a link"});
  callers.fail_if_well({SENNIT_LINK_FAILED, "another"});
  EXPECT_EQ(callers.failure().text(), "a link");
  callers.fail({SENNIT_PEER_FAILED, "rank 1 died"});
  EXPECT_EQ(callers.failure().text(), "rank 1 died") << "the last one told stands";
}

TEST(Callers, TheEndEndsAllWaiting) {
  Callers callers;
  std::thread control([&] { callers.end(); });
  EXPECT_EQ(callers.wait_for_result(0, "it", kLongMs).status().kind(), SENNIT_ABORTED);
  callers.wait_for_end(std::chrono::milliseconds(kLongMs));
  control.join();
}

TEST(Callers, WaitNoLongerThanTheyMay) {
  Callers callers;
  callers.wait_for_end(std::chrono::milliseconds(1));
  EXPECT_EQ(callers.wait_for_result(0, "it", 1).status().kind(), SENNIT_TIMED_OUT);
}

}  // namespace
}  // namespace sennit::control
