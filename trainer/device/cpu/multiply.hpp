// multiply.hpp: matrix products on the processor, on our own AMX blocks or by oneDNN. Blocks
// (trainer/device/cpu/amx/multiply.cpp) are for bf16; f32, and bf16 on processors without AMX, go
// by oneDNN's matmul.
//
// A product is cut into blocks of c, and one thread works out each. oneDNN's blocks follow from the
// shape alone. On AMX many threads have smaller ones, but there the order of a sum follows from k
// alone. So every bit is the same with any number of threads.
//
// oneDNN's primitives are made once per shape, types, strides and transposes, and kept. Its own AMX
// products want matrices in a layout of its own; on plain ones, as weights and activations here
// are, oneDNN 2.6 falls back to a product at a third of the speed. Where the processor does not
// multiply bf16 itself, blocks of a and b are turned to f32 first: exact, and three times as fast
// as oneDNN's bf16 by other instructions.
#pragma once

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <vector>

#include "trainer/device/cpu/kernels/kernels.hpp"
#include "trainer/device/cpu/threads.hpp"

namespace sennit::trainer {

class CpuMultiply {
 public:
  CpuMultiply(CpuThreads& threads, const CpuKernels& kernels, bool amx);
  // Whether bf16 is multiplied as it is beside these loops: by their processor, and by oneDNN on
  // this one.
  static bool has_bf16(const CpuKernels& kernels);
  // c = op(a) * op(b), or c += that, as Device::multiply() has it; done when it returns.
  void run(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate);

 private:
  struct Product {  // one block's primitive
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratch;
  };
  // m, n, k; strides of a, b, c; types of the inputs and of c; transposes; accumulate
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Type, Type, bool,
                         bool, bool>;
  struct Block {  // of c
    int64_t row, column, rows, columns;
  };
  static std::vector<Block> cut(const Matrix& c);
  const Product& product(const Key& key);
  void execute(const Product& product, void* a, void* b, void* c, void* scratch);
  void on_amx(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate,
              int64_t k);
  void by_onednn(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate,
                 int64_t k);
  void in_f32(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate,
              int64_t k);

  CpuThreads& threads_;
  const CpuKernels& kernels_;
  const bool amx_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool has_bf16_ = false;
  std::map<Key, Product> products_;
  std::vector<CpuScratch> scratch_;  // one a thread
  CpuScratch packed_;
};

}  // namespace sennit::trainer
