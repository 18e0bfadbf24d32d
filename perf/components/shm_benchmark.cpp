// shm_benchmark.cpp: the shm transport between two processes: one-way latency, and exchanges of
// large messages by each of its ways (exposed ones are read once), beside memcpy. Names:
// shm/latency/bytes, shm/exchange/WAY/bytes.
//   build/release/bin/shm_benchmark
#include <string>

#include "perf/components/transport_pair.hpp"
#include "transports/shm/shm.hpp"

namespace {

using namespace sennit;

enum class Way { any_memory, stream, allocated, exposed };

void run(benchmark::State& state, Way way, bool exchange) {
  const uint64_t job = static_cast<uint64_t>(getpid());
  perf::run_pair(state, exchange, [&](int rank, size_t bytes) {
    TransportContext context;
    context.rank = rank;
    context.size = 2;
    context.local_ranks = 2;
    context.job = job;
    Result<std::unique_ptr<Transport>> made = shm::ShmTransport::make(context);
    SENNIT_CHECK(made.ok());
    if (way == Way::stream) static_cast<shm::ShmTransport&>(**made).forbid_direct_reads();
    return std::make_unique<perf::TransportPair>(rank, std::move(*made), bytes,
                                                 way == Way::allocated || way == Way::exposed,
                                                 way == Way::exposed);
  });
}

void run_memcpy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("shm/latency", run, Way::any_memory, false)
      ->Arg(0)
      ->Arg(8)
      ->Arg(64)
      ->Arg(1024)
      ->Arg(8192)
      ->Arg(65536)
      ->UseRealTime();
  constexpr const char* kNames[] = {"any_memory", "stream", "allocated", "exposed"};
  for (const Way way : {Way::any_memory, Way::stream, Way::allocated, Way::exposed})
    benchmark::RegisterBenchmark(
        ("shm/exchange/" + std::string(kNames[static_cast<int>(way)])).c_str(), run, way, true)
        ->Arg(16 << 10)
        ->Arg(128 << 10)
        ->Arg(1 << 20)
        ->Arg(8 << 20)
        ->UseRealTime();
  benchmark::RegisterBenchmark("memcpy", run_memcpy)->Arg(128 << 10)->Arg(8 << 20)->UseRealTime();
  return 0;
}();

}  // namespace
