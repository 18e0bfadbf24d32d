// device.cpp: a toy of a device: every operation as its definition says it, element by element, in
// one thread. One file is all that a new one needs.
//
// It works in no memory but what its own allocate() gave and release() has not taken back: a caller
// that hands it the host's ends the program.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "base/process/memory_left.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {
namespace {

constexpr size_t kAlignment = 64;
constexpr float kNoScore = -INFINITY;

float widen(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

// Rounded to nearest even; what is no number stays none.
uint16_t narrow(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float get(const Matrix& m, int64_t row, int64_t column) {
  const int64_t i = row * m.stride + column;
  return m.type == Type::f32 ? m.f32()[i] : widen(m.bf16()[i]);
}

void set(const Matrix& m, int64_t row, int64_t column, double value) {
  const int64_t i = row * m.stride + column;
  if (m.type == Type::f32)
    m.f32()[i] = static_cast<float>(value);
  else
    m.bf16()[i] = narrow(static_cast<float>(value));
}

template <typename Value>  // double value(row, column)
void write(const Matrix& y, bool accumulate, Value value) {
  for (int64_t row = 0; row < y.rows; row++)
    for (int64_t column = 0; column < y.columns; column++)
      set(y, row, column,
          (accumulate ? static_cast<double>(get(y, row, column)) : 0) + value(row, column));
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One query of one head, and the keys that it sees.
struct Query {
  int64_t row = 0, column = 0, keys_row = 0, keys_column = 0;
  int64_t index = 0;  // in log_sums and dots
  int64_t seen = 0;   // keys, from the first
};
template <typename Visit>
void each_query(const AttentionShape& s, Visit visit) {
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.query_heads; h++)
      for (int64_t i = 0; i < s.queries; i++) {
        const int64_t seen = std::min(s.keys, s.first_query + i - s.first_key + 1);
        visit(Query{b * s.queries + i, h * s.head_size, b * s.keys,
                    h / (s.query_heads / s.kv_heads) * s.head_size,
                    (b * s.query_heads + h) * s.queries + i, std::max<int64_t>(seen, 0)});
      }
}

// Of a head's elements in row `a_row` of one and `b_row` of the other.
double dot(const Matrix& a, int64_t a_row, int64_t a_column, const Matrix& b, int64_t b_row,
           int64_t b_column, int64_t head_size) {
  double sum = 0;
  for (int64_t e = 0; e < head_size; e++)
    sum += static_cast<double>(get(a, a_row, a_column + e)) * get(b, b_row, b_column + e);
  return sum;
}

class ToyDevice final : public Device {
 public:
  ~ToyDevice() override {
    for (const auto& [begin, bytes] : blocks_) std::free(begin);
  }
  const char* name() const override { return "toy"; }

  // ---- memory ----
  Result<void*> allocate(size_t bytes) override {
    void* memory = nullptr;
    const Status taken = take_memory(bytes, [&](size_t offset, size_t piece) {
      if (!memory) memory = std::aligned_alloc(kAlignment, rounded(bytes));
      if (memory) std::memset(static_cast<char*>(memory) + offset, 0, piece);
      return memory != nullptr;
    });
    if (!taken.ok()) {
      std::free(memory);
      return taken;
    }
    if (!memory) memory = std::aligned_alloc(kAlignment, rounded(bytes));  // of no bytes
    blocks_[static_cast<char*>(memory)] = bytes;
    return memory;
  }
  void release(void* memory) override {
    if (!memory) return;
    SENNIT_CHECK(blocks_.erase(static_cast<char*>(memory)) == 1);
    std::free(memory);
  }
  void upload(void* to, const void* host, size_t bytes) override {
    check(to, bytes);
    if (bytes > 0) std::memcpy(to, host, bytes);
  }
  void download(void* host, const void* from, size_t bytes) override {
    check(from, bytes);
    if (bytes > 0) std::memcpy(host, from, bytes);
  }
  void zero(void* memory, size_t bytes) override {
    check(memory, bytes);
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  void synchronize() override {}

  // ---- matrix products ----
  void multiply(Matrix c, Matrix a, bool transpose_a, Matrix b, bool transpose_b,
                bool accumulate) override {
    check(c, a, b);
    const int64_t inner = transpose_a ? a.rows : a.columns;
    write(c, accumulate, [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t k = 0; k < inner; k++)
        sum += static_cast<double>(transpose_a ? get(a, k, i) : get(a, i, k)) *
               (transpose_b ? get(b, j, k) : get(b, k, j));
      return sum;
    });
  }

  // ---- RMSNorm ----
  void rms_norm(Matrix y, float* inverse_rms, Matrix x, const void* weight,
                float epsilon) override {
    const Matrix w = row_of(weight, x.type, x.columns);
    check(y, x, w, row_of(inverse_rms, Type::f32, x.rows));
    for (int64_t row = 0; row < x.rows; row++) {
      const double squares = dot(x, row, 0, x, row, 0, x.columns);
      inverse_rms[row] = static_cast<float>(
          1 / std::sqrt(squares / static_cast<double>(x.columns) + static_cast<double>(epsilon)));
    }
    write(y, false, [&](int64_t row, int64_t i) {
      return static_cast<double>(get(x, row, i)) * inverse_rms[row] * get(w, 0, i);
    });
  }
  void rms_norm_gradient(Matrix dx, bool accumulate_dx, float* dweight, Matrix dy, Matrix x,
                         const void* weight, const float* inverse_rms) override {
    const Matrix w = row_of(weight, x.type, x.columns);
    check(dx, dy, x, w, row_of(dweight, Type::f32, x.columns));
    check(row_of(inverse_rms, Type::f32, x.rows));
    for (int64_t i = 0; i < x.columns; i++) {
      double sum = 0;
      for (int64_t row = 0; row < x.rows; row++)
        sum += static_cast<double>(get(dy, row, i)) * get(x, row, i) * inverse_rms[row];
      dweight[i] = static_cast<float>(dweight[i] + sum);
    }
    std::vector<double> slopes(static_cast<size_t>(x.columns));  // dx may be dy
    for (int64_t row = 0; row < x.rows; row++) {
      const double inverse = inverse_rms[row];
      double along = 0;
      for (int64_t i = 0; i < x.columns; i++)
        along += static_cast<double>(get(dy, row, i)) * get(w, 0, i) * get(x, row, i);
      along *= inverse * inverse / static_cast<double>(x.columns);
      for (int64_t i = 0; i < x.columns; i++)
        slopes[static_cast<size_t>(i)] =
            inverse *
            (static_cast<double>(get(dy, row, i)) * get(w, 0, i) - get(x, row, i) * along);
      write({at(dx, row), dx.type, 1, dx.columns, dx.stride}, accumulate_dx,
            [&](int64_t, int64_t i) { return slopes[static_cast<size_t>(i)]; });
    }
  }

  // ---- rotary positions ----
  void rotate(Matrix x, int64_t head_size, const float* cosines, const float* sines,
              const int32_t* positions, bool backwards) override {
    check(x, row_of(positions, Type::f32, x.rows));
    const int64_t half = head_size / 2;
    for (int64_t row = 0; row < x.rows; row++) {
      const float* const cosine = cosines + positions[row] * half;
      const float* const sine = sines + positions[row] * half;
      check(row_of(cosine, Type::f32, half), row_of(sine, Type::f32, half));
      for (int64_t head = 0; head < x.columns; head += head_size)
        for (int64_t i = 0; i < half; i++) {
          const double low = get(x, row, head + i), high = get(x, row, head + half + i);
          const double turn = backwards ? -static_cast<double>(sine[i]) : sine[i];
          set(x, row, head + i, low * cosine[i] - high * turn);
          set(x, row, head + half + i, high * cosine[i] + low * turn);
        }
    }
  }

  // ---- attention ----
  void attention(Matrix out, float* log_sums, Matrix q, Matrix k, Matrix v,
                 const AttentionShape& s) override {
    check(out, q, k, v, statistics(log_sums, s));
    std::vector<double> sums(static_cast<size_t>(s.head_size));
    each_query(s, [&](const Query& query) {
      double all = 0;
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t j = 0; j < query.seen; j++) {
        const double weight = std::exp(score(q, k, query, j, s));
        all += weight;
        for (int64_t e = 0; e < s.head_size; e++)
          sums[static_cast<size_t>(e)] +=
              weight * get(v, query.keys_row + j, query.keys_column + e);
      }
      for (int64_t e = 0; e < s.head_size; e++)
        set(out, query.row, query.column + e,
            query.seen > 0 ? sums[static_cast<size_t>(e)] / all : 0);
      log_sums[query.index] = query.seen > 0 ? static_cast<float>(std::log(all)) : kNoScore;
    });
  }
  void attention_join(Matrix out, float* log_sums, Matrix other, const float* other_log_sums,
                      const AttentionShape& s) override {
    check(out, other, statistics(log_sums, s), statistics(other_log_sums, s));
    each_query(s, [&](const Query& query) {
      const double a = log_sums[query.index], b = other_log_sums[query.index];
      const double larger = std::max(a, b);
      if (larger == kNoScore) return;
      const double mine = std::exp(a - larger), others = std::exp(b - larger);
      for (int64_t e = query.column; e < query.column + s.head_size; e++)
        set(out, query.row, e,
            (mine * get(out, query.row, e) + others * get(other, query.row, e)) / (mine + others));
      log_sums[query.index] = static_cast<float>(larger + std::log(mine + others));
    });
  }
  void attention_dots(float* dots, Matrix dout, Matrix out, const AttentionShape& s) override {
    check(dout, out, statistics(dots, s));
    each_query(s, [&](const Query& query) {
      dots[query.index] = static_cast<float>(
          dot(dout, query.row, query.column, out, query.row, query.column, s.head_size));
    });
  }
  void attention_gradient(Matrix dq, Matrix dk, Matrix dv, bool accumulate, Matrix dout, Matrix q,
                          Matrix k, Matrix v, const float* log_sums, const float* dots,
                          const AttentionShape& s) override {
    check(dq, dk, dv, dout, q, k, v);
    check(statistics(log_sums, s), statistics(dots, s));
    Sums sum_q(dq), sum_k(dk), sum_v(dv);
    each_query(s, [&](const Query& query) {
      for (int64_t j = 0; j < query.seen; j++) {
        const int64_t row = query.keys_row + j;
        const double weight = std::exp(score(q, k, query, j, s) - log_sums[query.index]);
        const double reach =
            dot(dout, query.row, query.column, v, row, query.keys_column, s.head_size);
        const double slope = weight * (reach - dots[query.index]) * s.scale;
        for (int64_t e = 0; e < s.head_size; e++) {
          const int64_t mine = query.column + e, keys = query.keys_column + e;
          sum_v.at(row, keys) += weight * get(dout, query.row, mine);
          sum_k.at(row, keys) += slope * get(q, query.row, mine);
          sum_q.at(query.row, mine) += slope * get(k, row, keys);
        }
      }
    });
    for (Sums* sums : {&sum_q, &sum_k, &sum_v})
      write(sums->matrix, accumulate,
            [&](int64_t row, int64_t column) { return sums->at(row, column); });
  }

  // ---- SwiGLU ----
  void swiglu(Matrix y, Matrix gate, Matrix up) override {
    check(y, gate, up);
    write(y, false, [&](int64_t row, int64_t i) {
      const double g = get(gate, row, i);
      return g * sigmoid(g) * get(up, row, i);
    });
  }
  void swiglu_gradient(Matrix dgate, Matrix dup, Matrix dy, Matrix gate, Matrix up) override {
    check(dgate, dup, dy, gate, up);
    for (int64_t row = 0; row < dy.rows; row++)
      for (int64_t i = 0; i < dy.columns; i++) {  // each may be written where it is read
        const double g = get(gate, row, i), u = get(up, row, i), slope = get(dy, row, i);
        const double s = sigmoid(g);
        set(dgate, row, i, slope * u * s * (1 + g * (1 - s)));
        set(dup, row, i, slope * g * s);
      }
  }

  // ---- embedding ----
  void embed(Matrix y, Matrix table, const int32_t* tokens, int64_t first_token) override {
    check(y, table, row_of(tokens, Type::f32, y.rows));
    write(y, false, [&](int64_t row, int64_t i) -> double {
      const int64_t entry = tokens[row] - first_token;
      return entry >= 0 && entry < table.rows ? get(table, entry, i) : 0;
    });
  }
  void embed_gradient(Matrix dtable, const int32_t* tokens, Matrix dy,
                      int64_t first_token) override {
    check(dtable, dy, row_of(tokens, Type::f32, dy.rows));
    for (int64_t row = 0; row < dy.rows; row++) {
      const int64_t entry = tokens[row] - first_token;
      if (entry < 0 || entry >= dtable.rows) continue;
      write({at(dtable, entry), dtable.type, 1, dtable.columns, dtable.stride}, true,
            [&](int64_t, int64_t i) { return get(dy, row, i); });
    }
  }

  // ---- cross entropy ----
  void largest_logits(float* largest, Matrix logits) override {
    check(logits, row_of(largest, Type::f32, logits.rows));
    for (int64_t row = 0; row < logits.rows; row++) {
      largest[row] = kNoScore;
      for (int64_t i = 0; i < logits.columns; i++)
        largest[row] = std::max(largest[row], get(logits, row, i));
    }
  }
  void sum_logits(float* sums, float* target_logits, Matrix logits, const float* largest,
                  const int32_t* targets, int64_t first_token) override {
    check(logits, row_of(sums, Type::f32, logits.rows), row_of(largest, Type::f32, logits.rows));
    check(row_of(target_logits, Type::f32, logits.rows), row_of(targets, Type::f32, logits.rows));
    for (int64_t row = 0; row < logits.rows; row++) {
      double sum = 0;
      for (int64_t i = 0; i < logits.columns; i++)
        sum += std::exp(static_cast<double>(get(logits, row, i)) - largest[row]);
      sums[row] = static_cast<float>(sum);
      const int64_t target = targets[row] - first_token;
      const bool here = targets[row] >= 0 && target >= 0 && target < logits.columns;
      target_logits[row] = here ? get(logits, row, target) : 0;
    }
  }
  void cross_entropy_gradient(Matrix dlogits, Matrix logits, const float* largest,
                              const float* sums, const int32_t* targets, int64_t first_token,
                              float scale) override {
    check(dlogits, logits, row_of(sums, Type::f32, logits.rows));
    check(row_of(largest, Type::f32, logits.rows), row_of(targets, Type::f32, logits.rows));
    write(dlogits, false, [&](int64_t row, int64_t i) -> double {
      if (targets[row] < 0) return 0;
      const double share =
          std::exp(static_cast<double>(get(logits, row, i)) - largest[row]) / sums[row];
      return (share - (targets[row] - first_token == i ? 1 : 0)) * scale;
    });
  }

  // ---- element by element ----
  void add(Matrix y, Matrix x) override {
    check(y, x);
    write(y, true, [&](int64_t row, int64_t i) { return get(x, row, i); });
  }
  void convert(Matrix y, Matrix x) override {
    check(y, x);
    write(y, false, [&](int64_t row, int64_t i) { return get(x, row, i); });
  }
  void multiply_by(Matrix y, float factor) override {
    check(y);
    write(y, false,
          [&](int64_t row, int64_t i) { return static_cast<double>(get(y, row, i)) * factor; });
  }
  double sum_of_squares(const float* x, size_t n) override {
    const Matrix row = row_of(x, Type::f32, static_cast<int64_t>(n));
    check(row);
    return dot(row, 0, 0, row, 0, 0, row.columns);
  }
  void adamw(float* master, float* first_moment, float* second_moment, const float* gradient,
             void* weight, Type weight_type, size_t n, const AdamW& p) override {
    const auto count = static_cast<int64_t>(n);
    for (const float* one :
         {static_cast<const float*>(master), static_cast<const float*>(first_moment),
          static_cast<const float*>(second_moment), gradient})
      check(row_of(one, Type::f32, count));
    const Matrix weights = row_of(weight, weight_type, weight ? count : 0);
    check(weights);
    const double rate = p.learning_rate, beta1 = p.beta1, beta2 = p.beta2;
    const auto step = static_cast<double>(p.step);
    for (int64_t i = 0; i < count; i++) {
      const double slope = static_cast<double>(gradient[i]) * p.gradient_scale;
      const double first = beta1 * first_moment[i] + (1 - beta1) * slope;
      const double second = beta2 * second_moment[i] + (1 - beta2) * slope * slope;
      first_moment[i] = static_cast<float>(first);
      second_moment[i] = static_cast<float>(second);
      const double towards = first / (1 - std::pow(beta1, step)) /
                             (std::sqrt(second / (1 - std::pow(beta2, step))) + p.epsilon);
      master[i] = static_cast<float>(master[i] - rate * (p.weight_decay * master[i] + towards));
      if (weight) set(weights, 0, i, master[i]);
    }
  }

 private:
  // Sums in double, of the shape of a matrix that is read until all are there.
  struct Sums {
    Matrix matrix;
    std::vector<double> sums;
    explicit Sums(const Matrix& like)
        : matrix(like), sums(static_cast<size_t>(like.rows * like.columns)) {}
    double& at(int64_t row, int64_t column) {
      return sums[static_cast<size_t>(row * matrix.columns + column)];
    }
  };

  static size_t rounded(size_t bytes) {
    return std::max<size_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  }
  static void* at(const Matrix& m, int64_t row) {
    return static_cast<char*>(m.data) + static_cast<size_t>(row * m.stride) * bytes_of(m.type);
  }
  static Matrix row_of(const void* data, Type type, int64_t columns) {
    return {const_cast<void*>(data), type, 1, columns, columns};
  }
  static Matrix statistics(const float* data, const AttentionShape& s) {
    return row_of(data, Type::f32, s.batch * s.query_heads * s.queries);
  }
  static double score(const Matrix& q, const Matrix& k, const Query& query, int64_t key,
                      const AttentionShape& s) {
    return dot(q, query.row, query.column, k, query.keys_row + key, query.keys_column,
               s.head_size) *
           s.scale;
  }

  void check(const void* memory, size_t bytes) const {
    if (bytes == 0) return;
    const char* const begin = static_cast<const char*>(memory);
    auto block = blocks_.upper_bound(begin);
    SENNIT_CHECK(block != blocks_.begin());
    block--;
    SENNIT_CHECK(static_cast<size_t>(begin - block->first) + bytes <= block->second);
  }
  void check(const Matrix& m) const {
    if (m.rows == 0 || m.columns == 0) return;
    check(m.data, static_cast<size_t>((m.rows - 1) * m.stride + m.columns) * bytes_of(m.type));
  }
  template <typename... More>
  void check(const Matrix& first, const Matrix& second, const More&... more) const {
    check(first);
    check(second, more...);
  }

  std::map<char*, size_t, std::less<>> blocks_;  // where each begins, and its bytes
};

}  // namespace

SENNIT_DEVICE_ENTRY(toy, [](int) -> Result<std::unique_ptr<Device>> {
  return std::unique_ptr<Device>(std::make_unique<ToyDevice>());
})

}  // namespace sennit::trainer
