// `sennit bench` as a user runs it: local processes and threads, nccl-tests' names, JSON, wrong
// options, a rank that dies. Figures are not judged here, only their presence and that nothing is
// wrong.
//
// ctest runs: sennit_command soft_gpu
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

using sennit_test::Outcome;

namespace {

// Runs a program of the build with these arguments; no launcher's variables reach it.
Outcome run(const std::string& program, const std::string& arguments,
            const std::string& environment = "") {
  const std::string clean =
      "env -u RANK -u WORLD_SIZE -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK -u SLURM_PROCID ";
  return sennit_test::sh_output(clean + environment + "timeout 120 " SENNIT_BINARY_DIR "/bin/" +
                                program + " " + arguments);
}

std::vector<nlohmann::json> lines(const std::string& text) {
  std::vector<nlohmann::json> all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    all.push_back(nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false));
    begin = end + 1;
  }
  return all;
}

const char* const kCollectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "reduce",     "gather",         "scatter",    "all_to_all",
                                    "send_recv",  "barrier"};

TEST(Bench, EveryCollectiveIsRightBetweenProcesses) {
  for (const std::string collective : kCollectives) {
    SCOPED_TRACE(collective);
    const Outcome o =
        run("sennit", "bench " + collective +
                          " --ranks 3 -b 12 -e 48K -f 64 -n 2 -w 1 -r all --json - 2>/dev/null");
    ASSERT_EQ(o.status, 0) << o.output;
    const std::vector<nlohmann::json> all = lines(o.output);
    ASSERT_FALSE(all.empty());
    for (const nlohmann::json& line : all) {
      ASSERT_TRUE(line.is_object()) << o.output;
      EXPECT_EQ(line["collective"], collective);
      EXPECT_EQ(line["ranks"], 3);
      EXPECT_EQ(line["dtype"], "float32");
      EXPECT_EQ(line["wrong"], 0);
      EXPECT_GT(line["time_us"], 0.0);
      EXPECT_TRUE(line["bound_us"].is_null());  // nothing is known about this machine's capacities
      EXPECT_TRUE(line["of_bound"].is_null());
      for (const char* key : {"bytes", "count", "op", "algorithm", "algbw_gbytes_per_s",
                              "busbw_gbytes_per_s", "binding_tier", "predicted_us"})
        EXPECT_TRUE(line.contains(key)) << key;
    }
  }
}

// What is measured with these arguments where the software GPU stands for NVIDIA's driver: it has
// to be right.
std::vector<nlohmann::json> right_on_a_device(const std::string& arguments) {
  const Outcome o = run("sennit",
                        "bench " + arguments +
                            " --memory device -b 48K -e 384K -f 8 -n 2 -w 1 -r all "
                            "-d int32 --json - 2>&1",
                        "LD_LIBRARY_PATH=" SENNIT_BINARY_DIR "/soft_gpu ");
  EXPECT_EQ(o.status, 0) << o.output;
  std::vector<nlohmann::json> measured = lines(o.output);
  std::erase_if(measured, [](const nlohmann::json& line) { return !line.is_object(); });
  for (const nlohmann::json& line : measured) EXPECT_EQ(line["wrong"], 0) << line;
  return measured;
}

TEST(Bench, EveryCollectiveIsRightOnADevice) {
  for (const std::string collective : kCollectives) {
    for (const std::string ranks : {"--ranks 3", "-t 3"}) {
      SCOPED_TRACE(collective + " " + ranks);
      const std::vector<nlohmann::json> measured = right_on_a_device(collective + " " + ranks);
      const bool bound =
          std::any_of(measured.begin(), measured.end(),
                      [](const nlohmann::json& line) { return line["binding_tier"] == "device"; });
      EXPECT_EQ(bound, collective != "barrier") << nlohmann::json(measured);
    }
  }
}

TEST(Bench, EveryCollectiveIsRightInAGraph) {
  for (const std::string collective : kCollectives) {
    if (collective == "barrier") continue;
    SCOPED_TRACE(collective);
    const std::string ranks = collective == "all_reduce" ? "--ranks 3 -z 0" : "-t 1 -g 3";
    const std::vector<nlohmann::json> measured =
        right_on_a_device(collective + " " + ranks + " -G 3");
    for (const nlohmann::json& line : measured) {
      EXPECT_EQ(line["graph_launches"], 3) << line;
      EXPECT_GT(line["time_us"], 0.0) << line;
    }
    EXPECT_GE(measured.size(), 2u);
  }
}

TEST(Bench, WhatCannotBeInAGraphIsNamed) {
  const Outcome host = run("sennit", "bench all_reduce -G 3 -b 1K -e 1K 2>&1");
  EXPECT_EQ(host.status, 2) << host.output;
  EXPECT_NE(host.output.find("-G 3: graphs have calls on a device's memory"), std::string::npos)
      << host.output;
  const Outcome barrier = run("sennit", "bench barrier -G 3 --memory device 2>&1");
  EXPECT_EQ(barrier.status, 2) << barrier.output;
  EXPECT_NE(barrier.output.find("-G 3: a barrier"), std::string::npos) << barrier.output;
}

TEST(Bench, ADeviceThatIsNotThereIsNamed) {
  const Outcome none =
      run("sennit", "bench all_reduce --memory device -e 1K -b 1K 2>&1", "CUDA_VISIBLE_DEVICES= ");
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_NE(none.output.find("--memory device: "), std::string::npos) << none.output;
  const Outcome beyond = run("sennit", "bench all_reduce --memory device -e 1K -b 1K 2>&1",
                             "NCCL_TESTS_DEVICE=7 LD_LIBRARY_PATH=" SENNIT_BINARY_DIR "/soft_gpu ");
  EXPECT_EQ(beyond.status, 2) << beyond.output;
  EXPECT_NE(beyond.output.find("NCCL_TESTS_DEVICE=7: expected a device from 0 to"),
            std::string::npos)
      << beyond.output;
}

TEST(Bench, EveryTypeAndOpIsRightBetweenThreads) {
  const Outcome o = run(
      "sennit",
      "bench all_reduce -t 3 -b 1000 -e 1000 -n 1 -w 0 -d all -o all -z 0 --json - 2>/dev/null");
  ASSERT_EQ(o.status, 0) << o.output;
  const std::vector<nlohmann::json> all = lines(o.output);
  EXPECT_EQ(all.size(), 12u * 6 + 6u * 3);
  for (const nlohmann::json& line : all) EXPECT_EQ(line["wrong"], 0) << line;
}

TEST(Bench, GroupsRunAtOnceAndEachIsRight) {
  for (const std::string collective : kCollectives)
    for (const std::string groups :
         {"--split 'MOD 2'", "--split 0,1,1,0,1", "--mesh tp2,dp2 --dimension tp"}) {
      const std::string ranks = groups.find(",1,1") == std::string::npos ? "4" : "5";
      SCOPED_TRACE(collective + " " + groups);
      const Outcome o = run("sennit", "bench " + collective + " -t " + ranks + " " + groups +
                                          " -b 12 -e 12K -f 32 -n 2 -w 1 -r all --json - 2>&1");
      ASSERT_EQ(o.status, 0) << o.output;
      int measured = 0;
      for (const nlohmann::json& line : lines(o.output)) {
        if (!line.is_object()) continue;
        measured++;
        EXPECT_EQ(line["groups"], 2);
        EXPECT_EQ(line["ranks"], 2);
        EXPECT_EQ(line["wrong"], 0);
      }
      EXPECT_GT(measured, 0) << o.output;
      EXPECT_NE(o.output.find(" ranks in 2 groups of 2"), std::string::npos) << o.output;
    }
}

// As nccl-tests take it from the environment, behind what the command line says.
TEST(Bench, TakesTheSplitOfNcclTests) {
  const auto groups = [](const std::string& rule, const std::string& more) {
    const Outcome o = sennit_test::sh_output(
        "NCCL_TESTS_SPLIT='" + rule +
        "' " SENNIT_BINARY_DIR "/bin/sennit bench all_reduce --ranks 4 -b 8 -e 8 -n 1 --json - " +
        more + " 2>&1");
    return std::pair(o.status, o.output);
  };
  EXPECT_NE(groups("MOD 2", "").second.find(" ranks in 2 groups of 2"), std::string::npos);
  EXPECT_NE(groups("MOD 2", "--split 0,0,0,0").second.find("\"groups\":1"), std::string::npos);
  const auto [status, text] = groups("MODULO", "");
  EXPECT_NE(status, 0);
  EXPECT_NE(text.find("NCCL_TESTS_SPLIT \"MODULO\": expected MOD, DIV"), std::string::npos) << text;
}

TEST(Bench, ThreadsWithinProcesses) {
  const Outcome o =
      run("sennit", "bench reduce_scatter --ranks 2 -t 2 -b 64K -e 64K -n 2 --json - 2>/dev/null");
  ASSERT_EQ(o.status, 0) << o.output;
  const nlohmann::json line = lines(o.output).at(0);
  EXPECT_EQ(line["ranks"], 4);
  EXPECT_EQ(line["count"], 4096);  // 64 KiB of floats over 4 ranks
  EXPECT_EQ(line["bytes"], 65536);
}

TEST(Bench, NamesOfNcclTests) {
  for (const std::string name : {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                 "reduce", "alltoall", "gather", "scatter", "sendrecv"}) {
    const Outcome o = run(name + "_perf", "-b 1K -e 4K -f 2 -g 2 -n 2 2>/dev/null");
    EXPECT_EQ(o.status, 0) << name;
    EXPECT_NE(o.output.find("Avg bus bandwidth"), std::string::npos) << name << o.output;
    EXPECT_NE(o.output.find("\n          4096 "), std::string::npos) << name << o.output;
  }
}

TEST(Bench, WrongOptionsAreNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"bench", "collective"},
      {"bench all_reduces", "'all_reduces'"},
      {"bench all_reduce -b 12Q", "-b: '12Q'"},
      {"bench all_reduce -b 2K -e 1K", "-b 2K is more than -e 1K"},
      {"bench all_reduce -b 64M -e 32M", "-b 64M is more than -e 32M"},
      {"bench all_reduce -f 1", "-f 1"},
      {"bench all_reduce -f inf", "-f inf"},
      {"bench all_reduce --fabric ''", "--fabric: expected a value and found none"},
      {"bench all_reduce -t 2 --split ''", "--split: expected a value and found none"},
      {"bench all_reduce -e ''", "--maxbytes: expected a value and found none"},
      {"bench all_reduce -d float31", "-d: type 'float31'"},
      {"bench all_reduce -o xor", "-o: op 'xor'"},
      {"bench all_reduce -n 0", "--iters"},
      {"bench broadcast -r 7 -t 2 -b 8 -e 8", "-r 7: there are 2 ranks"},
      {"bench all_reduce --speed 9", "--speed"},
      {"bench all_reduce -t 3 -b 8 -e 8 --split 'MOD 2'", "rank 1 is alone in its group"},
      {"bench all_reduce -b 8 -e 8 -R 1", "-R"},  // of nccl-tests, and without a meaning here
      {"bench all_reduce -t 2 -b 8 -e 8 --algorithm fastest", "fastest"},
      {"bench all_reduce -t 2 -b 8 -e 8 --fabric /does/not/exist", "/does/not/exist"},
      {"emulate foo", "sennit emulate: there is no command 'foo'; the commands are: up, down"},
      {"emulate run --hosts '' -- true", "emulate run: --hosts: expected a value and found none"},
      {"emulate heal --name ''", "emulate heal: --name: expected a value and found none"},
      {"foo", "there is no command 'foo'; the commands are: bench"},
      {"--speed 1", "there is no command '--speed'"},
      {"", "no command given; the commands are: bench"}};
  for (const auto& [arguments, expected] : wrong) {
    SCOPED_TRACE(arguments);
    const Outcome o = run("sennit", std::string(arguments) + " 2>&1");
    EXPECT_EQ(o.status, 2) << o.output;
    EXPECT_NE(o.output.find(expected), std::string::npos) << o.output;
  }
}

TEST(Bench, JsonThatCannotBeWrittenIsSaid) {
  const Outcome o =
      run("sennit", "bench all_reduce -b 8 -e 16 -i 8 -n 1 -w 0 --json /dev/full 2>&1 >/dev/null");
  EXPECT_EQ(o.status, 1) << o.output;
  EXPECT_NE(o.output.find("--json /dev/full: cannot be written: No space left on device"),
            std::string::npos)
      << o.output;
}

TEST(Bench, AnOutputThatCannotBeWrittenIsSaid) {
  const Outcome o = run("sennit", "bench all_reduce -t 2 -b 8 -e 8 -n 1 -w 0 2>&1 >/dev/full");
  EXPECT_EQ(o.status, 1) << o.output;
  EXPECT_NE(o.output.find("could not be written"), std::string::npos) << o.output;
  EXPECT_EQ(o.output.find("Success"), std::string::npos) << o.output;
}

#ifndef SENNIT_SANITIZED  // whose memory is more than any limit of addresses
TEST(Bench, ThreadsThatCannotBeAreSaid) {
  const Outcome o = sennit_test::sh("ulimit -v 2000000; exec timeout 300 " SENNIT_BINARY_DIR
                                    "/bin/sennit bench all_reduce -t 4000 -b 8 -e 8 -n 1 -w 0");
  EXPECT_EQ(o.status, 3) << o.output;
  EXPECT_EQ(o.output.find("terminate called"), std::string::npos) << o.output;
}
#endif

// 32 MiB are the most where nobody says so, and no limit to what is asked for.
TEST(Bench, TheSmallestSizeMayBeMoreThanTheUsualLargest) {
  const Outcome o =
      run("sennit", "bench all_reduce -t 2 -b 64M -n 1 -w 0 -c 0 --json - 2>/dev/null");
  ASSERT_EQ(o.status, 0) << o.output;
  const std::vector<nlohmann::json> all = lines(o.output);
  ASSERT_EQ(all.size(), 1u) << o.output;
  EXPECT_EQ(all[0]["bytes"], 64 << 20);
}

TEST(Bench, NamesOfPremulSum) {
  for (const std::string op : {"mulsum", "premul_sum", "premul-sum"}) {
    const Outcome o =
        run("sennit", "bench all_reduce -t 2 -b 8 -e 8 -n 1 --json - -o " + op + " 2>/dev/null");
    ASSERT_EQ(o.status, 0) << op << o.output;
    EXPECT_EQ(lines(o.output).at(0)["op"], "premul_sum");
  }
}

TEST(Bench, HelpNamesTheProgramThatWasCalled) {
  const Outcome perf = run("all_reduce_perf", "--help 2>&1");
  EXPECT_EQ(perf.status, 0);
  EXPECT_NE(perf.output.find("Usage: all_reduce_perf [OPTIONS]\n"), std::string::npos)
      << perf.output;
  EXPECT_EQ(perf.output.find("Positionals"), std::string::npos) << perf.output;
  EXPECT_EQ(run("all_reduce_perf", "-h 2>&1").output, perf.output);
  const Outcome bench = run("sennit", "bench --help 2>&1");
  EXPECT_NE(bench.output.find("Usage: sennit bench [OPTIONS] collective\n"), std::string::npos)
      << bench.output;
}

TEST(Bench, ABarrierIsOneLine) {
  const Outcome o =
      run("sennit",
          "bench barrier -t 2 -b 8 -e 1M -f 2 -d all -o all -r all -n 2 --json - 2>/dev/null");
  ASSERT_EQ(o.status, 0) << o.output;
  const std::vector<nlohmann::json> all = lines(o.output);
  ASSERT_EQ(all.size(), 1u) << o.output;
  EXPECT_EQ(all[0]["bytes"], 0);
}

TEST(Bench, BoundsFromAFabricFile) {
  const sennit::trainer::TestFolder folder;
  const std::string file = folder / "one.fabric";
  FILE* out = fopen(file.c_str(), "w");
  ASSERT_NE(out, nullptr);
  fputs(
      "fabric \"nothing that this host is in\"\nswitch s\nhost a\nhost b\nlink a s 400Mbit/s\nlink "
      "b s "
      "400Mbit/s\n",
      out);
  fclose(out);
  const Outcome o = run("sennit", "bench all_reduce --ranks 2 -b 1K -e 1K -n 1 --json - --fabric " +
                                      file + " 2>/dev/null");
  EXPECT_EQ(o.status, 0) << o.output;
  // this host's capacity is still unknown
  EXPECT_TRUE(lines(o.output).at(0)["bound_us"].is_null());
}

// The child of `parent` that was started as this rank, or 0.
pid_t child_of_rank(pid_t parent, const std::string& rank) {
  const std::string pid = std::to_string(parent);
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  for (pid_t child; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(std::string("\0RANK=", 6) + rank + '\0') != std::string::npos)
      return child;
  }
  return 0;
}

TEST(Bench, AKilledRankEndsTheRest) {
  const pid_t bench = fork();
  if (bench == 0) {
    for (const char* variable :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
      unsetenv(variable);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(99);
    execl(SENNIT_BINARY_DIR "/bin/sennit", "sennit", "bench", "all_reduce", "--ranks", "3", "-b",
          "1M", "-e", "1M", "-n", "1000000", "-c", "0", nullptr);
    _exit(99);
  }
  pid_t victim = 0;
  ASSERT_TRUE(sennit_test::eventually([&] { return (victim = child_of_rank(bench, "1")) > 0; }));
  sleep(1);  // into the run; at any earlier time the outcome is the same
  kill(victim, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(bench, &status, 0), bench);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
