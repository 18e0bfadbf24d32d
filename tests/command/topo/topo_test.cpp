// topo_test.cpp: `sennit topo` as a user runs it. Cases are shell lines beside the expected output
// and exit status (tests/data/topo/*.cmd); what holds for every fabric is tested on random ones.
//
// ctest quiet: each of its commands has a minute
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
// ctest links: sennit_commands
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command/topo/fold.hpp"
#include "command/topo/model.hpp"
#include "command/topo/outputs.hpp"
#include "command/topo/read.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/shell.hpp"
#include "tests/topology/cases.hpp"
#include "topology/source.hpp"
#include "topology/text/scan.hpp"

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
                  "timeout 60 sh {}/case.sh",
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

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) found++;
  return found;
}

// Whatever the size, the picture has a page's height; what is degraded is in it by name, in red.
TEST(Topo, PicturesStayLegible) {
  for (const char* spec :
       {"racks=2x4;nic=400Mbit/s;oversubscription=7", "racks=8x8;nic=50GB/s;oversubscription=3",
        "meta24k", "racks=1x100;nic=50GB/s"}) {
    SCOPED_TRACE(spec);
    std::string text = synthetic_fabric(spec)->to_text();
    const size_t rate = text.find(' ', text.find("link h5 ") + 8) + 1;
    text.replace(rate, text.find_first_of(" \n", rate) - rate, "8Mbit/s");
    const Fabric fabric = parse_fabric(text, spec).value();
    const Model model = make_model(fabric).value();
    ASSERT_EQ(model.suspects.size(), 1u);
    const Reading reading{fabric, {}, spec, "", false};
    const std::string svg = svg_of(reading, model, false);
    const size_t height = svg.find("height='") + 8;
    EXPECT_LT(std::stoi(svg.substr(height)), 1400);
    EXPECT_LT(svg.size(), 60'000u);
    EXPECT_NE(svg.find(">h5<"), svg.npos) << "the slow host is not shown by name";
    EXPECT_EQ(count(svg, "class='link bad'"), 1u);
    EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_NE(page_of(reading, model).find("</html>"), std::string::npos);
  }
}

TEST(Topo, NamesCannotBreakOutOfPictures) {
  const Fabric fabric =
      parse_fabric(
          "switch \"<b>'&\"\nhost \"</text>\"\nhost h\nlink \"</text>\" \"<b>'&\" 8Mbit/s\n", "f")
          .value();
  const Model model = make_model(fabric).value();
  const Reading reading{fabric, {}, "<script>", "", false};
  for (const std::string& text : {svg_of(reading, model, false), page_of(reading, model)}) {
    EXPECT_EQ(text.find("<b>"), text.npos);
    EXPECT_EQ(text.find("<script>"), text.npos);
    EXPECT_EQ(count(text, "<text"), count(text, "</text>"));
  }
}

TEST(Topo, FoldedNamesExpandToTheSame) {
  std::mt19937 random(sennit_test::seed());
  for (int round = 0; round < 300; round++) {
    std::vector<std::string> names;
    const int width = static_cast<int>(random() % 4);
    for (int i = 0; i < 200; i++)
      if (random() % 3 != 0)
        names.push_back(fmt::format("n{:0{}}{}", i, width, random() % 9 == 0 ? "-ib" : ""));
    if (names.empty()) names.push_back("alone");
    const std::string folded = fold_names(names);
    std::vector<std::string> expanded;
    // Commas outside of brackets separate lists.
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i <= folded.size(); i++) {
      if (i < folded.size() && folded[i] == '[') depth++;
      if (i < folded.size() && folded[i] == ']') depth--;
      if (i != folded.size() && (folded[i] != ',' || depth > 0)) continue;
      const Token token{std::string_view(folded).substr(begin, i - begin), 1, begin + 1, false};
      const Result<std::vector<std::string>> some = expand_hostlist("folded", token, 1000);
      ASSERT_TRUE(some.ok()) << some.status().text();
      expanded.insert(expanded.end(), some->begin(), some->end());
      begin = i + 1;
    }
    std::sort(names.begin(), names.end());
    std::sort(expanded.begin(), expanded.end());
    ASSERT_EQ(expanded, names) << folded;
  }
}

}  // namespace
}  // namespace sennit::topo
