// stream_owners_test.cpp: ranks of a job that share a process are told where a stream of one would
// wait for another's; whose jobs or captures are others', or whose calls are over, are not.
#include "accelerator/cuda/stream_owners.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace sennit::cuda {
namespace {

constexpr uint64_t kJob = 7, kOtherJob = 8;

const void* handle(uintptr_t number) { return reinterpret_cast<const void*>(number); }
SharedStream stream(uintptr_t number, StreamOrder order = StreamOrder::free) {
  return {handle(number), 0, order};
}
const SharedStream kDefault{nullptr, 0, StreamOrder::legacy};

TEST(StreamOwners, RefuseASecondRankUntilTheFirstIsOver) {
  StreamOwners owners;
  const SharedStream shared = stream(0x100);
  EXPECT_TRUE(owners.enter(shared, {kJob, 0}).ok());
  EXPECT_TRUE(owners.enter(shared, {kJob, 0}).ok());
  EXPECT_EQ(owners.enter(shared, {kJob, 1}).kind(), SENNIT_INVALID_ARGUMENT);
  EXPECT_TRUE(owners.enter(stream(0x200), {kJob, 1}).ok());
  owners.leave(shared, {kJob, 0});
  EXPECT_FALSE(owners.enter(shared, {kJob, 1}).ok());
  owners.leave(shared, {kJob, 0});
  EXPECT_TRUE(owners.enter(shared, {kJob, 1}).ok());
}

// Whoever came first, and whoever is still there.
TEST(StreamOwners, KnowTheRanksOfEachJob) {
  StreamOwners owners;
  const SharedStream shared = stream(0x100);
  EXPECT_TRUE(owners.enter(shared, {kJob, 0}).ok());
  EXPECT_TRUE(owners.enter(shared, {kOtherJob, 0}).ok());
  EXPECT_FALSE(owners.enter(shared, {kOtherJob, 1}).ok());
  EXPECT_FALSE(owners.enter(shared, {kJob, 1}).ok());
  owners.leave(shared, {kJob, 0});
  EXPECT_TRUE(owners.enter(shared, {kJob, 1}).ok());
  EXPECT_FALSE(owners.enter(shared, {kOtherJob, 1}).ok());
}

TEST(StreamOwners, RefuseTheDefaultStreamBesideOneThatBlocks) {
  const SharedStream blocking = stream(0x100, StreamOrder::blocking);
  for (const bool default_first : {true, false}) {
    StreamOwners owners;
    EXPECT_TRUE(owners.enter(default_first ? kDefault : blocking, {kJob, 0}).ok());
    const Status refused = owners.enter(default_first ? blocking : kDefault, {kJob, 1});
    EXPECT_EQ(refused.kind(), SENNIT_INVALID_ARGUMENT);
    EXPECT_NE(refused.text().find("CU_STREAM_NON_BLOCKING"), std::string::npos) << refused.text();
  }
  StreamOwners owners;
  EXPECT_TRUE(owners.enter(kDefault, {kJob, 0}).ok());
  EXPECT_TRUE(owners.enter(blocking, {kJob, 0}).ok()) << "of the same rank";
  EXPECT_TRUE(owners.enter(stream(0x200), {kJob, 1}).ok()) << "one that does not block";
  EXPECT_TRUE(owners.enter(stream(0x300, StreamOrder::blocking), {kOtherJob, 1}).ok());
}

TEST(StreamOwners, CountStreamsThatBlockForNothingAmongThemselves) {
  StreamOwners owners;
  EXPECT_TRUE(owners.enter(stream(0x100, StreamOrder::blocking), {kJob, 0}).ok());
  EXPECT_TRUE(owners.enter(stream(0x200, StreamOrder::blocking), {kJob, 1}).ok());
}

TEST(StreamOwners, TellCapturesOfAStreamApart) {
  StreamOwners owners;
  SharedStream first = stream(0x100), second = first;
  first.capture = 1;
  second.capture = 2;
  EXPECT_TRUE(owners.enter(first, {kJob, 0}).ok());
  EXPECT_FALSE(owners.enter(first, {kJob, 1}).ok());
  EXPECT_TRUE(owners.enter(second, {kJob, 1}).ok());
  EXPECT_TRUE(owners.enter(stream(0x100), {kJob, 1}).ok());
}

TEST(StreamNames, AreOneForEachStream) {
  EXPECT_EQ(name_of(handle(kLegacyStream)), name_of(nullptr));
  EXPECT_EQ(name_of(handle(0x100)), handle(0x100));
  EXPECT_FALSE(is_thread_name(name_of(handle(0x100))));
  std::set<const void*> names{name_of(handle(kPerThreadStream))};
  EXPECT_TRUE(names.contains(name_of(handle(kPerThreadStream))));
  for (int i = 0; i < 3; i++)  // one after the other
    std::thread([&] { names.insert(name_of(handle(kPerThreadStream))); }).join();
  EXPECT_EQ(names.size(), 4u);
  for (const void* const name : names) EXPECT_TRUE(is_thread_name(name));
}

}  // namespace
}  // namespace sennit::cuda
