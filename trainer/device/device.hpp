// device.hpp: what the model asks of the hardware it runs on: memory, and the operations of a Llama
// block with their gradients.
//
// The model (trainer/model) never touches a number itself: it hands matrices in this device's
// memory to these operations, so that another device is one more implementation of Device and no
// change of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.hpp"

namespace sennit::trainer {

// What elements of the model are, and how many bytes one takes.
enum class Type : uint8_t { f32, bf16 };
constexpr size_t bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

// `rows` x `columns` elements, each row `stride` elements after the one before it. Owns nothing.
struct Matrix {
  void* data = nullptr;
  Type type = Type::f32;
  int64_t rows = 0, columns = 0, stride = 0;
  float* f32() const { return static_cast<float*>(data); }
  uint16_t* bf16() const { return static_cast<uint16_t*>(data); }
  size_t bytes() const { return static_cast<size_t>(rows * columns) * bytes_of(type); }
};

// One block of queries against one block of keys and values, of `batch` sequences. Query i stands
// at position first_query + i of its sequence and sees key j at first_key + j <= that: so a whole
// sequence, a chunk of it against an earlier chunk, or against itself are one operation, and
// context parallelism needs no other. Row b * length + i of a matrix is token i of sequence b;
// columns are heads * head_size, head after head. Query head h uses key/value head h / (query_heads
// / kv_heads).
struct AttentionShape {
  int64_t batch = 0, queries = 0, keys = 0;
  int64_t first_query = 0, first_key = 0;
  int64_t query_heads = 0, kv_heads = 0, head_size = 0;
  float scale = 0;  // of the scores: 1 / sqrt(head_size)
};

// The optimiser's settings in one step, the same for all parameters but for weight_decay.
struct AdamW {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0;
  int64_t step = 1;  // from 1: for the bias corrections
  // the gradient is multiplied by it first: clipping, and 1 / accumulated batches
  float gradient_scale = 1;
};

// Matrices are row-major; a row is a token unless said otherwise. Activations and weights have the
// run's compute type (f32, or bf16 with f32 accumulation inside each operation); gradients of
// weights, sums of squares, log-sum-exps and optimiser state are f32. Gradients of weights are
// *added to* what is there, those of activations are written. Shapes are the caller's business: a
// wrong one is a defect, not an error of the user's. Same inputs give the same bits, whatever the
// number of threads.
//
// Order. All calls of one device come from one thread. What they ask for is done one after the
// other, in that order, and not before it is asked; but it may be late: a call may come back long
// before. The device is known to have done all that it was asked when synchronize(), download() or
// sum_of_squares() comes back, and at no other time. So
//   - the pointers that operations are given are to this device's memory, which operations asked
//     for later may use again, and whose release() may be asked for at once; host memory goes
//     through upload() and download() alone. Everything else (shapes, numbers) is copied by the
//     call.
//   - whoever else reads or writes this device's memory calls synchronize() first, and asks for no
//     operation on that memory until it has finished. These are a transfer, which Communicator
//     starts in one place (trainer/parallel/communication.hpp) and whose wait() ends it, and the
//     host with a parameter's state, as checkpoints need it (Parameters::pieces()).
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;

  // ---- memory ----
  // 64-byte aligned, zeroed. Errors: out of memory (how much was asked for, what is there).
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // The host's bytes were taken, or are there, when these come back.
  virtual void upload(void* to, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* from, size_t bytes) = 0;
  virtual void zero(void* memory, size_t bytes) = 0;
  virtual void synchronize() = 0;

  // ---- matrix products ----
  // c = op(a) * op(b), or c += that; op is the transpose where asked for. c may be f32 where a and
  // b are bf16.
  virtual void multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                        bool accumulate) = 0;

  // ---- RMSNorm (arXiv 1910.07467) ----
  // y = x / sqrt(mean(x^2) + epsilon) * weight, by row; inverse_rms: f32, one a row, kept for the
  // gradient.
  virtual void rms_norm(Matrix y, float* inverse_rms, Matrix x, const void* weight,
                        float epsilon) = 0;
  // dx is written, or added to; dweight (f32) is added to.
  virtual void rms_norm_gradient(Matrix dx, bool accumulate_dx, float* dweight, Matrix dy, Matrix x,
                                 const void* weight, const float* inverse_rms) = 0;

  // ---- rotary positions (arXiv 2104.09864) ----
  // In place, as Hugging Face's Llama does it: in each head, elements i and i + head_size / 2 turn
  // together. cosines, sines: f32, one row of head_size / 2 a position; positions: one a row of x.
  // Its gradient is the turn backwards.
  virtual void rotate(Matrix x, int64_t head_size, const float* cosines, const float* sines,
                      const int32_t* positions, bool backwards) = 0;

  // ---- causal attention that stores no scores (arXiv 2205.14135) ----
  // log_sums: f32, batch * query_heads * queries, of exp(score); -infinity for a query that sees no
  // key (its output is 0).
  virtual void attention(Matrix out, float* log_sums, Matrix q, Matrix k, Matrix v,
                         const AttentionShape& shape) = 0;
  // Joins two results over different keys into the first: (out, log_sums) of the union. `out` is
  // f32.
  virtual void attention_join(Matrix out, float* log_sums, Matrix other,
                              const float* other_log_sums, const AttentionShape& shape) = 0;
  // dots: f32, like log_sums: sum over a head's elements of dout * out.
  virtual void attention_dots(float* dots, Matrix dout, Matrix out,
                              const AttentionShape& shape) = 0;
  // dq, dk, dv (of either type) are written, or added to; log_sums and dots are of *all* keys that
  // the queries see.
  virtual void attention_gradient(Matrix dq, Matrix dk, Matrix dv, bool accumulate, Matrix dout,
                                  Matrix q, Matrix k, Matrix v, const float* log_sums,
                                  const float* dots, const AttentionShape& shape) = 0;

  // ---- SwiGLU (arXiv 2002.05202) ----
  // y = silu(gate) * up.
  virtual void swiglu(Matrix y, Matrix gate, Matrix up) = 0;
  virtual void swiglu_gradient(Matrix dgate, Matrix dup, Matrix dy, Matrix gate, Matrix up) = 0;

  // ---- embedding ----
  // The table holds the rows of tokens [first_token, first_token + table.rows); others give zeros,
  // and no gradient. dtable: f32, added to, in the order of the rows.
  virtual void embed(Matrix y, Matrix table, const int32_t* tokens, int64_t first_token) = 0;
  virtual void embed_gradient(Matrix dtable, const int32_t* tokens, Matrix dy,
                              int64_t first_token) = 0;

  // ---- cross entropy over a vocabulary that may be cut over ranks ----
  // `logits` holds columns [first_token, ...). By row: the largest logit; then, given the largest
  // of all ranks, the sum of exp(logit - largest) and the target's logit (0 where another rank
  // holds it); then, given those of all ranks, the gradient (softmax - target) * scale, which may
  // overwrite the logits. A target < 0 is left out: gradient 0.
  virtual void largest_logits(float* largest, Matrix logits) = 0;
  virtual void sum_logits(float* sums, float* target_logits, Matrix logits, const float* largest,
                          const int32_t* targets, int64_t first_token) = 0;
  virtual void cross_entropy_gradient(Matrix dlogits, Matrix logits, const float* largest,
                                      const float* sums, const int32_t* targets,
                                      int64_t first_token, float scale) = 0;

  // ---- element by element ----
  virtual void add(Matrix y, Matrix x) = 0;                     // y += x, each of either type
  virtual void convert(Matrix y, Matrix x) = 0;                 // y = x, rounded to nearest even
  virtual void multiply_by(Matrix y, float factor) = 0;         // y *= factor
  virtual double sum_of_squares(const float* x, size_t n) = 0;  // for the global norm
  // Decoupled weight decay (arXiv 1711.05101). master, moments, gradient: f32; `weight` (compute
  // type) gets the new master, rounded; null where the master is the weight.
  virtual void adamw(float* master, float* first_moment, float* second_moment,
                     const float* gradient, void* weight, Type weight_type, size_t n,
                     const AdamW& parameters) = 0;
};

// ---- the registry ----

// A kind of device. One object in the file that implements it, by SENNIT_DEVICE_ENTRY, and the
// setting `device` knows its name.
class DeviceEntry {
 public:
  // threads: of the host's, for what the device computes there; 0: one per core that this process
  // may run on. Errors: the hardware is not there.
  using Open = Result<std::unique_ptr<Device>> (*)(int threads);
  DeviceEntry(const char* name, Open opens);
  const char* name() const { return name_; }
  Result<std::unique_ptr<Device>> open(int threads) const { return open_(threads); }

 private:
  const char* name_;
  Open open_;
};
// SENNIT_DEVICE_ENTRY(NAME, open) in this namespace registers the device "NAME", an identifier.
#define SENNIT_DEVICE_ENTRY(NAME, ...)                       \
  namespace {                                                \
  const DeviceEntry kDeviceEntry_##NAME(#NAME, __VA_ARGS__); \
  }

// All kinds in this program, sorted by name.
std::span<const DeviceEntry* const> devices();
// Errors: no device of this name, with the names that there are; what its own open() says.
Status check_device(const std::string& name);
Result<std::unique_ptr<Device>> open_device(const std::string& name, int threads);

}  // namespace sennit::trainer
