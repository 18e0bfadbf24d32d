// Sealing and opening on one core, both ciphers, beside what `openssl speed` gives for the same
// cipher and size where that command is to be had; and what a typed secret costs a rank at its
// start. bytes_per_second is of payload.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "api/start/launch.hpp"
#include "transports/tcp/seal.hpp"

namespace sennit {
namespace {

bool usable(benchmark::State& state, Cipher cipher) {
  if (usable_ciphers() & static_cast<uint8_t>(cipher)) return true;
  state.SkipWithError("this processor has no AES");
  return false;
}

void BM_Seal(benchmark::State& state, Cipher cipher) {
  if (!usable(state, cipher)) return;
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> plain(bytes), unit(bytes + Seal::kTagBytes);
  Seal seal(cipher, SealKey{});
  for (auto _ : state) {
    seal.close(plain.data(), bytes, unit.data());
    benchmark::DoNotOptimize(unit.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

// Eight units at a time, since each opens once; what seals them again is not counted.
void BM_Open(benchmark::State& state, Cipher cipher) {
  if (!usable(state, cipher)) return;
  constexpr size_t kUnits = 8;
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> plain(bytes);
  std::vector<std::vector<std::byte>> units(kUnits,
                                            std::vector<std::byte>(bytes + Seal::kTagBytes));
  Seal out(cipher, SealKey{}), in(cipher, SealKey{});
  while (state.KeepRunningBatch(kUnits)) {
    state.PauseTiming();
    for (auto& unit : units) out.close(plain.data(), bytes, unit.data());
    state.ResumeTiming();
    for (auto& unit : units)
      if (!in.open(unit.data(), bytes, unit.data() + bytes))
        return state.SkipWithError("a unit did not open");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

// The last word of the command's output is thousands of bytes a second: "AES-256-GCM 4408737.79k".
void BM_OpensslSpeed(benchmark::State& state, const char* cipher) {
  const std::string command = "openssl speed -evp " + std::string(cipher) + " -bytes " +
                              std::to_string(state.range(0)) + " -seconds 1 2>/dev/null | tail -1";
  double rate = 0;
  for (auto _ : state) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    char line[256] = {};
    const char* const told = pipe && std::fgets(line, sizeof line, pipe.get()) ? line : "";
    const std::string text = told;
    const size_t last = text.find_last_of(' ');
    rate = last == text.npos ? 0 : 1000 * std::strtod(text.c_str() + last, nullptr);
  }
  if (rate == 0) return state.SkipWithError("no `openssl speed` here");
  state.counters["bytes_per_second"] =
      benchmark::Counter(rate, benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
}

void BM_TypedSecret(benchmark::State& state) {
  for (const auto& [name, value] :
       {std::pair("RANK", "0"), std::pair("WORLD_SIZE", "2"), std::pair("MASTER_ADDR", "127.0.0.1"),
        std::pair("MASTER_PORT", "20000"), std::pair("SENNIT_SECRET", "open sesame, please")})
    setenv(name, value, 1);
  for (auto _ : state)
    if (!launch_from_environment()) return state.SkipWithError("no launch");
}

#define SENNIT_SIZES ->Arg(1 << 10)->Arg(16 << 10)->Arg(128 << 10)
BENCHMARK_CAPTURE(BM_Seal, aes_256_gcm, Cipher::aes256_gcm) SENNIT_SIZES;
BENCHMARK_CAPTURE(BM_Open, aes_256_gcm, Cipher::aes256_gcm) SENNIT_SIZES;
BENCHMARK_CAPTURE(BM_OpensslSpeed, aes_256_gcm, "aes-256-gcm") SENNIT_SIZES->Iterations(1);
BENCHMARK_CAPTURE(BM_Seal, chacha20_poly1305, Cipher::chacha20_poly1305) SENNIT_SIZES;
BENCHMARK_CAPTURE(BM_Open, chacha20_poly1305, Cipher::chacha20_poly1305) SENNIT_SIZES;
BENCHMARK_CAPTURE(BM_OpensslSpeed, chacha20_poly1305, "chacha20-poly1305")
SENNIT_SIZES->Iterations(1);
BENCHMARK(BM_TypedSecret)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sennit
