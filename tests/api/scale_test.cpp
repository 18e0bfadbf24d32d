// What must not grow: one rank's plan and program on the reference cluster of 24,576 ranks, counted
// at the allocator, and what a process costs of 256 on one host: connections, bootstrap messages,
// memory. Times are printed, not judged.
//
// ctest alone: it runs 256 processes
// ctest not-sanitized: it judges memory, and a sanitizer multiplies that
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "collectives/algorithm.hpp"
#include "control/rank/call_judge.hpp"
#include "perf/components/counted_memory.hpp"
#include "plan/planner.hpp"
#include "tests/support/processes.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// 1 GiB of each collective. Held: the plan, the blueprint and the program. At once: also what
// planning and building take in passing.
TEST(Scale, PlanAndProgramOfOneRankOf24576) {
  constexpr size_t kMost = 10'000'000;
  const TierTree tree = *synthetic_tree("meta24k");
  ASSERT_EQ(tree.ranks(), 24576);
  for (int c = 0; c <= static_cast<int>(Collective::barrier); c++)
    for (const int position : {0, tree.ranks() / 3, tree.ranks() - 1}) {
      Request request;
      request.collective = static_cast<Collective>(c);
      request.type = DataType::float32;
      request.count = request.collective == Collective::barrier ? 0 : (1ull << 30) / 4;
      const auto begin = Clock::now();
      const sennit_perf::MemoryCount count;
      const Result<Plan> plan = make_plan(request, tree, {});
      ASSERT_TRUE(plan.ok()) << plan.status().text();
      const auto blueprint =
          find_algorithm(plan->algorithm)->prepare(tree, request, plan->parameters);
      const Program program = blueprint->program(position);
      const size_t held = count.held_bytes(), most = count.most_bytes();
      fmt::print(
          "{} by {}, position {}: {:.1f} ms, {:.2f} MB held, {:.2f} MB at once; {} steps in {:.3f} "
          "MB\n",
          name(request.collective), plan->algorithm, position, ms_since(begin),
          static_cast<double>(held) / 1e6, static_cast<double>(most) / 1e6, program.steps.size(),
          static_cast<double>(program.memory_bytes()) / 1e6);
      EXPECT_GE(held + sizeof program, program.memory_bytes());  // the count sees what it should
      EXPECT_LE(most, kMost);
    }
}

// "Pss: 1234 kB" of this process: pages that several processes share count in parts.
long share_of_memory_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;)
    if (long kib = 0; word == "Pss:" && file >> kib) return kib;
  return -1;
}

#ifdef SENNIT_SANITIZED
constexpr int kProcesses = 32;  // sanitizers multiply memory
#else
constexpr int kProcesses = 256;
#endif

// Joins, does a barrier, for which it may come late, and reports "milliseconds | KiB | statistics".
std::string join_and_meet(std::chrono::seconds late) {
  const auto begin = Clock::now();
  sennit_comm_t comm = nullptr;
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
    return std::string("!") + sennit_last_error();
  const double joined_ms = ms_since(begin);
  std::this_thread::sleep_for(late);
  if (sennit_barrier(comm) != SENNIT_OK) return std::string("!") + sennit_last_error();
  const double met_ms = ms_since(begin);
  Context& context = internal(comm).context();
  const std::string report =
      fmt::format("{} {} {} {}; {}", joined_ms, met_ms, share_of_memory_kib(),
                  context.control().statistics(), context.engine().statistics());
  if (sennit_comm_finalize(comm) != SENNIT_OK) return std::string("!") + sennit_last_error();
  sennit_comm_destroy(comm);
  return report;
}

// The number behind `label` in a text of statistics.
long number_after(const std::string& text, const std::string& label) {
  const size_t at = text.find(label + " ");
  return at == std::string::npos ? -1 : std::atol(text.c_str() + at + label.size() + 1);
}

// Of all ranks.
struct Figure {
  const char* label;
  long total = 0, highest = 0, of_rank0 = 0;  // highest: of the other ranks
  void add(int rank, long value) {
    total += value;
    (rank == 0 ? of_rank0 : highest) = rank == 0 ? value : std::max(highest, value);
  }
};

// The last rank comes so late to the barrier.
void form_a_communicator_and_meet(std::chrono::seconds late) {
  sennit_test::Processes job(kProcesses, [late](int rank) {
    return join_and_meet(rank == kProcesses - 1 ? late : std::chrono::seconds(0));
  });
  const auto reports = job.reports(std::chrono::minutes(4));
  double joined_ms = 0, met_ms = 0, waited_ms = 0;
  // Nothing grows with the ranks squared: a process has its parent and at most 16 children in the
  // bootstrap's tree, which ask it for the time now and then, and a ring per peer of the barrier.
  // Only rank 0 hears from each rank once, at the start. Who is asked what it does asks its
  // children, each of whom answers for itself and once more for those below.
  Figure figures[] = {
      {"connections"}, {"start frames"}, {"frames sent"}, {"frames received"}, {"rings"}};
  constexpr long kMost = 350, kMostOfRank0 = kMost + 3L * kProcesses;
  constexpr long kNeighbours = 17, kFramesOfAnInquiry = 3 * kNeighbours;
  constexpr long kUsualSeconds = 8, kFramesOfASecond = 2 * kNeighbours;
  [[maybe_unused]] constexpr long kMostKib = 64L * 1024;
  Figure memory{"KiB"};
  for (int rank = 0; rank < kProcesses; rank++) {
    const auto& report = reports[static_cast<size_t>(rank)];
    ASSERT_TRUE(report) << "rank " << rank << " did not report";
    ASSERT_NE((*report)[0], '!') << "rank " << rank << ": " << *report;
    std::istringstream text(*report);
    double joined = 0, met = 0;
    long kib = 0;
    text >> joined >> met >> kib;
    joined_ms = std::max(joined_ms, joined);
    met_ms = std::max(met_ms, met);
    waited_ms = std::max(waited_ms, met - joined);
    memory.add(rank, kib);
    for (Figure& figure : figures) figure.add(rank, number_after(*report, figure.label));
  }
  fmt::print("{} processes: joined in {:.0f} ms, the barrier done after {:.0f} ms (slowest rank)\n",
             kProcesses, joined_ms, met_ms);
  fmt::print("rank 0: {}\n", *reports[0]);
  // Others wait for whoever joins last, as well as for who is late.
  const long inquiries = static_cast<long>(waited_ms) / control::CallJudge::kRoundGapMs;
  // Neighbours tell each other that they live, and the time, for as long as a busy machine takes.
  const long seconds = std::max(0L, static_cast<long>(met_ms) / 1000 - kUsualSeconds);
  for (const Figure& figure : figures) {
    fmt::print("{}: {:.1f} per process; rank 0 {}, of the others at most {}\n", figure.label,
               static_cast<double>(figure.total) / kProcesses, figure.of_rank0, figure.highest);
    const bool asking = std::string_view(figure.label).starts_with("frames");
    EXPECT_GT(figure.total, 0) << figure.label;
    const long more = asking ? kFramesOfAnInquiry * inquiries + kFramesOfASecond * seconds : 0;
    EXPECT_LE(figure.highest, kMost + more) << figure.label;
    EXPECT_LE(figure.of_rank0, kMostOfRank0 + more) << figure.label;
  }
  fmt::print("memory (shared pages in parts): {:.1f} MiB per process, at most {:.1f} MiB\n",
             static_cast<double>(memory.total) / kProcesses / 1024,
             static_cast<double>(memory.highest) / 1024);
#ifndef SENNIT_SANITIZED
  EXPECT_LE(std::max(memory.highest, memory.of_rank0), kMostKib);
#endif
}

TEST(Scale, ManyProcessesFormACommunicatorAndMeet) {
  form_a_communicator_and_meet(std::chrono::seconds(0));
}

// Rank 0 asks everybody what it does, again and again; their answers are put together on the way.
TEST(Scale, ManyProcessesWaitForOneThatIsLate) {
  form_a_communicator_and_meet(std::chrono::seconds(3));
}

}  // namespace
}  // namespace sennit
