// answer_test.cpp: what a rank says of what it does has with it what the calls are about.
// ctest not-under-tsan: it has one thread
#include "watch/answer.hpp"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "diagnose/communicator_numbers.hpp"
#include "record/recording.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit::watch {
namespace {

constexpr uint32_t kGroup = 7;

class AnswerOf : public testing::Test {
 protected:
  AnswerOf() { recording_->note(encode(CommunicatorNote{kGroup, {1, 3}})); }
  void record(EventKind kind, uint32_t comm, uint8_t flags) const {
    TraceEvent event;
    event.kind = kind;
    event.comm = comm;
    event.seq = 1;
    event.peer = 3;
    event.flags = flags;
    event.posted_ns = now_ns();
    recording_->record(event);
  }
  // Of rank 1; whether it says who is in the group.
  bool says_who() const {
    const auto file = diagnose::RecordingFile::open(recording_->path());
    EXPECT_TRUE(file);
    if (!file) return false;
    const Answer answer = answer_of(**file, 1, "", std::vector<Placement>(4));
    return std::any_of(answer.notes.begin(), answer.notes.end(), [](const Note& note) {
      const auto* const comm = std::get_if<CommunicatorNote>(&note);
      return comm && comm->id == kGroup && comm->members == std::vector{1, 3};
    });
  }

  const trainer::TestFolder folder_;
  const std::unique_ptr<Recording> recording_ = Recording::open({0x33, 1, 4, "a"}, folder_.path());
};

TEST_F(AnswerOf, ACallThatHasNotEnded) {
  EXPECT_FALSE(says_who());
  record(EventKind::call_begin, kGroup, kEventAwaited);
  EXPECT_TRUE(says_who());
}

TEST_F(AnswerOf, TheLastThatHasEnded) {
  record(EventKind::call_begin, kGroup, kEventAwaited);
  record(EventKind::call_end, kGroup, kEventAwaited);
  EXPECT_TRUE(says_who());
}

// Members that make a communicator out of theirs tell each other so beside its calls.
TEST_F(AnswerOf, AMessageOfTheGroupsChannel) {
  record(EventKind::call_begin, kGroup | diagnose::kChannel,
         kEventAwaited | kEventPointToPoint | kEventReceiving);
  EXPECT_TRUE(says_who());
}

}  // namespace
}  // namespace sennit::watch
