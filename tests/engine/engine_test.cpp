// engine_test.cpp: the engine itself: what starts and fails at once is told at once, other threads
// may use it whenever a call lets go of the lock, and it works without its helper.
#include "engine/engine.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "base/clock.hpp"
#include "tests/engine/idle_transport.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/making_threads.hpp"

namespace {

std::atomic<bool> g_no_threads{false};
std::atomic<bool> g_made_with_signals{false};
thread_local std::function<void()> t_at_yield;  // once

// There may be no thread left. Whether one is made that would take signals is remembered.
int before_thread() {
  if (g_no_threads) return EAGAIN;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (!sigismember(&blocked, SIGTERM)) g_made_with_signals = true;
  return 0;
}
[[maybe_unused]] const bool g_asks = (sennit_test::g_before_thread = before_thread, true);

}  // namespace

// In place of the system's: what other threads do just then.
extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
  if (const auto meanwhile = std::exchange(t_at_yield, nullptr)) meanwhile();
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace sennit {
namespace {

constexpr uint32_t kComm = 6, kOtherComm = 7;
constexpr uint32_t kTag = 4;
constexpr int kPeer = 1;

int never_readable() {
  static const int descriptor = eventfd(0, EFD_CLOEXEC);
  return descriptor;
}

// Holds what it is given until the test lets it go. Where `trouble` is an error, those that receive
// fail by themselves, as they do for want of memory.
class Holding final : public sennit_test::IdleTransport {
 public:
  std::string_view name() const override { return "holding"; }
  void send(SendRequest& request) override { sends_.push_back(&request); }
  void recv(RecvRequest& request) override {
    receives_.push_back(&request);
    if (!trouble.ok()) static_cast<Execution*>(request.owner)->fail_here(trouble);
  }
  bool progress(Completions& completions) override {
    if (!lets_go || (sends_.empty() && receives_.empty())) return false;
    if (--turns > 0) return true;
    completions.sends.swap(sends_);
    completions.receives.swap(receives_);
    return true;
  }
  size_t now_bytes() const override { return sizeof(int32_t); }
  Now send_now(const SmallMessage&) override { return Now::done; }
  Now recv_now(const SmallMessage&) override { return Now::later; }
  int event_fd() const override { return descriptor; }
  bool prepare_wait() override {
    slept++;
    return true;
  }

  std::atomic<bool> lets_go{false};
  std::atomic<int> turns{1};  // in which it moves what it then lets go
  int descriptor = -1;
  std::atomic<int> slept{0};  // how often somebody lay down
  Status trouble;

 private:
  std::vector<SendRequest*> sends_;
  std::vector<RecvRequest*> receives_;
};

// Counts how often it is looked at until somebody lies down for the first time.
class Watched final : public sennit_test::IdleTransport {
 public:
  explicit Watched(bool wakes) : wakes_(wakes) {}
  std::string_view name() const override { return "watched"; }
  bool progress(Completions&) override {
    if (!slept) looks++;
    return false;
  }
  int event_fd() const override { return wakes_ ? never_readable() : -1; }
  bool prepare_wait() override { return slept = true; }

  int looks = 0;
  bool slept = false;

 private:
  const bool wakes_;
};

// Of one who waits for what never comes, while peers are reached over a transport that wakes it
// and, where `beside`, over one that does not.
int looks_before_sleep(bool core_each, bool beside) {
  Engine engine(core_each, 1 << 20, uint64_t{1} << 60, {});
  std::vector<std::unique_ptr<Transport>> all;
  all.push_back(std::make_unique<Watched>(true));
  all.push_back(std::make_unique<Watched>(false));
  auto& waking = static_cast<Watched&>(*all[0]);
  engine.set_transports(std::move(all));
  const std::vector<std::byte> reached = {std::byte{1}};
  engine.set_addresses({{}, {reached, {}}, {{}, reached}});
  {
    const MutexLock lock(engine.mutex());
    engine.has_come(1, {});
    if (beside) engine.has_come(2, {});
  }
  engine.wait([&] { return waking.slept; }, -1);
  return waking.looks;
}

class Engines : public testing::Test {
 protected:
  Engines() {
    auto transport = std::make_unique<Holding>();
    transport_ = transport.get();
    std::vector<std::unique_ptr<Transport>> all;
    all.push_back(std::move(transport));
    engine_.set_transports(std::move(all));
    engine_.set_addresses({2, {{std::byte{1}}}});
  }
  ~Engines() override {
    engine_.stop_helper();
    const MutexLock lock(engine_.mutex());
    executions_.clear();
  }
  // Of this rank's number and its peer's.
  Execution& sum() {
    const std::vector<Range> whole = {{0, 0, kUnits}};
    ProgramBuilder builder;
    const std::array<Operand, 2> both = {builder.input(whole), builder.scratch(whole)};
    builder.send(kPeer, both[0], 0);
    builder.recv(kPeer, both[1], 0);
    builder.reduce(builder.output(whole), both, true);
    Request request;
    request.collective = Collective::all_reduce;
    request.count = 1;
    request.type = DataType::int32;
    return add(kComm, prepare(request, {}, builder.finish()));
  }
  // To this rank.
  Execution& message(uint32_t comm) {
    const std::vector<Range> whole = {{0, 0, kUnits}};
    Request request;
    request.collective = Collective::send_recv;
    request.type = DataType::int32;
    request.count = 1;
    request.root = 1;
    ProgramBuilder builder;
    builder.recv(1, builder.output(whole), 0, true);
    return add(comm, prepare(request, {}, builder.finish()));
  }

  // Until somebody who waits lies down.
  void wait_for_sleep() const {
    const int before = transport_->slept;
    while (transport_->slept == before) std::this_thread::yield();
  }
  // How long a few take that wait, and sleep, until `move` has moved one half of their message and
  // they the other.
  template <typename Move>
  uint64_t time_of_halves(Move move) {
    uint64_t took_ns = 0;
    for (int i = 0; i < kRounds; i++) {
      transport_->lets_go = false;
      transport_->turns = 2;
      Execution& call = message(kComm);
      engine_.start_receive(call, mailbox_, kPeer, kTag, false);
      std::thread waiter([&] { engine_.wait([&] { return call.done(); }, -1); });
      wait_for_sleep();
      transport_->lets_go = true;
      const uint64_t begin_ns = now_ns();
      while (transport_->turns == 2) move();
      waiter.join();
      took_ns += now_ns() - begin_ns;
    }
    return took_ns;
  }

  static constexpr int kRounds = 8;
  static constexpr uint64_t kSoonNs = kRounds * uint64_t{20'000'000};  // less than they sleep
  Holding* transport_ = nullptr;
  std::vector<std::pair<uint32_t, Status>> failed_;  // as the engine told it
  Engine engine_{false, 1 << 20, uint64_t{1} << 60, callbacks()};
  Mailbox mailbox_{engine_, kComm, {kPeer}}, other_mailbox_{engine_, kOtherComm, {kPeer}};

 private:
  Engine::Callbacks callbacks() {
    Engine::Callbacks result;
    result.failed_here = [this](uint32_t comm, const Status& status) {
      failed_.emplace_back(comm, status);
    };
    return result;
  }
  Execution& add(uint32_t comm, std::shared_ptr<const Prepared> prepared) {
    executions_.push_back(std::make_unique<Execution>(engine_, comm, world_, std::move(prepared)));
    Buffers& buffers = executions_.back()->buffers();
    buffers.input = reinterpret_cast<const std::byte*>(&input_);
    buffers.output = reinterpret_cast<std::byte*>(&output_);
    buffers.input_layout.count = buffers.output_layout.count = buffers.wire_layout.count = 1;
    return *executions_.back();
  }

  const std::vector<int> world_ = {0, kPeer};
  int32_t input_ = 0, output_ = 0;
  std::vector<std::unique_ptr<Execution>> executions_;
};

// Peers wait for this rank until they hear of it, and its caller need not wait for the call.
TEST_F(Engines, WhatFailsAsItStartsIsToldAtOnce) {
  transport_->trouble = Status(SENNIT_OUT_OF_RESOURCES, "no memory");
  Execution& call = sum();
  engine_.start(call, 1, false);
  EXPECT_EQ(failed_.size(), 1u);
  Execution& receive = message(kOtherComm);
  engine_.start_receive(receive, other_mailbox_, kPeer, kTag, false);
  ASSERT_EQ(failed_.size(), 2u);
  EXPECT_EQ(failed_[0].first, kComm);
  EXPECT_EQ(failed_[1].first, kOtherComm);
  EXPECT_EQ(failed_[1].second.text(), "no memory");
  transport_->lets_go = true;
  engine_.progress();
  EXPECT_TRUE(call.done() && receive.done());
  EXPECT_EQ(failed_.size(), 2u) << "once";
}

// As it yields, a small call fails with its communicator, and another thread starts a call.
TEST_F(Engines, ASmallCallForgetsNoOtherThatBeganMeanwhile) {
  Execution& small = sum();
  {
    const MutexLock lock(engine_.mutex());
    ASSERT_TRUE(small.compile_small());
  }
  Execution& other = message(kOtherComm);
  t_at_yield = [&] {
    engine_.fail_communicator(kComm, {SENNIT_ABORTED, "this one"});
    engine_.start_receive(other, other_mailbox_, Mailbox::kAnySource, kTag, false);
  };
  EXPECT_TRUE(engine_.run_small(small, 1, std::atomic<bool>{false}));
  EXPECT_EQ(small.status().text(), "this one");
  EXPECT_FALSE(other.done());
  engine_.fail_communicator(kOtherComm, {SENNIT_ABORTED, "the other"});
  EXPECT_TRUE(other.done()) << "it is still known to be under way";
}

// What another thread has taken from the transport wakes nobody any more.
TEST_F(Engines, WhoMovesWhatOthersWaitForWakesThem) {
  transport_->descriptor = never_readable();
  EXPECT_TRUE(sennit_test::eventually(
      [&] { return time_of_halves([&] { engine_.progress(); }) < kSoonNs; }));
  const auto out_of_time = [&] { engine_.wait([] { return false; }, 0); };
  EXPECT_TRUE(sennit_test::eventually([&] { return time_of_halves(out_of_time) < kSoonNs; }));
  const auto until_half = [&] { engine_.wait([&] { return transport_->turns < 2; }, -1); };
  EXPECT_TRUE(sennit_test::eventually([&] { return time_of_halves(until_half) < kSoonNs; }));
}

// What a rank looks for in vain is taken from the one it waits for, where they share a core.
TEST(Waiting, SleepsSoonWhereCoresAreSharedAndTheKernelWakes) {
  EXPECT_EQ(looks_before_sleep(false, false), 2);
  EXPECT_GT(looks_before_sleep(true, false), 2) << "nobody else wants the core";
  EXPECT_GT(looks_before_sleep(false, true), 2) << "nobody wakes it for what comes over the other";
}

TEST_F(Engines, NobodyWaitsLongerThanAsked) {
  constexpr int64_t kLimitNs = 1'000'000;
  transport_->descriptor = never_readable();
  Execution& call = message(kComm);
  engine_.start_receive(call, mailbox_, kPeer, kTag, false);
  const auto time_of_waits = [&] {
    const uint64_t begin_ns = now_ns();
    for (int i = 0; i < kRounds; i++)
      EXPECT_FALSE(engine_.wait([&] { return call.done(); }, kLimitNs));
    return now_ns() - begin_ns;
  };
  EXPECT_TRUE(sennit_test::eventually([&] { return time_of_waits() < kSoonNs; }));
  transport_->lets_go = true;
  EXPECT_TRUE(engine_.wait([&] { return call.done(); }, -1));
}

TEST_F(Engines, WhoSleepsIsWokenForAPlaceInAStream) {
  transport_->descriptor = never_readable();
  Execution& call = message(kComm);
  engine_.start_receive(call, mailbox_, kPeer, kTag, false);
  std::thread waiter([&] { engine_.wait([&] { return call.done(); }, -1); });
  const auto time_of_places = [&] {
    uint64_t took_ns = 0;
    for (int i = 0; i < kRounds; i++) {
      wait_for_sleep();
      auto worker = host_accelerator().make_worker({}, false);
      const auto place = std::make_shared<StreamPlace>(*std::move(worker), false);
      std::atomic<bool> reached{false};
      place->when_reached([&](const Status&) { reached = true; });
      const uint64_t begin_ns = now_ns();
      EXPECT_TRUE(engine_.watch(place));
      EXPECT_TRUE(place->worker().enqueue(nullptr, 0).ok());
      while (!reached) std::this_thread::yield();
      took_ns += now_ns() - begin_ns;
    }
    return took_ns;
  };
  EXPECT_TRUE(sennit_test::eventually([&] { return time_of_places() < kSoonNs; }));
  transport_->lets_go = true;
  waiter.join();
}

TEST_F(Engines, WithoutAThreadForTheHelperWhoWaitsDrives) {
  g_made_with_signals = false;  // threads of other tests may have been
  g_no_threads = true;
  Execution& first = message(kComm);
  engine_.start_receive(first, mailbox_, kPeer, kTag, true);
  EXPECT_FALSE(first.done());
  transport_->lets_go = true;
  EXPECT_TRUE(engine_.wait([&] { return first.done(); }, -1));
  g_no_threads = false;
  Execution& second = message(kComm);
  engine_.start_receive(second, mailbox_, kPeer, kTag, true);
  EXPECT_TRUE(sennit_test::eventually([&] { return second.done(); })) << "the helper drives it";
  EXPECT_FALSE(g_made_with_signals) << "signals are for the user's threads";
}

}  // namespace
}  // namespace sennit
