// slow_boundary_test.cpp: a tree that carries less, and what is said of it between processes.
//
// ctest not-under-tsan: it has one thread
#include "topology/fabric/slow_boundary.hpp"

#include <gtest/gtest.h>

namespace sennit {
namespace {

TierTree tree() {
  TierTree result = TierTree::uniform({2, 2}, {1000, 4000});
  result.groups[1].name = "rack0";
  result.groups[2].name = "rack1";
  result.groups[3].name = "h0";
  return result;
}

TEST(SlowBoundary, TakesTheShareOfOneDirectionOfOneGroup) {
  const TierTree slow = slowed(tree(), {{"rack1", true, 250}, {"elsewhere", false, 1}});
  EXPECT_EQ(slow.groups[2].egress.bytes_per_s, 250u);
  EXPECT_EQ(slow.groups[2].egress.provenance, Provenance::measured);
  EXPECT_EQ(slow.groups[2].ingress.bytes_per_s, 1000u);
  EXPECT_EQ(slow.groups[1].egress.bytes_per_s, 1000u);
  EXPECT_EQ(slow.check(), "");
  EXPECT_EQ(slow.rank_of_position, tree().rank_of_position);
  EXPECT_EQ(slowed(tree(), {}).fingerprint(), tree().fingerprint());
}

TEST(SlowBoundary, LeavesWhatIsNotKnownUnknown) {
  TierTree flat = TierTree::flat(3);
  flat.groups[1].name = "h0";
  EXPECT_FALSE(slowed(flat, {{"h0", true, 500}}).groups[1].egress.known());
}

TEST(SlowBoundary, ComesBackAsItWas) {
  const std::vector<SlowBoundary> slow = {{"rack1", true, 250}, {"", false, 1000}};
  ByteWriter out;
  write(out, slow);
  const std::vector<std::byte> bytes = out.take();
  ByteReader in(bytes);
  EXPECT_EQ(read_slow_boundaries(in), slow);
  EXPECT_TRUE(in.finish("it").ok());
  for (size_t length = 0; length < bytes.size(); length++) {
    ByteReader part({bytes.data(), length});
    (void)read_slow_boundaries(part);
    EXPECT_FALSE(part.finish("it").ok()) << length;
  }
  ByteWriter wrong;
  write(wrong, {{"h0", true, 1001}});
  const std::vector<std::byte> too_much = wrong.take();
  ByteReader reader(too_much);
  (void)read_slow_boundaries(reader);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace sennit
