// reduce_benchmark.cpp: reductions in bytes moved per second (inputs read and output written) per
// type, op and number of inputs, beside memcpy (read and written). Sizes: 16 KiB an input stays in
// the first cache levels, 16 MiB comes from memory. Names: reduce/ISA/TYPE/OP/inputs/bytes.
//   build/release/bin/reduce_benchmark --benchmark_filter='float32/sum'
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "reduce/reduce.hpp"
#include "reduce/table.hpp"

namespace {

using namespace sennit;

void fill(DataType type, std::vector<char>& memory) {
  const size_t bytes = type_bytes(type);
  for (size_t i = 0; i + bytes <= memory.size(); i += bytes)
    from_double(type, 1.0 + static_cast<double>(i % 64) / 64, memory.data() + i);
}

void report(benchmark::State& state, size_t bytes_moved) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(bytes_moved));
}

void run_memcpy(benchmark::State& state, size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, 2 * bytes);
}

void run_reduce(benchmark::State& state, ReduceKernel kernel, DataType type, size_t inputs,
                size_t bytes) {
  std::vector<std::vector<char>> memory(inputs + 1, std::vector<char>(bytes));
  std::vector<const void*> in;
  for (size_t k = 0; k < inputs; k++) {
    fill(type, memory[k]);
    in.push_back(memory[k].data());
  }
  for (auto _ : state) {
    kernel(memory[inputs].data(), in.data(), inputs, bytes / type_bytes(type), 8);
    benchmark::ClobberMemory();
  }
  report(state, (inputs + 1) * bytes);
}

constexpr std::string_view kOps[] = {"sum", "prod", "min", "max", "avg"};

int register_all() {
  constexpr size_t kSmall = 16 << 10, kLarge = 16 << 20;
  for (const size_t bytes : {kSmall, kLarge})
    benchmark::RegisterBenchmark(("memcpy/" + std::to_string(bytes)).c_str(), run_memcpy, bytes);
  const auto add = [](std::string_view isa, DataType type, int op, size_t inputs, size_t bytes) {
    const ReduceKernel kernel = reduce_table(isa)->reduce[static_cast<int>(type)][op];
    std::string label = "reduce/";
    for (const std::string_view part : {isa, name(type), kOps[op]})
      label += std::string(part) + "/";
    label += std::to_string(inputs) + "/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(label.c_str(), run_reduce, kernel, type, inputs, bytes);
  };
  // Every type and op once from memory; sums by number of inputs and in cache.
  for (int t = 0; t < SENNIT_TYPE_COUNT; t++) {
    const auto type = static_cast<DataType>(t);
    for (int op = 0; op < kKernelOps; op++) add(reduce_isa(), type, op, 2, kLarge);
    add(reduce_isa(), type, 0, 2, kSmall);
  }
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32})
    for (const size_t inputs : {3, 4, 8})
      for (const size_t bytes : {kSmall, kLarge}) add(reduce_isa(), type, 0, inputs, bytes);
  // The other instruction sets, for comparison.
  for (const std::string_view isa : {"generic", "avx2", "avx512"})
    if (reduce_table(isa) && isa != reduce_isa())
      for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32})
        add(isa, type, 0, 2, kLarge);
  return 0;
}
const int kRegistered = register_all();

}  // namespace
