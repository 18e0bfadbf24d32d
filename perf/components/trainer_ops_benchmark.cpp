// trainer_ops_benchmark.cpp: the operations of the CPU device on the shapes of the 25M and 124M
// models, 4,096 tokens in sequences of 512. Matrix products and attention in FLOP/s and as a share
// of the measured matrix peak (of_peak), the rest in bytes/s, inputs read and outputs written.
// Attention counts the causal half: 2 products forwards, 5 backwards.
//   build/release/bin/trainer_ops_benchmark --benchmark_filter='bf16/attention'
#include <benchmark/benchmark.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainer/device/cpu/matrix_peak.hpp"
#include "trainer/device/device.hpp"

namespace {

using namespace sennit;
using namespace sennit::trainer;

constexpr int64_t kTokens = 4096, kSequence = 512, kHeadSize = 64;
// Operands of products take turns, as in a step, so that none is in a cache.
constexpr size_t kFar = size_t{512} << 20;

Device& device() {
  static const std::unique_ptr<Device> kDevice = std::move(*open_device("cpu", 0));
  return *kDevice;
}

double peak(Type type) {
  static std::map<Type, double> known;
  if (!known.count(type)) known[type] = measure_matrix_peak(type, 0).flops_per_s;
  return known[type];
}

// Filled with numbers in [-0.5, 0.5); given back at the end.
class Memory {
 public:
  Memory(int64_t rows, int64_t columns, Type type) {
    matrix_ = {*device().allocate(static_cast<size_t>(rows * columns) * bytes_of(type)), type, rows,
               columns, columns};
    for (int64_t i = 0; i < rows * columns; i++) {
      const float value =
          static_cast<float>(static_cast<uint32_t>(i) * 2654435761u >> 16 & 1023) / 1024 - 0.5f;
      if (type == Type::f32)
        matrix_.f32()[i] = value;
      else
        matrix_.bf16()[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
    }
  }
  ~Memory() { device().release(matrix_.data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  operator Matrix() const { return matrix_; }  // NOLINT: implicit on purpose
  float* f32() const { return matrix_.f32(); }

 private:
  Matrix matrix_;
};

void run_flops(benchmark::State& state, Type type, double flops,
               const std::function<void()>& call) {
  const double of = peak(type);
  for (auto _ : state) call();
  using Counter = benchmark::Counter;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] = Counter(flops / of, Counter::kIsIterationInvariantRate);
}

void multiply(benchmark::State& state, Type type, int64_t out, int64_t in, int form) {
  struct Operands {
    Operands(Type t, int64_t rows, int64_t columns)
        : x(kTokens, columns, t),
          weight(rows, columns, t),
          y(kTokens, rows, t),
          dweight(rows, columns, Type::f32) {}
    Memory x, weight, y, dweight;
  };
  std::vector<std::unique_ptr<Operands>> all;
  size_t bytes = 0, turn = 0;
  do {
    all.push_back(std::make_unique<Operands>(type, out, in));
    for (const Matrix m :
         {Matrix(all[0]->x), Matrix(all[0]->weight), Matrix(all[0]->y), Matrix(all[0]->dweight)})
      bytes += m.bytes();
  } while (bytes < kFar);
  run_flops(state, type, 2.0 * kTokens * static_cast<double>(out * in), [&] {
    const Operands& o = *all[turn++ % all.size()];
    if (form == 0) device().multiply(o.y, o.x, false, o.weight, true, false);
    if (form == 1) device().multiply(o.x, o.y, false, o.weight, false, false);
    if (form == 2) device().multiply(o.dweight, o.y, true, o.x, false, true);
  });
}

void attention(benchmark::State& state, Type type, int64_t heads, int64_t kv_heads,
               bool backwards) {
  const Memory q(kTokens, heads * kHeadSize, type), k(kTokens, kv_heads * kHeadSize, type);
  const Memory v(kTokens, kv_heads * kHeadSize, type), out(kTokens, heads * kHeadSize, type);
  const Memory dq(kTokens, heads * kHeadSize, type), dk(kTokens, kv_heads * kHeadSize, type);
  const Memory dv(kTokens, kv_heads * kHeadSize, type);
  const Memory log_sums(1, kTokens * heads, Type::f32), dots(1, kTokens * heads, Type::f32);
  const AttentionShape shape{kTokens / kSequence, kSequence, kSequence, 0, 0, heads, kv_heads,
                             kHeadSize,           0.125f};
  const double product = 2.0 * kTokens * kSequence / 2 * static_cast<double>(heads * kHeadSize);
  device().attention(out, log_sums.f32(), q, k, v, shape);
  run_flops(state, type, product * (backwards ? 5 : 2), [&] {
    if (backwards)
      device().attention_gradient(dq, dk, dv, false, out, q, k, v, log_sums.f32(), dots.f32(),
                                  shape);
    else
      device().attention(out, log_sums.f32(), q, k, v, shape);
  });
}

using Call = std::function<void()>;
// `make` is called once, and returns what is timed, which owns its memory.
void run_bytes(benchmark::State& state, double bytes, const std::function<Call()>& make) {
  const Call call = make();
  for (auto _ : state) call();
  state.SetBytesProcessed(static_cast<int64_t>(static_cast<double>(state.iterations()) * bytes));
}

std::shared_ptr<Memory> memory(int64_t rows, int64_t columns, Type type) {
  return std::make_shared<Memory>(rows, columns, type);
}

void add_rows(const std::string& start, Type type, int64_t hidden, int64_t ffn,
              int64_t vocabulary) {
  const auto add = [&](const std::string& name, double bytes, const std::function<Call()>& make) {
    benchmark::RegisterBenchmark((start + name).c_str(), run_bytes, bytes, make)->UseRealTime();
  };
  const auto size = static_cast<double>(bytes_of(type)), rows = static_cast<double>(kTokens);
  add("rms_norm", rows * static_cast<double>(hidden) * size * 2, [=]() -> Call {
    auto x = memory(kTokens, hidden, type), y = memory(kTokens, hidden, type),
         weight = memory(1, hidden, type);
    auto inverse = memory(1, kTokens, Type::f32);
    return [=] { device().rms_norm(*y, inverse->f32(), *x, Matrix(*weight).data, 1e-5f); };
  });
  add("rms_norm_gradient", rows * static_cast<double>(hidden) * size * 3, [=]() -> Call {
    auto x = memory(kTokens, hidden, type), dy = memory(kTokens, hidden, type),
         dx = memory(kTokens, hidden, type);
    auto weight = memory(1, hidden, type), dweight = memory(1, hidden, Type::f32),
         inverse = memory(1, kTokens, Type::f32);
    return [=] {
      device().rms_norm_gradient(*dx, false, dweight->f32(), *dy, *x, Matrix(*weight).data,
                                 inverse->f32());
    };
  });
  add("swiglu", rows * static_cast<double>(ffn) * size * 3, [=]() -> Call {
    auto y = memory(kTokens, ffn, type), gate = memory(kTokens, ffn, type),
         up = memory(kTokens, ffn, type);
    return [=] { device().swiglu(*y, *gate, *up); };
  });
  add("swiglu_gradient", rows * static_cast<double>(ffn) * size * 5, [=]() -> Call {
    auto dy = memory(kTokens, ffn, type), gate = memory(kTokens, ffn, type),
         up = memory(kTokens, ffn, type);
    auto dgate = memory(kTokens, ffn, type), dup = memory(kTokens, ffn, type);
    return [=] { device().swiglu_gradient(*dgate, *dup, *dy, *gate, *up); };
  });
  add("cross_entropy", rows * static_cast<double>(vocabulary) * size * 4, [=]() -> Call {
    auto logits = memory(kTokens, vocabulary, type), largest = memory(1, kTokens, Type::f32);
    auto sums = memory(1, kTokens, Type::f32), at_target = memory(1, kTokens, Type::f32);
    std::vector<int32_t> targets(kTokens, 17);
    return [=] {
      device().largest_logits(largest->f32(), *logits);
      device().sum_logits(sums->f32(), at_target->f32(), *logits, largest->f32(), targets.data(),
                          0);
      device().cross_entropy_gradient(*logits, *logits, largest->f32(), sums->f32(), targets.data(),
                                      0, 1.0f);
    };
  });
  add("adamw", 16e6 * (28 + size), [=]() -> Call {
    constexpr int64_t kWeights = 16'000'000;
    auto master = memory(1, kWeights, Type::f32), first = memory(1, kWeights, Type::f32);
    auto second = memory(1, kWeights, Type::f32), gradient = memory(1, kWeights, Type::f32);
    auto weight = memory(1, kWeights, type);
    device().zero(second->f32(), kWeights * sizeof(float));  // no square is below 0
    return [=] {
      device().adamw(master->f32(), first->f32(), second->f32(), gradient->f32(),
                     Matrix(*weight).data, type, kWeights, {});
    };
  });
}

int register_all() {
  struct Model {
    const char* name;
    int64_t hidden, ffn, heads, kv_heads, vocabulary;
  };
  for (const Type type : {Type::bf16, Type::f32})
    for (const Model& m :
         {Model{"25M", 512, 1408, 8, 4, 8192}, Model{"124M", 768, 2048, 12, 4, 32'000}}) {
      const std::string start = std::string(type == Type::f32 ? "f32/" : "bf16/") + m.name + "/";
      const char* forms[] = {"y=x*W'", "dx=dy*W", "dW+=dy'*x"};
      const int64_t shapes[][2] = {
          {m.hidden, m.hidden}, {m.ffn, m.hidden}, {m.hidden, m.ffn}, {m.vocabulary, m.hidden}};
      for (const auto& shape : shapes)
        for (int form = 0; form < 3; form++)
          benchmark::RegisterBenchmark((start + forms[form] + "/" + std::to_string(shape[0]) + "x" +
                                        std::to_string(shape[1]))
                                           .c_str(),
                                       multiply, type, shape[0], shape[1], form)
              ->UseRealTime();
      benchmark::RegisterBenchmark((start + "attention").c_str(), attention, type, m.heads,
                                   m.kv_heads, false)
          ->UseRealTime();
      benchmark::RegisterBenchmark((start + "attention_gradient").c_str(), attention, type, m.heads,
                                   m.kv_heads, true)
          ->UseRealTime();
      add_rows(start, type, m.hidden, m.ffn, m.vocabulary);
    }
  return 0;
}

[[maybe_unused]] const int kRegistered = register_all();

}  // namespace
