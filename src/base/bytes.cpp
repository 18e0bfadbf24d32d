// bytes.cpp: see base/bytes.hpp.
#include "base/bytes.hpp"

#include <bit>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"

namespace sennit {
namespace {

constexpr size_t kRangeBytes = 8;  // first and last rank

}  // namespace

ByteWriter& ByteWriter::f64(double value) { return u64(std::bit_cast<uint64_t>(value)); }

ByteWriter& ByteWriter::text(std::string_view value) {
  return blob(std::as_bytes(std::span(value)));
}

ByteWriter& ByteWriter::blob(std::span<const std::byte> value) {
  return u32(static_cast<uint32_t>(value.size())).bytes(value);
}

ByteWriter& ByteWriter::bytes(std::span<const std::byte> value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  return *this;
}

ByteWriter& ByteWriter::ranks(const std::set<int>& value) {
  uint32_t count = 0;
  for_each_range(value, [&](int, int) { count++; });
  u32(count);
  for_each_range(value, [&](int first, int last) { rank(first).rank(last); });
  return *this;
}

ByteWriter& ByteWriter::status(const Status& value) {
  return u8(static_cast<uint8_t>(value.kind())).text(value.text());
}

void ByteReader::fail() {
  ok_ = false;
  bytes_ = {};
}

std::span<const std::byte> ByteReader::take(size_t count) {
  if (count > bytes_.size()) {
    fail();
    return {};
  }
  const auto taken = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return taken;
}

double ByteReader::f64() { return std::bit_cast<double>(u64()); }

bool ByteReader::flag() {
  const uint8_t value = u8();
  if (value > 1) fail();
  return value == 1;
}

int ByteReader::rank_below(int size) {
  const int value = rank();
  if (value < 0 || value >= size) fail();
  return ok_ ? value : 0;
}

uint32_t ByteReader::count(size_t entry_bytes) {
  const uint32_t value = u32();
  if (value > left() / entry_bytes) fail();
  return ok_ ? value : 0;
}

std::span<const std::byte> ByteReader::blob() { return take(u32()); }

std::span<const std::byte> ByteReader::rest() { return take(left()); }

std::string ByteReader::text() {
  const auto bytes = blob();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::set<int> ByteReader::ranks(int size) {
  std::set<int> result;
  int next = 0;  // ranges ascend
  for (uint32_t left = count(kRangeBytes); left > 0; left--) {
    const int first = rank();
    const int last = rank();
    if (first < next || last < first || last >= size) {
      fail();
      return {};
    }
    for (int r = first; r <= last; r++) result.insert(result.end(), r);
    next = last + 1;
  }
  return result;
}

Status ByteReader::status() {
  const uint8_t kind = u8();
  std::string what = text();
  if (kind <= SENNIT_IN_PROGRESS || kind > SENNIT_INTERNAL) fail();
  return ok_ ? Status{static_cast<ErrorKind>(kind), std::move(what)} : Status{};
}

Status ByteReader::finish(std::string_view what) const {
  if (ok_ && bytes_.empty()) return {};
  return {SENNIT_INTERNAL, fmt::format("{} is malformed: {}", what,
                                       ok_ ? fmt::format("{} bytes too many", bytes_.size())
                                           : "it ends too early, or a value is out of range")};
}

}  // namespace sennit
