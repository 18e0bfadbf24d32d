// topo_test.cpp: `sennit topo` as a user runs it. Cases are shell lines beside the expected output
// and exit status (tests/data/topo/*.cmd); what holds for every fabric is tested on random ones.
//
// ctest quiet: each of its commands has a minute
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
// ctest links: sennit_commands
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/net/reserved_port.hpp"
#include "command/topo/make_model.hpp"
#include "command/topo/model/fold.hpp"
#include "command/topo/model/model.hpp"
#include "command/topo/outputs/outputs.hpp"
#include "command/topo/read/read.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/shell.hpp"
#include "tests/topology/cases.hpp"
#include "topology/source.hpp"

namespace sennit::topo {
namespace {

class Folder {  // for a case's files, removed with it
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("sennit_topo_test.{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs shell lines among the fixtures; `sennit` is the one of this build, $TMP a folder for files.
// No job's variables reach it. Both outputs, then "exit N".
std::string run(const std::string& lines) {
  const Folder folder;
  const std::string script =
      fmt::format("cd {}/tests/data/topo && export TMP={} PATH={}/bin:$PATH && {{\n{}\n}} 2>&1",
                  SENNIT_SOURCE_DIR, folder.path(), SENNIT_BINARY_DIR, lines);
  std::ofstream(folder.path() + "/case.sh") << script;
  auto [status, text] = sennit_test::sh(
      fmt::format("env -u SENNIT_FABRIC -u SLURM_JOB_ID -u SLURM_CONF -u SLURM_JOB_NODELIST "
                  "-u SLURM_TOPOLOGY_ADDR -u SLURMD_NODENAME -u SLURM_HOSTFILE -u PBS_NODEFILE "
                  "timeout 300 sh {}/case.sh",
                  folder.path()));
  for (size_t at; (at = text.find(folder.path())) != text.npos;)
    text.replace(at, folder.path().size(), "$TMP");
  return text + fmt::format("exit {}\n", status);
}

TEST(Topo, Commands) {
  run_cases("../topo", "cmd",
            [](const std::filesystem::path& path) { return run(read_text(path)); });
}

// What this host is differs from machine to machine; that it is shown, and what is not known, does
// not.
TEST(Topo, WithoutAClusterTheHostIsShown) {
  if (std::filesystem::exists("/etc/sennit/fabric")) GTEST_SKIP() << "this host has a fabric file";
  const std::string text = run("sennit topo");
  EXPECT_EQ(text.rfind("host ", 0), 0u) << text;
  for (const char* part : {"above the NIC: unknown", "SENNIT_FABRIC", "Slurm", "probing"})
    EXPECT_NE(text.find(part), text.npos) << part << " is missing in\n" << text;
  const std::string json = run("sennit topo --json - | head -c 100000");
  const auto parsed = nlohmann::json::parse(json.substr(0, json.rfind("exit ")), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded()) << json;
  EXPECT_EQ(parsed["above_the_nic"], "unknown");
  EXPECT_EQ(parsed["groups"].size(), 1u);
}

// Nothing would be measured, and what is not, nobody should save as if it were.
TEST(Topo, AProbeTakesTwoHosts) {
  const ReservedPort port;
  const std::string text =
      run(fmt::format("RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT={} sennit topo "
                      "--probe --save -",
                      port.number()));
  EXPECT_NE(text.find("all 1 ranks of this job are on one"), text.npos) << text;
  EXPECT_NE(text.find("exit 2"), text.npos) << text;
}

Fabric random_fabric(std::mt19937* random) {
  const auto pick = [&](int n) { return static_cast<int>((*random)() % static_cast<unsigned>(n)); };
  const int switches = 1 + pick(6), hosts = 1 + pick(20);
  std::string text = "switch s0 tier spine\n";
  for (int s = 1; s < switches; s++)
    text += fmt::format("switch s{}\nlink s{} s{} {}Mbit/s cables {}\n", s, s, pick(s),
                        8 * (1 + pick(50)), 1 + pick(4));
  for (int h = 0; h < hosts; h++) {
    text += fmt::format("host h{}\n", h);
    if (pick(10) == 0) continue;
    const std::string rate =
        fmt::format("{}Mbit/s {}", 8 * (1 + pick(50)), pick(2) == 0 ? "measured" : "");
    text += fmt::format("link h{} s{} {}\n", h, pick(switches), pick(4) == 0 ? "unknown" : rate);
  }
  return parse_fabric(text, "random").value();
}

int hosts_shown(const Fold& fold) {
  if (fold.first->kind == ItemKind::host || fold.rest) return fold.count;
  int sum = 0;
  for (const Fold& child : fold.children) sum += hosts_shown(child);
  return sum * fold.count;
}

TEST(Topo, RandomFabricsAreSavedShownAndCompared) {
  std::mt19937 random(sennit_test::seed());
  for (int round = 0; round < 300; round++) {
    const Fabric fabric = random_fabric(&random);
    const Result<Fabric> again = parse_fabric(fabric.to_text(), "again");
    ASSERT_TRUE(again.ok()) << again.status().text();
    ASSERT_EQ(again->fingerprint(), fabric.fingerprint());
    const Result<Model> model = make_model(fabric);
    ASSERT_TRUE(model.ok()) << model.status().text();
    int hosts = 0;
    for (const Vertex& v : fabric.vertices) hosts += v.kind == VertexKind::host;
    ASSERT_EQ(model->root.hosts, hosts);
    FoldOptions everything;
    everything.most_classes = 100;
    ASSERT_EQ(hosts_shown(fold(*model, everything)), hosts) << fabric.to_text();
    everything.unfolded_columns = 8;
    ASSERT_EQ(hosts_shown(fold(*model, everything)), hosts) << fabric.to_text();
    const Reading reading{fabric, {}, "random", "", false};
    ASSERT_NE(text_of(reading, *model, false), "");
    ASSERT_FALSE(nlohmann::json::parse(json_of(reading, *model), nullptr, false).is_discarded());
  }
}

}  // namespace
}  // namespace sennit::topo
