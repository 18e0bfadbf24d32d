// ibnet_live_test.cpp: the live subnet, for real: ibsim emulates 2,048 hosts, opensm brings them
// up, and the source walks them through libibnetdisc. What it finds is what ibnetdiscover writes,
// and the truth. Skipped where the servers are not installed. Everything runs in a network
// namespace and a folder of its own.
//
// ctest not-sanitized: it preloads ibsim's library, which must come before the sanitizer's
// ctest needs: IBNET
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/topology/cases.hpp"
#include "tests/topology/sources/ibnet/ibnet_subnets.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {
namespace {

constexpr const char* kReadLive = "--read-live";  // FILE: writes what read_live_subnet() says there

int read_live(const char* file) {
  const Result<std::optional<IbSubnet>> subnet = read_live_subnet();
  std::ofstream out(file);
  if (!subnet)
    out << "error: " << subnet.status().text();
  else
    out << (subnet->has_value() ? fabric_of(**subnet).to_text() : "nothing");
  return out.good() ? 0 : 1;
}

bool is_installed(const std::string& program) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"})
    if (access((folder + program).c_str(), X_OK) == 0) return true;
  return false;
}

class IbnetLive : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"ibsim", "ibsim-run", "opensm", "ibnetdiscover", "timeout"})
      if (!is_installed(program))
        GTEST_SKIP() << "SKIPPED: " << program
                     << " is not installed (Debian: ibsim-utils opensm infiniband-diags)";
    char pattern[] = "/tmp/sennit_ibnet_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Runs a shell command on the emulated subnet, in folder_; its exit status, or 77 where there can
  // be no namespace.
  int run_on(const Subnet& subnet, const std::string& command, bool manager) {
    std::ofstream(folder_ / "netlist") << subnet.text();
    int from = 0;
    while (subnet.nodes[static_cast<size_t>(from)].is_switch) from++;
    std::string node = subnet.id(from);
    node = node.substr(1, node.size() - 2);
    const std::string script =
        std::string(SENNIT_SOURCE_DIR) + "/tests/topology/sources/ibnet/ibnet_subnet.sh";
    const std::string path = std::string(std::getenv("PATH")) + ":/usr/sbin:/sbin";
    const pid_t child = fork();
    if (child == 0) {
      if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(77);
      if (chdir(folder_.c_str()) != 0) _exit(1);
      setenv("PATH", path.c_str(), 1);
      if (!manager) setenv("NO_SUBNET_MANAGER", "1", 1);
      const int log = open("log", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execlp("sh", "sh", script.c_str(), "netlist", node.c_str(), "sh", "-c", command.c_str(),
             nullptr);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::filesystem::path folder_;
  const std::string self_ = std::filesystem::read_symlink("/proc/self/exe");
};

#define EXPECT_RUNS(run)                                                                 \
  do {                                                                                   \
    const int exit_status = (run);                                                       \
    if (exit_status == 77) GTEST_SKIP() << "SKIPPED: no network namespace allowed here"; \
    ASSERT_EQ(exit_status, 0) << read_text(folder_ / "log");                             \
  } while (0)

TEST_F(IbnetLive, TwoLevelsSevenToOneWith2048Hosts) {
  const Subnet subnet = two_level(2048, 28, 4, 4);
  EXPECT_RUNS(
      run_on(subnet, fmt::format("ibnetdiscover >dump && {} {} live", self_, kReadLive), true));
  const std::string live = read_text(folder_ / "live");
  const Result<IbSubnet> dump = parse_ibnetdiscover(read_text(folder_ / "dump"), "dump");
  ASSERT_TRUE(dump.ok()) << dump.status().text();
  EXPECT_TRUE(live == fabric_of(*dump).to_text()) << live.substr(0, 4000);
  const Result<Fabric> fabric = parse_fabric(live, "live");
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  const std::vector<Placement> ranks = ranks_on_all_hosts(*fabric, 1);
  ASSERT_EQ(ranks.size(), 2048u);
  const Result<TierTree> tree = contract(*fabric, ranks);
  ASSERT_TRUE(tree.ok()) << tree.status().text();
  EXPECT_TRUE(truth_of(*tree, ranks) == subnet.truth);
}

TEST_F(IbnetLive, PodsRailsAndDegradedCables) {
  const std::map<std::string, Subnet> subnets = {
      {"unequal pods", pods({{4, 4}, {3, 2, 4}, {5}}, 1, false)},
      {"swapped leaves", pods({{4, 3}, {2, 5, 4}}, 2, true)},
      {"eight rails", rails(2, 3, 8, 2, 1)},
      {"degraded", degraded()}};
  for (const auto& [name, subnet] : subnets) {
    SCOPED_TRACE(name);
    EXPECT_RUNS(run_on(subnet, fmt::format("{} {} live", self_, kReadLive), true));
    const Result<Fabric> fabric = parse_fabric(read_text(folder_ / "live"), "live");
    ASSERT_TRUE(fabric.ok()) << fabric.status().text();
    const std::vector<Placement> ranks = ranks_on_all_hosts(*fabric, 1);
    const Result<TierTree> tree = contract(*fabric, ranks);
    ASSERT_TRUE(tree.ok()) << tree.status().text();
    EXPECT_EQ(truth_of(*tree, ranks), subnet.truth);
  }
}

TEST_F(IbnetLive, WithoutASubnetManagerThereIsAHint) {
  EXPECT_RUNS(run_on(degraded(), fmt::format("{} {} live", self_, kReadLive), false));
  const std::string live = read_text(folder_ / "live");
  EXPECT_NE(live.find("error: no InfiniBand port is active here"), std::string::npos) << live;
  EXPECT_NE(live.find("subnet manager"), std::string::npos) << live;
}

// Nothing is wrong with a network that this user cannot read: the other sources are shown, with a
// hint.
TEST_F(IbnetLive, AnUnreadableSubnetIsNoSuspect) {
  EXPECT_RUNS(run_on(
      degraded(),
      fmt::format("env -u SLURM_CONF SENNIT_FABRIC=/dev/null {}/bin/sennit topo --check >check; "
                  "echo exit $? >>check; "
                  "env -u SLURM_CONF SENNIT_FABRIC=/dev/null {}/bin/sennit topo >shown",
                  SENNIT_BINARY_DIR, SENNIT_BINARY_DIR),
      false));
  for (const char* file : {"check", "shown"}) {
    const std::string text = read_text(folder_ / file);
    EXPECT_NE(text.find("source ibnet left out: no InfiniBand port is active here"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("subnet manager"), std::string::npos) << text;
    EXPECT_EQ(text.find("failed"), std::string::npos) << text;
  }
  EXPECT_NE(read_text(folder_ / "check").find("exit 0"), std::string::npos)
      << read_text(folder_ / "check");
}

// What a live port is enabled for is more than what a cable at one lane carries.
TEST_F(IbnetLive, SlowPortsAreNamed) {
  EXPECT_RUNS(
      run_on(degraded(),
             fmt::format("SENNIT_FABRIC=/dev/null {}/bin/sennit topo --check >check; test $? = 1",
                         SENNIT_BINARY_DIR),
             true));
  const std::string text = read_text(folder_ / "check");
  EXPECT_NE(text.find("slow port"), std::string::npos) << text;
  EXPECT_NE(text.find("its siblings 4x"), std::string::npos) << text;
}

}  // namespace
}  // namespace sennit

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == sennit::kReadLive)
    return sennit::read_live(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
