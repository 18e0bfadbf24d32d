// multiply.cpp: see trainer/device/cpu/multiply.hpp.
#include "trainer/device/cpu/multiply.hpp"

#include <algorithm>
#include <cstring>

#include "trainer/device/cpu/amx/kernels.hpp"
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {
namespace {

using Memory = dnnl::memory;

constexpr int64_t kBlockRows = 1024, kBlockColumns = 512;  // by oneDNN
constexpr int64_t kManyBlocks = 8, kLeastBlock = 128;      // smaller ones where those are few
constexpr int64_t kWideDepth = 512;                        // of k, turned to f32 at a time
// On AMX: rows that with their k stay in the second cache; columns of which the sums do too where k
// is long (else there may be many, so that the rows are packed seldom). Where that makes few
// blocks, smaller ones.
constexpr int64_t kAmxRows = 256, kAmxColumns = 4096, kAmxDeep = 2048, kAmxDeepColumns = 768;
constexpr int64_t kPackedRows = 64;  // of B, at a time
constexpr int64_t kBlocksOfThread = 2, kFewRows = 128, kFewColumns = 512;

Memory::data_type type_of(Type type) {
  return type == Type::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
}

Memory::desc describe(int64_t rows, int64_t columns, int64_t stride, Type type, bool transposed) {
  return {{rows, columns},
          type_of(type),
          transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1}};
}

}  // namespace

bool CpuMultiply::has_bf16(const CpuKernels& kernels) {
#if defined(__x86_64__)
  return &kernels == &kCpuAvx512Bf16 &&
         dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
#else
  return false;
#endif
}

CpuMultiply::CpuMultiply(CpuThreads& threads, const CpuKernels& kernels, bool amx)
    : threads_(threads),
      kernels_(kernels),
      amx_(amx),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      has_bf16_(has_bf16(kernels)),
      scratch_(static_cast<size_t>(threads.count())) {}

const CpuMultiply::Product& CpuMultiply::product(const Key& key) {
  if (const auto found = products_.find(key); found != products_.end()) return found->second;
  const auto& [m, n, k, a_stride, b_stride, c_stride, in, out, transpose_a, transpose_b,
               accumulate] = key;
  const Memory::desc a = describe(m, k, a_stride, in, transpose_a),
                     b = describe(k, n, b_stride, in, transpose_b),
                     c = describe(m, n, c_stride, out, false);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine_);
  return products_
      .emplace(key, Product{dnnl::matmul(description), a, b, c, description.scratchpad_desc()})
      .first->second;
}

void CpuMultiply::run(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                      bool accumulate) {
  SENNIT_CHECK(a.type == b.type && (c.type == a.type || c.type == Type::f32));
  const int64_t k = transpose_a ? a.rows : a.columns;
  SENNIT_CHECK(k == (transpose_b ? b.columns : b.rows));
  if (c.rows == 0 || c.columns == 0) return;
  if (k == 0) {
    for (int64_t row = 0; row < (accumulate ? 0 : c.rows); row++)
      std::memset(at(c, row), 0, static_cast<size_t>(c.columns) * bytes_of(c.type));
    return;
  }
  if (a.type == Type::bf16 && amx_) return on_amx(c, a, transpose_a, b, transpose_b, accumulate, k);
  if (a.type == Type::bf16 && !has_bf16_)
    return in_f32(c, a, transpose_a, b, transpose_b, accumulate, k);
  by_onednn(c, a, transpose_a, b, transpose_b, accumulate, k);
}

void CpuMultiply::on_amx(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                         bool accumulate, int64_t k) {
  const AmxProduct product{c, a, b, transpose_a, transpose_b, accumulate, k};
  const int64_t most = k > kAmxDeep ? kAmxDeepColumns : kAmxColumns;
  int64_t rows = kAmxRows, pieces = (c.columns + most - 1) / most;
  const auto blocks = [&] { return (c.rows + rows - 1) / rows * pieces; };
  const int64_t few = kBlocksOfThread * threads_.count();
  while (blocks() < few && c.columns / pieces >= 2 * kFewColumns) pieces++;
  while (blocks() < few && rows > kFewRows) rows /= 2;
  const int64_t columns = ((c.columns + pieces - 1) / pieces + 31) / 32 * 32;
  const int64_t row_blocks = (c.rows + rows - 1) / rows,
                column_blocks = (c.columns + columns - 1) / columns;
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

std::vector<CpuMultiply::Block> CpuMultiply::cut(const Matrix& c) {
  int64_t rows = std::min(kBlockRows, c.rows), columns = std::min(kBlockColumns, c.columns);
  const auto down = [&] { return (c.rows + rows - 1) / rows; };
  const auto across = [&] { return (c.columns + columns - 1) / columns; };
  while (down() * across() < kManyBlocks && std::max(rows, columns) > kLeastBlock)
    (rows >= columns ? rows : columns) = (std::max(rows, columns) + 1) / 2;
  std::vector<Block> blocks;
  for (int64_t column = 0; column < c.columns; column += columns)
    for (int64_t row = 0; row < c.rows; row += rows)
      blocks.push_back(
          {row, column, std::min(rows, c.rows - row), std::min(columns, c.columns - column)});
  return blocks;
}

void CpuMultiply::execute(const Product& product, void* a, void* b, void* c, void* scratch) {
  product.primitive.execute(stream_,
                            {{DNNL_ARG_SRC, Memory(product.a, engine_, a)},
                             {DNNL_ARG_WEIGHTS, Memory(product.b, engine_, b)},
                             {DNNL_ARG_DST, Memory(product.c, engine_, c)},
                             {DNNL_ARG_SCRATCHPAD, Memory(product.scratch, engine_, scratch)}});
}

void CpuMultiply::by_onednn(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                            bool accumulate, int64_t k) {
  const std::vector<Block> blocks = cut(c);
  std::vector<const Product*> products;
  size_t scratch_bytes = 0;
  for (const Block& block : blocks) {
    products.push_back(&product({block.rows, block.columns, k, a.stride, b.stride, c.stride, a.type,
                                 c.type, transpose_a, transpose_b, accumulate}));
    scratch_bytes = std::max(scratch_bytes, products.back()->scratch.get_size());
  }
  threads_.run(static_cast<int64_t>(blocks.size()), [&](int64_t i, int thread) {
    const auto& [row, column, rows, columns] = blocks[static_cast<size_t>(i)];
    execute(*products[static_cast<size_t>(i)], transpose_a ? at(a, 0, row) : at(a, row),
            transpose_b ? at(b, column) : at(b, 0, column), at(c, row, column),
            scratch_[static_cast<size_t>(thread)].reserve(scratch_bytes));
  });
}

// Products of bf16 are exact in f32. What a slice of k needs is turned into memory of a few MiB,
// just before.
void CpuMultiply::in_f32(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                         bool accumulate, int64_t k) {
  const std::vector<Block> blocks = cut(c);
  const bool in_place = c.type == Type::f32;  // sums grow in c
  // The product of one slice of a block; its operands lie row after row, without gaps.
  const auto product_of = [&](const Block& block, int64_t depth, bool first) -> const Product& {
    return product({block.rows, block.columns, depth, transpose_a ? block.rows : depth,
                    transpose_b ? depth : block.columns, in_place ? c.stride : block.columns,
                    Type::f32, Type::f32, transpose_a, transpose_b,
                    !first || (in_place && accumulate)});
  };
  const auto depth_at = [&](int64_t begin) { return std::min(kWideDepth, k - begin); };
  size_t scratch_bytes = 0;  // made here: threads only read the map of products
  for (const Block& block : blocks)
    for (int64_t begin = 0; begin < k; begin += kWideDepth)
      scratch_bytes = std::max(scratch_bytes,
                               product_of(block, depth_at(begin), begin == 0).scratch.get_size());
  scratch_bytes = (scratch_bytes + 63) / 64 * 64;
  const auto widen = [&](float* to, const Matrix& from, int64_t row, int64_t column, int64_t rows,
                         int64_t columns) {
    for (int64_t r = 0; r < rows; r++)
      kernels_.convert(to + r * columns, Type::f32, at(from, row + r, column), from.type, columns);
  };
  const int64_t most_rows = blocks.front().rows, most_columns = blocks.front().columns;
  const auto elements =
      static_cast<size_t>((most_rows + most_columns) * kWideDepth + most_rows * most_columns);
  threads_.run(static_cast<int64_t>(blocks.size()), [&](int64_t i, int thread) {
    const Block& block = blocks[static_cast<size_t>(i)];
    const auto& [row, column, rows, columns] = block;
    auto* scratch = static_cast<char*>(
        scratch_[static_cast<size_t>(thread)].reserve(scratch_bytes + elements * sizeof(float)));
    auto* const wide_a = reinterpret_cast<float*>(scratch + scratch_bytes);
    float* const wide_b = wide_a + most_rows * kWideDepth;
    float* const sums = wide_b + kWideDepth * most_columns;
    for (int64_t begin = 0; begin < k; begin += kWideDepth) {
      const int64_t depth = depth_at(begin);
      transpose_a ? widen(wide_a, a, begin, row, depth, rows)
                  : widen(wide_a, a, row, begin, rows, depth);
      transpose_b ? widen(wide_b, b, column, begin, columns, depth)
                  : widen(wide_b, b, begin, column, depth, columns);
      execute(product_of(block, depth, begin == 0), wide_a, wide_b,
              in_place ? at(c, row, column) : sums, scratch);
    }
    if (in_place) return;
    const auto round = accumulate ? kernels_.add : kernels_.convert;
    for (int64_t r = 0; r < rows; r++)
      round(at(c, row + r, column), c.type, sums + r * columns, Type::f32, columns);
  });
}

void CpuDevice::multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                         bool accumulate) {
  multiply_.run(c, a, transpose_a, b, transpose_b, accumulate);
}

}  // namespace sennit::trainer
