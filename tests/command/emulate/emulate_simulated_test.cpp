// What `sennit emulate compare` does where nothing can be emulated: it simulates, and says so
// everywhere. The command runs behind a filter with which the kernel refuses every unshare(), to
// root as well.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sennit {
namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

bool refuse_namespaces() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// `sennit emulate WORDS` without namespaces; both its outputs. `before`: what the shell does first.
Outcome emulate(const std::string& words, const std::string& before = "") {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    if (!refuse_namespaces()) _exit(99);
    const std::string command =
        before + "exec timeout 120 " SENNIT_BINARY_DIR "/bin/sennit emulate " + words;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(98);
  }
  close(ends[1]);
  Outcome outcome;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    outcome.output.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

class EmulateSimulated : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome trial = emulate("list");
    if (trial.status == 99) GTEST_SKIP() << "NOT TESTED: no seccomp filter may be set here";
    folder_ = std::filesystem::temp_directory_path() / fmt::format("sennit-simulated-{}", getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(EmulateSimulated, EveryPointIsThereAndMarked) {
  const std::string record = folder_ / "record.jsonl", page = folder_ / "page.html";
  const Outcome run = emulate(
      "compare --racks 2 --hosts 4 --nic 400Mbit/s --uplink 229Mbit/s --orders fabric,dealt,random "
      "--recommended "
      "--libraries sennit,openmpi,gloo --collectives "
      "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all "
      "--sizes 64K:1M:4,16000000 --json " +
      record);
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* said :
       {"cannot emulate a fabric here", "Operation not permitted", "Run it as root",
        "SIMULATED, not measured: 2 racks", "Left out: openmpi, gloo"})
    EXPECT_NE(run.output.find(said), std::string::npos) << said << "\n" << run.output;

  std::stringstream lines(text_of(record));
  std::string line;
  std::getline(lines, line);
  const nlohmann::json about = nlohmann::json::parse(line);
  EXPECT_TRUE(about["simulated"]);
  EXPECT_NE(std::string(about["why"]).find("cannot emulate"), std::string::npos);
  int points = 0;
  while (std::getline(lines, line)) {
    const nlohmann::json point = nlohmann::json::parse(line);
    points++;
    EXPECT_TRUE(point["simulated"]);
    EXPECT_EQ(point["library"], "sennit, simulated");
    EXPECT_GE(double(point["time_us"]) * (1 + 1e-9), double(point["bound_us"])) << line;
    if (point["bytes"] == 16'000'000) {
      EXPECT_LT(double(point["time_us"]), 1.1 * double(point["bound_us"])) << line;
    }
  }
  EXPECT_EQ(points, 3 * 5 * 4);

  ASSERT_EQ(emulate("report " + record + " " + page).status, 0);
  const std::string html = text_of(page);
  EXPECT_NE(html.find("<strong>Simulated</strong>, not measured"), std::string::npos);
  EXPECT_NE(html.find("The simulated tree"), std::string::npos);
  EXPECT_EQ(html.find("Real programs"), std::string::npos);
  EXPECT_EQ(html.find("measured on one machine"), std::string::npos);
}

TEST_F(EmulateSimulated, PlansWithoutRatesRunOnTheTrueOnes) {
  const Outcome known = emulate("compare --racks 1,2,3,2 --oversubscription 5 --sizes 16000000");
  const Outcome unknown =
      emulate("compare --racks 1,2,3,2 --oversubscription 5 --sizes 16000000 --slurm");
  EXPECT_EQ(known.status, 0) << known.output;
  EXPECT_EQ(unknown.status, 0) << unknown.output;
  for (const Outcome* run : {&known, &unknown})
    EXPECT_NE(run->output.find("1.600 s"), std::string::npos) << run->output;
}

TEST_F(EmulateSimulated, WhatCannotBeSimulatedIsRefused) {
  const std::string tree = "compare --racks 2 --hosts 2 ";
  EXPECT_EQ(emulate(tree + "--libraries openmpi").status, 3);
  EXPECT_EQ(emulate(tree + "--no-fabric").status, 3);
  EXPECT_EQ(emulate(tree + "--sizes 8:4:2").status, 2);
  EXPECT_EQ(emulate(tree + "--collectives sorting").status, 2);
  EXPECT_EQ(emulate("run --racks 2 --hosts 2 -- true").status, 3);
  EXPECT_EQ(emulate(tree + "--sizes 8:64:2x").status, 2);
  EXPECT_EQ(emulate(tree + "--sizes 8:64:inf").status, 2);
}

// By a factor they would stay nothing for ever; and bench measures 1 byte next.
TEST_F(EmulateSimulated, SizesMayBeginWithNothing) {
  const Outcome nothing = emulate("compare --racks 2 --hosts 2 --sizes 0");
  EXPECT_EQ(nothing.status, 0) << nothing.output;
  const std::string record = folder_ / "record.jsonl";
  ASSERT_EQ(emulate("compare --racks 2 --hosts 2 --sizes 0:16:2 --json " + record).status, 0);
  const std::string text = text_of(record);
  for (const char* bytes : {"\"bytes\":4,", "\"bytes\":8,", "\"bytes\":16,"})
    EXPECT_NE(text.find(bytes), std::string::npos) << text;
  EXPECT_EQ(text.find("\"bytes\":0,"), std::string::npos) << text;
}

TEST_F(EmulateSimulated, AnOrderThatIsNoneIsRefusedBeforeAnythingIsDone) {
  const std::string record = folder_ / "record.jsonl";
  const Outcome run =
      emulate("compare --racks 2 --hosts 2 --sizes 8 --orders fabric,deald --json " + record);
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find("--order deald: expected fabric"), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(record));
}

TEST_F(EmulateSimulated, ARecordThatEndsTooEarlyIsSaid) {
  const std::string record = folder_ / "record.jsonl";
  const Outcome run = emulate(
      "compare --racks 2 --hosts 2 --collectives all_reduce --orders fabric "
      "--sizes 16:1K:1.05 --json " +
          record,
      "trap '' XFSZ; ulimit -f 8; ");
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_NE(run.output.find("cannot write all of it"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace sennit
