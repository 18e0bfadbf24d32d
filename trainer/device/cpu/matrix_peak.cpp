// matrix_peak.cpp: see trainer/device/cpu/matrix_peak.hpp. Each thread multiplies matrices of its
// own; the sum over threads of what each did in the time that all of them ran.
#include "trainer/device/cpu/matrix_peak.hpp"

#include <algorithm>
#include <chrono>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "trainer/device/cpu/multiply.hpp"
#include "trainer/device/cpu/threads.hpp"

namespace sennit::trainer {
namespace {

using Memory = dnnl::memory;
using Clock = std::chrono::steady_clock;

constexpr int64_t kSize = 512;
constexpr int kCalls = 8;  // per repetition: about 0.5 ms, so that starting threads is nothing
constexpr auto kTime = std::chrono::milliseconds(300);

struct Product {
  dnnl::matmul primitive;
  Memory a, b, c;
};

std::vector<Product> make_products(Type type, const dnnl::engine& engine, int threads) {
  const auto element = type == Type::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
  const Memory::desc any({kSize, kSize}, element, Memory::format_tag::any);
  std::vector<Product> products;
  const dnnl::matmul::primitive_desc description({any, any, any}, engine);
  for (int thread = 0; thread < threads; thread++) {
    products.push_back({dnnl::matmul(description), Memory(description.src_desc(), engine),
                        Memory(description.weights_desc(), engine),
                        Memory(description.dst_desc(), engine)});
    // 1.0 in bf16, and 1.0018 in f32: neither zero, nor denormal, nor infinite after a sum.
    for (const Memory* m : {&products.back().a, &products.back().b})
      std::fill_n(static_cast<uint16_t*>(m->get_data_handle()), m->get_desc().get_size() / 2,
                  uint16_t{0x3f80});
  }
  return products;
}

}  // namespace

MatrixPeak measure_matrix_peak(Type type, int threads) {
  if (type == Type::bf16 && !CpuMultiply::has_bf16(cpu_kernels())) type = Type::f32;
  CpuThreads pool(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  std::vector<Product> products = make_products(type, engine, pool.count());
  double best_s = 1e30;
  int64_t repetitions = 0;
  const auto began = Clock::now(), until = began + kTime;
  do {
    const auto start = Clock::now();
    pool.run(pool.count(), [&](int64_t part, int) {
      dnnl::stream stream(engine);
      Product& mine = products[static_cast<size_t>(part)];
      for (int call = 0; call < kCalls; call++)
        mine.primitive.execute(
            stream, {{DNNL_ARG_SRC, mine.a}, {DNNL_ARG_WEIGHTS, mine.b}, {DNNL_ARG_DST, mine.c}});
    });
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - start).count());
    repetitions++;
  } while (Clock::now() < until);
  const double all_s = std::chrono::duration<double>(Clock::now() - began).count();
  const double flops = 2.0 * kSize * kSize * kSize * kCalls * pool.count();
  return {flops / best_s, flops * static_cast<double>(repetitions) / all_s, pool.count()};
}

double share_of_cores(int threads, int ranks, int cores) {
  // more threads than cores take turns in each repetition already
  const int alone = std::min(threads, cores);
  return std::min(1.0, static_cast<double>(cores) / (static_cast<double>(alone) * ranks));
}

double rank_peak(const MatrixPeak& peak, int ranks, int cores, bool at_once) {
  const double share = share_of_cores(peak.threads, ranks, cores);
  return share == 1 ? peak.flops_per_s
         : at_once  ? peak.sustained_flops_per_s
                    : peak.flops_per_s * share;
}

}  // namespace sennit::trainer
