// mailbox_test.cpp: the numbers of messages by peer and tag, and receives that wait for their
// source, over a transport that is told what has come.
// ctest not-under-tsan: it has one thread
#include "engine/mailbox.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.hpp"
#include "tests/engine/idle_transport.hpp"

namespace sennit {
namespace {

constexpr uint32_t kComm = 6;
constexpr uint32_t kTag = 4;

// Completes nothing; says that what is in `come` has come.
class Told final : public sennit_test::IdleTransport {
 public:
  std::string_view name() const override { return "told"; }
  void send(SendRequest& request) override { sends.push_back(&request); }
  void recv(RecvRequest& request) override { receives.push_back(&request); }
  bool has_come(int peer, const Key& key) override {
    return come.contains({peer, key.seq, key.tag});
  }
  bool progress(Completions& completions) override {
    completions.sends.swap(returned_sends);
    completions.receives.swap(returned_receives);
    return false;
  }
  void cancel(uint32_t, const Status& status) override {
    const auto give_back = [&](auto& held, auto& returned) {
      for (auto* request : held) {
        request->status = status;
        returned.push_back(request);
      }
      held.clear();
    };
    give_back(sends, returned_sends);
    give_back(receives, returned_receives);
  }

  std::set<std::tuple<int, uint32_t, uint32_t>> come;  // peer, number, tag
  std::vector<SendRequest*> sends, returned_sends;
  std::vector<RecvRequest*> receives, returned_receives;
};

class MailboxTest : public testing::Test {
 protected:
  MailboxTest() {
    auto transport = std::make_unique<Told>();
    told_ = transport.get();
    std::vector<std::unique_ptr<Transport>> all;
    all.push_back(std::move(transport));
    engine_.set_transports(std::move(all));
    engine_.set_addresses({4, {{std::byte{1}}}});
    Request request;
    request.collective = Collective::send_recv;
    request.type = DataType::uint8;
    request.count = 1;
    request.root = 1;
    ProgramBuilder builder;
    const Range whole{0, 0, kUnits};
    builder.recv(1, builder.output({&whole, 1}), 0, true);
    prepared_ = prepare(request, {}, builder.finish());
  }
  ~MailboxTest() override {
    engine_.fail_communicator(kComm, Status(SENNIT_ABORTED, "the test is over"));
    engine_.progress();
    const MutexLock lock(engine_.mutex());
    executions_.clear();
  }

  Execution& receive(int peer, uint32_t tag = kTag) {
    executions_.push_back(std::make_unique<Execution>(engine_, kComm, world_, prepared_));
    Buffers& buffers = executions_.back()->buffers();
    buffers.output = &byte_;
    buffers.output_layout.count = buffers.wire_layout.count = 1;
    engine_.start_receive(*executions_.back(), mailbox_, peer, tag, false);
    return *executions_.back();
  }
  // (peer, number, tag) of every receive that was posted.
  using Posted = std::vector<std::tuple<int, uint32_t, uint32_t>>;
  Posted posted() const {
    Posted all;
    for (const RecvRequest* request : told_->receives) {
      EXPECT_EQ(request->key.comm, kComm);
      EXPECT_EQ(request->key.chunk, kPointToPoint);
      all.emplace_back(request->peer, request->key.seq, request->key.tag);
    }
    return all;
  }

  Engine engine_{true, 1 << 20, uint64_t{1} << 60, {}};
  Told* told_ = nullptr;
  std::shared_ptr<const Prepared> prepared_;
  const std::vector<int> world_ = {0, 1};
  Mailbox mailbox_{engine_, kComm, {1, 2, 3}};
  std::byte byte_{};
  std::vector<std::unique_ptr<Execution>> executions_;
};

TEST_F(MailboxTest, NumbersGoByPeerAndTag) {
  receive(1);
  receive(2);
  receive(1, 9);
  receive(1);
  EXPECT_EQ(posted(), (Posted{{1, 1, kTag}, {2, 1, kTag}, {1, 1, 9}, {1, 2, kTag}}));
  EXPECT_FALSE(mailbox_.waits());
}

TEST_F(MailboxTest, AnySourceWaitsForWhatHasCome) {
  Execution& waiting = receive(Mailbox::kAnySource);
  EXPECT_TRUE(mailbox_.waits());
  EXPECT_FALSE(waiting.done());
  EXPECT_EQ(posted(), Posted{});
  told_->come = {{3, 2, kTag}, {3, 1, kTag + 1}, {0, 1, kTag}};
  engine_.progress();
  EXPECT_EQ(posted(), Posted{}) << "a later number, another tag, and a rank that is no peer";
  told_->come = {{3, 1, kTag}};
  engine_.progress();
  EXPECT_EQ(posted(), (Posted{{3, 1, kTag}}));
  EXPECT_EQ(waiting.peer(), 3);
  EXPECT_FALSE(mailbox_.waits());
}

TEST_F(MailboxTest, WhatCameBeforeIsTakenAtOnce) {
  told_->come = {{2, 1, kTag}};
  EXPECT_EQ(receive(Mailbox::kAnySource).peer(), 2);
  EXPECT_EQ(posted(), (Posted{{2, 1, kTag}}));
}

TEST_F(MailboxTest, LaterReceivesOfTheTagWaitBehindIt) {
  receive(Mailbox::kAnySource);
  receive(1);
  receive(2);
  receive(1, 8);  // of another tag: does not wait
  EXPECT_EQ(posted(), (Posted{{1, 1, 8}}));
  told_->come = {{1, 1, kTag}};
  engine_.progress();
  EXPECT_EQ(posted(), (Posted{{1, 1, 8}, {1, 1, kTag}, {1, 2, kTag}, {2, 1, kTag}}));
}

TEST_F(MailboxTest, NobodyIsAlwaysAheadOfTheOthers) {
  for (uint32_t number = 1; number <= 3; number++)
    for (const int peer : {1, 2, 3}) told_->come.insert({peer, number, kTag});
  for (int i = 0; i < 6; i++) receive(Mailbox::kAnySource);
  EXPECT_EQ(
      posted(),
      (Posted{{1, 1, kTag}, {2, 1, kTag}, {3, 1, kTag}, {1, 2, kTag}, {2, 2, kTag}, {3, 2, kTag}}));
}

TEST_F(MailboxTest, WhatIsForgottenBeginsAnew) {
  receive(1);
  receive(2);
  receive(1, 9);
  mailbox_.forget(1, kTag);
  receive(1);
  receive(2);
  EXPECT_EQ(posted(), (Posted{{1, 1, kTag}, {2, 1, kTag}, {1, 1, 9}, {1, 1, kTag}, {2, 2, kTag}}));
}

// Nothing of it is left with the engine, which would look at it when it is destroyed.
TEST_F(MailboxTest, WhatIsDoneWhenItStartsIsNotUnderWay) {
  int stalls = 0;
  Engine::Callbacks callbacks;
  callbacks.stalled = [&](Execution& execution) {
    EXPECT_FALSE(execution.done());
    stalls++;
  };
  Engine engine(true, 1 << 20, 1, callbacks);  // whatever is under way stalls
  auto transport = std::make_unique<Told>();
  Told& told = *transport;
  std::vector<std::unique_ptr<Transport>> all;
  all.push_back(std::move(transport));
  engine.set_transports(std::move(all));
  engine.set_addresses({4, {{std::byte{1}}}});
  Mailbox mailbox(engine, kComm, {1, 2, 3});
  Request request;
  request.collective = Collective::send_recv;
  const std::shared_ptr<const Prepared> nothing = prepare(request, {}, ProgramBuilder().finish());
  auto execution = std::make_unique<Execution>(engine, kComm, world_, nothing);
  engine.start_receive(*execution, mailbox, Mailbox::kAnySource, kTag, false);
  EXPECT_FALSE(execution->done());
  told.come = {{2, 1, kTag}};
  EXPECT_TRUE(engine.progress());
  EXPECT_TRUE(execution->done());
  EXPECT_FALSE(engine.wait([] { return false; }, 200'000'000)) << "it looks for stalls";
  EXPECT_EQ(stalls, 0);
  const MutexLock lock(engine.mutex());
  execution.reset();
}

TEST_F(MailboxTest, WhatWaitsEndsWithItsCommunicator) {
  Execution& waiting = receive(Mailbox::kAnySource);
  Execution& behind = receive(2);
  engine_.fail_communicator(kComm + 1, Status(SENNIT_ABORTED, "another one"));
  EXPECT_FALSE(waiting.done());
  engine_.fail_communicator(kComm, Status(SENNIT_ABORTED, "this one"));
  for (const Execution* one : {&waiting, &behind}) {
    ASSERT_TRUE(one->done());
    EXPECT_EQ(one->status().text(), "this one");
  }
  EXPECT_FALSE(mailbox_.waits());
  told_->come = {{1, 1, kTag}};
  engine_.progress();
  EXPECT_EQ(posted(), Posted{});
}

}  // namespace
}  // namespace sennit
