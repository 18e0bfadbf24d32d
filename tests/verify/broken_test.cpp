// The verifier notices every kind of damage to a right program, and names it.
// ctest not-under-tsan: it has one thread
#include <random>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "tests/support/verify_programs.hpp"

namespace sennit {
namespace {

struct Broken {
  const char* what;
  Collective collective;
  bool in_place;
  std::function<Program(const TierTree&, int)> right;
  std::function<void(int, Program&)> spoil;
  const char* expected;  // a part of the error
};

void erase_step(Program& program, uint32_t index) {
  program.steps.erase(program.steps.begin() + index);
  std::vector<uint32_t> deps;
  for (Step& step : program.steps) {
    const std::vector<uint32_t> old(program.deps_of(step).begin(), program.deps_of(step).end());
    step.first_dep = uint32_t(deps.size());
    for (const uint32_t dep : old)
      if (dep != index) deps.push_back(dep - (dep > index));
    step.deps = uint32_t(deps.size()) - step.first_dep;
  }
  program.deps = deps;
}

size_t nth(const Program& program, StepKind kind, size_t n) {
  for (size_t i = 0; i < program.steps.size(); i++)
    if (program.steps[i].kind == kind && n-- == 0) return i;
  ADD_FAILURE() << "no such step";
  return 0;
}

void set_range(Program& program, const Operand& operand, Range range) {
  program.ranges[operand.first_range] = range;
}

const auto gather6 = [](const TierTree& tree, int p) { return ring_all_gather(tree, p, false); };

const Broken kBroken[] = {
    {"a send is missing", Collective::all_reduce, false, ring_all_reduce,
     [](int p, Program& program) {
       if (p != 3) return;
       const uint32_t last = uint32_t(program.steps.size()) - 2;
       ASSERT_EQ(program.steps[last].kind, StepKind::send);
       erase_step(program, last);
     },
     "the peer does not send it"},
    {"a receive is missing", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 3) program.steps.pop_back();
     },
     "the peer has no receive for it"},
    {"a contribution is added twice", Collective::reduce_scatter, false, direct_reduce_scatter,
     [](int p, Program& program) {
       if (p != 2) return;
       const Step& reduce = program.steps.back();
       program.operands[reduce.first_source + 1] = program.operands[reduce.first_source];
     },
     "the contribution of position 0 to block 2 [0, 1) is added twice"},
    {"a contribution is left out", Collective::reduce_scatter, false, direct_reduce_scatter,
     [](int p, Program& program) {
       if (p == 2) program.steps.back().sources--;
     },
     "holds the sum over positions 0-4"},
    {"a send reads another range", Collective::all_reduce, false, ring_all_reduce,
     [](int p, Program& program) {
       if (p == 1)
         set_range(program, program.operands[program.steps[0].first_source], share(5, 6)[0]);
     },
     "do not match: block 0 [5/6, 1) would go to block 0 [1/6, 1/3)"},
    {"a message is shorter than its receive", Collective::all_reduce, false, ring_all_reduce,
     [](int p, Program& program) {
       if (p == 1)
         program.ranges[program.operands[program.steps[0].first_source].first_range].end -= 1;
     },
     "lengths differ"},
    {"a dependency is missing", Collective::all_reduce, false, ring_all_reduce,
     [](int p, Program& program) {
       if (p == 4) program.steps[nth(program, StepKind::reduce, 0)].deps = 0;
     },
     "race: touches the same memory as step 1"},
    {"an overwrite does not wait for its reader", Collective::all_reduce, true, ring_all_reduce,
     [](int p, Program& program) {
       // in place: the last receive overwrites a share that an earlier send read
       if (p == 4) program.steps.back().deps = 0;
     },
     "race: "},
    {"two receives into one slot", Collective::all_reduce, false, whole_all_reduce,
     [](int p, Program& program) {
       if (p == 2) {
         program.slots[0].may_expose = false;
         program.steps[nth(program, StepKind::recv, 1)].target.slot = 0;
       }
     },
     "race: touches the same memory as step 5"},
    {"a slot is overwritten before it is read", Collective::all_reduce, false, whole_all_reduce,
     [](int p, Program& program) {
       if (p != 2) return;
       program.slots[0].may_expose = false;
       Step& second = program.steps[nth(program, StepKind::recv, 1)];
       second.target.slot = 0;
       second.first_dep = uint32_t(program.deps.size());
       second.deps = 1;
       program.deps.push_back(uint32_t(nth(program, StepKind::recv, 0)));
     },
     "before anything is there"},
    {"a dependency on a later step", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 0) program.deps[program.steps[3].first_dep] = uint32_t(program.steps.size());
     },
     "which is not earlier"},
    {"finished twice", Collective::all_reduce, false, ring_all_reduce,
     [](int, Program& program) {
       for (Step& step : program.steps)
         if (step.kind == StepKind::reduce) step.finish = true;
     },
     "is finished already"},
    {"never finished", Collective::all_reduce, false, ring_all_reduce,
     [](int, Program& program) {
       for (Step& step : program.steps) step.finish = false;
     },
     "a sum that no step finished"},
    {"sums in different orders", Collective::all_reduce, false, whole_all_reduce,
     [](int p, Program& program) {
       if (p == 2)
         std::swap(program.operands[program.steps.back().first_source],
                   program.operands[program.steps.back().first_source + 1]);
     },
     "position 2: block 0 [0, 1) is added up in another order"},
    {"out of bounds", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 5) set_range(program, program.steps.back().target, {6, 0, kUnits});
     },
     "out of bounds"},
    {"reads beyond its own input", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 5)
         set_range(program, program.operands[program.steps[1].first_source], {4, 0, kUnits});
     },
     "this rank's input has no block 4"},
    {"reads what nobody wrote", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p != 5) return;
       erase_step(program, 0);
       program.operands[program.steps[0].first_source].buffer = Buffer::output;
     },
     "position 5, step 0 (send to 0): reads block 5 [0, 1) before anything is there"},
    {"never writes a block", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 5) erase_step(program, 0);
     },
     "output block 5 [0, 1) holds nothing"},
    {"writes the input", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 5)
         std::swap(program.steps[0].target.buffer,
                   program.operands[program.steps[0].first_source].buffer);
     },
     "writes into the user's input"},
    {"a wrong tag", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 5) program.steps.back().tag = 17;
     },
     "has tag 17"},
    {"a wrong tier", Collective::all_gather, false, gather6,
     [](int p, Program& program) {
       if (p == 4) program.steps.back().tier = 1;
     },
     "says tier 1, but crosses tier 0"},
    {"blocks change places in all-to-all", Collective::all_to_all, false, relayed_all_to_all,
     [](int p, Program& program) {
       if (p != 0) return;
       const Step& last = program.steps.back();
       std::swap(program.ranges[program.operands[last.first_source].first_range],
                 program.ranges[program.operands[last.first_source].first_range + 1]);
     },
     "position 5: output block 0 [0, 1) holds block 5 of position 1"},
    {"an exposable slot is sent on", Collective::all_to_all, false, relayed_all_to_all,
     [](int p, Program& program) {
       if (p == 0) program.slots[0].may_expose = true;
     },
     "exposable slot 0"},
    {"a barrier one round short", Collective::barrier, false,
     [](const TierTree& tree, int p) { return dissemination_barrier(tree, p, 2); },
     [](int, Program&) {}, "leaves the barrier without knowing"},
};

TEST(Verify, NamesWhatIsWrong) {
  const TierTree tree = TierTree::uniform({2, 3});
  for (const Broken& b : kBroken) {
    SCOPED_TRACE(b.what);
    const Verdict v = run(tree, request(b.collective, b.in_place), [&](int p) {
      Program program = b.right(tree, p);
      b.spoil(p, program);
      return program;
    });
    EXPECT_FALSE(v.correct);
    EXPECT_NE(v.error.find(b.expected), std::string::npos) << v.error;
  }
}

// Out of bounds, races and the like apart, any single spoilt number must be noticed or be harmless;
// the verifier itself must never read out of bounds (run this under the address sanitizer).
TEST(Verify, SurvivesRandomDamage) {
  std::mt19937 random(sennit_test::seed());
  const TierTree tree = TierTree::uniform({2, 3});
  int noticed = 0;
  for (int round = 0; round < 300; round++) {
    const int victim = int(random() % 6);
    const Verdict v = run(tree, request(Collective::all_reduce, round % 2 == 0), [&](int p) {
      Program program = ring_all_reduce(tree, p);
      if (p != victim) return program;
      Step& step = program.steps[random() % program.steps.size()];
      switch (random() % 9) {
        case 0:
          step.kind = StepKind(random() % 4);
          break;
        case 1:
          step.peer = int(random() % 8) - 1;
          break;
        case 2:
          step.target.slot = uint32_t(random() % 20);
          break;
        case 3:
          step.first_source = uint32_t(random() % 40);
          break;
        case 4:
          step.sources = uint32_t(random() % 3);
          break;
        case 5:
          step.first_dep = uint32_t(random() % 60);
          break;
        case 6:
          step.deps += uint32_t(random() % 4);
          break;
        case 7:
          program.ranges[random() % program.ranges.size()].end = random();
          break;
        default:
          step.target.buffer = Buffer(random() % 3);
          break;
      }
      return program;
    });
    noticed += !v.correct;
  }
  EXPECT_GT(noticed, 150);
}

}  // namespace
}  // namespace sennit
