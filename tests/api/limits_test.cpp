// What the machine or the user got wrong, through the public interface and with real processes: no
// shared memory, no descriptors, a port in use, a wrong secret, a malformed fabric file, an unknown
// option. Each error must say what, where and what to do, on every rank, and nothing may hang.
//
// ctest quiet: it uses up what processes share
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fstream>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/processes.hpp"
#include "transports/transport.hpp"

using namespace std::chrono_literals;
using sennit_test::Processes;

namespace {

// Whether this build has all of a list of transports; ucx is optional.
bool built_in(const std::string& list) {
  const auto has = [](std::string_view name) {
    const auto all = sennit::transports();
    return std::any_of(all.begin(), all.end(), [&](const auto& t) { return t.name == name; });
  };
  return list.find("ucx") == std::string::npos || has("ucx");
}

// "ok", or "status: text", of making a communicator, one large and one small all-reduce, and
// finalizing.
std::string live(int /*rank*/) {
  sennit_comm_t comm = nullptr;
  const auto told = [](sennit_status_t s) {
    return fmt::format("{}: {}", sennit_status_name(s), sennit_last_error());
  };
  sennit_status_t status = sennit_comm_init_env(&comm, nullptr);
  if (status != SENNIT_OK) return told(status);
  std::vector<float> x(500'000, 1.0f);
  status = sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_SUM, comm);
  if (status == SENNIT_OK)
    status = sennit_all_reduce(x.data(), x.data(), 3, SENNIT_FLOAT32, SENNIT_MAX, comm);
  std::vector<float> y(x.size());  // everybody talks to everybody
  if (status == SENNIT_OK)
    status = sennit_all_to_all(x.data(), y.data(), 30'000, SENNIT_FLOAT32, comm);
  if (status == SENNIT_OK) status = sennit_comm_finalize(comm);
  const std::string text = status == SENNIT_OK ? "ok" : told(status);
  sennit_comm_destroy(comm);
  return text;
}

void expect_all(Processes& ranks, const std::string& want, std::chrono::milliseconds limit = 60s) {
  const auto reports = ranks.reports(limit);
  for (size_t r = 0; r < reports.size(); r++) {
    ASSERT_TRUE(reports[r].has_value()) << "rank " << r << " did not end";
    EXPECT_NE(reports[r]->find(want), std::string::npos)
        << "rank " << r << ": " << *reports[r] << "\nexpected: " << want;
  }
}

// A /dev/shm of this size for this process and its children.
bool small_shared_memory(const char* size) {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, fmt::format("size={}", size).c_str()) == 0;
}

// Runs f in a child process, so that a mount namespace or a limit ends with it; its failures count
// here.
void in_child(const std::function<void()>& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    f();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SharedMemory, FullIsSaidWithTheRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: a small /dev/shm of one's own needs root";
  for (const char* size : {"8k", "64k", "256k"})
    in_child([&] {
      ASSERT_TRUE(small_shared_memory(size));
      Processes ranks(8, live, {{"SENNIT_TRANSPORTS", "shm"}});
      const auto reports = ranks.reports(240s);
      for (const auto& report : reports) {
        ASSERT_TRUE(report.has_value()) << "a rank hangs";
        if (*report == "ok") continue;  // large enough after all
        EXPECT_NE(report->find("/dev/shm"), std::string::npos) << *report;
        EXPECT_NE(report->find("SENNIT_TRANSPORTS"), std::string::npos) << *report;
      }
    });
}

TEST(SharedMemory, NoMoreFilesIsSaidWithItsOwnRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: a small /dev/shm of one's own needs root";
  in_child([] {
    ASSERT_TRUE(small_shared_memory("4m,nr_inodes=2"));  // its folder's, and one
    Processes ranks(4, live, {{"SENNIT_TRANSPORTS", "shm"}, {"SENNIT_TRACE", "0"}});
    expect_all(ranks, "nr_inodes");
  });
}

TEST(SharedMemory, FullIsNoHarmWhereTcpIsAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: a small /dev/shm of one's own needs root";
  in_child([] {
    ASSERT_TRUE(small_shared_memory("4k"));
    Processes ranks(8, live, {{"SENNIT_TRANSPORTS", "shm,tcp"}});
    expect_all(ranks, "ok");
  });
}

// Beyond `ulimit -f` the kernel ends a process that lets a file grow.
TEST(SharedMemory, BeyondTheLimitOfAFileIsNoHarmWhereTcpIsAllowed) {
  Processes ranks(4, [](int rank) {
    const rlimit small{128 << 10, 128 << 10};
    return setrlimit(RLIMIT_FSIZE, &small) == 0 ? live(rank) : "no limit could be set";
  });
  expect_all(ranks, "ok");
}

// Leaves this process room for `spare` more descriptors; `hard`: it may not raise that itself.
void allow_descriptors(rlim_t spare, bool hard = true) {
  std::vector<int> opened;
  for (rlim_t i = 0; i <= spare; i++) opened.push_back(dup(0));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(opened.back());  // the limit is one on numbers
  for (const int fd : opened) close(fd);
  if (hard) limit.rlim_max = limit.rlim_cur;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
}

// As live(), without standard streams: a daemon's may be closed. Whose number they had would get
// what it writes to them, and what we log.
std::string live_without_streams(int rank) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  sennit_unique_id_t id;
  sennit_comm_t comm = nullptr;
  void* memory = nullptr;
  sennit_get_unique_id(&id);
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK ||
      sennit_mem_alloc(comm, 100'000, &memory) != SENNIT_OK)
    return sennit_last_error();
  const std::string lived = live(rank);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (write(stream, "a line\n", 7) >= 0 || errno != EBADF)
      return fmt::format("{} is somebody's", stream);
  sennit_comm_finalize(comm);
  sennit_comm_destroy(comm);
  return lived;
}

TEST(StandardStreams, ClosedTheyStayClosed) {
  for (const char* transports : {"shm", "tcp"}) {
    Processes ranks(2, live_without_streams, {{"SENNIT_TRANSPORTS", transports}});
    expect_all(ranks, "ok");
  }
}

std::string join(const std::vector<std::optional<std::string>>& reports) {
  std::string text;
  for (size_t r = 0; r < reports.size(); r++)
    text += fmt::format("  rank {}: {}\n", r, reports[r].value_or("(hangs)"));
  return text;
}

// With every number of descriptors from hardly any to enough, at rank 0 and at another: all ranks
// get an error with the remedy, soon, or the job runs.
class Descriptors : public testing::TestWithParam<const char*> {};

TEST_P(Descriptors, NoneLeftIsSaidWithTheRemedy) {
  if (!built_in(GetParam())) GTEST_SKIP() << "this build has no ucx";
  int enough = 0;
  for (const int victim : {0, 3})
    for (const rlim_t spare : {4u, 5u, 6u, 8u, 10u, 12u, 16u, 20u, 24u, 32u, 48u, 96u}) {
      bool runs = false;
      // Who comes after rank 0 has told all that were there finds nobody: then it is tried again.
      const auto start = [&](int64_t timeout_ms) -> std::string {
        Processes ranks(8,
                        [&](int rank) {
                          if (rank == victim) allow_descriptors(spare);
                          return live(rank);
                        },
                        {{"SENNIT_TRANSPORTS", GetParam()},
                         {"SENNIT_ARRIVAL_TIMEOUT", std::to_string(timeout_ms)}});
        const auto reports = ranks.reports(std::chrono::milliseconds(timeout_ms) + 60s);
        const auto all = [&](const std::string& want) {
          return std::all_of(reports.begin(), reports.end(), [&](const auto& r) {
            return r && r->find(want) != std::string::npos;
          });
        };
        runs = all("ok");
        return runs || all("ulimit -n") ? "" : join(reports);
      };
      ASSERT_EQ(sennit_test::at_some_timeout(5000, start), "")
          << "rank " << victim << " with " << spare << " descriptors";
      enough += runs;
    }
  EXPECT_GE(enough, 2);
}

INSTANTIATE_TEST_SUITE_P(Transports, Descriptors, testing::Values("", "tcp", "ucx", "shm,ucx,tcp"),
                         [](const auto& test) {
                           std::string name = *test.param ? test.param : "default";
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

TEST(DescriptorLimit, TooFewForAnythingEndsTheRankAtOnce) {
  for (const rlim_t spare : {0u, 1u, 2u}) {
    const auto start = [&](int64_t timeout_ms) -> std::string {
      Processes ranks(8,
                      [&](int rank) {
                        if (rank == 1) allow_descriptors(spare);
                        return live(rank);
                      },
                      {{"SENNIT_ARRIVAL_TIMEOUT", std::to_string(timeout_ms)}});
      const auto reports = ranks.reports(std::chrono::milliseconds(timeout_ms) + 60s);
      for (size_t r = 0; r < reports.size(); r++)
        if (reports[r].value_or("hangs").find(r == 1 ? "ulimit -n" : "rank 1 did not come") ==
            std::string::npos)
          return join(reports);
      return "";
    };
    ASSERT_EQ(sennit_test::at_some_timeout(1500, start), "");
  }
}

TEST(DescriptorLimit, IsRaisedWhereTheHardOneAllows) {
  for (const char* transports : {"", "tcp", "ucx"}) {
    if (!built_in(transports)) continue;
    Processes ranks(8,
                    [&](int rank) {
                      allow_descriptors(4, false);
                      return live(rank);
                    },
                    {{"SENNIT_TRANSPORTS", transports}});
    expect_all(ranks, "ok");
  }
}

// Nobody else is in a call, so there is no one to compare with; all ranks are told all the same.
TEST(PointToPoint, NobodyAnswers) {
  for (const bool nonblocking : {false, true})
    for (const bool sends : {false, true}) {
      const int caller = nonblocking ? 0 : 3, peer = nonblocking ? 7 : 5;
      Processes ranks(
          8,
          [&](int rank) -> std::string {
            sennit_comm_t comm = nullptr;
            if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return sennit_last_error();
            std::vector<float> x(500'000);
            sennit_status_t status = SENNIT_OK;
            sennit_work_t work = nullptr;
            if (rank == caller && nonblocking) {
              status =
                  sends ? sennit_send_start(x.data(), x.size(), SENNIT_FLOAT32, peer, comm, &work)
                        : sennit_recv_start(x.data(), x.size(), SENNIT_FLOAT32, peer, comm, &work);
              // Nobody is stuck yet, so this may last.
              if (status == SENNIT_OK) status = sennit_work_wait(work, 5000);
              if (status == SENNIT_IN_PROGRESS) status = sennit_work_wait(work, -1);
              sennit_work_free(work);
            } else if (rank == caller && sends)
              status = sennit_send(x.data(), x.size(), SENNIT_FLOAT32, peer, comm);
            else if (rank == caller)
              status = sennit_recv(x.data(), x.size(), SENNIT_FLOAT32, peer, comm);
            else
              while ((status = sennit_comm_get_async_error(comm)) == SENNIT_OK) usleep(20'000);
            const std::string text =
                fmt::format("{}: {}", sennit_status_name(status), sennit_last_error());
            sennit_comm_destroy(comm);
            return text;
          },
          {{"SENNIT_ARRIVAL_TIMEOUT", "4000"}});
      expect_all(ranks, fmt::format(" ms in {} count 500000 float32 {} rank {}, tag 0, ",
                                    sends ? "send" : "recv", sends ? "to" : "from", peer));
    }
}

TEST(PointToPoint, ToOneselfWithoutTheOtherHalf) {
  Processes ranks(8, [](int rank) -> std::string {
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return sennit_last_error();
    int out = rank + 5, in = 0;
    if (sennit_send(&out, 1, SENNIT_INT32, rank, comm) != SENNIT_INVALID_ARGUMENT) return "send";
    if (sennit_recv(&in, 1, SENNIT_INT32, rank, comm) != SENNIT_INVALID_ARGUMENT) return "recv";
    sennit_work_t work = nullptr;
    if (sennit_recv_start(&in, 1, SENNIT_INT32, rank, comm, &work) != SENNIT_OK)
      return "recv_start";
    if (sennit_work_wait(work, 10) != SENNIT_IN_PROGRESS) return "in progress";
    if (sennit_send(&out, 1, SENNIT_INT32, rank, comm) != SENNIT_OK) return "send after recv_start";
    if (sennit_work_wait(work, -1) != SENNIT_OK || sennit_work_free(work) != SENNIT_OK)
      return "wait";
    if (in != rank + 5) return "received something else";
    if (sennit_send_start(&out, 1, SENNIT_INT32, rank, comm, &work) != SENNIT_OK)
      return "send_start";
    if (sennit_work_free(work) != SENNIT_OK) return "free";
    if (sennit_barrier(comm) != SENNIT_OK || sennit_comm_finalize(comm) != SENNIT_OK)
      return "barrier";
    sennit_comm_destroy(comm);
    return "ok";
  });
  expect_all(ranks, "ok");
}

TEST(Arguments, CountsBeyondAllMemory) {
  Processes ranks(8, [](int rank) -> std::string {
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return sennit_last_error();
    std::vector<float> x(64);
    for (const size_t much : {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 32, size_t{1} << 57}) {
      const std::vector<size_t> ones(8, 1);
      std::vector<size_t> bad = ones;
      bad[static_cast<size_t>(rank)] = much;
      float* const p = x.data();
      const auto refused = [](sennit_status_t status) {
        return status == SENNIT_INVALID_ARGUMENT &&
               std::string(sennit_last_error()).find("too large") != std::string::npos;
      };
      if (!refused(sennit_all_reduce(p, p, much, SENNIT_FLOAT32, SENNIT_SUM, comm)))
        return "all_reduce";
      // Eight blocks of it, of 4 bytes an element, are 0 bytes in 64 bits.
      if (!refused(sennit_all_gather(p, p, much / 8, SENNIT_FLOAT32, comm))) return "all_gather";
      if (!refused(sennit_all_to_all(p, p, size_t{1} << 56, SENNIT_FLOAT64, comm)))
        return "all_to_all";
      if (!refused(sennit_all_gather_v(p, p, bad.data(), nullptr, SENNIT_FLOAT32, comm)))
        return "all_gather_v";
      if (!refused(sennit_all_gather_v(p, p, ones.data(), bad.data(), SENNIT_FLOAT32, comm)))
        return "all_gather_v's displacements";
      if (!refused(sennit_gather_v(p, p, bad.data(), nullptr, SENNIT_FLOAT32, 0, comm)))
        return "gather_v";
      if (!refused(sennit_all_to_all_v(p, ones.data(), nullptr, p, bad.data(), nullptr,
                                       SENNIT_FLOAT32, comm)))
        return "all_to_all_v";
    }
    if (sennit_barrier(comm) != SENNIT_OK || sennit_comm_finalize(comm) != SENNIT_OK)
      return "barrier";
    sennit_comm_destroy(comm);
    return "ok";
  });
  expect_all(ranks, "ok");
}

TEST(Port, InUseIsSaidWithTheRemedy) {
  const sennit::ReservedPort reserved;
  const int port = reserved.number();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  for (int round = 0; round < 3; round++) {
    Processes ranks(8, live,
                    {{"SENNIT_PORT", std::to_string(port)}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
    const auto reports = ranks.reports(240s);
    for (size_t r = 0; r < reports.size(); r++) {
      ASSERT_TRUE(reports[r].has_value()) << "rank " << r << " hangs";
      EXPECT_NE(
          reports[r]->find(r == 0 ? fmt::format("port {} is in use", port) : std::to_string(port)),
          std::string::npos)
          << "rank " << r << ": " << *reports[r];
    }
    EXPECT_NE(reports[0]->find("SENNIT_PORT"), std::string::npos) << *reports[0];
  }
  close(fd);
}

// Which no connection reaches, however long a rank tries.
TEST(Address, LinkLocalIsSaidAtOnce) {
  Processes ranks(2, live, {{"MASTER_ADDR", "fe80::1%lo"}});
  expect_all(ranks, "the address of rank 0: 'fe80::1%lo' is a link-local address");
}

TEST(Secret, WrongOneIsRefusedAndNamed) {
  for (const size_t wrong : {1, 2, 7}) {
    const auto start = [&](int64_t timeout_ms) -> std::string {
      Processes ranks(8,
                      [&](int rank) {
                        if (static_cast<size_t>(rank) == wrong)
                          setenv("SENNIT_SECRET", "not the job's", 1);
                        return live(rank);
                      },
                      {{"SENNIT_ARRIVAL_TIMEOUT", std::to_string(timeout_ms)}});
      const auto reports = ranks.reports(std::chrono::milliseconds(timeout_ms) + 60s);
      for (size_t r = 0; r < reports.size(); r++)
        if (reports[r].value_or("hangs").find(
                r == wrong ? "secret" : fmt::format("rank {}", wrong)) == std::string::npos)
          return join(reports);
      return "";
    };
    ASSERT_EQ(sennit_test::at_some_timeout(1500, start), "");
  }
}

TEST(Secret, NoneMeansLoopbackOnly) {
  Processes on_loopback(8, [](int rank) {
    unsetenv("SENNIT_SECRET");
    return live(rank);
  });
  expect_all(on_loopback, "ok");
  Processes elsewhere(8,
                      [](int rank) {
                        unsetenv("SENNIT_SECRET");
                        setenv("MASTER_ADDR", "10.255.255.1", 1);
                        setenv("LOCAL_WORLD_SIZE", "1", 1);  // on one host, loopback would serve
                        return live(rank);
                      },
                      {{"SENNIT_ARRIVAL_TIMEOUT", "2000"}});
  expect_all(elsewhere, "SENNIT_INSECURE=1");
}

TEST(Wire, Sealed) {
  Processes ranks(4, live, {{"SENNIT_WIRE", "sealed"}, {"SENNIT_TRANSPORTS", "tcp"}});
  expect_all(ranks, "ok");
}

TEST(Wire, SealedNeedsASecret) {
  Processes ranks(2,
                  [](int rank) {
                    unsetenv("SENNIT_SECRET");
                    return live(rank);
                  },
                  {{"SENNIT_WIRE", "sealed"}, {"SENNIT_INSECURE", "1"}});
  expect_all(ranks, "no secret to seal with (SENNIT_INSECURE=1)");
}

// All are told at once, long before the arrival time-out, whichever rank it is.
TEST(Wire, OneRankThatDiffersFailsTheStartAtOnce) {
  for (const auto& [most, one] : {std::pair("sealed", "plain"), std::pair("plain", "sealed")})
    for (const int differs : {0, 2}) {
      Processes ranks(4,
                      [&, value = one](int rank) {
                        if (rank == differs) setenv("SENNIT_WIRE", value, 1);
                        return live(rank);
                      },
                      {{"SENNIT_WIRE", most}, {"SENNIT_ARRIVAL_TIMEOUT", "120000"}});
      const auto reports = ranks.reports(240s);
      for (size_t r = 0; r < reports.size(); r++) {
        ASSERT_TRUE(reports[r].has_value()) << "rank " << r << " waits";
        EXPECT_NE(reports[r]->find("invalid argument: SENNIT_WIRE is "), std::string::npos)
            << *reports[r];
        for (const std::string& said :
             {fmt::format("{} at rank {}", one, differs), fmt::format("{} at rank ", most)})
          EXPECT_NE(reports[r]->find(said), std::string::npos)
              << "rank " << r << ": " << *reports[r];
      }
    }
}

// Two hosts, by their names: a UTS namespace of its own for the second rank.
TEST(Wire, SealedUcxBetweenHostsIsRefused) {
  if (!built_in("ucx")) GTEST_SKIP() << "this build has no ucx";
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: another host name needs root";
  struct Case {
    const char *first, *second;  // SENNIT_TRANSPORTS
    std::string want;
    bool two_hosts = true;
  };
  const std::string refused =
      "refused: SENNIT_WIRE=sealed, but ucx would carry what ranks 0 and 1 say to each other "
      "between hosts";
  for (const Case& c : {Case{"tcp,ucx", "ucx", refused}, Case{"shm,ucx,tcp", "tcp,ucx", refused},
                        Case{"tcp", "ucx,tcp", "ok"}, Case{"tcp", "tcp", "ok"},
                        Case{"ucx,tcp", "ucx,tcp", "ok", false}}) {
    Processes ranks(2,
                    [&](int rank) -> std::string {
                      if (rank == 1 && c.two_hosts &&
                          (unshare(CLONE_NEWUTS) != 0 || sethostname("another", 7) != 0))
                        return "no namespace";
                      setenv("SENNIT_TRANSPORTS", rank == 0 ? c.first : c.second, 1);
                      return live(rank);
                    },
                    {{"SENNIT_WIRE", "sealed"},
                     {"LOCAL_RANK", "0"},
                     {"LOCAL_WORLD_SIZE", c.two_hosts ? "1" : "2"},
                     {"SENNIT_ARRIVAL_TIMEOUT", "10000"}});
    expect_all(ranks, c.want);
  }
}

TEST(FabricFile, MalformedIsSaidToAllWithLineAndColumn) {
  const std::string path = fmt::format("{}/sennit_fabric_{}", testing::TempDir(), getpid());
  std::ofstream(path) << "host h0\nlink h0 nowhere 10 parsecs\n";
  Processes ranks(8, live, {{"SENNIT_FABRIC", path}});
  expect_all(ranks, path + ":2:");
  unlink(path.c_str());
  Processes missing(8, live, {{"SENNIT_FABRIC", "/nonexistent/fabric"}});
  expect_all(missing, "/nonexistent/fabric");
}

TEST(Options, UnknownAndMalformedAreNamed) {
  Processes unknown(8, live, {{"SENNIT_ALGORITM", "ring"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(unknown, "did you mean SENNIT_ALGORITHM?");
  Processes malformed(8, live,
                      {{"SENNIT_CHUNK_BYTES", "many"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(malformed, "SENNIT_CHUNK_BYTES");
  Processes word(8, live, {{"SENNIT_LOG", "loud"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(word, "SENNIT_LOG is 'loud': expected error, warn, info or debug");
  Processes transport(8, live,
                      {{"SENNIT_TRANSPORTS", "shm,carrier"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(transport,
             "SENNIT_TRANSPORTS: this build has no transport 'carrier'; it has loopback, shm, ");
}

// Found when the communicator is made, where all ranks are told the same; rank 0's choice holds for
// all.
TEST(Options, UnknownAlgorithmIsFoundAtTheStart) {
  const auto make = [](int rank, int chooser) -> std::string {
    sennit_config_t config = SENNIT_CONFIG_INIT;
    config.algorithm = rank == chooser ? "magic" : "ring";
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_env(&comm, &config) != SENNIT_OK) return sennit_last_error();
    sennit_comm_destroy(comm);
    return "made";
  };
  Processes rank0(8, [&](int rank) { return make(rank, 0); });
  expect_all(rank0, "there is no algorithm 'magic': SENNIT_ALGORITHM may be one of aggregated, ");
  Processes another(8, [&](int rank) { return make(rank, 5); });
  expect_all(another, "made");
  Processes variable(8, live, {{"SENNIT_ALGORITHM", "magic"}});
  expect_all(variable, "there is no algorithm 'magic'");
}

// Who was compiled before a field was there is taken as though it had chosen nothing for that.
TEST(Options, ConfigsOfOlderProgramsAreShorter) {
  // Of one rank, in a process of its own: this one has no threads when it starts others.
  const auto make = [](size_t size) {
    return [size](int) -> std::string {
      sennit_config_t config = SENNIT_CONFIG_INIT;
      config.concurrency = "many";
      config.size = size;
      sennit_comm_t comm = nullptr;
      if (sennit_comm_init_local(&comm, 1, &config) != SENNIT_OK) return sennit_last_error();
      sennit_comm_destroy(comm);
      return "made";
    };
  };
  Processes whole(1, make(sizeof(sennit_config_t)));
  expect_all(whole, "concurrency 'many': expected siblings, alone");
  Processes older(1, make(offsetof(sennit_config_t, concurrency)));
  expect_all(older, "made");
  Processes shorter(1, make(offsetof(sennit_config_t, concurrency) - 1));
  expect_all(shorter, "start from SENNIT_CONFIG_INIT");
}

}  // namespace
