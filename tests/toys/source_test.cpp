// source_test.cpp: a source that is one file (tests/toys/source.cpp) works wherever sources do:
// among the others, behind SENNIT_FABRIC, in `sennit topo`. This program also runs
// tests/topology/forms_test.cpp, which finds the toy's form by itself; so does tests/fuzz.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
// ctest compiles: tests/toys/source.cpp tests/topology/forms_test.cpp
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "command/topo/model/wording.hpp"
#include "command/topo/read/read.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

const std::filesystem::path kNetwork =
    std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/toy/two_leaves.toy";

TEST(ToySource, IsReadWithTheOthers) {
  setenv("TOY_NETWORK", kNetwork.c_str(), 1);
  const Result<Fabric> fabric = read_sources({"h0", "/dev/null"}, false);
  unsetenv("TOY_NETWORK");
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  EXPECT_GE(fabric->find("leaf1"), 0);
  ASSERT_FALSE(fabric->links.empty());
  EXPECT_EQ(fabric->links[0].source, "toy");
}

TEST(ToySource, TopoReadsItsFiles) {
  const Result<topo::Reading> reading = topo::read_one(kNetwork);
  ASSERT_TRUE(reading.ok()) << reading.status().text();
  const Result<TierTree> tree = contract(reading->fabric, ranks_on_all_hosts(reading->fabric, 1));
  ASSERT_TRUE(tree.ok()) << tree.status().text();
  EXPECT_EQ(tree->rank_of_position, (std::vector<int32_t>{0, 1, 2, 3}));
  ASSERT_EQ(tree->groups.size(), 7u) << "the root, two leaves, four hosts";
  EXPECT_EQ(tree->groups[1].name, "leaf0");
}

TEST(ToySource, TopoTellsOfTheSource) {
  setenv("TOY_NETWORK", kNetwork.c_str(), 1);
  setenv("SENNIT_FABRIC", "/dev/null", 1);
  const Result<topo::Reading> reading = topo::read_here();
  unsetenv("SENNIT_FABRIC");
  unsetenv("TOY_NETWORK");
  ASSERT_TRUE(reading.ok()) << reading.status().text();
  bool told = false;
  for (const topo::SourceReport& source : reading->sources)
    told |= source.name == "toy" && source.said && source.priority == 55;
  EXPECT_TRUE(told);
  EXPECT_NE(topo::from_words(*reading).find("toy " + kNetwork.string()), std::string::npos)
      << topo::from_words(*reading);
}

}  // namespace
}  // namespace sennit
