// core_benchmark.cpp: what the pure core costs: plan and program of one rank by rank count, the
// verifier, a trace event.
//
// `meta24k` is the reference cluster, 24,576 ranks. Counters: program_bytes is the memory of one
// rank's program, steps its length; peak_bytes what is alive at once, least_ms a processor's time;
// all_steps the steps of all ranks that the verifier walked, rounds the longest chain of messages.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "perf/components/counted_memory.hpp"
#include "plan/planner.hpp"
#include "record/trace.hpp"
#include "topology/source.hpp"
#include "verify/verify.hpp"

namespace {

using namespace sennit;  // NOLINT: a program, not a header

TierTree tree_of(int64_t ranks) {
  if (ranks == 24576) return *synthetic_tree("meta24k");
  // Hosts of 8 ranks, racks of 2 hosts, pods of 8 racks.
  const int hosts = static_cast<int>(ranks) / 8;
  if (hosts <= 2) return TierTree::uniform({hosts, 8}, {50'000'000'000, 450'000'000'000});
  if (hosts <= 16)
    return TierTree::uniform({hosts / 2, 2, 8},
                             {400'000'000'000, 400'000'000'000, 450'000'000'000});
  return TierTree::uniform({hosts / 16, 8, 2, 8},
                           {914'000'000'000, 800'000'000'000, 400'000'000'000, 450'000'000'000});
}

Request gibibyte(Collective collective) {
  Request request;
  request.collective = collective;
  request.type = DataType::float32;
  request.count = (1ull << 30) / 4;
  return request;
}

void BM_Plan(benchmark::State& state) {
  const TierTree tree = tree_of(state.range(0));
  const Request request = gibibyte(Collective::all_reduce);
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(request, tree, {}));
}
BENCHMARK(BM_Plan)->Arg(16)->Arg(128)->Arg(1024)->Arg(24576)->Unit(benchmark::kMillisecond);

void BM_Program(benchmark::State& state) {
  const TierTree tree = tree_of(state.range(0));
  const Request request = gibibyte(Collective::all_reduce);
  const Plan plan = *make_plan(request, tree, {});
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  size_t bytes = 0, steps = 0;
  for (auto _ : state) {
    const Program program =
        algorithm->prepare(tree, request, plan.parameters)->program(tree.ranks() / 3);
    bytes = program.memory_bytes();
    steps = program.steps.size();
  }
  state.counters["program_bytes"] = static_cast<double>(bytes);
  state.counters["steps"] = static_cast<double>(steps);
}
BENCHMARK(BM_Program)->Arg(16)->Arg(128)->Arg(1024)->Arg(24576)->Unit(benchmark::kMillisecond);

// What a rank of the reference cluster does before its first collective, and the limits it must
// keep: of a processor's time the least of so many, which other work beside hardly lengthens.
constexpr int kTimes = 20;
constexpr double kMostMs = 50;
constexpr size_t kMostBytes = 10'000'000;

uint64_t processor_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSecond + static_cast<uint64_t>(time.tv_nsec);
}

void plan_and_program(benchmark::State& state, Collective collective, uint64_t elements) {
  const TierTree tree = tree_of(24576);
  Request request = gibibyte(collective);
  request.count = elements;
  size_t bytes = 0;
  uint64_t ns = ~uint64_t{0};
  for (auto _ : state) {
    const uint64_t begin = processor_ns();
    const sennit_perf::MemoryCount count;
    const Plan plan = *make_plan(request, tree, {});
    const Algorithm* algorithm = find_algorithm(plan.algorithm);
    benchmark::DoNotOptimize(algorithm->prepare(tree, request, plan.parameters)->program(0));
    bytes = std::max(bytes, count.most_bytes());
    ns = std::min(ns, processor_ns() - begin);
  }
  state.counters["peak_bytes"] = static_cast<double>(bytes);
  state.counters["least_ms"] = static_cast<double>(ns) / 1e6;
  if (bytes > kMostBytes) state.SkipWithError("takes more than 10 MB");
  if (static_cast<double>(ns) / 1e6 > kMostMs)
    state.SkipWithError("takes longer than it may, every time");
}

void verify_once(benchmark::State& state, const char* name, Collective collective, int64_t ranks) {
  const TierTree tree = tree_of(ranks);
  const Request request = gibibyte(collective);
  const Algorithm* algorithm = find_algorithm(name);
  if (!algorithm || !algorithm->applies(tree, request))
    return state.SkipWithError("does not apply");
  Verdict verdict;
  const sennit_perf::MemoryCount count;
  for (auto _ : state) {
    PlanOptions options;
    options.algorithm = name;
    const Plan plan = *make_plan(request, tree, options);
    verdict = verify(tree, request, *algorithm->prepare(tree, request, plan.parameters));
  }
  if (!verdict.correct) state.SkipWithError(verdict.error.c_str());
  state.counters["all_steps"] = static_cast<double>(verdict.steps);
  state.counters["rounds"] = static_cast<double>(verdict.rounds);
  state.counters["peak_MiB"] = static_cast<double>(count.most_bytes() >> 20);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (int c = 0; c <= static_cast<int>(Collective::barrier); c++)
    for (const uint64_t count : {uint64_t{2}, (uint64_t{1} << 30) / 4}) {
      const auto collective = static_cast<Collective>(c);
      benchmark::RegisterBenchmark(("BM_PlanAndProgram/24576/" + std::string(name(collective)) +
                                    (count == 2 ? "/8B" : "/1GiB"))
                                       .c_str(),
                                   plan_and_program, collective, count)
          ->Iterations(kTimes)
          ->Unit(benchmark::kMillisecond);
    }
  for (const Algorithm* algorithm : algorithms())
    for (int c = 0; c <= static_cast<int>(Collective::barrier); c++) {
      const auto collective = static_cast<Collective>(c);
      if (!algorithm->applies(tree_of(1024), gibibyte(collective))) continue;
      const std::string algorithm_name(algorithm->name());
      const auto run = [algorithm_name, collective](benchmark::State& state) {
        verify_once(state, algorithm_name.c_str(), collective, 1024);
      };
      benchmark::RegisterBenchmark(
          ("BM_Verify/1024/" + algorithm_name + "/" + std::string(name(collective))).c_str(), run)
          ->Iterations(1)
          ->Unit(benchmark::kSecond);
    }
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::reduce, Collective::barrier}) {
    const auto run = [collective](benchmark::State& state) {
      verify_once(state, "tiered", collective, 24576);
    };
    benchmark::RegisterBenchmark(
        ("BM_Verify/24576/tiered/" + std::string(name(collective))).c_str(), run)
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
  }
  return true;
}();

void BM_TraceEvent(benchmark::State& state) {
  Trace trace(Recording::in_memory());
  TraceEvent event;
  event.bytes = 4096;
  for (auto _ : state) {
    event.posted_ns = trace.now();
    trace.record(event);
    event.step++;
  }
  benchmark::DoNotOptimize(trace.recording().recorded());
}
BENCHMARK(BM_TraceEvent);

}  // namespace

BENCHMARK_MAIN();
