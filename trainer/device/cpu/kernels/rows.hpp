// rows.hpp: the kernels over one row or n elements, for this folder's sources (see
// trainer/device/cpu/kernels/kernels.hpp). Every value is turned to f32 when loaded and rounded to
// its type when stored.
#pragma once

#include <cmath>

#include "trainer/device/cpu/kernels/vector.hpp"

namespace sennit::trainer {
namespace {

// y += x.
void add(void* y, Type y_type, const void* x, Type x_type, int64_t n) {
  typed(y, y_type, [&](auto* to) {
    typed(x, x_type, [&](const auto* from) {
      each_vector(n, [&](int64_t i, auto part) {
        part.put(to + i, part.get(to + i) + part.get(from + i));
      });
    });
  });
}

// y = x. They may be the same memory where they are of the same type.
void convert(void* y, Type y_type, const void* x, Type x_type, int64_t n) {
  typed(y, y_type, [&](auto* to) {
    typed(x, x_type, [&](const auto* from) {
      each_vector(n, [&](int64_t i, auto part) { part.put(to + i, part.get(from + i)); });
    });
  });
}

// y *= factor.
void multiply_by(void* y, Type type, float factor, int64_t n) {
  typed(y, type, [&](auto* to) {
    each_vector(n, [&](int64_t i, auto part) { part.put(to + i, part.get(to + i) * factor); });
  });
}

// In f64: each of the 16 lanes by itself, then the lanes in their order.
double sum_of_squares(const float* x, int64_t n) {
  typedef double Doubles __attribute__((vector_size(128)));
  Doubles sum = {};
  each_vector(n, [&](int64_t i, auto part) {
    const Doubles value = __builtin_convertvector(part.get(x + i), Doubles);
    sum += value * value;
  });
  double total = 0;
  for (int64_t lane = 0; lane < kLanes; lane++) total += sum[lane];
  return total;
}

// The square roots of 16 numbers, each as exact as std::sqrt.
SENNIT_INLINE Vec root(Vec x) {
  float lanes[kLanes];
  store(lanes, x);
  for (float& lane : lanes) lane = std::sqrt(lane);
  return load(lanes);
}

// One step of the optimiser, as Device::adamw() says it; `weight` may be null.
void adamw(float* master, float* first, float* second, const float* gradient, void* weight,
           Type type, int64_t n, const AdamW& p) {
  const auto step = static_cast<double>(p.step);
  const auto first_correction =
      static_cast<float>(1 - std::pow(static_cast<double>(p.beta1), step));
  const auto second_correction =
      static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(p.beta2), step)));
  const float step_size = p.learning_rate / first_correction;
  const float kept = 1 - p.learning_rate * p.weight_decay;
  const auto all = [&](auto* rounded) {
    each_vector(n, [&](int64_t i, auto part) {
      const Vec g = part.get(gradient + i) * p.gradient_scale;
      const Vec m = part.get(first + i) * p.beta1 + g * (1 - p.beta1);
      const Vec v = part.get(second + i) * p.beta2 + g * g * (1 - p.beta2);
      const Vec w =
          part.get(master + i) * kept - step_size * m / (root(v) * second_correction + p.epsilon);
      part.put(first + i, m);
      part.put(second + i, v);
      part.put(master + i, w);
      if (rounded) part.put(rounded + i, w);
    });
  };
  typed(weight, type, all);
}

// 1 / (1 + e^-x), as exact as T needs it, to which the result is rounded.
template <typename T>
SENNIT_INLINE Vec sigmoid(Vec x) {
  return inverse_as<T>(1.0f + exp_as<T>(x, -1.0f, Vec{}));
}

// y = silu(gate) * up, all of one type.
void swiglu(void* y, const void* gate, const void* up, Type type, int64_t n) {
  typed(y, type, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const auto *g = static_cast<const T*>(gate), *u = static_cast<const T*>(up);
    each_vector(n, [&](int64_t i, auto part) {
      const Vec x = part.get(g + i);
      part.put(to + i, x * sigmoid<T>(x) * part.get(u + i));
    });
  });
}

// dgate = dy * up * silu'(gate) and dup = dy * silu(gate), all of one type.
void swiglu_gradient(void* dgate, void* dup, const void* dy, const void* gate, const void* up,
                     Type type, int64_t n) {
  typed(dgate, type, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    auto* to_up = static_cast<T*>(dup);
    const auto *d = static_cast<const T*>(dy), *g = static_cast<const T*>(gate),
               *u = static_cast<const T*>(up);
    each_vector(n, [&](int64_t i, auto part) {
      const Vec x = part.get(g + i), dout = part.get(d + i), s = sigmoid<T>(x);
      const Vec silu = x * s, dsilu = s * (1.0f + x * (1.0f - s));
      const Vec to_gate = dout * part.get(u + i) * dsilu;
      part.put(to_up + i, dout * silu);
      part.put(to + i, to_gate);
    });
  });
}

// y = x * s * weight, where s = 1 / sqrt(mean(x^2) + epsilon) goes to *inverse_rms.
void rms_norm(void* y, float* inverse_rms, const void* x, const void* weight, Type type, int64_t n,
              float epsilon) {
  typed(y, type, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const auto *from = static_cast<const T*>(x), *w = static_cast<const T*>(weight);
    Vec sum = {};
    each_vector(n, [&](int64_t i, auto part) {
      const Vec value = part.get(from + i);
      sum += value * value;
    });
    const float inverse = 1.0f / std::sqrt(sum_lanes(sum) / static_cast<float>(n) + epsilon);
    *inverse_rms = inverse;
    each_vector(n, [&](int64_t i, auto part) {
      part.put(to + i, part.get(from + i) * inverse * part.get(w + i));
    });
  });
}

// With s = inverse_rms: dx = s * (dy * w - x * s^2 * mean(dy * w * x)).
void rms_norm_gradient(void* dx, Type dx_type, bool accumulate, float* dweight, const void* dy,
                       const void* x, const void* weight, Type type, float inverse_rms, int64_t n) {
  typed(x, type, [&](const auto* from) {
    using T = std::remove_pointer_t<decltype(from)>;
    const auto *d = static_cast<const T*>(dy), *w = static_cast<const T*>(weight);
    Vec sum = {};
    each_vector(n, [&](int64_t i, auto part) {
      const Vec value = part.get(from + i), dout = part.get(d + i);
      sum += dout * part.get(w + i) * value;
      part.put(dweight + i, part.get(dweight + i) + dout * value * inverse_rms);
    });
    const float shared = sum_lanes(sum) / static_cast<float>(n) * inverse_rms * inverse_rms;
    typed(dx, dx_type, [&](auto* to) {
      each_vector(n, [&](int64_t i, auto part) {
        const Vec gradient =
            (part.get(d + i) * part.get(w + i) - part.get(from + i) * shared) * inverse_rms;
        part.put(to + i, accumulate ? part.get(to + i) + gradient : gradient);
      });
    });
  });
}

// Turns a row of `heads` heads in place by its position's angles, of which there are head_size / 2;
// direction: 1, or -1 for the turn backwards.
void rotate(void* x, Type type, int64_t heads, int64_t head_size, const float* cosines,
            const float* sines, float direction) {
  const int64_t half = head_size / 2;
  typed(x, type, [&](auto* row) {
    for (int64_t head = 0; head < heads; head++, row += head_size)
      each_vector(half, [&](int64_t i, auto part) {
        const Vec low = part.get(row + i), high = part.get(row + half + i);
        const Vec c = part.get(cosines + i), s = part.get(sines + i) * direction;
        part.put(row + i, low * c - high * s);
        part.put(row + half + i, high * c + low * s);
      });
  });
}

// NaNs are passed over; -infinity where there is nothing else.
float largest(const void* x, Type type, int64_t n) {
  return typed(x, type, [&](const auto* from) {
    Vec most = splat(-INFINITY);
    each_vector(n, [&](int64_t i, auto part) {
      most = larger(part.keep(part.get(from + i), -INFINITY), most);
    });
    return largest_lane(most);
  });
}

// The sum of exp(x - most), NaN where an x is.
float sum_exp(const void* x, Type type, int64_t n, float most) {
  return typed(x, type, [&](const auto* from) {
    using T = std::remove_cvref_t<decltype(*from)>;
    Vec sum = {};
    const Vec shift = splat(most);
    each_vector(n, [&](int64_t i, auto part) {
      sum += part.keep(exp_as<T>(part.get(from + i), 1.0f, shift), 0);
    });
    return sum_lanes(sum);
  });
}

// dx = exp(x - largest) * factor; the caller takes the target's share off.
void softmax_gradient(void* dx, Type dx_type, const void* x, Type type, int64_t n, float most,
                      float factor) {
  typed(dx, dx_type, [&](auto* to) {
    typed(x, type, [&](const auto* from) {
      using T = std::remove_cvref_t<decltype(*from)>;
      const Vec shift = splat(most);
      each_vector(n, [&](int64_t i, auto part) {
        part.put(to + i, exp_as<T>(part.get(from + i), 1.0f, shift) * factor);
      });
    });
  });
}

// Products and sums are in f32, in an order that n alone decides.
float dot(const void* a, Type a_type, const void* b, Type b_type, int64_t n) {
  return typed(a, a_type, [&](const auto* left) {
    return typed(b, b_type, [&](const auto* right) {
      Vec sum = {};
      each_vector(n,
                  [&](int64_t i, auto part) { sum += part.get(left + i) * part.get(right + i); });
      return sum_lanes(sum);
    });
  });
}

// out = out * out_factor + other * other_factor.
void join(float* out, float out_factor, const void* other, Type other_type, float other_factor,
          int64_t n) {
  typed(other, other_type, [&](const auto* from) {
    each_vector(n, [&](int64_t i, auto part) {
      part.put(out + i, part.get(out + i) * out_factor + part.get(from + i) * other_factor);
    });
  });
}

}  // namespace
}  // namespace sennit::trainer
