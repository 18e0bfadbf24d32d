// The faults that faulty makes, and how they are asked for. Delay goes through the conformance
// suite.
// ctest not-under-tsan: it has one thread
#include "transports/faulty.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/transports/transport_harness.hpp"

namespace sennit::test {
namespace {

// World of two with these faults at rank 0.
class FaultyWorld {
 public:
  explicit FaultyWorld(const std::string& faults) : variable_(faults) {}
  World& operator*() { return world_; }
  World* operator->() { return &world_; }

 private:
  struct Variable {
    explicit Variable(const std::string& value) { setenv("SENNIT_FAULTS", value.c_str(), 1); }
    ~Variable() { unsetenv("SENNIT_FAULTS"); }
  };
  Variable variable_;
  World world_{"tcp", 2};
};

TEST(Faulty, DropsOneMessage) {
  FaultyWorld world("rank=0,drop=3");
  ASSERT_TRUE(world->ok());
  for (uint32_t i = 1; i <= 5; i++) {
    (*world)[0].send(1, {1, i, 0, 0}, 100);
    (*world)[1].recv(0, {1, i, 0, 0}, 100);
  }
  Rank& receiver = (*world)[1];
  ASSERT_TRUE(world->drive_until([&] { return receiver.outstanding == 1; }));
  world->drive_for(20);
  EXPECT_EQ((*world)[0].outstanding, 0u);
  for (const PostedRecv& posted : receiver.receives)
    EXPECT_EQ(posted.done, posted.request.key.seq != 3);
}

TEST(Faulty, BreaksTheConnectionOnBothSides) {
  for (const char* faults : {"rank=0,break=4", "rank=0,break_bytes=400K,transport=tcp"}) {
    SCOPED_TRACE(faults);
    FaultyWorld world(faults);
    Rank& a = (*world)[0];
    Rank& b = (*world)[1];
    for (uint32_t i = 1; i <= 6; i++) {
      a.send(1, {1, i, 0, 0}, 100'000);
      b.recv(0, {1, i, 0, 0}, 100'000);
      a.recv(1, {2, i, 0, 0}, 10);
      world->drive_for(3);
    }
    ASSERT_TRUE(world->drive_until([&] { return !a.events.empty() && !b.events.empty(); }));
    world->drive_for(20);
    EXPECT_EQ(a.events.size(), 1u);
    EXPECT_EQ(b.events.size(), 1u);
    EXPECT_GE(a.outstanding, 6u);  // nothing was handed back yet
    a.transport->cancel(2, Status(SENNIT_ABORTED, "cancelled"));
    a.progress();
    for (const PostedRecv& posted : a.receives)
      EXPECT_EQ(posted.request.status.kind(), SENNIT_ABORTED);
    a.transport->fail_peer(1, Status(SENNIT_PEER_FAILED, "rank 1 is dead"));
    b.transport->fail_peer(0, Status(SENNIT_PEER_FAILED, "rank 0 is dead"));
    a.progress();
    b.progress();
    EXPECT_EQ(a.outstanding, 0u);
    EXPECT_EQ(b.outstanding, 0u);
    EXPECT_EQ(a.sends.back().request.status.kind(), SENNIT_PEER_FAILED);
  }
}

TEST(Faulty, KillsItsProcess) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    FaultyWorld world("rank=0,kill=2");
    (*world)[0].send(1, {1, 1, 0, 0}, 1);
    (*world)[0].send(1, {1, 2, 0, 0}, 1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(Faulty, OnlyTheRankAndTransportThatWereNamed) {
  FaultyWorld other("rank=1,transport=shm,drop=1");
  (*other)[1].send(0, {1, 1, 0, 0}, 1);
  (*other)[0].recv(1, {1, 1, 0, 0}, 1);
  EXPECT_TRUE(other->drive());
}

// Answers otherwise than Transport does by itself, and writes down what it was asked to do.
class Contrary final : public Transport {
 public:
  explicit Contrary(std::vector<std::string>& asked) : asked_(asked) {}
  std::string_view name() const override { return "contrary"; }
  std::vector<std::byte> address() const override { return {std::byte{7}}; }
  Reach reach(int, std::span<const std::byte>) override { return Reach::same_host; }
  std::string obstacle() const override { return "is contrary"; }
  Status add_peer(int, std::span<const std::byte>) override { return invalid("add_peer"); }
  void send(SendRequest&) override { asked_.emplace_back("send"); }
  void recv(RecvRequest&) override { asked_.emplace_back("recv"); }
  void release(RecvRequest&) override { asked_.emplace_back("release"); }
  bool has_come(int, const Key&) override { return true; }
  bool progress(Completions&) override { return true; }
  size_t now_bytes() const override { return 100; }
  Now send_now(const SmallMessage&) override { return Now::done; }
  Now recv_now(const SmallMessage&) override { return Now::later; }
  void fail_peer(int, const Status&) override { asked_.emplace_back("fail_peer"); }
  void cancel(uint32_t, const Status&) override { asked_.emplace_back("cancel"); }
  void forget(const std::function<bool(uint32_t)>&) override { asked_.emplace_back("forget"); }
  void stalled() override { asked_.emplace_back("stalled"); }
  bool withdraws_at_once() const override { return false; }
  std::optional<WireOverhead> wire_overhead(bool) const override {
    return WireOverhead{900, 9, true};
  }
  int event_fd() const override { return 77; }
  bool prepare_wait() override { return false; }
  void* allocate(size_t) override { return this; }
  bool free(void*) override { return true; }
  Status register_memory(void*, size_t) override { return invalid("register_memory"); }
  Status deregister_memory(void*) override { return invalid("deregister_memory"); }
  std::vector<ConnectionStatistics> connections() const override {
    std::vector<ConnectionStatistics> one(1);
    one[0].peer = 4;
    return one;
  }
  std::string statistics() const override { return "contrary 1"; }

 private:
  std::vector<std::string>& asked_;
};

TEST(Faulty, SaysWhatTheTransportInsideSays) {
  std::vector<std::string> asked;
  const auto faulty = make_faulty(std::make_unique<Contrary>(asked), FaultPlan());
  EXPECT_EQ(faulty->name(), "contrary");
  EXPECT_EQ(faulty->address(), std::vector<std::byte>{std::byte{7}});
  EXPECT_EQ(faulty->reach(1, {}), Reach::same_host);
  EXPECT_EQ(faulty->obstacle(), "is contrary");
  EXPECT_EQ(faulty->add_peer(1, {}).text(), "add_peer");
  EXPECT_FALSE(faulty->withdraws_at_once());
  EXPECT_EQ(faulty->wire_overhead(false)->message_bytes, 9u);
  EXPECT_EQ(faulty->event_fd(), 77);
  EXPECT_FALSE(faulty->prepare_wait());
  EXPECT_NE(faulty->allocate(1), nullptr);
  EXPECT_TRUE(faulty->free(nullptr));
  EXPECT_EQ(faulty->register_memory(nullptr, 1).text(), "register_memory");
  EXPECT_EQ(faulty->deregister_memory(nullptr).text(), "deregister_memory");
  EXPECT_TRUE(faulty->has_come(1, {}));
  EXPECT_EQ(faulty->statistics(), "contrary 1, with faults");
  ASSERT_EQ(faulty->connections().size(), 1u);
  EXPECT_EQ(faulty->connections()[0].peer, 4);
  EXPECT_EQ(faulty->now_bytes(), 0u) << "messages that no fault would meet";

  SendRequest send;
  send.peer = 1;
  RecvRequest receive;
  receive.peer = 1;
  Completions completions;
  faulty->send(send);
  faulty->recv(receive);
  faulty->release(receive);
  EXPECT_TRUE(faulty->progress(completions));
  faulty->fail_peer(1, invalid("failed"));
  faulty->cancel(1, invalid("cancelled"));
  faulty->forget([](uint32_t) { return true; });
  faulty->stalled();
  EXPECT_EQ(asked, (std::vector<std::string>{"send", "recv", "release", "fail_peer", "cancel",
                                             "forget", "stalled"}));
}

// So that the test above stays whole when the contract grows.
TEST(Faulty, AnswersEverythingThatTheContractHas) {
  const auto text_of = [](const char* path) {
    std::ifstream file(std::string(SENNIT_SOURCE_DIR) + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string contract = text_of("/transports/transport.hpp");
  const std::string wrapper = text_of("/transports/faulty.cpp");
  const std::set<std::string> short_way = {"now_bytes", "send_now", "recv_now"};
  const std::regex declared(R"(virtual [^~(]*\b(\w+)\()");
  int found = 0;
  for (std::sregex_iterator at(contract.begin(), contract.end(), declared), end; at != end; ++at) {
    const std::string name = (*at)[1];
    found++;
    if (short_way.contains(name)) continue;
    EXPECT_TRUE(std::regex_search(wrapper, std::regex("\\b" + name + "\\([^;{]*override")))
        << name << "() is not handed on";
  }
  EXPECT_GE(found, 25);
}

TEST(Faulty, TextIsParsed) {
  const Result<FaultPlan> plan =
      parse_faults("rank=3,transport=tcp,delay=2ms,drop=4,break=5,break_bytes=1M,kill=6,seed=7");
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(plan->rank, 3);
  EXPECT_EQ(plan->transport, "tcp");
  EXPECT_EQ(plan->delay_ns, 2'000'000u);
  EXPECT_EQ(plan->drop, 4u);
  EXPECT_EQ(plan->break_after, 5u);
  EXPECT_EQ(plan->break_after_bytes, 1u << 20);
  EXPECT_EQ(plan->kill, 6u);
  EXPECT_EQ(plan->seed, 7u);
  EXPECT_TRUE(parse_faults("").ok());
  for (const char* text : {"x", "drop", "drop=", "drop=a", "delay=5", "delay=2h", "rank=-1",
                           "break_bytes=many", "transport=", "drop=1;kill=2", "kill=1,,drop=2"}) {
    const Result<FaultPlan> wrong = parse_faults(text);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_EQ(wrong.status().kind(), SENNIT_INVALID_ARGUMENT);
    EXPECT_NE(wrong.status().text().find("expected"), std::string::npos);
  }
}

TEST(Faulty, WrongTextIsAnErrorOfMaking) {
  setenv("SENNIT_FAULTS", "dorp=1", 1);
  TransportContext context;
  const Status status = find_transport("loopback")->make(context).status();
  unsetenv("SENNIT_FAULTS");
  EXPECT_EQ(status.kind(), SENNIT_INVALID_ARGUMENT);
  EXPECT_NE(status.text().find("'dorp=1'"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace sennit::test
