// check.cpp: the cases, their known inputs, and what every collective must make of them.
//
// Independent of the library's reductions: plain loops over integers. Inputs of reductions are
// small integers, chosen so that every partial sum is exact in the type; the expected value is then
// exact whatever the order. Only an average is rounded, once. Cost: O(elements * ranks).
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/core.h>

#include "command/bench/bench.hpp"
#include "reduce/reduce.hpp"

namespace sennit::bench {
namespace {

uint64_t mix(uint64_t rank, uint64_t index, uint64_t seed) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ull + (rank + 1) * 0xd1b54a32d192ed03ull +
               seed * 0x8cb92ba72f3d8dd7ull;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
  return x ^ (x >> 29);
}

struct TypeFacts {
  bool is_float, is_signed;
  int significant_bits;  // floats: integers up to 2^this are exact
  int least_exponent;    // floats: 2^this is the smallest number above 0
};
TypeFacts facts(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::int32:
    case DataType::int64:
      return {false, true, 0, 0};
    case DataType::uint8:
    case DataType::uint32:
    case DataType::uint64:
      return {false, false, 0, 0};
    case DataType::float16:
      return {true, true, 11, -24};
    case DataType::bfloat16:
      return {true, true, 8, -133};
    case DataType::float32:
      return {true, true, 24, -149};
    case DataType::float64:
      return {true, true, 53, -1074};
    case DataType::float8_e4m3:
      return {true, true, 4, -9};
    case DataType::float8_e5m2:
      return {true, true, 3, -16};
  }
  return {};
}

uint64_t premul_factor(int rank) { return 1 + static_cast<uint64_t>(rank % 2); }

// An integer as an element of an integer type, and back as the type reads it.
uint64_t truncated(DataType type, uint64_t value) {
  const size_t bits = 8 * type_bytes(type);
  if (bits == 64) return value;
  value &= (uint64_t{1} << bits) - 1;
  if (facts(type).is_signed && (value >> (bits - 1)) != 0) value |= ~uint64_t{0} << bits;
  return value;
}

// What the ranks put in and what must come out, one element at a time.
class Values {
 public:
  Values(const Case& c, uint64_t seed)
      : c_(c), facts_(facts(c.type)), seed_(seed), ranks_(static_cast<uint64_t>(c.ranks)) {
    const uint64_t most = c.op == Op::premul_sum ? 2 : 1;  // times its input, per rank
    if (facts_.is_float)
      limit_ = uint64_t{1} << facts_.significant_bits;
    else  // integers wrap; an average must not
      limit_ = c.op == Op::avg
                   ? (uint64_t{1} << (8 * std::min<size_t>(type_bytes(c.type), 4) - 1)) - 1
                   : 1000 * ranks_ * most;
    largest_ = std::min<uint64_t>(limit_ / (most * ranks_), 1000);
    few_ = limit_ / most;
  }

  // The input of `rank` at `index`, sign-extended where the type has a sign.
  uint64_t input(uint64_t rank, uint64_t index) const {
    const uint64_t h = mix(rank, index, seed_);
    switch (c_.op) {
      case Op::min:
      case Op::max:
        if (!facts_.is_float) return truncated(c_.type, h);
        return h % (2 * limit_ + 1) - limit_;
      case Op::band:
      case Op::bor:
      case Op::bxor:
        return truncated(c_.type, h);
      case Op::prod: {
        if (!facts_.is_float) return truncated(c_.type, h | 1);
        const bool special = mix(index, seed_, 7) % ranks_ == rank;
        const uint64_t magnitude = special ? 1 + h / 2 % 3 : 1;
        return h % 2 == 0 ? magnitude : ~magnitude + 1;
      }
      default:
        if (largest_ > 1 || (largest_ == 1 && (facts_.is_float || c_.op != Op::avg)))
          return h % (largest_ + 1);
        if (largest_ == 1) return 1;  // so that averages do not come to nothing
        // Too many ranks for all to add something: some do, from a rank that depends on the place.
        return (rank + mix(index, seed_, 11)) % ranks_ < 1 + mix(index, seed_, 13) % few_ ? 1 : 0;
    }
  }

  uint64_t integer_result(uint64_t index) const {
    uint64_t result = scaled(0, index);
    for (uint64_t r = 1; r < ranks_; r++) result = combine(result, scaled(r, index));
    // inputs of averages are not negative
    if (c_.op == Op::avg) result /= static_cast<uint64_t>(c_.ranks);
    return truncated(c_.type, result);
  }

  // For floats; the inputs are integers, so that 64 bits hold every result.
  double float_result(uint64_t index, double* tolerance) const {
    uint64_t result = scaled(0, index);
    for (uint64_t r = 1; r < ranks_; r++) result = combine(result, scaled(r, index));
    double value = static_cast<double>(static_cast<int64_t>(result));
    *tolerance = 0;
    if (c_.op == Op::avg) {
      value /= c_.ranks;
      *tolerance = std::max(std::ldexp(value, 1 - facts_.significant_bits),
                            std::ldexp(1, facts_.least_exponent));
    }
    return value;
  }

 private:
  uint64_t scaled(uint64_t rank, uint64_t index) const {
    const uint64_t value = input(rank, index);
    return c_.op == Op::premul_sum ? value * premul_factor(static_cast<int>(rank)) : value;
  }
  uint64_t combine(uint64_t a, uint64_t b) const {
    const bool less = facts_.is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
    switch (c_.op) {
      case Op::min:
        return less ? a : b;
      case Op::max:
        return less ? b : a;
      case Op::prod:
        return a * b;
      case Op::band:
        return a & b;
      case Op::bor:
        return a | b;
      case Op::bxor:
        return a ^ b;
      default:
        return a + b;
    }
  }

  const Case& c_;
  const TypeFacts facts_;
  const uint64_t seed_;
  const uint64_t ranks_;
  uint64_t limit_ = 0;    // a sum up to this is exact
  uint64_t largest_ = 0;  // input, where all ranks add something
  uint64_t few_ = 0;      // ranks that add something, where not all can
};

uint64_t read_integer(DataType type, const std::byte* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, type_bytes(type));  // little endian, as all machines that this runs on
  return truncated(type, value);
}

void write_input(const Case& c, const Values& values, uint64_t seed, uint64_t index,
                 std::byte* at) {
  const uint64_t rank = static_cast<uint64_t>(c.rank);
  if (!is_reduction(c.collective)) {
    const uint64_t bits = mix(rank, index, seed);
    std::memcpy(at, &bits, type_bytes(c.type));
  } else if (facts(c.type).is_float) {
    from_double(c.type, static_cast<double>(static_cast<int64_t>(values.input(rank, index))), at);
  } else {
    const uint64_t value = values.input(rank, index);
    std::memcpy(at, &value, type_bytes(c.type));
  }
}

void note(Checked& checked, uint64_t index, const std::string& got, const std::string& want) {
  if (checked.wrong++ == 0)
    checked.first = fmt::format("element {} is {}, expected {}", index, got, want);
}

// Whose input, and which element of it, must be at `index` of this rank's output.
std::pair<uint64_t, uint64_t> origin(const Case& c, uint64_t index) {
  const uint64_t own = static_cast<uint64_t>(c.rank) * c.count;
  switch (c.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {index / c.count, index % c.count};
    case Collective::scatter:
      return {static_cast<uint64_t>(c.root), own + index};
    case Collective::all_to_all:
      return {index / c.count, own + index % c.count};
    case Collective::send_recv:
      return {static_cast<uint64_t>((c.rank + c.ranks - 1) % c.ranks), index};
    default:
      return {static_cast<uint64_t>(c.root), index};
  }
}

}  // namespace

bool has_blocks(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter ||
         c == Collective::gather || c == Collective::scatter || c == Collective::all_to_all;
}

bool is_reduction(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

bool is_rooted(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}

uint64_t Case::send_elements() const {
  const uint64_t all = count * static_cast<uint64_t>(ranks);
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return all;
    case Collective::scatter:
      return rank == root ? all : 0;
    case Collective::broadcast:
      return rank == root ? count : 0;
    case Collective::barrier:
      return 0;
    default:
      return count;
  }
}

uint64_t Case::recv_elements() const {
  const uint64_t all = count * static_cast<uint64_t>(ranks);
  switch (collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
      return all;
    case Collective::gather:
      return rank == root ? all : 0;
    case Collective::reduce:
      return rank == root ? count : 0;
    case Collective::barrier:
      return 0;
    default:
      return count;
  }
}

uint64_t Case::bytes() const {
  if (collective == Collective::barrier) return 0;
  return count * type_bytes(type) * (has_blocks(collective) ? static_cast<uint64_t>(ranks) : 1);
}

Case make_case(const Options& options, DataType type, Op op, int root, int rank, int ranks,
               uint64_t bytes) {
  Case c{options.collective, type, op, root, rank, ranks, bytes / type_bytes(type)};
  if (has_blocks(c.collective)) c.count /= static_cast<uint64_t>(ranks);
  if (c.collective == Collective::barrier) c.count = 0;
  return c;
}

void premul_scalar(DataType type, int rank, void* scalar) {
  const uint64_t factor = premul_factor(rank);
  if (facts(type).is_float)
    from_double(type, static_cast<double>(factor), scalar);
  else
    std::memcpy(scalar, &factor, type_bytes(type));
}

void fill_input(const Case& c, uint64_t seed, void* send) {
  const Values values(c, seed);
  std::byte* at = static_cast<std::byte*>(send);
  const size_t element = type_bytes(c.type);
  for (uint64_t i = 0; i < c.send_elements(); i++, at += element)
    write_input(c, values, seed, i, at);
}

Checked check_input(const Case& c, uint64_t seed, const void* send) {
  Checked checked;
  const Values values(c, seed);
  const std::byte* at = static_cast<const std::byte*>(send);
  const size_t element = type_bytes(c.type);
  std::byte expected[8];
  for (uint64_t i = 0; i < c.send_elements(); i++, at += element) {
    write_input(c, values, seed, i, expected);
    if (std::memcmp(at, expected, element) != 0)
      note(checked, i, "overwritten in the input", "untouched");
  }
  return checked;
}

Checked check_output(const Case& c, uint64_t seed, const void* recv) {
  Checked checked;
  const Values values(c, seed);
  const std::byte* at = static_cast<const std::byte*>(recv);
  const size_t element = type_bytes(c.type);
  const bool is_float = facts(c.type).is_float;
  const uint64_t own =
      c.collective == Collective::reduce_scatter ? static_cast<uint64_t>(c.rank) * c.count : 0;
  for (uint64_t i = 0; i < c.recv_elements(); i++, at += element) {
    if (!is_reduction(c.collective)) {
      const auto [rank, index] = origin(c, i);
      const uint64_t bits = mix(rank, index, seed);
      if (std::memcmp(at, &bits, element) != 0)
        note(checked, i, fmt::format("{:#x}", read_integer(c.type, at)),
             fmt::format("{:#x} (element {} of rank {})", truncated(c.type, bits), index, rank));
    } else if (is_float) {
      double tolerance = 0;
      const double want = values.float_result(own + i, &tolerance), got = to_double(c.type, at);
      if (!(std::abs(got - want) <= tolerance))
        note(checked, i, fmt::format("{}", got), fmt::format("{}", want));
    } else {
      const uint64_t want = values.integer_result(own + i), got = read_integer(c.type, at);
      if (got != want) note(checked, i, fmt::format("{}", got), fmt::format("{}", want));
    }
  }
  return checked;
}

}  // namespace sennit::bench
