// call_log_test.cpp: the latest calls are remembered; what is forgotten is not taken for another.
//
// ctest not-under-tsan: it has one thread
#include "api/call/call_log.hpp"

#include <gtest/gtest.h>

namespace sennit {
namespace {

std::shared_ptr<Prepared> prepared(const std::string& text) {
  auto made = std::make_shared<Prepared>();
  made->description = text;
  made->signature = 7;
  return made;
}

void call_up_to(uint32_t last, CallLog* log) {
  for (uint32_t seq = 1; seq <= last; seq++)
    EXPECT_EQ(log->begins(prepared("call " + std::to_string(seq))).seq, seq);
}

TEST(CallLog, OfNoCallThereIsNothingToTell) {
  const CallLog log;
  CallDescriptor call;
  EXPECT_FALSE(log.describe(1, &call));
  EXPECT_FALSE(log.describe(0, &call));
}

TEST(CallLog, RemembersTheLatestCalls) {
  CallLog log;
  call_up_to(100, &log);
  CallDescriptor call;
  ASSERT_TRUE(log.describe(99, &call));
  EXPECT_EQ(call.seq, 99u);
  EXPECT_EQ(call.text, "call 99");
  EXPECT_EQ(call.signature, 7u);
  ASSERT_TRUE(log.describe(100 - CallLog::kRemembered + 1, &call));
  EXPECT_EQ(call.text, "call 37") << "the oldest";
}

TEST(CallLog, ACallBehindARefusalSaysSo) {
  CallLog log;
  log.refuses(CallLog::Refused::call, "the count is off");
  CallDescriptor call;
  EXPECT_FALSE(log.describe(1, &call));
  EXPECT_EQ(call.refusal, "") << "it may still be put right";
  call_up_to(2, &log);
  for (const uint32_t seq : {1u, 2u}) {
    ASSERT_TRUE(log.describe(seq, &call));
    EXPECT_EQ(call.refused_before, seq == 1);
  }
  log.refuses(CallLog::Refused::group, "the list is off");
  log.goes_on();
  EXPECT_TRUE(log.makes_group()) << "other ranks may have been refused one as well";
  EXPECT_FALSE(log.makes_group());
}

TEST(CallLog, OfACallToComeItTellsTheLatest) {
  CallLog log;
  call_up_to(100, &log);
  CallDescriptor call;
  ASSERT_TRUE(log.describe(200, &call));
  EXPECT_EQ(call.seq, 100u);
  EXPECT_EQ(call.text, "call 100");
}

TEST(CallLog, ACallThatIsForgottenIsNotTakenForAnother) {
  CallLog log;
  call_up_to(300, &log);
  for (const uint32_t forgotten : {1u, 107u, 236u}) {  // by more rounds of the log, and by one
    CallDescriptor call;
    ASSERT_TRUE(log.describe(forgotten, &call));
    EXPECT_EQ(call.seq, 300u) << "this rank is past it, and here";
    EXPECT_EQ(call.text, "call " + std::to_string(forgotten) + " is no longer known");
    EXPECT_EQ(call.signature, 0u);
  }
}

// Many calls are in a stream that has not come to the first of them.
TEST(CallLog, OfACallThatIsForgottenItTellsWhetherItsStreamMayNotHaveCome) {
  CallLog log;
  const auto waits = std::make_shared<std::atomic<bool>>(true);
  for (uint32_t seq = 1; seq <= 200; seq++) log.in_stream(log.begins(prepared("call")).seq, waits);
  CallDescriptor call;
  for (const uint32_t seq : {1u, 136u, 137u, 200u}) {
    ASSERT_TRUE(log.describe(seq, &call));
    EXPECT_TRUE(call.in_stream) << seq;
  }
  *waits = false;
  ASSERT_TRUE(log.describe(1, &call));
  EXPECT_FALSE(call.in_stream);
  log.begins(prepared("on the host"));
  ASSERT_TRUE(log.describe(201, &call));
  EXPECT_FALSE(call.in_stream);
}

TEST(CallLog, NumbersMayWrap) {
  CallLog log(UINT32_MAX - 49);
  for (uint32_t i = 0; i < 100; i++)
    EXPECT_EQ(log.begins(prepared("call")).seq, UINT32_MAX - 49 + i);
  CallDescriptor call;
  ASSERT_TRUE(log.describe(UINT32_MAX, &call));
  EXPECT_EQ(call.seq, UINT32_MAX);
  ASSERT_TRUE(log.describe(60, &call)) << "to come";
  EXPECT_EQ(call.seq, 49u);
  ASSERT_TRUE(log.describe(UINT32_MAX - 45, &call));
  EXPECT_EQ(call.text, "call 4294967250 is no longer known");
}

}  // namespace
}  // namespace sennit
