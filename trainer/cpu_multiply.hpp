// cpu_multiply.hpp: matrix products on the processor, by oneDNN's matmul (bf16 on AMX or AVX-512, f32 exact).
//
// A product is cut into blocks of c by shape alone, each block is one single-threaded primitive: so the order
// of every sum, and with it every bit, is the same with any number of threads. Primitives are made once per
// shape, types, strides and transposes, and kept. Where the processor has no bf16 products (before AVX-512),
// a and b are turned to f32 first.
#pragma once

#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <vector>

#include "cpu_kernels.hpp"
#include "cpu_threads.hpp"

namespace sennit::trainer {

class CpuMultiply {
 public:
  CpuMultiply(CpuThreads& threads, const CpuKernels& kernels);
  void run(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate);

 private:
  struct Product {  // one block's primitive
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratch;
  };
  // m, n, k; strides of a, b, c; types of the inputs and of c; transposes; accumulate
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Type, Type, bool, bool, bool>;
  const Product& product(const Key& key);
  Matrix to_f32(Matrix m, std::vector<float>& memory);

  CpuThreads& threads_;
  const CpuKernels& kernels_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool has_bf16_ = false;
  std::map<Key, std::unique_ptr<Product>> products_;
  std::vector<std::vector<char>> scratch_;  // one a thread
  std::vector<float> wide_a_, wide_b_;
};

}  // namespace sennit::trainer
