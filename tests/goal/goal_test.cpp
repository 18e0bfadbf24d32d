// goal_test.cpp: every algorithm's schedule as GOAL text, read back and compared with the programs
// step by step and with what the simulator carries; texts and schedules that are off; the command.
//
// ctest not-under-tsan: it has one thread
// ctest runs: sennit_command
#include "goal/goal.hpp"

#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/index.hpp"
#include "schedule/layout.hpp"
#include "simulate/simulate.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;

std::string fixture(const std::string& name) {
  std::ifstream in(SENNIT_SOURCE_DIR "/tests/data/goal/" + name);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

uint64_t bytes_of(const Program& program, const Operand& operand, const Request& request,
                  Chunk chunk) {
  Layout layout;
  layout.count = request.count;
  return layout.length(program, operand, chunk) * type_bytes(request.type);
}

// Operation by operation: chunk after chunk the program's steps, and after all but the last eight
// one at which the chunk is done.
void compare_steps(const Goal& goal, const TierTree& tree, const Request& request,
                   const Blueprint& blueprint, uint32_t chunks) {
  ASSERT_EQ(goal.ranks.size(), index(tree.ranks()));
  for (int position = 0; position < tree.ranks(); position++) {
    const Program program = blueprint.program(position);
    const Goal::Rank& rank = goal.ranks[index(tree.rank_of_position[index(position)])];
    std::vector<std::vector<uint32_t>> waits(rank.operations.size());
    for (const Goal::Dependency& d : rank.dependencies) {
      ASSERT_FALSE(d.on_start);
      waits[d.operation].push_back(d.on);
    }
    uint32_t at = 0;
    std::vector<uint32_t> ends;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
      const uint32_t first = at;
      for (const Step& step : program.steps) {
        ASSERT_LT(at, rank.operations.size());
        const Goal::Operation& made = rank.operations[at];
        const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
        const Operand& operand =
            step.kind == StepKind::send ? program.operands[step.first_source] : step.target;
        const uint64_t bytes = bytes_of(program, operand, request, {chunk, chunks});
        if (message && (bytes > 0 || request.collective == Collective::barrier)) {
          ASSERT_EQ(made.kind,
                    step.kind == StepKind::send ? OperationKind::send : OperationKind::recv);
          ASSERT_EQ(made.peer, tree.rank_of_position[index(step.peer)]);
          ASSERT_EQ(made.amount, std::max<uint64_t>(1, bytes));
        } else {
          ASSERT_EQ(made.kind, OperationKind::calc);
          ASSERT_EQ(made.amount, message ? 0 : step.sources * bytes / 8) << "at 8 GB/s";
        }
        std::vector<uint32_t> expected;
        for (const uint32_t dep : program.deps_of(step)) expected.push_back(first + dep);
        if (expected.empty() && chunk >= 8) expected.push_back(ends[chunk - 8]);
        ASSERT_EQ(waits[at], expected);
        at++;
      }
      if (chunk + 8 < chunks && !program.steps.empty()) {
        ASSERT_EQ(rank.operations[at].kind, OperationKind::calc);
        ASSERT_EQ(rank.operations[at].amount, 0u);
        ASSERT_FALSE(waits[at].empty());
        ends.push_back(at++);
      }
    }
    ASSERT_EQ(at, rank.operations.size());
  }
}

// Over every group's boundary and in all, as the simulator counts it, every rank for itself.
void compare_loads(const Goal& goal, const TierTree& tree, const Request& request,
                   const Blueprint& blueprint, uint32_t chunks) {
  SimulateOptions options;
  options.symmetry = false;
  const Result<SimulatedTime> simulated = simulate(tree, request, blueprint, chunks, options);
  ASSERT_TRUE(simulated.ok()) << simulated.status().text();
  std::vector<uint64_t> out(tree.groups.size(), 0), in(tree.groups.size(), 0);
  uint64_t messages = 0;
  for (int rank = 0; rank < tree.ranks(); rank++)
    for (const Goal::Operation& operation : goal.ranks[index(rank)].operations) {
      if (operation.kind == OperationKind::calc) continue;
      const bool send = operation.kind == OperationKind::send;
      messages += send;
      const int me = tree.position_of_rank[index(rank)],
                peer = tree.position_of_rank[index(operation.peer)];
      for (int g = tree.leaf_of_position[index(me)]; g != tree.common_group(me, peer);
           g = tree.groups[index(g)].parent)
        (send ? out : in)[index(g)] += operation.amount;
    }
  ASSERT_EQ(messages, simulated->messages);
  for (size_t g = 0; g < tree.groups.size() && request.collective != Collective::barrier; g++) {
    ASSERT_EQ(out[g], simulated->groups[g].egress_bytes) << "group " << g;
    ASSERT_EQ(in[g], simulated->groups[g].ingress_bytes) << "group " << g;
  }
}

TEST(Goal, EverySchedulesTextSaysWhatItsProgramsDo) {
  std::mt19937_64 random(sennit_test::seed());
  std::map<std::string, int> seen;
  for (int round = 0; round < sennit_test::trials(30); round++) {
    // The first has groups of several sizes, so that every algorithm applies.
    const TierTree tree = round == 0 ? TierTree::uniform({2, 2, 3})
                                     : random_tree(random, 1 + static_cast<int>(random() % 14));
    const int ranks = tree.ranks();
    for (int c = 0; c < kCollectives - 1; c++) {
      Request request;
      request.collective = static_cast<Collective>(c);
      request.count = request.collective == Collective::barrier
                          ? 0
                          : 1 + random() % (random() % 2 ? 40 : 100'000);
      if (has_root(request.collective)) request.root = static_cast<int>(random() % index(ranks));
      for (const Algorithm* algorithm : algorithms()) {
        if (!algorithm->applies(tree, request)) continue;
        const std::vector<Parameters> all = algorithm->candidates(tree, request);
        const auto blueprint = algorithm->prepare(tree, request, all[random() % all.size()]);
        const uint32_t chunks =
            algorithm->pipelines() ? 1 + static_cast<uint32_t>(random() % 20) : 1;
        SCOPED_TRACE(std::string(algorithm->name()) + ", " + std::string(name(request.collective)) +
                     " of " + std::to_string(request.count) + ", " + std::to_string(chunks) +
                     " chunks\n" + tree.to_text());
        const Result<Goal> goal = make_goal(tree, request, *blueprint, chunks, {});
        ASSERT_TRUE(goal.ok()) << goal.status().text();
        const std::string text = goal->to_text();
        const Result<Goal> again = parse_goal(text, "goal");
        ASSERT_TRUE(again.ok()) << again.status().text();
        ASSERT_EQ(*again, *goal);
        const Result<GoalFacts> facts = check_goal(*again);
        ASSERT_TRUE(facts.ok()) << facts.status().text() << "\n" << text;
        ASSERT_EQ(check_bytes(*again, tree, request, *blueprint, chunks).text(), Status().text());
        ASSERT_NO_FATAL_FAILURE(compare_steps(*again, tree, request, *blueprint, chunks));
        ASSERT_NO_FATAL_FAILURE(compare_loads(*again, tree, request, *blueprint, chunks));
        seen[std::string(algorithm->name())]++;
      }
    }
  }
  EXPECT_EQ(seen.size(), algorithms().size());
}

TEST(Goal, ReadsWhatOthersWrite) {
  const Result<Goal> goal = parse_goal(fixture("every_form.goal"), "every_form.goal");
  ASSERT_TRUE(goal.ok()) << goal.status().text();
  using Kind = OperationKind;
  ASSERT_EQ(goal->ranks.size(), 3u);
  EXPECT_EQ(goal->ranks[0].operations,
            (std::vector<Goal::Operation>{{100, 0, 0, Kind::calc, 1, 0},
                                          {1024, 1, 5, Kind::send, 2, 1},
                                          {16, 2, 0, Kind::recv, 0, 0}}));
  EXPECT_EQ(goal->ranks[0].dependencies, (std::vector<Goal::Dependency>{{1, 0, false}}));
  EXPECT_EQ(goal->ranks[1].operations,
            (std::vector<Goal::Operation>{{1024, 0, 5, Kind::recv, 0, 0},
                                          {0, 0, 0, Kind::calc, 0, 0},
                                          {8, kAnyRank, kAnyTag, Kind::recv, 0, 3}}));
  EXPECT_EQ(goal->ranks[1].dependencies, (std::vector<Goal::Dependency>{{1, 0, true}}));
  EXPECT_EQ(goal->ranks[2].operations[1].tag, 4294967294u);
  const Result<Goal> again = parse_goal(goal->to_text(), "again");
  ASSERT_TRUE(again.ok()) << again.status().text() << "\n" << goal->to_text();
  EXPECT_EQ(*again, *goal);
  EXPECT_NE(check_goal(*goal).status().text().find("rank 1: a receive from any rank"),
            std::string::npos);
  for (const char* name : {"tiered_2x3.goal", "barrier_2.goal"}) {
    const std::string text = fixture(name);
    const Result<Goal> written = parse_goal(text, name);
    ASSERT_TRUE(written.ok()) << written.status().text();
    EXPECT_EQ(written->to_text(), text);
    EXPECT_TRUE(check_goal(*written).ok());
  }
}

TEST(Goal, ErrorsNameThePlaceAndWhatWasExpected) {
  const std::string two = "num_ranks 2\n";
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"", "g:1:1: expected \"num_ranks\", found the end"},
      {"ranks 2", "g:1:1: expected \"num_ranks\", found \"ranks\""},
      {"num_ranks 0\n", "g:1:11: expected a number from 1 to 1048576, found \"0\""},
      {"num_ranks 99999999999999999999\n", "g:1:11: expected a number from 1 to"},
      {two, "g:2:1: expected \"rank\", found the end"},
      {two + "rank 1 {\n}", "g:2:6: expected 0: ranks come in order, found \"1\""},
      {two + "rank 2 {\n}", "g:2:6: expected a number from 0 to 1"},
      {two + "rank 0 \n{\n}", "g:2:8: expected \"{\", found the end of the line"},
      {two + "rank 0 {\n", "g:3:1: expected an operation, a label or \"}\", found the end"},
      {two + "rank 0 {\n}\nrank 1 {\n}\nrank 2 {\n}",
       "g:6:1: expected nothing more after 2 ranks, found \"rank\""},
      {two + "rank 0 {\nl1: sent 4b to 1\n}",
       "g:3:5: expected \"send\", \"recv\" or \"calc\", found \"sent\""},
      {two + "rank 0 {\nl1: send b to 1\n}", "g:3:10: expected a number, found \"b\""},
      {two + "rank 0 {\nl1: send 18446744073709551616b to 1\n}", "g:3:10: expected a number"},
      {two + "rank 0 {\nl1: send 4 to 1\n}", "g:3:12: expected \"b\", found \"to\""},
      {two + "rank 0 {\nl1: send 4b from 1\n}", "g:3:13: expected \"to\", found \"from\""},
      {two + "rank 0 {\nl1: send 4b to 2\n}", "g:3:16: expected a number from 0 to 1, found \"2\""},
      {two + "rank 0 {\nl1: send 4b to 0\n}",
       "g:3:16: expected another rank than itself, found \"0\""},
      {two + "rank 0 {\nl1: send 4b to -1\n}",
       "g:3:16: expected a number from 0 to 1, found \"-\""},
      {two + "rank 0 {\nl1: send 4b to 1 tag 4294967295\n}",
       "g:3:22: expected a number from 0 to 4294967294"},
      {two + "rank 0 {\nl1: send 4b to 1 tag 1 cpu 256\n}",
       "g:3:28: expected a number from 0 to 255"},
      {two + "rank 0 {\nl1: calc 4 nic 0\n}",
       "g:3:12: expected the end of the line, found \"nic\""},
      {two + "rank 0 {\nl1: calc 4 l2: calc 5\n}",
       "g:3:12: expected the end of the line, found \"l2\""},
      {two + "rank 0 {\nl1: calc 4\nl1: calc 5\n}",
       "g:4:1: expected a label that is not taken yet, found \"l1\""},
      {two + "rank 0 {\nl1: calc 4\nl1 needs l1\n}",
       "g:4:4: expected \":\", \"requires\" or \"irequires\""},
      {two + "rank 0 {\nl1: calc 4\nl1 requires l2\n}",
       "g:4:13: expected a label of an operation above"},
      {two + "rank 0 {\nl2 requires l1\n}",
       "g:3:1: expected a label of an operation above, found \"l2\""},
      {two + "rank 0 {\nl1: calc 4\n}\nrank 1 {\nl1 requires l1\n}",
       "g:6:1: expected a label of an operation"},
      {two + "/* rank 0 {\n}", "g:2:1: expected the comment's end, \"*/\", found \"/\""},
      {two + "rank 0 {\n$\n}", "g:3:1: expected an operation, a label or \"}\", found \"$\""}};
  for (const auto& [text, error] : texts) {
    const Result<Goal> goal = parse_goal(text, "g");
    ASSERT_FALSE(goal.ok()) << text;
    EXPECT_EQ(goal.status().text().substr(0, error.size()), error) << text;
  }
}

TEST(Goal, ASetOfMessagesThatDoesNotMatchIsNamed) {
  const auto error = [](const std::string& first, const std::string& second) {
    const Result<Goal> goal =
        parse_goal("num_ranks 2\nrank 0 {\n" + first + "}\nrank 1 {\n" + second + "}\n", "g");
    EXPECT_TRUE(goal.ok()) << goal.status().text();
    return goal ? check_goal(*goal).status().text() : std::string();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error("send 4b to 1 tag 3\n", ""), "from rank 0 to 1, tag 3 is sent and not received");
  has(error("", "recv 4b from 0\n"), "from rank 0 to 1, tag 0 is received and not sent");
  has(error("send 4b to 1 tag 3\n", "recv 4b from 0 tag 2\n"), "tag 2 is received and not sent");
  has(error("send 4b to 1\nsend 5b to 1\n", "recv 5b from 0\nrecv 4b from 0\n"),
      "4 bytes are sent, 5 received");
  has(error("a: calc 1\nb: calc 1\na requires b\nb requires a\n", ""),
      "rank 0, operation 1 waits for itself");
  has(error("a: calc 1\na irequires a\n", ""), "rank 0, operation 1 waits for itself");
  // Each receives before it sends.
  const auto both = [](int peer) {
    const std::string to = std::to_string(peer);
    return "r: recv 4b from " + to + "\ns: send 4b to " + to + "\ns requires r\n";
  };
  has(error(both(1), both(0)), "waits for itself");
  // Each sends first, and its receive is posted only when the send is done: a large message never
  // ends.
  const auto late = [](int peer) {
    const std::string to = std::to_string(peer);
    return "s: send 4b to " + to + "\nr: recv 4b from " + to + "\nr requires s\n";
  };
  has(error(late(1), late(0)), "waits for itself");
  const Result<Goal> good = parse_goal(
      "num_ranks 2\nrank 0 {\nsend 4b to 1\nsend 5b to 1\n}\nrank 1 {\nrecv 4b from 0\nrecv 5b "
      "from 0\n}\n",
      "g");
  ASSERT_TRUE(good.ok());
  const Result<GoalFacts> facts = check_goal(*good);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_EQ(facts->messages, 2u);
  EXPECT_EQ(facts->bytes, 9u);
  EXPECT_EQ(facts->rounds, 1u);
}

TEST(Goal, BytesThatAreNotTheSchedulesAreNoticed) {
  const TierTree tree = TierTree::uniform({2, 2});
  Request request;
  request.count = 1000;
  const Algorithm* ring = find_algorithm("ring");
  const auto blueprint = ring->prepare(tree, request, {});
  Result<Goal> goal = make_goal(tree, request, *blueprint, 3, {});
  ASSERT_TRUE(goal.ok());
  EXPECT_TRUE(check_bytes(*goal, tree, request, *blueprint, 3).ok());
  for (Goal::Operation& operation : goal->ranks[2].operations)
    if (operation.kind == OperationKind::send) {
      operation.amount += 4;
      break;
    }
  EXPECT_NE(check_bytes(*goal, tree, request, *blueprint, 3).text().find("rank 2"),
            std::string::npos);
}

TEST(Goal, TheEndsOfChunksCountAsOperations) {
  const TierTree tree = TierTree::uniform({2});
  Request request;
  request.collective = Collective::broadcast;
  request.count = 1000;
  const Algorithm* tiered = find_algorithm("tiered");
  const auto blueprint = tiered->prepare(tree, request, tiered->candidates(tree, request).front());
  // As many as the steps alone would allow.
  const auto chunks =
      static_cast<uint32_t>(kMaxGoalOperations / blueprint->program(0).steps.size());
  const Result<Goal> goal = make_goal(tree, request, *blueprint, chunks, {});
  ASSERT_FALSE(goal.ok());
  EXPECT_NE(goal.status().text().find("rank 0 of 2 is at"), std::string::npos)
      << goal.status().text();
}

TEST(ExportCommand, WritesAndChecksAFile) {
  const std::string sennit = SENNIT_BINARY_DIR "/bin/sennit export ";
  const std::string small = " --fabric 'racks=2x3;nic=50GB/s;oversubscription=7'";
  const std::string file = testing::TempDir() + "/sennit-goal-" + std::to_string(getpid());
  const Outcome written =
      sh(sennit + "all_reduce -b 64K --chunks 2 --output " + file + small + " 2>&1");
  EXPECT_EQ(written.status, 0) << written.output;
  EXPECT_NE(written.output.find("every send has its receive"), std::string::npos) << written.output;
  const Outcome printed = sh("cat " + file + "; rm " + file);
  EXPECT_EQ(sh(sennit + "all_reduce -b 64K --chunks 2" + small).output, printed.output);
  EXPECT_EQ(printed.output.substr(0, 12), "num_ranks 6\n");
  for (const auto& [call, word] : std::vector<std::pair<std::string, std::string>>{
           {"all_reduce --output /nonexistent/goal", "/nonexistent/goal"},
           {"all_reduce --algorithm quick", "quick"},
           {"all_reduce --chunks 1000000", "1 to 4096"},
           {"all_reduce --ranks 7", "places for 2 to 6"},
           {"send_recv", "send_recv"}}) {
    const Outcome outcome = sh(sennit + call + small + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << call << "\n" << outcome.output.substr(0, 1000);
    EXPECT_NE(outcome.output.find(word), std::string::npos) << call << "\n"
                                                            << outcome.output.substr(0, 1000);
  }
  const Outcome large =
      sh(sennit +
         "all_reduce --chunks 4096 --ranks 64 --post 2us --reduce 8GB/s --fabric meta24k 2>&1");
  EXPECT_EQ(large.status, 2);
  EXPECT_NE(large.output.find("at most 10000000"), std::string::npos)
      << large.output.substr(0, 1000);
}

}  // namespace
}  // namespace sennit
