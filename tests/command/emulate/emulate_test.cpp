// Emulated fabrics, through the command itself: who runs where and is told what, that nothing but
// the wire connects hosts, and that nothing is left behind however a run ends. Needs root or
// unprivileged user namespaces.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command
// ctest not-under-tsan: it runs a command, whose threads others try
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/planner.hpp"
#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;

// Processes `sleep MARKER`.
int processes_with(const std::string& marker) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string program, argument;
    std::getline(file, program, '\0');
    std::getline(file, argument, '\0');
    found += program == "sleep" && argument == marker;
  }
  return found;
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; i++) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

class EmulateTest : public EmulatedTest {
 protected:
  // A sleep that no other process has.
  std::string marker() const { return fmt::format("{}.{}", 90000 + getpid() % 9000, getpid()); }
  std::string name(const char* what) const { return fmt::format("test-{}-{}", getpid(), what); }
};

TEST_F(EmulateTest, RanksRunWhereTheOrderSays) {
  const std::map<std::string, std::string> expected = {{"fabric", "h0 h1 h2 h3 h4 h5 h6 h7 "},
                                                       {"dealt", "h0 h1 h3 h6 h2 h4 h7 h5 "}};
  for (const auto& [order, hosts] : expected) {
    const Outcome run =
        sh(kCommand + "run --racks 1,2,3,2 --order " + order + " --tag -- hostname");
    ASSERT_EQ(run.status, 0) << run.output;
    std::string found;
    for (int rank = 0; rank < 8; rank++) found += run.of_rank(rank).substr(0, 2) + " ";
    EXPECT_EQ(found, hosts) << order;
  }
  const Outcome one = sh(kCommand + "run --racks 2 --order random:7 --tag -- hostname | sort");
  EXPECT_EQ(one.output,
            sh(kCommand + "run --racks 2 --order random:7 --tag -- hostname | sort").output);
  EXPECT_NE(one.output,
            sh(kCommand + "run --racks 2 --order random:8 --tag -- hostname | sort").output);
}

TEST_F(EmulateTest, TheCommandsArgumentsArriveAsTheyStand) {
  const Outcome run =
      sh(kCommand + "run --racks 1 --hosts 1 -- printf '%s|' '[1,2]' '[]' '' --tag --");
  EXPECT_EQ(run.output, "[1,2]|[]||--tag|--|");
}

TEST_F(EmulateTest, ThreeTiersDealOverPodsFirst) {
  const Outcome run =
      sh(kCommand + "run --pods 2 --racks 4 --hosts 1 --order dealt --tag -- hostname");
  std::string found;
  for (int rank = 0; rank < 4; rank++) found += run.of_rank(rank).substr(0, 2) + " ";
  EXPECT_EQ(found, "h0 h2 h1 h3 ") << run.output;
}

TEST_F(EmulateTest, RecommendedOrderBringsRacksTogether) {
  const Outcome run = sh(kCommand + "run --racks 2 --order dealt --recommended --tag -- hostname");
  std::string found;
  for (int rank = 0; rank < 8; rank++) found += run.of_rank(rank).substr(0, 2) + " ";
  EXPECT_EQ(found, "h0 h1 h2 h3 h4 h5 h6 h7 ") << run.output;
}

// Two pairs over uplinks that are as fast as one host: each plans with half of them, and is told
// otherwise with all. The bound is that of both. Each run measures anew what a message costs, which
// is more where the machine is busy, so the least of three predictions counts.
TEST_F(EmulateTest, GroupsPlanWithWhatConcurrencyLeavesThem) {
  const std::string file = testing::TempDir() + name("groups") + ".json";
  std::map<std::string, double> predicted_us, bound_us;
  for (const std::string concurrency :
       {"siblings", "alone", "2", "siblings", "alone", "2", "siblings", "alone", "2"}) {
    const Outcome run =
        sh("SENNIT_CONCURRENCY=" + concurrency + " " + kCommand +
           "run --racks 2 --hosts 2 --nic 400Mbit/s --uplink 400Mbit/s -- " SENNIT_BINARY_DIR
           "/bin/sennit bench all_reduce --split 'MOD 2' -b 1M "
           "-e 1M -n 1 -w 0 --json " +
           file);
    ASSERT_EQ(run.status, 0) << run.output;
    std::ifstream in(file);
    const nlohmann::json line = nlohmann::json::parse(in);
    EXPECT_EQ(line["wrong"], 0);
    double& least_us = predicted_us.emplace(concurrency, line["predicted_us"]).first->second;
    least_us = std::min<double>(least_us, line["predicted_us"]);
    bound_us[concurrency] = line["bound_us"];
  }
  std::filesystem::remove(file);
  EXPECT_NEAR(predicted_us["siblings"] / predicted_us["alone"], 2, 0.4);
  EXPECT_NEAR(predicted_us["siblings"] / predicted_us["2"], 1, 0.2);
  EXPECT_NEAR(bound_us["alone"], 2 * (1 << 20) / 50e6 * 1e6, 1);
  EXPECT_EQ(bound_us["siblings"], bound_us["alone"]);
}

TEST_F(EmulateTest, EveryRankIsTold) {
  const Outcome run =
      sh(kCommand +
         "run --racks 1 --hosts 2 --ranks-per-host 2 --tag -- sh -c "
         "'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $SENNIT_INTERFACE "
         "${#SENNIT_SECRET}; getent hosts h1'");
  ASSERT_EQ(run.status, 0) << run.output;
  for (int rank = 0; rank < 4; rank++)
    EXPECT_TRUE(std::regex_match(
        run.of_rank(rank),
        std::regex(fmt::format("{} 4 {} 2 10\\.\\d+\\.1\\.1 eth0 68\n10\\.\\d+\\.1\\.2 +h1\n", rank,
                               rank % 2))))
        << run.output;
}

// In a step of Slurm every host of the tree would else be the node that all of it runs on.
TEST_F(EmulateTest, WhatALauncherAboveSaidReachesNoRank) {
  const Outcome run =
      sh("SLURMD_NODENAME=n1 SLURM_PROCID=5 PMI_RANK=5 PMIX_RANK=5 OMPI_COMM_WORLD_RANK=5 " +
         kCommand +
         "run --racks 1 --hosts 1 -- sh -c 'echo $SLURMD_NODENAME$SLURM_PROCID$PMI_RANK"
         "$PMIX_RANK$OMPI_COMM_WORLD_RANK.'");
  EXPECT_EQ(run.output, ".\n");
}

TEST_F(EmulateTest, FabricFileGivesTheBoundOfTheTree) {
  const Outcome run = sh(
      kCommand +
      "run --racks 2 --hosts 4 --nic 400Mbit/s --oversubscription 7 -- sh -c 'cat $SENNIT_FABRIC'");
  ASSERT_EQ(run.status, 0) << run.output;
  const Result<Fabric> fabric = parse_fabric(run.output, "emulated");
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  std::vector<Placement> places;
  for (int rank = 0; rank < 8; rank++)
    places.push_back({.host = fmt::format("h{}", rank % 2 * 4 + rank / 2), .numa = -1, .nic = ""});
  const Result<TierTree> tree = contract(*fabric, places);
  ASSERT_TRUE(tree.ok()) << tree.status().text();
  EXPECT_EQ(tree->tiers.size(), 3u);
  EXPECT_TRUE(tree->capacities_known());
  Request request;
  request.count = 4'000'000;
  EXPECT_NEAR(static_cast<double>(lower_bound(request, *tree).time_ns), 560e6, 1e3);
}

TEST_F(EmulateTest, SlurmVariablesGiveTheShapeAlone) {
  const Outcome run =
      sh(kCommand +
         "run --pods 2 --racks 2 --hosts 1 --slurm --tag -- sh -c "
         "'echo $SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN ${SENNIT_FABRIC:-none}'");
  EXPECT_EQ(run.of_rank(1), "spine.pod1.rack1.h1 switch.switch.switch.node none\n") << run.output;
  const Outcome none = sh("SENNIT_FABRIC=x " + kCommand +
                          "run --racks 1 --no-fabric -- sh -c 'echo ${SENNIT_FABRIC:-none}'");
  EXPECT_EQ(none.output, "none\n");
}

// What a message costs a core there is measured once, by rank 0, and the plan of small messages
// follows.
TEST_F(EmulateTest, HostsThatShareCoresMeasureWhatAMessageCosts) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  int core = 0;
  while (!CPU_ISSET(core, &cores)) core++;
  const std::string bench = SENNIT_BINARY_DIR "/bin/sennit bench all_reduce -b 8 -e 8 -n 5 2>&1";
  const Outcome outcome =
      sh("SENNIT_LOG=info " + kCommand +
         fmt::format("run --racks 2 --hosts 2 -- taskset -c {} {}", core, bench));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const std::regex measured("a message between hosts costs one ([0-9]+) ns");
  auto found = std::sregex_iterator(outcome.output.begin(), outcome.output.end(), measured);
  ASSERT_NE(found, std::sregex_iterator()) << outcome.output;
  EXPECT_GT(std::stoi((*found)[1]), 300);
  EXPECT_EQ(++found, std::sregex_iterator()) << "more than once:\n" << outcome.output;
}

TEST_F(EmulateTest, NothingButTheWireConnectsHosts) {
  // Both stay until both have looked: a namespace that is gone may give its number to the next.
  const trainer::TestFolder folder;
  const Outcome run =
      sh("cd " + folder.path() + " && " + kCommand +
         "run --racks 1 --hosts 2 --timeout 180 --tag -- sh -c 'touch /dev/shm/of-$(hostname); "
         "ls /dev/shm; ls /sys/class/net; for p in /proc/[0-9]*; do cat $p/comm; done; readlink "
         "/proc/self/ns/ipc; touch $RANK; until [ -e 0 ] && [ -e 1 ]; do sleep 0.05; done'");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(run.of_rank(0).starts_with("of-h0\n")) << run.output;
  EXPECT_TRUE(run.of_rank(1).starts_with("of-h1\n")) << run.output;
  EXPECT_EQ(run.of_rank(0).find("of-h1"), std::string::npos);
  const auto ipc = [&](int rank) {
    return run.of_rank(rank).substr(run.of_rank(rank).find("ipc:"));
  };
  EXPECT_NE(ipc(0), ipc(1));
  EXPECT_EQ(run.of_rank(0).find("emulate_test"), std::string::npos)
      << "sees processes of the outside";
  EXPECT_FALSE(std::ifstream("/dev/shm/of-h0").good());
}

TEST_F(EmulateTest, EveryPortIsShaped) {
  const Outcome run =
      sh(kCommand +
         "run --racks 1 --hosts 2 --nic 400Mbit/s,100Mbit/s --tag -- tc qdisc show dev eth0");
  EXPECT_NE(run.of_rank(0).find("rate 400Mbit burst 2"), std::string::npos) << run.output;
  EXPECT_NE(run.of_rank(1).find("rate 100Mbit burst 2"), std::string::npos) << run.output;
}

TEST_F(EmulateTest, StatusIsTheWorst) {
  EXPECT_EQ(sh(kCommand + "run --racks 1 --hosts 3 -- sh -c 'exit $((RANK * 5))'").status, 10);
  EXPECT_EQ(sh(kCommand + "run --racks 1 --hosts 3 -- sh -c '[ $RANK != 1 ] || kill -9 $$'").status,
            137);
  EXPECT_EQ(sh(kCommand + "run --racks 1 --hosts 2 -- no-such-program").status, 127);
  EXPECT_EQ(sh(kCommand + "run --racks 1 --hosts 2 --timeout 0.3 -- sleep 60").status, 124);
}

TEST_F(EmulateTest, CallsThatAreOff) {
  for (const char* options :
       {"--racks 0", "--racks 200 --hosts 100", "--racks 1,x", "--nic 400", "--racks 2 --pods 3",
        "--racks 2 --uplink 1Mbit/s,2Mbit/s,3Mbit/s", "--racks 2 --order sideways",
        "--racks 2 --oversubscription 0", "--name no-such-instance",
        "--racks 1 --hosts 1 --uplink ''", "--racks 1 --hosts 1 --timeout -1",
        "--racks 1 --hosts 1 --ranks-per-host 1000000",
        "--racks 1 --hosts 1 --pids /no/such/folder/pids"}) {
    const Outcome run = sh(kCommand + "run " + options + " -- true");
    EXPECT_EQ(run.status, 2) << options << ": " << run.output;
    EXPECT_NE(run.output, "") << options;
  }
}

TEST_F(EmulateTest, InstancesByName) {
  const std::string one = name("one"), two = name("two");
  ASSERT_EQ(sh(kCommand + "up --racks 2 --hosts 1 --name " + one).status, 0);
  ASSERT_EQ(sh(kCommand + "up --racks 1 --hosts 3 --name " + two).status, 0);
  EXPECT_EQ(sh(kCommand + "up --name " + one).status, 2);
  const std::string address = " -- sh -c 'ip -4 -br addr show eth0'";
  const Outcome first = sh(kCommand + "run --name " + one + address);
  const Outcome second = sh(kCommand + "run --tag --name " + two + address);
  EXPECT_EQ(second.lines().size(), 3u) << second.output;
  EXPECT_EQ(second.output.find(first.output.substr(first.output.find("10."), 6)),
            std::string::npos);
  EXPECT_EQ(sh(kCommand + "down --name " + one).status, 0);
  EXPECT_EQ(sh(kCommand + "down --name " + one).status, 2);
  EXPECT_EQ(sh(kCommand + "run --name " + two + " -- true").status, 0);
  EXPECT_EQ(sh(kCommand + "down --name " + two).status, 0);
}

// Starts `sennit emulate run` with daemons and waits until they are there.
pid_t start_run(const std::string& options, const std::string& marker, int sleeps) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string ranks =
        fmt::format("trap \"\" TERM; sleep {0} & setsid sleep {0} & sleep {0}; wait", marker);
    execl("/bin/sh", "sh", "-c",
          ("exec " + kCommand + "run " + options + " -- sh -c '" + ranks + "'").c_str(), nullptr);
    _exit(127);
  }
  EXPECT_TRUE(eventually([&] { return processes_with(marker) == sleeps; }))
      << processes_with(marker);
  return child;
}

int wait_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(EmulateTest, NothingIsLeftAfterACrash) {
  const pid_t run = start_run("--racks 2 --hosts 2", marker(), 12);
  kill(run, SIGKILL);
  EXPECT_EQ(wait_status(run), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with(marker()) == 0; }))
      << processes_with(marker());
  EXPECT_TRUE(eventually([&] {
    return sh(kCommand + "list").output.find(fmt::format("run-{}:", run)) == std::string::npos;
  }));
}

TEST_F(EmulateTest, NothingIsLeftAfterCtrlC) {
  const pid_t run = start_run("--racks 1 --hosts 2", marker(), 6);
  kill(run, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(run, SIGINT);  // the second time it does not wait for the ranks, which ignore it
  EXPECT_EQ(wait_status(run), 128 + SIGINT);
  EXPECT_EQ(processes_with(marker()), 0);
}

// It ends the whole comparison, and is no failure of the library whose turn it was.
TEST_F(EmulateTest, ControlBackslashEndsAComparison) {
  const trainer::TestFolder folder;
  const std::string record = folder / "record";
  const pid_t run = fork();
  if (run == 0) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    execl("/bin/sh", "sh", "-c",
          ("exec " + kCommand + "compare --racks 1 --hosts 2 --libraries sennit --orders fabric " +
           "--collectives all_reduce --sizes 8 --rounds 30 --json " + record + " > /dev/null 2>&1")
              .c_str(),
          nullptr);
    _exit(127);
  }
  const auto rounds_are_measured = [&] {
    std::ifstream file(record);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n') > 1;
  };
  EXPECT_TRUE(eventually(rounds_are_measured));
  kill(run, SIGQUIT);
  EXPECT_EQ(wait_status(run), 128 + SIGQUIT);
}

// What waits for the end of a command's output must not wait for the end of its tree.
TEST_F(EmulateTest, ATreeHoldsNoFileOfWhoBroughtItUp) {
  constexpr int kHigh = 1500;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max <= kHigh) GTEST_SKIP() << "NOT TESTED: it takes more descriptors";
  const rlimit before = limit;
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, kHigh + 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int high = fcntl(ends[1], F_DUPFD, kHigh);
  ASSERT_GE(high, kHigh);
  close(ends[1]);
  const std::string instance = name("files");
  const Outcome up = sh(kCommand + "up --racks 1 --hosts 1 --name " + instance);
  EXPECT_EQ(up.status, 0) << up.output;
  close(high);
  setrlimit(RLIMIT_NOFILE, &before);
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 10'000), 1) << "a process of the tree holds the other end";
  close(ends[0]);
  EXPECT_EQ(sh(kCommand + "down --name " + instance).status, 0);
}

TEST_F(EmulateTest, DownEndsRuns) {
  const std::string instance = name("down");
  ASSERT_EQ(sh(kCommand + "up --racks 1 --hosts 2 --name " + instance).status, 0);
  const pid_t run = start_run("--name " + instance, marker(), 6);
  EXPECT_EQ(sh(kCommand + "down --name " + instance).status, 0);
  EXPECT_EQ(wait_status(run), 128 + SIGKILL);
  EXPECT_EQ(processes_with(marker()), 0);
}

TEST_F(EmulateTest, PidsAreThoseOfTheOutside) {
  const std::string file = testing::TempDir() + "/pids-" + std::to_string(getpid());
  const pid_t run = start_run("--racks 1 --hosts 3 --pids " + file, marker(), 9);
  std::ifstream stream(file);
  int rank = -1, process = 0;
  std::string host;
  for (int expected = 0; expected < 3; expected++) {
    ASSERT_TRUE(stream >> rank >> host >> process);
    EXPECT_EQ(rank, expected);
    EXPECT_EQ(kill(process, SIGKILL), 0);
  }
  EXPECT_EQ(wait_status(run), 128 + SIGKILL);
  EXPECT_EQ(processes_with(marker()), 0);
  std::remove(file.c_str());
}

}  // namespace
}  // namespace sennit
