// The verifier passes right programs of every collective, counts what crosses boundaries, and finds
// deadlocks.
//
// ctest not-under-tsan: it has one thread
#include "verify/verify.hpp"

#include <gtest/gtest.h>

#include "tests/support/verify_programs.hpp"

namespace sennit {
namespace {

TEST(Verify, PassesRightPrograms) {
  const TierTree tree = TierTree::uniform({2, 3});
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place);
    Verdict v = run(tree, request(Collective::all_reduce, in_place),
                    [&](int p) { return ring_all_reduce(tree, p); });
    EXPECT_TRUE(v.correct) << v.error;
    EXPECT_EQ(v.rounds, 10u);
    v = run(tree, request(Collective::all_reduce, in_place),
            [&](int p) { return whole_all_reduce(tree, p); });
    EXPECT_TRUE(v.correct) << v.error;
    v = run(tree, request(Collective::reduce_scatter, in_place),
            [&](int p) { return direct_reduce_scatter(tree, p); });
    EXPECT_TRUE(v.correct) << v.error;
    v = run(tree, request(Collective::all_gather, in_place),
            [&](int p) { return ring_all_gather(tree, p, in_place); });
    EXPECT_TRUE(v.correct) << v.error;
    v = run(tree, request(Collective::all_to_all, in_place),
            [&](int p) { return relayed_all_to_all(tree, p); });
    EXPECT_TRUE(v.correct) << v.error;
  }
  for (int n = 1; n <= 9; n++) {
    const TierTree flat = TierTree::flat(n);
    Verdict v = run(flat, request(Collective::barrier),
                    [&](int p) { return dissemination_barrier(flat, p, 64); });
    EXPECT_TRUE(v.correct) << v.error;
    v = run(flat, request(Collective::all_reduce), [&](int p) { return ring_all_reduce(flat, p); });
    EXPECT_TRUE(v.correct) << v.error;
  }
}

// 2^62 elements of 4 bytes are 0 bytes in 64 bits.
TEST(Verify, RefusesSizesThatWrapAround) {
  const TierTree tree = TierTree::flat(4);
  for (const auto& [count, right] : {std::pair(uint64_t{1} << 62, false),
                                     {(uint64_t{1} << 56) + 1, false},
                                     {uint64_t{1} << 56, true}}) {
    Request r = request(Collective::all_reduce);
    r.count = count;
    const Verdict verdict = run(tree, r, [&](int p) { return ring_all_reduce(tree, p); });
    EXPECT_EQ(verdict.correct, right) << count << ": " << verdict.error;
    EXPECT_EQ(verdict.error.find("too large") != std::string::npos, !right) << verdict.error;
    Request blocks = request(Collective::all_gather);
    blocks.counts.assign(4, count / 8 + 1);
    EXPECT_EQ(verify(
                  tree, blocks, HandMade([&](int p) {
                    return ring_all_gather(tree, p, false);
                  })).error.find("too large") != std::string::npos,
              count > uint64_t{1} << 57);
  }
}

TEST(Verify, PassesRootedPrograms) {
  const TierTree tree = TierTree::uniform({2, 2});
  const int n = 4;
  for (int root = 0; root < n; root++)
    for (const bool in_place : {false, true}) {
      const auto tier = [&](int p) { return tree.crossing_tier(p, root); };
      Verdict v = run(tree, request(Collective::broadcast, in_place, root), [&](int p) {
        ProgramBuilder b;
        for (int q = 0; q < n && p == root; q++)
          if (q != p) b.send(q, b.input(kWholeVector), tree.crossing_tier(p, q));
        if (p == root && !in_place) b.copy(b.output(kWholeVector), b.input(kWholeVector));
        if (p != root) b.recv(root, b.output(kWholeVector), tier(p));
        return b.finish();
      });
      EXPECT_TRUE(v.correct) << v.error;
      v = run(tree, request(Collective::reduce, in_place, root), [&](int p) {
        ProgramBuilder b;
        std::vector<Operand> terms;
        if (p != root) {
          b.send(root, b.input(kWholeVector), tier(p));
          return b.finish();
        }
        for (int q = 0; q < n; q++) {
          terms.push_back(q == p ? b.input(kWholeVector) : b.scratch(kWholeVector));
          if (q != p) b.recv(q, terms.back(), tree.crossing_tier(p, q));
        }
        b.reduce(b.output(kWholeVector), terms, true);
        return b.finish();
      });
      EXPECT_TRUE(v.correct) << v.error;
      v = run(tree, request(Collective::gather, in_place, root), [&](int p) {
        ProgramBuilder b;
        if (p != root) b.send(root, b.input(block(uint64_t(p))), tier(p));
        if (p == root && !in_place)
          b.copy(b.output(block(uint64_t(p))), b.input(block(uint64_t(p))));
        for (int q = 0; q < n && p == root; q++)
          if (q != p) b.recv(q, b.output(block(uint64_t(q))), tree.crossing_tier(p, q));
        return b.finish();
      });
      EXPECT_TRUE(v.correct) << v.error;
      v = run(tree, request(Collective::scatter, in_place, root), [&](int p) {
        ProgramBuilder b;
        if (p != root) b.recv(root, b.output(block(uint64_t(p))), tier(p));
        if (p == root && !in_place)
          b.copy(b.output(block(uint64_t(p))), b.input(block(uint64_t(p))));
        for (int q = 0; q < n && p == root; q++)
          if (q != p) b.send(q, b.input(block(uint64_t(q))), tree.crossing_tier(p, q));
        return b.finish();
      });
      EXPECT_TRUE(v.correct) << v.error;
    }
}

TEST(Verify, CountsUnitsOverEveryBoundary) {
  const TierTree tree = TierTree::uniform({2, 3});
  const Verdict v = run(tree, request(Collective::all_gather),
                        [&](int p) { return ring_all_gather(tree, p, false); });
  ASSERT_TRUE(v.correct) << v.error;
  for (size_t g = 1; g < tree.groups.size(); g++) {
    EXPECT_EQ(v.egress_units[g], 5 * kUnits) << g;
    EXPECT_EQ(v.ingress_units[g], 5 * kUnits) << g;
  }
  EXPECT_EQ(v.egress_units[0], 0u);
  EXPECT_EQ(v.steps, 6u * 11);
  EXPECT_EQ(v.max_steps, 11u);
}

TEST(Verify, FindsDeadlock) {
  const TierTree tree = TierTree::flat(2);
  // Each sends its second half only when it has received the other's first; but the receive waits
  // for the send.
  const Maker crossed = [&](int p) {
    ProgramBuilder b;
    b.send(1 - p, b.input(block(uint64_t(p))), 0);
    b.recv(1 - p, b.output(block(uint64_t(1 - p))), 0);
    b.copy(b.output(block(uint64_t(p))), b.input(block(uint64_t(p))));
    Program program = b.finish();
    program.steps[1].first_dep = uint32_t(program.deps.size());
    program.steps[1].deps = 1;
    program.deps.push_back(0);
    return program;
  };
  const Verdict v = run(tree, request(Collective::all_gather), crossed);
  EXPECT_FALSE(v.correct);
  EXPECT_EQ(
      v.error,
      "deadlock: position 0, step 0 (send to 1) waits for position 1, step 1 (recv from 0) waits "
      "for "
      "position 1, "
      "step 0 (send to 0) waits for position 0, step 1 (recv from 1) waits for position 0, step 0 "
      "(send to 1)");
}

TEST(Verify, FindsDeadlockThroughExposedSlots) {
  const TierTree tree = TierTree::flat(2);
  const auto maker = [&](bool expose) {
    return [&tree, expose](int p) {
      Program program = whole_all_reduce(tree, p);
      for (Slot& slot : program.slots) slot.may_expose |= expose;
      return program;
    };
  };
  // In place, the reduce overwrites what the send reads: it waits for the send. The send waits for
  // the peer's reduce if the peer reads it where it is. The builder knows, and does not expose the
  // slot.
  EXPECT_TRUE(run(tree, request(Collective::all_reduce, true), maker(false)).correct);
  const Verdict v = run(tree, request(Collective::all_reduce, true), maker(true));
  EXPECT_FALSE(v.correct);
  EXPECT_NE(v.error.find("deadlock"), std::string::npos) << v.error;
}

TEST(Verify, VariantsWithCountsKeepLengthsApart) {
  const TierTree tree = TierTree::flat(3);
  Request r = request(Collective::all_to_all);
  const auto direct = [&](int p) {
    ProgramBuilder b;
    for (int q = 0; q < 3; q++) {
      if (q == p) {
        b.copy(b.output(block(uint64_t(p))), b.input(block(uint64_t(p))));
        continue;
      }
      b.send(q, b.input(block(uint64_t(q))), 0);
    }
    for (int q = 0; q < 3; q++)
      if (q != p) b.recv(q, b.output(block(uint64_t(q))), 0);
    Program program = b.finish();
    for (Step& step : program.steps) step.deps = 0;  // out of place nothing conflicts
    return program;
  };
  r.vector_variant = true;
  Verdict v = run(tree, r, direct);
  EXPECT_TRUE(v.correct) << v.error;
  v = run(tree, r, [&](int p) { return relayed_all_to_all(tree, p); });
  EXPECT_FALSE(v.correct);
  EXPECT_NE(v.error.find("length that this rank does not know"), std::string::npos) << v.error;
}

}  // namespace
}  // namespace sennit
