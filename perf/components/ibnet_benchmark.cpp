// ibnet_benchmark.cpp: an InfiniBand subnet of 3,072 hosts with 8 adapters each (24,576 end ports),
// from the text of its dump to the printed tree. One adapter a rank. Wanted: at most 5 s and 1 GB
// in all. `ibnet_benchmark --dump FILE` writes that dump instead, for /usr/bin/time -v sennit topo
// --fabric FILE.
#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include <benchmark/benchmark.h>

#include "tests/topology/sources/ibnet/ibnet_subnets.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {
namespace {

// 96 units of 32 hosts and 8 leaves, 2 uplinks from each leaf to the spine switch of its rail, 8
// core switches.
const std::string& dump() {
  static const std::string text = rails(96, 32, 8, 2, 8).text("NDR");
  return text;
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

void parse(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(parse_ibnetdiscover(dump(), "dump"));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * dump().size()));
}

void parse_contract_print(benchmark::State& state) {
  size_t ranks = 0;
  for (auto _ : state) {
    const Fabric fabric = fabric_of(parse_ibnetdiscover(dump(), "dump").value());
    const TierTree tree =
        contract(fabric, ranks_on_all_hosts(fabric, static_cast<int>(state.range(0)))).value();
    const std::string text = tree.to_text();
    benchmark::DoNotOptimize(text.data());
    ranks = static_cast<size_t>(tree.ranks());
  }
  state.counters["ranks"] = static_cast<double>(ranks);
  state.counters["peak_bytes"] = peak_bytes();  // with the dump's text and what made it
}

void fabric_text(benchmark::State& state) {
  const Fabric fabric = fabric_of(parse_ibnetdiscover(dump(), "dump").value());
  for (auto _ : state) benchmark::DoNotOptimize(fabric.to_text());
}

BENCHMARK(parse)->Unit(benchmark::kMillisecond);
BENCHMARK(parse_contract_print)->Arg(1)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(fabric_text)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sennit

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--dump") {
    std::ofstream file(argv[2]);
    file << sennit::dump() << std::flush;
    if (!file) std::perror(argv[2]);
    return file ? 0 : 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
