// cpu_device.hpp: the processor as a device (trainer/device/device.hpp): matrix products by
// trainer/device/cpu/multiply.hpp, everything else by the loops of
// trainer/device/cpu/kernels/kernels.hpp, over the threads of trainer/device/cpu/threads.hpp. What
// is more than element by element has a file of its own in this folder.
#pragma once

#include <vector>

#include "trainer/device/cpu/kernels/kernels.hpp"
#include "trainer/device/cpu/multiply.hpp"
#include "trainer/device/cpu/threads.hpp"

namespace sennit::trainer {

// Every call comes back when its work is done. Sums over parts of the work are cut by shape alone,
// never by the number of threads, and added up in the order of the parts: the same bits with any
// number of threads.
class CpuDevice final : public Device {
 public:
  // threads: 0: one per core that this process may run on. kernels: used for as long as this lives.
  // amx: whether to use it where the processor has it.
  CpuDevice(int threads, const CpuKernels& kernels, bool amx);

  const char* name() const override { return kernels_.name; }
  Result<void*> allocate(size_t bytes) override;
  void release(void* memory) override;
  void upload(void* to, const void* host, size_t bytes) override { copy(to, host, bytes); }
  void download(void* host, const void* from, size_t bytes) override { copy(host, from, bytes); }
  void zero(void* memory, size_t bytes) override;
  void synchronize() override {}

  void multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                bool accumulate) override;
  void rms_norm(Matrix y, float* inverse_rms, Matrix x, const void* weight, float epsilon) override;
  void rms_norm_gradient(Matrix dx, bool accumulate_dx, float* dweight, Matrix dy, Matrix x,
                         const void* weight, const float* inverse_rms) override;
  void rotate(Matrix x, int64_t head_size, const float* cosines, const float* sines,
              const int32_t* positions, bool backwards) override;
  void attention(Matrix out, float* log_sums, Matrix q, Matrix k, Matrix v,
                 const AttentionShape& shape) override;
  void attention_join(Matrix out, float* log_sums, Matrix other, const float* other_log_sums,
                      const AttentionShape& shape) override;
  void attention_dots(float* dots, Matrix dout, Matrix out, const AttentionShape& shape) override;
  void attention_gradient(Matrix dq, Matrix dk, Matrix dv, bool accumulate, Matrix dout, Matrix q,
                          Matrix k, Matrix v, const float* log_sums, const float* dots,
                          const AttentionShape& shape) override;
  void swiglu(Matrix y, Matrix gate, Matrix up) override;
  void swiglu_gradient(Matrix dgate, Matrix dup, Matrix dy, Matrix gate, Matrix up) override;
  void embed(Matrix y, Matrix table, const int32_t* tokens, int64_t first_token) override;
  void embed_gradient(Matrix dtable, const int32_t* tokens, Matrix dy,
                      int64_t first_token) override;
  void largest_logits(float* largest, Matrix logits) override;
  void sum_logits(float* sums, float* target_logits, Matrix logits, const float* largest,
                  const int32_t* targets, int64_t first_token) override;
  void cross_entropy_gradient(Matrix dlogits, Matrix logits, const float* largest,
                              const float* sums, const int32_t* targets, int64_t first_token,
                              float scale) override;
  void add(Matrix y, Matrix x) override;
  void convert(Matrix y, Matrix x) override;
  void multiply_by(Matrix y, float factor) override;
  double sum_of_squares(const float* x, size_t n) override;
  void adamw(float* master, float* first_moment, float* second_moment, const float* gradient,
             void* weight, Type weight_type, size_t n, const AdamW& parameters) override;

 private:
  void copy(void* to, const void* from, size_t bytes);
  // Calls work(first, count) for pieces of `total`, of `piece` each but for the last.
  template <typename Work>
  void pieces(int64_t total, int64_t piece, Work work) {
    threads_.run((total + piece - 1) / piece, [&](int64_t part, int) {
      const int64_t first = part * piece;
      work(first, total - first < piece ? total - first : piece);
    });
  }

  const CpuKernels& kernels_;
  const bool amx_;
  CpuThreads threads_;
  CpuMultiply multiply_;
  std::vector<CpuScratch> attention_scratch_;  // one a thread
};

// Element `column` of row `row`.
inline void* at(const Matrix& m, int64_t row, int64_t column = 0) {
  return static_cast<char*>(m.data) +
         static_cast<size_t>(row * m.stride + column) * bytes_of(m.type);
}
// What one part of an operation takes: about 64 KiB of f32.
constexpr int64_t kPieceElements = 16'384;
// Rows of such a piece, at least one.
inline int64_t rows_of_piece(int64_t columns) {
  return columns >= kPieceElements ? 1 : kPieceElements / (columns > 0 ? columns : 1);
}

}  // namespace sennit::trainer
