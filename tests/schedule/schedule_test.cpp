// schedule_test.cpp: the builder's tags, dependencies and exposable slots, on small programs with
// known answers and against a brute-force model on random ones.
//
// ctest not-under-tsan: it has one thread
#include "schedule/program.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit {
namespace {

using Ranges = std::vector<Range>;

std::vector<uint32_t> deps(const Program& program, size_t step) {
  const auto d = program.deps_of(program.steps[step]);
  return {d.begin(), d.end()};
}

TEST(Schedule, TagsCountMessagesPerPeerAndDirection) {
  ProgramBuilder b;
  const Ranges all{{0, 0, kUnits}};
  b.send(3, b.input(all), 0);
  b.send(4, b.input(all), 0);
  b.send(3, b.input(all), 0);
  b.recv(3, b.scratch(all), 0);
  b.recv(3, b.scratch(all), 0);
  const Program p = b.finish();
  EXPECT_EQ(p.steps[0].tag, 0u);
  EXPECT_EQ(p.steps[1].tag, 0u);
  EXPECT_EQ(p.steps[2].tag, 1u);
  EXPECT_EQ(p.steps[3].tag, 0u);
  EXPECT_EQ(p.steps[4].tag, 1u);
}

TEST(Schedule, ReadsWaitForWritesAndWritesForReads) {
  ProgramBuilder b;
  const Ranges low{{0, 0, kUnits / 2}}, all{{0, 0, kUnits}};
  const Operand slot = b.scratch(low);
  b.send(1, b.input(all), 0);                                               // 0
  b.recv(1, slot, 0);                                                       // 1
  b.reduce(b.output(low), std::vector<Operand>{b.input(low), slot}, true);  // 2: after 0 (write), 1
  b.send(1, b.output(low), 0);                                              // 3: after 2
  b.recv(1, b.output(Ranges{{0, kUnits / 2, kUnits}}), 0);                  // 4: after 0
  b.recv(1, slot, 0);  // 5: after 2, which read it
  const Program p = b.finish();
  EXPECT_EQ(deps(p, 0), (std::vector<uint32_t>{}));
  EXPECT_EQ(deps(p, 1), (std::vector<uint32_t>{}));
  EXPECT_EQ(deps(p, 2), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(deps(p, 3), (std::vector<uint32_t>{2}));
  EXPECT_EQ(deps(p, 4), (std::vector<uint32_t>{0}));
  EXPECT_EQ(deps(p, 5), (std::vector<uint32_t>{2}));
  EXPECT_FALSE(p.slots[0].may_expose);  // received twice
}

TEST(Schedule, EmptyStepsAreDroppedUnlessKept) {
  ProgramBuilder b;
  const Ranges nothing{{0, 7, 7}};
  b.send(1, b.input(nothing), 0);
  b.recv(1, b.output(nothing), 0);
  b.copy(b.output(nothing), b.input(nothing));
  b.send(2, b.input(nothing), 0, true);
  b.recv(2, b.output(nothing), 0, true);
  const Program p = b.finish();
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_EQ(p.steps[0].peer, 2);
}

TEST(Schedule, RangesAreNormalisedAndNeighboursJoined) {
  ProgramBuilder b;
  const Operand o =
      b.input(Ranges{{0, kUnits + 5, kUnits + 9}, {1, 9, 9}, {1, 9, kUnits}, {2, 0, 4}, {5, 0, 1}});
  b.send(1, o, 0);
  const Program p = b.finish();
  const auto r = p.ranges_of(p.sources_of(p.steps[0])[0]);
  EXPECT_EQ(Ranges(r.begin(), r.end()), (Ranges{{1, 5, kUnits + 4}, {5, 0, 1}}));
}

TEST(Schedule, BlocksBeyond64BitsOfUnitsStayApart) {
  // 2^27 blocks of 2^37 units: counted in 64 bits these two would fall together.
  const uint64_t far = (~uint64_t{0} / kUnits + 1);
  ProgramBuilder b;
  const Ranges here{{0, 0, kUnits}}, there{{far, 0, kUnits}};
  const Operand slot = b.scratch(Ranges{here[0], there[0]});
  b.recv(1, b.part(slot, here), 0);
  b.recv(1, b.part(slot, there), 0);
  b.send(2, b.part(slot, there), 0);
  const Program p = b.finish();
  EXPECT_EQ(deps(p, 1), (std::vector<uint32_t>{}));
  EXPECT_EQ(deps(p, 2), (std::vector<uint32_t>{1}));
}

TEST(Schedule, SlotsAreExposableWhenOneWholeReceiveFeedsReduces) {
  ProgramBuilder b;
  const Ranges low{{0, 0, kUnits / 2}}, all{{0, 0, kUnits}};
  const Operand good = b.scratch(all), halves = b.scratch(all), forwarded = b.scratch(all),
                copied = b.scratch(all);
  b.recv(1, good, 0);
  b.recv(1, b.part(halves, low), 0);
  b.recv(1, b.part(halves, Ranges{{0, kUnits / 2, kUnits}}), 0);
  b.recv(1, forwarded, 0);
  b.recv(1, copied, 0);
  b.send(2, forwarded, 0);
  b.reduce(b.output(all), std::vector<Operand>{good, halves}, true);
  b.reduce(b.output(low), std::vector<Operand>{b.input(low), b.part(good, low)}, true);
  b.copy(b.output(all), copied);
  const Program p = b.finish();
  EXPECT_TRUE(p.slots[0].may_expose);
  EXPECT_FALSE(p.slots[1].may_expose);
  EXPECT_FALSE(p.slots[2].may_expose);
  EXPECT_FALSE(p.slots[3].may_expose);
}

TEST(Schedule, TextNamesEveryPart) {
  ProgramBuilder b;
  const Ranges quarter{{2, kUnits / 4, kUnits / 2}};
  const Operand slot = b.scratch(quarter);
  b.recv(7, slot, 3);
  b.reduce(b.output(quarter), std::vector<Operand>{b.input(quarter), slot}, true);
  b.send(7, b.output(Ranges{{2, 0, 3 * kUnits}}), 3);
  EXPECT_EQ(b.finish().to_text(),
            "0: recv slot0 2[1/4,1/2) from 7 tag 0 tier 3 exposable\n"
            "1: reduce output 2[1/4,1/2) = input 2[1/4,1/2) + slot0 2[1/4,1/2), finish after 0\n"
            "2: send output 2[0,3) to 7 tag 0 tier 3 after 1\n");
}

// What a step of a random program reads and writes: (space, place); space 0 is the user's memory.
struct Access {
  std::set<std::pair<int, uint64_t>> reads, writes;

  bool conflicts_with(const Access& other) const {
    for (const auto& place : writes)
      if (other.reads.count(place) || other.writes.count(place)) return true;
    for (const auto& place : reads)
      if (other.writes.count(place)) return true;
    return false;
  }
};

// 30 random steps over 24 places of the user's memory and of two slots.
Program random_program(std::mt19937_64& random, std::vector<Access>* accesses) {
  const auto below = [&](uint64_t n) { return random() % n; };
  ProgramBuilder b;
  const Ranges whole{{0, 0, 24}};
  const std::vector<Operand> slots{b.scratch(whole), b.scratch(whole)};
  const auto pick = [&](std::set<std::pair<int, uint64_t>>& into, uint64_t length) {
    const uint64_t begin = below(24 - length + 1);
    const int space = static_cast<int>(below(3));
    for (uint64_t i = 0; i < length; i++) into.insert({space, begin + i});
    const Ranges r{{0, begin, begin + length}};
    if (space == 0) return below(2) == 0 ? b.input(r) : b.output(r);
    return b.part(slots[static_cast<size_t>(space - 1)], r);
  };
  for (int i = 0; i < 30; i++) {
    Access a;
    const uint64_t length = 1 + below(8);
    switch (below(4)) {
      case 0:
        b.send(1, pick(a.reads, length), 0);
        break;
      case 1:
        b.recv(1, pick(a.writes, length), 0);
        break;
      case 2: {
        const Operand target = pick(a.writes, length);
        b.copy(target, pick(a.reads, length));
        break;
      }
      default: {
        const Operand target = pick(a.writes, length);
        b.reduce(target, std::vector<Operand>{pick(a.reads, length), pick(a.reads, length)}, false);
      }
    }
    accesses->push_back(a);
  }
  return b.finish();
}

// Dependencies order every conflicting pair, and every dependency is a conflict.
TEST(Schedule, DependenciesMatchBruteForce) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < 300; round++) {
    std::vector<Access> accesses;
    const Program p = random_program(random, &accesses);
    // everything that must have run before, by step
    std::vector<std::set<uint32_t>> before(accesses.size());
    for (uint32_t i = 0; i < accesses.size(); i++) {
      const auto direct = deps(p, i);
      ASSERT_EQ(std::set<uint32_t>(direct.begin(), direct.end()).size(), direct.size())
          << "duplicates";
      for (const uint32_t d : direct) {
        ASSERT_LT(d, i);
        EXPECT_TRUE(accesses[d].conflicts_with(accesses[i])) << "round " << round;
        before[i].insert(d);
        before[i].insert(before[d].begin(), before[d].end());
      }
      for (uint32_t j = 0; j < i; j++) {
        if (!accesses[j].conflicts_with(accesses[i])) continue;
        EXPECT_TRUE(before[i].count(j)) << "round " << round << " " << j << " before " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sennit
