// late_device.hpp: a device that is as late as trainer/device/device.hpp allows. It queues whatever
// it is asked, and runs the queue only when a call must not come back before: synchronize(),
// download(), sum_of_squares(). Fresh memory is full of NaNs until then. Whoever looks at its
// memory too early gets other numbers.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/device/device.hpp"

namespace sennit::trainer {

class LateDevice final : public Device {
 public:
  explicit LateDevice(std::unique_ptr<Device> prompt) : prompt_(std::move(prompt)) {}
  ~LateDevice() override { synchronize(); }
  LateDevice(const LateDevice&) = delete;
  LateDevice& operator=(const LateDevice&) = delete;

  const char* name() const override { return "late"; }
  Result<void*> allocate(size_t bytes) override {
    const Result<void*> memory = prompt_->allocate(bytes);
    if (!memory) return memory;
    std::memset(*memory, 0xff, bytes);
    zero(*memory, bytes);
    return memory;
  }
  void release(void* memory) override {
    later([=](Device& d) { d.release(memory); });
  }
  void upload(void* to, const void* host, size_t bytes) override {
    const auto* const from = static_cast<const char*>(host);
    later([to, taken = std::vector<char>(from, from + bytes)](Device& d) {
      d.upload(to, taken.data(), taken.size());
    });
  }
  void download(void* host, const void* from, size_t bytes) override {
    synchronize();
    prompt_->download(host, from, bytes);
  }
  void zero(void* memory, size_t bytes) override {
    later([=](Device& d) { d.zero(memory, bytes); });
  }
  void synchronize() override {
    for (; !asked_.empty(); asked_.pop_front()) asked_.front()(*prompt_);
    prompt_->synchronize();
  }

  void multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                bool accumulate) override {
    later([=](Device& d) { d.multiply(c, a, transpose_a, b, transpose_b, accumulate); });
  }
  void rms_norm(Matrix y, float* inverse_rms, Matrix x, const void* weight,
                float epsilon) override {
    later([=](Device& d) { d.rms_norm(y, inverse_rms, x, weight, epsilon); });
  }
  void rms_norm_gradient(Matrix dx, bool accumulate_dx, float* dweight, Matrix dy, Matrix x,
                         const void* weight, const float* inverse_rms) override {
    later([=](Device& d) {
      d.rms_norm_gradient(dx, accumulate_dx, dweight, dy, x, weight, inverse_rms);
    });
  }
  void rotate(Matrix x, int64_t head_size, const float* cosines, const float* sines,
              const int32_t* positions, bool backwards) override {
    later([=](Device& d) { d.rotate(x, head_size, cosines, sines, positions, backwards); });
  }
  void attention(Matrix out, float* log_sums, Matrix q, Matrix k, Matrix v,
                 const AttentionShape& shape) override {
    later([=](Device& d) { d.attention(out, log_sums, q, k, v, shape); });
  }
  void attention_join(Matrix out, float* log_sums, Matrix other, const float* other_log_sums,
                      const AttentionShape& shape) override {
    later([=](Device& d) { d.attention_join(out, log_sums, other, other_log_sums, shape); });
  }
  void attention_dots(float* dots, Matrix dout, Matrix out, const AttentionShape& shape) override {
    later([=](Device& d) { d.attention_dots(dots, dout, out, shape); });
  }
  void attention_gradient(Matrix dq, Matrix dk, Matrix dv, bool accumulate, Matrix dout, Matrix q,
                          Matrix k, Matrix v, const float* log_sums, const float* dots,
                          const AttentionShape& shape) override {
    later([=](Device& d) {
      d.attention_gradient(dq, dk, dv, accumulate, dout, q, k, v, log_sums, dots, shape);
    });
  }
  void swiglu(Matrix y, Matrix gate, Matrix up) override {
    later([=](Device& d) { d.swiglu(y, gate, up); });
  }
  void swiglu_gradient(Matrix dgate, Matrix dup, Matrix dy, Matrix gate, Matrix up) override {
    later([=](Device& d) { d.swiglu_gradient(dgate, dup, dy, gate, up); });
  }
  void embed(Matrix y, Matrix table, const int32_t* tokens, int64_t first_token) override {
    later([=](Device& d) { d.embed(y, table, tokens, first_token); });
  }
  void embed_gradient(Matrix dtable, const int32_t* tokens, Matrix dy,
                      int64_t first_token) override {
    later([=](Device& d) { d.embed_gradient(dtable, tokens, dy, first_token); });
  }
  void largest_logits(float* largest, Matrix logits) override {
    later([=](Device& d) { d.largest_logits(largest, logits); });
  }
  void sum_logits(float* sums, float* target_logits, Matrix logits, const float* largest,
                  const int32_t* targets, int64_t first_token) override {
    later([=](Device& d) {
      d.sum_logits(sums, target_logits, logits, largest, targets, first_token);
    });
  }
  void cross_entropy_gradient(Matrix dlogits, Matrix logits, const float* largest,
                              const float* sums, const int32_t* targets, int64_t first_token,
                              float scale) override {
    later([=](Device& d) {
      d.cross_entropy_gradient(dlogits, logits, largest, sums, targets, first_token, scale);
    });
  }
  void add(Matrix y, Matrix x) override {
    later([=](Device& d) { d.add(y, x); });
  }
  void convert(Matrix y, Matrix x) override {
    later([=](Device& d) { d.convert(y, x); });
  }
  void multiply_by(Matrix y, float factor) override {
    later([=](Device& d) { d.multiply_by(y, factor); });
  }
  double sum_of_squares(const float* x, size_t n) override {
    synchronize();
    return prompt_->sum_of_squares(x, n);
  }
  void adamw(float* master, float* first_moment, float* second_moment, const float* gradient,
             void* weight, Type weight_type, size_t n, const AdamW& parameters) override {
    later([=](Device& d) {
      d.adamw(master, first_moment, second_moment, gradient, weight, weight_type, n, parameters);
    });
  }

 private:
  using Call = std::function<void(Device&)>;
  void later(Call call) { asked_.push_back(std::move(call)); }

  std::unique_ptr<Device> prompt_;
  std::deque<Call> asked_;
};

}  // namespace sennit::trainer
