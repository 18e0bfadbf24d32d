// The faults that faulty makes, and how they are asked for. Delay goes through the conformance
// suite.
#include "transports/faulty.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

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
