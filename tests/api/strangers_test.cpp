// strangers_test.cpp: those who are not of the job, at every port on which its ranks listen,
// bootstrap and data alike, before and while it runs: a thousand half-open connections, garbage,
// the job's own greeting cut short. They are refused and logged, and the job goes on; when a rank
// dies meanwhile, the others agree who.
//
// ctest quiet: it judges what happens within seconds of a kill
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/processes.hpp"

using namespace std::chrono_literals;
using sennit_test::Arrivals;
using sennit_test::Processes;

namespace {

constexpr int kHalfOpen = 1000;  // per port
constexpr auto kLimit = 60s;     // only who hangs takes so long

// The ports on which a process listens: its sockets, looked up in the tables of its network
// namespace.
std::set<uint16_t> listening_ports(pid_t pid) {
  std::set<std::string> inodes;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* list = opendir(folder.c_str());
  if (!list) return {};
  while (const dirent* entry = readdir(list)) {
    char target[64] = {};
    if (readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target - 1) < 0) continue;
    const std::string text = target;
    if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
  }
  closedir(list);
  std::set<uint16_t> ports;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream in(fmt::format("/proc/{}/net/{}", pid, table));
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, skip, inode;
      fields >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
      if (state != "0A" || !inodes.count(inode)) continue;  // 0A: it listens
      ports.insert(
          static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

// The bootstrap's and that for data: until the second is there too, a rank is still starting.
std::set<uint16_t> both_ports(pid_t pid) {
  std::set<uint16_t> ports;
  EXPECT_TRUE(sennit_test::eventually([&] {
    ports = listening_ports(pid);
    return ports.size() == 2;
  })) << ports.size()
      << " ports";
  return ports;
}

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (fd >= 0) (void)!connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  return fd;
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Joins, waits for the strangers to be there, then talks to everybody for a while.
std::string work_under_siege(const std::string& log_path, const Arrivals& besiegers) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(log, STDERR_FILENO);
  sennit_comm_t comm = nullptr;
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
    return std::string("init failed: ") + sennit_last_error();
  besiegers.await(1, kLimit);
  std::vector<float> x(80'000, 1.0f), y(x.size());
  std::string text = "done";
  for (int i = 0; i < 60 && text == "done"; i++) {
    sennit_status_t status = sennit_all_to_all(x.data(), y.data(), 10'000, SENNIT_FLOAT32, comm);
    if (status == SENNIT_OK)
      status = sennit_all_reduce(x.data(), y.data(), x.size(), SENNIT_FLOAT32, SENNIT_SUM, comm);
    if (status != SENNIT_OK) text = sennit_last_error();
    if (status == SENNIT_OK && y[77] != 8.0f) text = fmt::format("{} instead of 8", y[77]);
    std::this_thread::sleep_for(10ms);
  }
  sennit_comm_destroy(comm);
  return text;
}

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 6 * kHalfOpen)
      GTEST_SKIP() << "SKIPPED: needs 6,000 file descriptors (ulimit -Hn)";
  }
  void TearDown() override {
    for (const int fd : connections_)
      if (fd >= 0) close(fd);
  }
  std::string log_of(int rank) const {
    return fmt::format("{}/sennit_strangers_{}_{}", testing::TempDir(), test_pid_, rank);
  }

  const pid_t test_pid_ = getpid();  // ranks are its children
  std::vector<int> connections_;
};

TEST_F(Strangers, AThousandAtEveryPortDoNotStopTheJob) {
  std::mt19937 random(5);
  Arrivals besiegers;
  Processes ranks(8, [&](int rank) { return work_under_siege(log_of(rank), besiegers); },
                  {{"SENNIT_TRANSPORTS", "tcp"}});
  const std::vector<int> besieged = {0, 3};
  std::vector<std::set<uint16_t>> ports;
  for (const int rank : besieged) {
    ports.push_back(both_ports(ranks.pid(rank)));
  }
  for (int i = 0; i < kHalfOpen; i++)
    for (const auto& of_rank : ports)
      for (const uint16_t port : of_rank) {
        const int fd = connect_to(port);
        connections_.push_back(fd);
        if (i % 3 != 0 || fd < 0) continue;  // the others never say a word
        std::vector<char> noise(1 + random() % 300);
        for (char& byte : noise) byte = static_cast<char>(random());
        (void)!send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
      }
  besiegers.add();
  const auto reports = ranks.reports(kLimit);
  for (int rank = 0; rank < 8; rank++) {
    ASSERT_TRUE(reports[static_cast<size_t>(rank)].has_value()) << "rank " << rank << " hangs";
    EXPECT_EQ(*reports[static_cast<size_t>(rank)], "done") << "rank " << rank;
  }
  for (const int rank : besieged) {
    const std::string log = read_file(log_of(rank));
    EXPECT_NE(log.find("warning: refused a connection from 127.0.0.1"), std::string::npos) << log;
    EXPECT_NE(log.find("warning: tcp: refused "), std::string::npos) << log;
    EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 40) << "each of them is logged:\n" << log;
  }
  for (int rank = 0; rank < 8; rank++) unlink(log_of(rank).c_str());
}

// All-reduces until one fails: "status: text | failed ranks".
std::string reduce_until_error(const std::string& log_path, Arrivals* working) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(log, STDERR_FILENO);
  sennit_comm_t comm = nullptr;
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
    return std::string("init failed: ") + sennit_last_error();
  float x = 1.0f;
  sennit_status_t status = SENNIT_OK;
  for (bool first = true;; first = false) {
    status = sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_MAX, comm);
    if (status != SENNIT_OK) break;
    if (first) working->add();
    std::this_thread::sleep_for(1ms);
  }
  std::string text = fmt::format("{}: {} |", sennit_status_name(status), sennit_last_error());
  int failed[64], n = 0;
  sennit_comm_failed_ranks(comm, failed, 64, &n);
  for (int k = 0; k < n; k++) text += fmt::format(" {}", failed[k]);
  sennit_comm_destroy(comm);
  return text;
}

// Rank 1, to whom all turn then, is besieged. Who has to wait for it until it has told its caller,
// and left, must not take it for dead.
TEST_F(Strangers, SurvivorsOfRank0NameItAlone) {
  Arrivals working;
  Processes ranks(8, [&](int rank) { return reduce_until_error(log_of(rank), &working); },
                  {{"SENNIT_TRANSPORTS", "tcp"}});
  ASSERT_TRUE(working.await(8, kLimit));
  const std::set<uint16_t> ports = both_ports(ranks.pid(1));
  for (int i = 0; i < 2 * kHalfOpen; i++)
    for (const uint16_t port : ports) connections_.push_back(connect_to(port));
  ranks.signal(0, SIGKILL);
  const auto reports = ranks.reports(kLimit);
  for (int rank = 1; rank < 8; rank++) {
    ASSERT_TRUE(reports[static_cast<size_t>(rank)].has_value()) << "rank " << rank << " hangs";
    const std::string& report = *reports[static_cast<size_t>(rank)];
    EXPECT_TRUE(report.ends_with("| 0")) << "rank " << rank << ": " << report;
  }
  for (int rank = 0; rank < 8; rank++) unlink(log_of(rank).c_str());
}

}  // namespace
