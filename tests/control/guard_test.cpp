// guard_test.cpp: who may come in, and what is said when somebody may not, does not come,
// or there is no room: strangers, wrong and missing secrets, half-open connections, missing ranks,
// ports in use, forked children.
//
// ctest quiet: it judges how soon who may not come in is refused
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <latch>
#include <random>

#include "control/connection.hpp"
#include "tests/control/processes.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/making_threads.hpp"

namespace sennit {
namespace {

using sennit_test::at_some_timeout;
using test::clock_ms;
using test::LocalJob;
using test::ProcessJob;

BootstrapOptions plain(int rank, int size, uint16_t port) {
  BootstrapOptions options;
  options.rank = rank;
  options.size = size;
  options.root_host = "127.0.0.1";
  options.root_port = port;
  options.secret.assign(32, std::byte{9});
  options.arrival_timeout_ms = 60'000;
  return options;
}

void expect_text(const Status& status, ErrorKind kind, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.kind(), kind) << status.text();
  for (const std::string& part : parts)
    EXPECT_NE(status.text().find(part), std::string::npos) << status.text();
}

int connect_blocking(uint16_t port) {
  int error = 0;
  const auto fd = connect_to(*parse_address("127.0.0.1", port), &error);
  if (!fd) return -1;
  pollfd entry{*fd, POLLOUT, 0};
  poll(&entry, 1, 2000);
  return *fd;
}

// ---- those who do not come ----

// What was wrong where these ranks of 20 should be missing after so long.
std::string list_missing(const std::set<int>& missing, int64_t timeout_ms) {
  LocalJob job(20);
  for (auto& options : job.options) options.arrival_timeout_ms = timeout_ms;
  job.start([&](int r) { return !missing.count(r); });
  for (int r = 0; r < 20; r++) {
    if (missing.count(r)) continue;
    const Status& status = job.statuses[static_cast<size_t>(r)];
    for (const std::string& part :
         {fmt::format("ranks 1,7-9 did not come within {} ms", timeout_ms), std::string("16 of 20"),
          job.statuses[0].text()})
      if (status.kind() != SENNIT_TIMED_OUT || status.text().find(part) == std::string::npos)
        return fmt::format("rank {}: {}", r, status.text());
  }
  return "";
}

TEST(Missing, RanksAreListedToAllThatCame) {
  const std::set<int> missing = {1, 7, 8, 9};  // rank 1 is the parent of ranks 17 to 19
  EXPECT_EQ(at_some_timeout(700, [&](int64_t ms) { return list_missing(missing, ms); }), "");
}

TEST(Missing, Rank0IsNamedWithItsAddress) {
  BootstrapOptions options = plain(1, 2, test::free_port());
  options.arrival_timeout_ms = 400;
  const auto control = Control::start(options, {});
  expect_text(control.status(), SENNIT_TIMED_OUT,
              {fmt::format("127.0.0.1:{}", options.root_port), "is it running", "firewall",
               "Connection refused"});
}

TEST(Missing, Rank0MayComeLate) {
  const uint16_t port = test::free_port();
  std::vector<std::unique_ptr<Control>> controls(3);
  test::in_threads(3, [&](int r) {
    if (r == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    auto control = Control::start(plain(r, 3, port), {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    controls[static_cast<size_t>(r)] = std::move(*control);
  });
  test::in_threads(3, [&](int r) { controls[static_cast<size_t>(r)]->leave(); });
}

std::string miss_two_in_all_gather(int64_t timeout_ms) {
  LocalJob job(20);
  for (auto& options : job.options) options.arrival_timeout_ms = timeout_ms;
  if (!job.start()) return "it does not start";
  std::vector<Status> statuses(20);
  test::in_threads(20, [&](int r) {
    if (r != 1 && r != 18) statuses[static_cast<size_t>(r)] = job[r].all_gather({}).status();
  });
  job.leave();
  for (int r = 0; r < 20; r++) {
    if (r == 1 || r == 18) continue;
    const Status& status = statuses[static_cast<size_t>(r)];
    if (status.kind() != SENNIT_TIMED_OUT ||
        status.text().find("ranks 1,18 did not come to all_gather") == std::string::npos)
      return fmt::format("rank {}: {}", r, status.text());
  }
  return "";
}

TEST(Missing, FromAnAllGather) { EXPECT_EQ(at_some_timeout(1200, miss_two_in_all_gather), ""); }

// The one that dies does so after this time, by which it should have come.
std::string die_during_the_start(int64_t after_ms) {
  const uint16_t port = test::free_port();
  const auto options_of = [&](int rank) {
    BootstrapOptions options = plain(rank, 4, port);
    options.arrival_timeout_ms = 20 * after_ms;
    return options;
  };
  std::vector<Status> statuses(3);
  const pid_t child = fork();
  if (child == 0) {
    auto control = Control::start(options_of(2), {});  // waits for rank 3, which does not come
    _exit(0);
  }
  test::in_threads(3, [&](int r) {
    if (r == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    } else {
      statuses[static_cast<size_t>(r)] = Control::start(options_of(r), {}).status();
    }
  });
  for (const size_t r : {size_t{0}, size_t{1}})
    for (const char* const part : {"rank 2 (host ", "died during the start"})
      if (statuses[r].kind() != SENNIT_PEER_FAILED ||
          statuses[r].text().find(part) == std::string::npos)
        return fmt::format("rank {}: {}", r, statuses[r].text());
  return "";
}

TEST(Missing, ARankThatDiesDuringTheStart) {
  EXPECT_EQ(at_some_timeout(500, die_during_the_start), "");
}

// ---- those who may not ----

TEST(Secret, MissingOneMeansLoopbackOnly) {
  for (const int rank : {0, 1}) {
    BootstrapOptions options = plain(rank, 2, test::free_port());
    options.secret.clear();
    options.root_host = "192.0.2.7";
    expect_text(
        Control::start(options, {}).status(), SENNIT_REFUSED,
        {"no secret", "SENNIT_SECRET", "file:PATH", "SENNIT_INSECURE=1", "loopback", "192.0.2.7"});
  }
  const uint16_t port = test::free_port();
  std::vector<std::unique_ptr<Control>> controls(2);
  test::in_threads(2, [&](int r) {
    BootstrapOptions options = plain(r, 2, port);
    options.secret.clear();
    auto control = Control::start(options, {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    controls[static_cast<size_t>(r)] = std::move(*control);
  });
  test::in_threads(2, [&](int r) { controls[static_cast<size_t>(r)]->leave(); });
}

TEST(Secret, InsecureListensEverywhere) {
  BootstrapOptions options = plain(0, 2, test::free_port());
  options.secret.clear();
  options.insecure = true;
  options.root_host = "192.0.2.7";
  options.arrival_timeout_ms = 100;
  expect_text(Control::start(options, {}).status(), SENNIT_TIMED_OUT, {"rank 1 did not come"});
}

TEST(Secret, WrongOneIsRefusedAndTheJobGoesOn) {
  constexpr int kRanks = 8;
  const uint16_t port = test::free_port();
  std::latch refused(4);  // before the start is complete: then nobody listens there any more
  testing::internal::CaptureStderr();
  std::vector<std::unique_ptr<Control>> controls(kRanks);
  test::in_threads(kRanks + 4, [&](int r) {
    if (r >= kRanks) {  // four of them, who want to be the last rank
      BootstrapOptions wrong = plain(kRanks - 1, kRanks, port);
      wrong.secret.assign(32, std::byte{8});
      expect_text(Control::start(wrong, {}).status(), SENNIT_REFUSED,
                  {"does not hold this job's secret", "SENNIT_SECRET"});
      return refused.count_down();
    }
    if (r == kRanks - 1) refused.wait();
    auto control = Control::start(plain(r, kRanks, port), {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    controls[static_cast<size_t>(r)] = std::move(*control);
  });
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* const way : {"from", "to"})
    EXPECT_NE(log.find(fmt::format("refused a connection {} 127.0.0.1:", way)), std::string::npos)
        << log;
  EXPECT_EQ(log.find(":0:"), std::string::npos) << "an address that is none: " << log;
  EXPECT_EQ(controls[0]->statistics().find("refused strangers 0"), std::string::npos);
  test::in_threads(kRanks, [&](int r) { controls[static_cast<size_t>(r)]->leave(); });
}

TEST(Secret, RanksThatDisagreeAreToldSo) {
  const uint16_t port = test::free_port();
  std::latch turned_away(2);
  std::vector<std::unique_ptr<Control>> controls(2);
  test::in_threads(4, [&](int r) {
    if (r == 2) {
      expect_text(Control::start(plain(1, 3, port), {}).status(), SENNIT_INVALID_ARGUMENT,
                  {"3 ranks", "rank 0 says 2"});
      return turned_away.count_down();
    }
    if (r == 3) {
      BootstrapOptions other = plain(1, 2, port);
      other.job = 77;
      expect_text(Control::start(other, {}).status(), SENNIT_INVALID_ARGUMENT, {"another job"});
      return turned_away.count_down();
    }
    if (r == 1) turned_away.wait();
    auto control = Control::start(plain(r, 2, port), {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    controls[static_cast<size_t>(r)] = std::move(*control);
  });
  test::in_threads(2, [&](int r) { controls[static_cast<size_t>(r)]->leave(); });
}

TEST(Strangers, GarbageAndHalfOpenConnectionsDoNotStopTheStart) {
  const uint16_t port = test::free_port();
  const int size = 8;
  std::vector<std::unique_ptr<Control>> controls(size);
  std::vector<int> half_open;
  test::in_threads(size, [&](int r) {
    if (r == 1) {  // a thousand connections while rank 0 waits; a third say something
      std::mt19937 random(1);
      for (int i = 0; i < 900; i++) {
        const int fd = connect_blocking(port);
        if (fd < 0) continue;
        std::vector<uint8_t> noise(1 + random() % 300);
        for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
        if (i % 3 == 0) [[maybe_unused]]
          const ssize_t sent = send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
        half_open.push_back(fd);
      }
    }
    auto control = Control::start(plain(r, size, port), {});
    ASSERT_TRUE(control.ok()) << control.status().text();
    controls[static_cast<size_t>(r)] = std::move(*control);
  });
  // And again while it runs; the job still works.
  for (int i = 0; i < 50; i++) {
    const int fd = connect_blocking(port);
    if (fd < 0) continue;
    send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    half_open.push_back(fd);
  }
  test::in_threads(
      size, [&](int r) { EXPECT_TRUE(controls[static_cast<size_t>(r)]->all_gather({}).ok()); });
  EXPECT_EQ(controls[0]->statistics().find("refused strangers 0"), std::string::npos);
  test::in_threads(size, [&](int r) { controls[static_cast<size_t>(r)]->leave(); });
  for (const int fd : half_open) close_socket(fd);
}

// Holds the secret, but talks nonsense: its connection ends, the job goes on.
TEST(Strangers, MalformedFramesFromWithin) {
  LocalJob job(8);
  ASSERT_TRUE(job.start());
  std::mt19937 random(7);
  const HandshakeConfig config{job.options[0].secret, "control", 0, 2, 8};
  for (int i = 0; i < 60; i++) {
    const int fd = connect_blocking(job.options[0].root_port);
    ASSERT_GE(fd, 0);
    Handshake handshake = Handshake::connector(config, 0);
    for (int turn = 0; turn < 200 && handshake.drive(fd) == Handshake::State::running; turn++) {
      pollfd entry{fd, static_cast<short>(handshake.wants_write() ? POLLOUT : POLLIN), 0};
      poll(&entry, 1, 50);
    }
    ASSERT_EQ(handshake.state(), Handshake::State::done) << handshake.status().text();
    std::vector<uint8_t> noise(8 + random() % 200);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    if (i % 3 > 0) {  // a plausible header
      const uint32_t length = i % 3 == 1 ? static_cast<uint32_t>(noise.size() - 8) : 0x1fff'ffffu;
      std::memcpy(noise.data(), &length, 4);
      noise[4] = static_cast<uint8_t>(1 + random() % 28);
      noise[5] = noise[6] = noise[7] = 0;
    }
    ASSERT_EQ(send(fd, noise.data(), noise.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(noise.size()));
    close_socket(fd);
  }
  test::in_threads(8, [&](int r) { EXPECT_TRUE(job[r].all_gather({}).ok()); });
  for (int r = 0; r < 8; r++) EXPECT_EQ(job.recorder(r).decisions, 0);
  job.leave();
}

// ---- no room ----

TEST(Resources, APortInUseIsNamed) {
  const auto holder = listen_on(*parse_address("127.0.0.1", 0));
  const uint16_t port = local_address(*holder).port;
  expect_text(Control::start(plain(0, 2, port), {}).status(), SENNIT_OUT_OF_RESOURCES,
              {fmt::format("port {}", port), "in use", "SENNIT_PORT"});
  close_socket(*holder);
}

TEST(Resources, NoThreadLeft) {
  sennit_test::g_before_thread = [] { return EAGAIN; };
  const auto started = Control::start(plain(0, 2, test::free_port()), {});
  sennit_test::g_before_thread = nullptr;
  expect_text(started.status(), SENNIT_OUT_OF_RESOURCES, {"no thread left", "ulimit -u"});
}

TEST(Resources, NoFileDescriptorsLeft) {
  // Each child may open some more files than it has, and so gets a little further than the one
  // before.
  for (int spare = 0; spare < 4; spare++) {
    const uint16_t port = test::free_port();
    const pid_t child = fork();
    if (child == 0) {
      const int next = dup(0);
      const rlimit limit{static_cast<rlim_t>(next + spare), static_cast<rlim_t>(next + spare)};
      close(next);
      if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
      BootstrapOptions options = plain(spare < 3 ? 0 : 1, 2, port);
      options.arrival_timeout_ms = 2000;
      const Status status = Control::start(options, {}).status();
      const bool told = status.kind() == SENNIT_OUT_OF_RESOURCES &&
                        status.text().find("ulimit -n") != std::string::npos;
      if (!told && !(spare == 3 && status.kind() == SENNIT_TIMED_OUT)) {
        std::fprintf(stderr, "%s\n", status.text().c_str());
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << spare << " spare descriptors";
  }
}

// Rank 1 reaches rank 0 by the loopback interface, as on a host whose name is 127.0.1.1 in its own
// /etc/hosts; rank 17 has to reach rank 1, from elsewhere.
TEST(Addresses, OfRank0sOwnHostAreMadeReachable) {
  const Address real = host_addresses().front();
  if (real.loopback()) GTEST_SKIP() << "this host has a loopback interface only";
  LocalJob job(18);
  for (int r = 0; r < 18; r++)
    job.options[static_cast<size_t>(r)].root_host = r < 9 ? "127.0.0.1" : real.host();
  ASSERT_TRUE(job.start());
  for (int r = 0; r < 18; r++) EXPECT_EQ(job[r].interface_address(), real.host()) << r;
  job.leave();
}

TEST(Resources, AForkedChildDoesNotKeepADeadRankAlive) {
  // Rank 1 forks a child that sleeps on, as a data loader's worker would, and is killed: the others
  // must notice.
  const uint16_t port = test::free_port();
  int alive[2];
  ASSERT_EQ(pipe(alive), 0);
  const pid_t rank1 = fork();
  if (rank1 == 0) {
    auto control = Control::start(plain(1, 2, port), {});
    if (!control.ok()) _exit(1);
    const pid_t worker = fork();
    if (worker == 0) {
      char byte;
      close(alive[1]);
      _exit(read(alive[0], &byte, 1) == 0 ? 0 : 1);  // until the test ends
    }
    kill(getpid(), SIGKILL);
  }
  close(alive[0]);
  test::Recorder recorder;
  auto control = Control::start(plain(0, 2, port), recorder.callbacks());
  ASSERT_TRUE(control.ok()) << control.status().text();
  EXPECT_TRUE(recorder.wait(60'000, [&] { return recorder.decisions > 0; }));
  EXPECT_EQ(recorder.failed, std::vector<int>{1});
  // And not by its silence, some time later.
  expect_text(recorder.peers, SENNIT_PEER_FAILED, {"connection closed without goodbye"});
  waitpid(rank1, nullptr, 0);
  close(alive[1]);
}

// ---- scale ----

TEST(Scale, Processes256) {
  const int64_t before = clock_ms();
  ProcessJob job(256);
  ASSERT_TRUE(job.all_started());
  const int64_t started = clock_ms();
  const std::set<int> dead = {0, 3, 200};
  job.kill_ranks(dead);
  ASSERT_TRUE(job.all_know(dead));
  int64_t last = 0;
  for (int r = 0; r < 256; r++)
    if (!dead.count(r)) last = std::max(last, job.last(r, test::Event::failed)->ms);
  const int64_t killed = clock_ms();
  EXPECT_TRUE(job.leave_all());
  std::printf(
      "256 processes: started in %lld ms, three deaths known everywhere in %lld ms, left in %lld "
      "ms\n",
      static_cast<long long>(started - before), static_cast<long long>(last - started),
      static_cast<long long>(clock_ms() - killed));
}

}  // namespace
}  // namespace sennit
