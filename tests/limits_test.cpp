// What the machine or the user got wrong, through the public interface and with real processes: no shared
// memory, no descriptors, a port in use, a wrong secret, a malformed fabric file, an unknown option. Each
// error must say what, where and what to do, on every rank, and nothing may hang.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "processes.hpp"
#include "sennit/sennit.h"

using namespace std::chrono_literals;
using sennit_test::Processes;

namespace {

// "ok", or "status: text", of making a communicator, one large and one small all-reduce, and finalizing.
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
  if (status == SENNIT_OK) status = sennit_comm_finalize(comm);
  const std::string text = status == SENNIT_OK ? "ok" : told(status);
  sennit_comm_destroy(comm);
  return text;
}

void expect_all(Processes& ranks, const std::string& want, std::chrono::milliseconds limit = 20s) {
  const auto reports = ranks.reports(limit);
  for (size_t r = 0; r < reports.size(); r++) {
    ASSERT_TRUE(reports[r].has_value()) << "rank " << r << " did not end";
    EXPECT_NE(reports[r]->find(want), std::string::npos)
        << "rank " << r << ": " << *reports[r] << "\nexpected: " << want;
  }
}

// A /dev/shm of this size for this process and its children.
bool small_shared_memory(const char* size) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, fmt::format("size={}", size).c_str()) == 0;
}

// Runs f in a child process, so that a mount namespace or a limit ends with it; its failures count here.
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
      const auto reports = ranks.reports(20s);
      for (const auto& report : reports) {
        ASSERT_TRUE(report.has_value()) << "a rank hangs";
        if (*report == "ok") continue;  // large enough after all
        EXPECT_NE(report->find("/dev/shm"), std::string::npos) << *report;
        EXPECT_NE(report->find("SENNIT_TRANSPORTS"), std::string::npos) << *report;
      }
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

TEST(Descriptors, NoneLeftIsSaidWithTheRemedy) {
  const std::string log_path = fmt::format("{}/sennit_limits_{}", testing::TempDir(), getpid());
  for (const unsigned limit : {8u, 12u, 16u, 20u, 24u, 28u}) {
    Processes ranks(8,
                    [&](int rank) {
                      if (rank == 3) {
                        [[maybe_unused]] FILE* log = freopen(log_path.c_str(), "w", stderr);
                        const rlimit few{limit, limit};
                        setrlimit(RLIMIT_NOFILE, &few);
                      }
                      return live(rank);
                    },
                    {{"SENNIT_TRANSPORTS", "tcp"}, {"SENNIT_ARRIVAL_TIMEOUT", "4000"}});
    const auto reports = ranks.reports(20s);
    for (size_t r = 0; r < reports.size(); r++)
      ASSERT_TRUE(reports[r].has_value()) << "limit " << limit << ": rank " << r << " hangs";
    if (*reports[3] == "ok") continue;  // enough after all
    // In the error, or, where it only keeps others from connecting, in the log of the rank that lacks them.
    std::stringstream logged;
    logged << std::ifstream(log_path).rdbuf();
    const std::string said = *reports[3] + logged.str();
    EXPECT_NE(said.find("ulimit -n"), std::string::npos) << "limit " << limit << ": " << said;
  }
}

TEST(Port, InUseIsSaidWithTheRemedy) {
  const int port = sennit_test::free_port();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  Processes ranks(2, live, {{"SENNIT_PORT", std::to_string(port)}, {"SENNIT_ARRIVAL_TIMEOUT", "1500"}});
  const auto reports = ranks.reports(20s);
  ASSERT_TRUE(reports[0].has_value() && reports[1].has_value());
  EXPECT_NE(reports[0]->find(fmt::format("port {} is in use", port)), std::string::npos) << *reports[0];
  EXPECT_NE(*reports[1], "ok");
  close(fd);
}

TEST(Secret, WrongOneIsRefusedAndNamed) {
  Processes ranks(4,
                  [](int rank) {
                    if (rank == 2) setenv("SENNIT_SECRET", "not the job's", 1);
                    return live(rank);
                  },
                  {{"SENNIT_ARRIVAL_TIMEOUT", "2000"}});
  const auto reports = ranks.reports(20s);
  for (size_t r = 0; r < 4; r++) {
    ASSERT_TRUE(reports[r].has_value()) << "rank " << r << " hangs";
    EXPECT_NE(reports[r]->find(r == 2 ? "secret" : "rank 2"), std::string::npos) << *reports[r];
  }
}

TEST(Secret, NoneMeansLoopbackOnly) {
  Processes on_loopback(2, [](int rank) {
    unsetenv("SENNIT_SECRET");
    return live(rank);
  });
  expect_all(on_loopback, "ok");
  Processes elsewhere(2,
                      [](int rank) {
                        unsetenv("SENNIT_SECRET");
                        setenv("MASTER_ADDR", "10.255.255.1", 1);
                        setenv("LOCAL_WORLD_SIZE", "1", 1);  // on one host, loopback would serve
                        return live(rank);
                      },
                      {{"SENNIT_ARRIVAL_TIMEOUT", "2000"}});
  expect_all(elsewhere, "SENNIT_INSECURE=1");
}

TEST(FabricFile, MalformedIsSaidToAllWithLineAndColumn) {
  const std::string path = fmt::format("{}/sennit_fabric_{}", testing::TempDir(), getpid());
  std::ofstream(path) << "host h0\nlink h0 nowhere 10 parsecs\n";
  Processes ranks(4, live, {{"SENNIT_FABRIC", path}});
  expect_all(ranks, path + ":2:");
  unlink(path.c_str());
  Processes missing(4, live, {{"SENNIT_FABRIC", "/nonexistent/fabric"}});
  expect_all(missing, "/nonexistent/fabric");
}

TEST(Options, UnknownAndMalformedAreNamed) {
  Processes unknown(2, live, {{"SENNIT_ALGORITM", "ring"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(unknown, "did you mean SENNIT_ALGORITHM?");
  Processes malformed(2, live, {{"SENNIT_CHUNK_BYTES", "many"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(malformed, "SENNIT_CHUNK_BYTES");
  Processes algorithm(2, live, {{"SENNIT_ALGORITHM", "magic"}, {"SENNIT_ARRIVAL_TIMEOUT", "1000"}});
  expect_all(algorithm, "magic");
}

}  // namespace
