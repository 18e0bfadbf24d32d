// shm_processes_test.cpp: the shm transport between processes: peers that are killed in the middle
// of a transfer, what they leave behind, other hosts' /dev/shm, and a full one.
// ctest not-under-tsan: its ranks are processes
#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/support/eventually.hpp"
#include "tests/support/seed.hpp"
#include "tests/transports/shm/shm_world.hpp"

namespace sennit::shm {
namespace {

// Runs `body` in a child; its result is the exit code.
pid_t spawn(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}

int wait_for(pid_t pid) {
  int state = 0;
  waitpid(pid, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

// Exchanges addresses with the process at the other end; false if it is gone.
bool exchange(int in, int out, Transport& transport, int peer) {
  const std::vector<std::byte> mine = transport.address();
  std::vector<std::byte> theirs(mine.size());
  if (write(out, mine.data(), mine.size()) != static_cast<ssize_t>(mine.size())) return false;
  if (read(in, theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size())) return false;
  return transport.add_peer(peer, theirs).ok();
}

// Endless large and small messages both ways; returns when the peer is gone and has been named.
int talk_until_event(Transport& transport, int peer, bool allocated, bool expose, int started) {
  constexpr size_t kBytes = 4 << 20;
  std::vector<std::byte> own(kBytes), in(kBytes);
  std::byte* out = allocated ? static_cast<std::byte*>(transport.allocate(kBytes)) : own.data();
  Completions done;
  const uint64_t end = now_ns() + 60'000'000'000;
  for (uint32_t i = 0;; i++) {
    if (i == 2 && write(started, "", 1) != 1) return 5;
    const size_t bytes = i % 2 ? kBytes : 100;
    const Segment from{out, bytes}, to{in.data(), bytes};
    SendRequest send;
    RecvRequest recv;
    send.peer = recv.peer = peer;
    send.key = recv.key = {1, i, 0, 0};
    send.bytes = recv.bytes = bytes;
    send.segments = {&from, 1};
    recv.segments = {&to, 1};
    recv.may_expose = expose;
    transport.recv(recv);
    transport.send(send);
    for (size_t finished = 0; finished < 2;) {
      const bool moved = transport.progress(done);
      finished += done.sends.size() + done.receives.size();
      if (!done.events.empty()) {
        const bool right = done.events.size() == 1 && done.events[0].peer == peer &&
                           done.events[0].status.kind() == SENNIT_PEER_FAILED;
        // Then everything must come back.
        done.clear();
        transport.fail_peer(peer, Status(SENNIT_PEER_FAILED, "test"));
        transport.progress(done);
        finished += done.sends.size() + done.receives.size();
        return right && finished == 2 ? 0 : 3;
      }
      if (recv.exposed && !done.receives.empty()) {
        std::memcpy(in.data(), recv.exposed, bytes);
        transport.release(recv);
      }
      done.clear();
      if (!moved && now_ns() > end) return 4;
    }
  }
}

TEST(ShmProcesses, KilledPeerIsNamedAndLeavesNothing) {
  std::mt19937_64 random(sennit_test::seed());
  const uint64_t job = random_job();
  for (int round = 0; round < 24; round++) {
    int a_to_b[2], b_to_a[2], started[2];
    ASSERT_EQ(pipe(a_to_b) | pipe(b_to_a) | pipe(started), 0);
    const bool stream = round % 4 == 1, allocated = round % 4 >= 2, expose = round % 4 == 3;
    const auto body = [&](int rank) {
      return [&, rank] {
        Result<std::unique_ptr<Transport>> made = ShmTransport::make(context(rank, 2, job));
        if (!made) return 1;
        if (stream) static_cast<ShmTransport&>(**made).forbid_direct_reads();
        const int in = rank ? a_to_b[0] : b_to_a[0], out = rank ? b_to_a[1] : a_to_b[1];
        if (!exchange(in, out, **made, 1 - rank)) return 2;
        return talk_until_event(**made, 1 - rank, allocated, expose, started[1]);
      };
    };
    const pid_t a = spawn(body(0)), b = spawn(body(1));
    char byte[2];
    ASSERT_TRUE(read(started[0], byte, 1) == 1 && read(started[0], byte, 1) == 1);
    usleep(static_cast<useconds_t>(random() % 60'000));
    kill(b, SIGKILL);
    EXPECT_EQ(wait_for(a), 0) << "round " << round;  // while b is a zombie: that counts as dead
    EXPECT_EQ(wait_for(b), -SIGKILL);
    for (const int fd : {a_to_b[0], a_to_b[1], b_to_a[0], b_to_a[1], started[0], started[1]})
      close(fd);
    EXPECT_TRUE(names_of(job).empty()) << "round " << round;
  }
}

// Its first thread may end before the others: then it looks like a process that has.
TEST(ShmProcesses, LiveAsLongAsTheyHaveThreads) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t pid = spawn([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails leaves it to wait for ever
    const ProcessId own = this_process();
    if (write(told[1], &own, sizeof own) != sizeof own) return 1;
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);
    return 1;
  });
  close(told[1]);  // so that the read ends where the child does
  ProcessId other;
  ASSERT_EQ(read(told[0], &other, sizeof other), static_cast<ssize_t>(sizeof other));
  close(told[0]);
  ASSERT_GT(other.start_time, 0u);
  const auto first_thread_has_ended = [pid] {
    std::string text;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
    return text.find(") Z ") != text.npos;
  };
  ASSERT_TRUE(sennit_test::eventually(first_thread_has_ended));
  EXPECT_TRUE(may_be_alive(other));
  kill(pid, SIGKILL);
  EXPECT_TRUE(sennit_test::eventually([&] { return !may_be_alive(other); }));
  EXPECT_EQ(wait_for(pid), -SIGKILL);
}

TEST(ShmProcesses, NextStartRemovesWhatTheDeadLeft) {
  const uint64_t job = random_job();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = spawn([&] {
    Result<std::unique_ptr<Transport>> made = ShmTransport::make(context(0, 2, job));
    if (write(ready[1], "", 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(names_of(job).size(), 1u);
  { World next(1); }
  EXPECT_EQ(names_of(job).size(), 1u);  // it lives
  kill(pid, SIGKILL);
  wait_for(pid);
  { World next(1); }
  EXPECT_TRUE(names_of(job).empty());
  close(ready[0]);
  close(ready[1]);
}

// A child with a /dev/shm of its own, of `size`; 77 if that is not permitted here.
int with_own_dev_shm(const char* options, const std::function<int()>& body) {
  return wait_for(spawn([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0)
      return 77;
    return body();
  }));
}

TEST(ShmProcesses, AnotherDevShmIsAnotherHost) {
  World world(2);
  const std::vector<std::byte> address = world[0].address();
  const int result = with_own_dev_shm("size=10m", [&] {
    Result<std::unique_ptr<Transport>> made = ShmTransport::make(context(1, 2, world.job));
    if (!made) return 1;
    if ((*made)->reach(0, address) != Reach::none) return 2;
    return (*made)->add_peer(0, address).ok() ? 3 : 0;
  });
  if (result == 77) GTEST_SKIP() << "no mount namespace for this user";
  EXPECT_EQ(result, 0);
}

TEST(ShmProcesses, FullDevShmIsAnErrorWithItsRemedy) {
  const int result = with_own_dev_shm("size=48k", [&] {
    // Room for the headers, none for a ring.
    const uint64_t job = 1;
    Result<std::unique_ptr<Transport>> a = ShmTransport::make(context(0, 2, job));
    Result<std::unique_ptr<Transport>> b = ShmTransport::make(context(1, 2, job));
    if (!a || !b) return 1;
    if (!(*a)->add_peer(1, (*b)->address()).ok()) return 2;
    Buffer buffer(8);
    SendRequest send;
    set(send, 1, {1, 1, 1, 1}, buffer);
    (*a)->send(send);
    Completions done;
    (*a)->progress(done);
    if (done.sends.size() != 1 || send.status.kind() != SENNIT_OUT_OF_RESOURCES) return 3;
    if (send.status.text().find("SENNIT_TRANSPORTS=tcp") == std::string::npos) return 4;
    // And none for a header.
    const int fd = open("/dev/shm/filler", O_RDWR | O_CREAT, 0600);
    std::vector<char> block(4096);
    while (write(fd, block.data(), block.size()) > 0) {
    }
    Result<std::unique_ptr<Transport>> c = ShmTransport::make(context(2, 3, job));
    if (c || c.status().kind() != SENNIT_OUT_OF_RESOURCES) return 5;
    return c.status().text().find("/dev/shm is full") == std::string::npos ? 6 : 0;
  });
  if (result == 77) GTEST_SKIP() << "no mount namespace for this user";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace sennit::shm
