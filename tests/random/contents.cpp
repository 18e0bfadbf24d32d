// contents.cpp: see tests/random/contents.hpp: how numbers lie in each type, and what each
// collective makes of them.
#include "tests/random/contents.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "sennit/sennit.h"

namespace random_programs {
namespace {

constexpr size_t kPeriod = 61;
constexpr unsigned char kUntouched = 0xC3;

uint32_t mix(uint32_t a, uint32_t b, uint32_t c = 0, uint32_t d = 0) {
  uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du ^ d * 0x27d4eb2fu;
  h ^= h >> 15;
  h *= 0x2c1b3c6du;
  h ^= h >> 12;
  h *= 0x297a2d39u;
  return h ^ h >> 15;
}

// ---- numbers ----

// A float of 1 sign bit, `exponent_bits` and `mantissa_bits`, for normal values that it holds
// exactly.
uint32_t small_float(double value, int exponent_bits, int mantissa_bits) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // 0.5 <= fraction < 1
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<uint32_t>(std::ldexp(fraction * 2 - 1, mantissa_bits));
  const auto biased = static_cast<uint32_t>(exponent - 1 + bias);
  const uint32_t sign = value < 0 ? 1u << (exponent_bits + mantissa_bits) : 0;
  return sign | biased << mantissa_bits | mantissa;
}

template <typename T>
void store(T value, unsigned char* out) {
  std::memcpy(out, &value, sizeof value);
}

bool is_unsigned(int type) {
  return type == SENNIT_UINT8 || type == SENNIT_UINT32 || type == SENNIT_UINT64;
}
bool is_fp8(int type) { return type == SENNIT_FLOAT8_E4M3 || type == SENNIT_FLOAT8_E5M2; }

// What rank number `place` of n gives for element i of the period of block `block`. Sums over any
// of the ranks stay within 8 for 8-bit floats, products within 16: those types hold no more of them
// exactly.
double given(const Event& event, unsigned salt, int place, int n, uint32_t block, uint32_t i) {
  const auto p = static_cast<uint32_t>(place);
  const uint32_t h = mix(salt, p + 1, block + 1, i + 1);
  const auto turn = (p + i) % static_cast<uint32_t>(n);
  switch (event.op) {
    case SENNIT_PROD:
      if (turn >= 4) return 1;
      if (is_unsigned(event.type)) return h % 3;
      return h % 4 == 0 ? -1.0 : 1.0 + h % 2;  // no zero: it would have a sign
    case SENNIT_MIN:
    case SENNIT_MAX:
      return is_unsigned(event.type) ? h % 16 : static_cast<double>(h % 17) - 8;
    case SENNIT_AVG: {  // the sum is a multiple of n: neighbours cancel each other out
      const double base = is_fp8(event.type) && n > 4
                              ? 0
                              : 1 + mix(salt, 7, block, i) % (is_fp8(event.type) ? 1 : 5);
      if (place == n - 1 && n % 2 == 1) return base;
      return base + (p % 2 == mix(salt, p / 2, block, i) % 2 ? 1 : -1);
    }
    case SENNIT_BAND:
    case SENNIT_BOR:
    case SENNIT_BXOR:
      return h % 128;
    default:
      if (turn >= 8) return 0;
      return h % (is_fp8(event.type) ? 2 : 3);
  }
}

double reduced(const Event& event, unsigned salt, int n, uint32_t block, uint32_t i) {
  double all = given(event, salt, 0, n, block, i);
  if (event.op == kPremulSum) all *= scalar_of(event, 0);
  for (int place = 1; place < n; place++) {
    const double one = given(event, salt, place, n, block, i);
    switch (event.op) {
      case SENNIT_PROD:
        all *= one;
        break;
      case SENNIT_MIN:
        all = std::min(all, one);
        break;
      case SENNIT_MAX:
        all = std::max(all, one);
        break;
      case SENNIT_BAND:
        all = static_cast<int>(all) & static_cast<int>(one);
        break;
      case SENNIT_BOR:
        all = static_cast<int>(all) | static_cast<int>(one);
        break;
      case SENNIT_BXOR:
        all = static_cast<int>(all) ^ static_cast<int>(one);
        break;
      case kPremulSum:
        all += one * scalar_of(event, place);
        break;
      default:
        all += one;
    }
  }
  return event.op == SENNIT_AVG ? all / n : all;
}

// Writes `count` elements of the period that `number` gives.
template <typename F>
void write_numbers(int type, size_t count, unsigned char* out, F&& number) {
  const size_t size = bytes_of_type(type), once = std::min(count, kPeriod);
  for (size_t i = 0; i < once; i++)
    put_number(type, number(static_cast<uint32_t>(i)), out + i * size);
  for (size_t done = once; done < count;) {
    const size_t more = std::min(done, count - done) / kPeriod * kPeriod;
    const size_t now = more > 0 ? more : count - done;
    std::memcpy(out + done * size, out, now * size);
    done += now;
  }
}

void write_bytes(size_t bytes, unsigned char* out, uint32_t salt, int from, int to) {
  const uint32_t h = mix(salt, static_cast<uint32_t>(from) + 1, static_cast<uint32_t>(to) + 1);
  for (size_t k = 0; k < bytes; k++)
    out[k] = static_cast<unsigned char>(h + static_cast<uint32_t>(k) * 131 +
                                        (static_cast<uint32_t>(k) >> 8) * 17);
}

// ---- v-variants ----

uint32_t salt_of_counts(const Event& event) {
  return mix(static_cast<uint32_t>(event.count), static_cast<uint32_t>(event.what),
             static_cast<uint32_t>(event.type), static_cast<uint32_t>(event.gaps));
}

// How many elements block `to` of `from` has; where all ranks agree on the counts `from` is 0.
size_t count_of(const Event& event, int from, int to) {
  const uint32_t h =
      mix(salt_of_counts(event), static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  if (h % 4 == 0) return 0;
  return (h >> 2) % (static_cast<uint32_t>(event.count) + 1);
}

std::vector<size_t> places_of(const std::vector<size_t>& counts, bool gaps) {
  std::vector<size_t> places;
  size_t at = 0;
  for (const size_t count : counts) {
    if (gaps) at += 2;
    places.push_back(at);
    at += count;
  }
  return places;
}

bool is_v(const Event& event) { return event.what >= static_cast<int>(Collective::all_gather_v); }

// ---- buffers ----

struct Filler {
  const Event& event;
  const unsigned salt;
  const int n, me, root;  // places
  const size_t size;
  Contents out;

  // Blocks of `counts` elements at `places`, in elements.
  struct Blocks {
    std::vector<size_t> counts, places;
    size_t end() const { return counts.empty() ? 0 : places.back() + counts.back(); }
  };
  Blocks blocks(bool one_count, int from) const {
    Blocks b;
    for (int to = 0; to < n; to++)
      b.counts.push_back(is_v(event) ? count_of(event, one_count ? 0 : from, to)
                                     : static_cast<size_t>(event.count));
    b.places =
        places_of(b.counts, is_v(event) && event.gaps &&
                                event.what != static_cast<int>(Collective::reduce_scatter_v));
    return b;
  }
  Blocks blocks_from_all() const {  // all_to_all's receive side
    Blocks b;
    for (int from = 0; from < n; from++)
      b.counts.push_back(is_v(event) ? count_of(event, from, me)
                                     : static_cast<size_t>(event.count));
    b.places = places_of(b.counts, is_v(event) && event.gaps);
    return b;
  }

  void number_block(Bytes& to, size_t place, size_t count, uint32_t block, bool result) {
    write_numbers(event.type, count, to.data() + place * size, [&](uint32_t i) {
      return result ? reduced(event, salt, n, block, i) : given(event, salt, me, n, block, i);
    });
  }
  void data_block(Bytes& to, size_t place, size_t count, int from, int for_whom) {
    write_bytes(count * size, to.data() + place * size, salt, from, for_whom);
  }
  static Bytes untouched(size_t bytes) { return Bytes(bytes, kUntouched); }

  void tell_counts(const Blocks& b, bool all_known) {
    if (!is_v(event)) return;
    out.counts = b.counts;
    for (int r = 0; r < n && !all_known; r++)
      if (r != me) out.counts[static_cast<size_t>(r)] = 0;
    if (event.gaps) out.displacements = b.places;
  }

  // One vector on every rank: all_reduce, broadcast, reduce.
  void whole(bool sends, bool receives, bool result) {
    const auto count = static_cast<size_t>(event.count);
    out.sends = sends;
    out.receives = receives;
    if (sends) {
      out.send = untouched(count * size);
      if (result)
        number_block(out.send, 0, count, 0, false);
      else
        data_block(out.send, 0, count, root, 0);
    }
    if (!receives) return;
    out.recv = untouched(count * size);
    out.want = out.recv;
    if (result)
      number_block(out.want, 0, count, 0, true);
    else
      data_block(out.want, 0, count, root, 0);
    if (event.in_place && sends) {
      out.in_place = true;
      out.recv = std::move(out.send);
      out.send.clear();
    }
  }

  // Everybody's block to all of them, or to the root.
  void gather(const Blocks& b, bool receives, bool all_known) {
    const auto mine = static_cast<size_t>(me);
    out.sends = true;
    out.receives = receives;
    tell_counts(b, all_known);
    out.send = untouched(b.counts[mine] * size);
    data_block(out.send, 0, b.counts[mine], me, 0);
    if (!receives) return;
    out.recv = untouched(b.end() * size);
    out.want = out.recv;
    for (int r = 0; r < n; r++)
      data_block(out.want, b.places[static_cast<size_t>(r)], b.counts[static_cast<size_t>(r)], r,
                 0);
    if (!event.in_place) return;
    out.in_place = true;
    out.send_offset = b.places[mine] * size;
    std::copy(out.send.begin(), out.send.end(),
              out.recv.begin() + static_cast<ptrdiff_t>(out.send_offset));
    out.send.clear();
  }

  // A block for each, out of one buffer: scatter, reduce_scatter.
  void scatter(const Blocks& b, bool sends, bool numbers, bool all_known) {
    const auto mine = static_cast<size_t>(me);
    out.sends = sends;
    out.receives = true;
    tell_counts(b, all_known);
    if (numbers) out.displacements.clear();
    if (sends) {
      out.send = untouched(b.end() * size);
      for (int r = 0; r < n; r++) {
        const auto i = static_cast<size_t>(r);
        if (numbers)
          number_block(out.send, b.places[i], b.counts[i], static_cast<uint32_t>(r), false);
        else
          data_block(out.send, b.places[i], b.counts[i], me, r);
      }
    }
    out.recv = untouched(b.counts[mine] * size);
    out.want = out.recv;
    if (numbers)
      number_block(out.want, 0, b.counts[mine], static_cast<uint32_t>(me), true);
    else
      data_block(out.want, 0, b.counts[mine], root, me);
    if (!event.in_place || !sends) return;
    out.in_place = out.send_is_whole = true;
    out.recv_offset = b.places[mine] * size;
    const Bytes block = std::move(out.want);
    out.want = out.send;
    std::copy(block.begin(), block.end(),
              out.want.begin() + static_cast<ptrdiff_t>(out.recv_offset));
    if (numbers) {
      out.from = out.recv_offset;
      out.to = out.recv_offset + block.size();
    }
    out.recv.clear();
  }

  void all_to_all() {
    const Blocks to = blocks(false, me), from = blocks_from_all();
    out.sends = out.receives = true;
    if (is_v(event)) {
      out.counts = to.counts;
      out.recv_counts = from.counts;
      if (event.gaps) {
        out.displacements = to.places;
        out.recv_displacements = from.places;
      }
    }
    out.send = untouched(to.end() * size);
    out.recv = untouched(from.end() * size);
    out.want = out.recv;
    for (int r = 0; r < n; r++) {
      const auto i = static_cast<size_t>(r);
      data_block(out.send, to.places[i], to.counts[i], me, r);
      data_block(out.want, from.places[i], from.counts[i], r, me);
    }
    if (!event.in_place || is_v(event)) return;
    out.in_place = true;
    out.recv = std::move(out.send);
    out.send.clear();
  }

  void fill() {
    const bool at_root = me == root;
    switch (static_cast<Collective>(event.what)) {
      case Collective::all_reduce:
        return whole(true, true, true);
      case Collective::reduce:
        return whole(true, at_root, true);
      case Collective::broadcast:
        return whole(at_root, true, false);
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        return scatter(blocks(true, 0), true, true, true);
      case Collective::all_gather:
      case Collective::all_gather_v:
        return gather(blocks(true, 0), true, true);
      case Collective::gather:
      case Collective::gather_v:
        return gather(blocks(true, 0), at_root, at_root);
      case Collective::scatter:
      case Collective::scatter_v:
        return scatter(blocks(true, 0), at_root, false, at_root);
      case Collective::all_to_all:
      case Collective::all_to_all_v:
        return all_to_all();
      case Collective::barrier:
        return;
    }
  }
};

}  // namespace

double scalar_of(const Event& event, int place) { return is_fp8(event.type) ? 2 : 1 + place % 3; }

size_t bytes_of_type(int type) {
  static constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
  return kBytes[type];
}

void put_number(int type, double value, unsigned char* out) {
  switch (type) {
    case SENNIT_INT8:
    case SENNIT_UINT8:
      return store(static_cast<uint8_t>(static_cast<int64_t>(value)), out);
    case SENNIT_INT32:
    case SENNIT_UINT32:
      return store(static_cast<uint32_t>(static_cast<int64_t>(value)), out);
    case SENNIT_INT64:
    case SENNIT_UINT64:
      return store(static_cast<int64_t>(value), out);
    case SENNIT_FLOAT16:
      return store(static_cast<uint16_t>(small_float(value, 5, 10)), out);
    case SENNIT_BFLOAT16:
      return store(static_cast<uint16_t>(small_float(value, 8, 7)), out);
    case SENNIT_FLOAT32:
      return store(static_cast<float>(value), out);
    case SENNIT_FLOAT64:
      return store(value, out);
    case SENNIT_FLOAT8_E4M3:
      return store(static_cast<uint8_t>(small_float(value, 4, 3)), out);
    default:
      return store(static_cast<uint8_t>(small_float(value, 5, 2)), out);
  }
}

Contents contents_of(const Event& called, const Comm& comm, int rank, unsigned salt) {
  Filler filler{called,
                salt,
                static_cast<int>(comm.members.size()),
                place_of(comm, rank),
                called.root >= 0 ? place_of(comm, called.root) : -1,
                bytes_of_type(called.type),
                {}};
  filler.fill();
  return std::move(filler.out);
}

Contents contents_of_message(const Event& event, unsigned salt, bool sender) {
  Contents contents;
  Bytes data(static_cast<size_t>(event.count) * bytes_of_type(event.type));
  write_bytes(data.size(), data.data(), salt, event.rank, event.peer);
  contents.sends = sender;
  contents.receives = !sender;
  if (sender) {
    contents.send = std::move(data);
  } else {
    contents.recv.assign(data.size(), kUntouched);
    contents.want = std::move(data);
  }
  return contents;
}

bool needs(const Event& event, const Comm& comm, int rank, int other) {
  if (rank == other) return false;
  if (event.action == Action::message)
    return rank == event.peer && other == event.rank && event.count > 0;
  if (event.action != Action::call) return waits_for_all(event);
  if (waits_for_all(event)) return true;
  if (event.count == 0) return false;
  const bool to_root = rank == event.root, from_root = other == event.root;
  const int me = place_of(comm, rank), them = place_of(comm, other);
  switch (static_cast<Collective>(event.what)) {
    case Collective::broadcast:
    case Collective::scatter:
      return from_root;
    case Collective::reduce:
    case Collective::gather:
      return to_root;
    case Collective::all_gather_v:
      return count_of(event, 0, them) > 0;
    case Collective::gather_v:
      return to_root && count_of(event, 0, them) > 0;
    case Collective::scatter_v:
      return from_root && count_of(event, 0, me) > 0;
    case Collective::reduce_scatter_v:
      return count_of(event, 0, me) > 0;
    case Collective::all_to_all_v:
      return count_of(event, them, me) > 0;
    default:
      return false;
  }
}

}  // namespace random_programs
