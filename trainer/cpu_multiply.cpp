// cpu_multiply.cpp: see cpu_multiply.hpp.
#include "cpu_multiply.hpp"

#include <algorithm>

#include "cpu_amx_kernels.hpp"
#include "cpu_device.hpp"

namespace sennit::trainer {
namespace {

using Memory = dnnl::memory;

constexpr int64_t kBlockRows = 1024, kBlockColumns = 512;  // by oneDNN
// On AMX: rows that with their k stay in the second cache; columns of which the sums do too where k is long
// (else there may be many, so that the rows are packed seldom). Where that makes few blocks, smaller ones.
constexpr int64_t kAmxRows = 256, kAmxColumns = 4096, kAmxDeep = 2048, kAmxDeepColumns = 768;
constexpr int64_t kPackedRows = 64;  // of B, at a time
constexpr int64_t kBlocksOfThread = 2, kFewRows = 128, kFewColumns = 512;

Memory::data_type type_of(Type type) {
  return type == Type::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
}

Memory::desc describe(int64_t rows, int64_t columns, int64_t stride, Type type, bool transposed) {
  return {{rows, columns}, type_of(type), transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1}};
}

bool has_bf16_products() {
#if defined(__x86_64__)
  return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
#else
  return false;
#endif
}

}  // namespace

CpuMultiply::CpuMultiply(CpuThreads& threads, const CpuKernels& kernels, bool amx)
    : threads_(threads),
      kernels_(kernels),
      amx_(amx),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      has_bf16_(has_bf16_products()),
      scratch_(static_cast<size_t>(threads.count())) {}

const CpuMultiply::Product& CpuMultiply::product(const Key& key) {
  std::unique_ptr<Product>& found = products_[key];
  if (found) return *found;
  const auto& [m, n, k, a_stride, b_stride, c_stride, in, out, transpose_a, transpose_b, accumulate] = key;
  const Memory::desc a = describe(m, k, a_stride, in, transpose_a),
                     b = describe(k, n, b_stride, in, transpose_b), c = describe(m, n, c_stride, out, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine_);
  found =
      std::make_unique<Product>(Product{dnnl::matmul(description), a, b, c, description.scratchpad_desc()});
  return *found;
}

Matrix CpuMultiply::to_f32(Matrix m, std::vector<float>& memory) {
  memory.resize(static_cast<size_t>(m.rows * m.columns));
  threads_.run(m.rows, [&](int64_t row, int) {
    kernels_.convert(memory.data() + row * m.columns, Type::f32, at(m, row), m.type, m.columns);
  });
  return {memory.data(), Type::f32, m.rows, m.columns, m.columns};
}

void CpuMultiply::run(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate) {
  SENNIT_CHECK(a.type == b.type && (c.type == a.type || c.type == Type::f32));
  const int64_t k = transpose_a ? a.rows : a.columns;
  SENNIT_CHECK(k == (transpose_b ? b.columns : b.rows));
  if (c.rows == 0 || c.columns == 0) return;
  if (a.type == Type::bf16 && !has_bf16_) {
    if (c.type == Type::f32)
      return run(c, to_f32(a, wide_a_), transpose_a, to_f32(b, wide_b_), transpose_b, accumulate);
    std::vector<float> wide;
    const Matrix sum = to_f32(c, wide);
    run(sum, to_f32(a, wide_a_), transpose_a, to_f32(b, wide_b_), transpose_b, accumulate);
    return threads_.run(c.rows, [&](int64_t row, int) {
      kernels_.convert(at(c, row), c.type, at(sum, row), Type::f32, c.columns);
    });
  }
  if (a.type == Type::bf16 && amx_) return on_amx(c, a, transpose_a, b, transpose_b, accumulate, k);
  by_onednn(c, a, transpose_a, b, transpose_b, accumulate, k);
}

void CpuMultiply::on_amx(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate,
                         int64_t k) {
  const AmxProduct product{c, a, b, transpose_a, transpose_b, accumulate, k};
  const int64_t most = k > kAmxDeep ? kAmxDeepColumns : kAmxColumns;
  int64_t rows = kAmxRows, pieces = (c.columns + most - 1) / most;
  const auto blocks = [&] { return (c.rows + rows - 1) / rows * pieces; };
  const int64_t few = kBlocksOfThread * threads_.count();
  while (blocks() < few && c.columns / pieces >= 2 * kFewColumns) pieces++;
  while (blocks() < few && rows > kFewRows) rows /= 2;
  const int64_t columns = ((c.columns + pieces - 1) / pieces + 31) / 32 * 32;
  const int64_t row_blocks = (c.rows + rows - 1) / rows, column_blocks = (c.columns + columns - 1) / columns;
  void* packed = packed_.reserve(amx_packed_bytes(c.columns, k));
  // In parts along B's rows as they lie: each is read from end to end.
  const int64_t b_rows = transpose_b ? c.columns : k;
  threads_.run((b_rows + kPackedRows - 1) / kPackedRows, [&](int64_t part, int) {
    const int64_t first = part * kPackedRows, count = std::min(kPackedRows, b_rows - first);
    if (transpose_b)
      amx_pack(product, packed, first, count, 0, k);
    else
      amx_pack(product, packed, 0, c.columns, first, count);
  });
  const size_t scratch_bytes = amx_scratch_bytes(rows, columns, k);
  threads_.run(row_blocks * column_blocks, [&](int64_t part, int thread) {
    const int64_t row = part % row_blocks * rows, column = part / row_blocks * columns;
    amx_multiply(product, packed, row, std::min(rows, c.rows - row), column,
                 std::min(columns, c.columns - column),
                 scratch_[static_cast<size_t>(thread)].reserve(scratch_bytes));
  });
}

void CpuMultiply::by_onednn(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate,
                            int64_t k) {
  const int64_t row_blocks = (c.rows + kBlockRows - 1) / kBlockRows;
  const int64_t column_blocks = (c.columns + kBlockColumns - 1) / kBlockColumns;
  struct Block {
    const Product* product;
    void *a, *b, *c;
  };
  std::vector<Block> blocks;
  size_t scratch_bytes = 0;
  for (int64_t j = 0; j < column_blocks; j++)
    for (int64_t i = 0; i < row_blocks; i++) {
      const int64_t row = i * kBlockRows, column = j * kBlockColumns;
      const Product& one =
          product({std::min(kBlockRows, c.rows - row), std::min(kBlockColumns, c.columns - column), k,
                   a.stride, b.stride, c.stride, a.type, c.type, transpose_a, transpose_b, accumulate});
      scratch_bytes = std::max(scratch_bytes, one.scratch.get_size());
      blocks.push_back({&one, transpose_a ? at(a, 0, row) : at(a, row),
                        transpose_b ? at(b, column) : at(b, 0, column), at(c, row, column)});
    }
  threads_.run(static_cast<int64_t>(blocks.size()), [&](int64_t part, int thread) {
    const Block& block = blocks[static_cast<size_t>(part)];
    void* scratch = scratch_[static_cast<size_t>(thread)].reserve(scratch_bytes);
    block.product->primitive.execute(
        stream_, {{DNNL_ARG_SRC, Memory(block.product->a, engine_, block.a)},
                  {DNNL_ARG_WEIGHTS, Memory(block.product->b, engine_, block.b)},
                  {DNNL_ARG_DST, Memory(block.product->c, engine_, block.c)},
                  {DNNL_ARG_SCRATCHPAD, Memory(block.product->scratch, engine_, scratch)}});
  });
}

void CpuDevice::multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b, bool accumulate) {
  multiply_.run(c, a, transpose_a, b, transpose_b, accumulate);
}

}  // namespace sennit::trainer
