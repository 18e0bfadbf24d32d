// bytes.hpp: messages between processes as bytes. Integers are little-endian, texts and blobs carry
// their length (32 bits), sets of ranks go as ranges.
//
// A message is read in one go and judged at the end:
//
//   struct Greeting {
//     int rank = -1;
//     std::string host;
//     void write(ByteWriter& out) const { out.rank(rank).text(host); }
//     void read(ByteReader& in) { rank = in.rank(), host = in.text(); }
//   };
//   ByteReader in(bytes);
//   greeting.read(in);
//   SENNIT_RETURN_IF_ERROR(in.finish("a greeting"));
//
// Cost: one pass, one copy. Any thread, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace sennit {

// Appends values to one message. Each call returns the writer, so that calls chain. Texts and blobs
// are shorter than 4 GiB, for nobody checks that here.
class ByteWriter {
 public:
  ByteWriter& u8(uint8_t value) { return put(value); }
  ByteWriter& u16(uint16_t value) { return put(value); }
  ByteWriter& u32(uint32_t value) { return put(value); }
  ByteWriter& u64(uint64_t value) { return put(value); }
  ByteWriter& i64(int64_t value) { return put(static_cast<uint64_t>(value)); }
  ByteWriter& f64(double value);
  ByteWriter& flag(bool value) { return u8(value ? 1 : 0); }
  ByteWriter& rank(int value) { return u32(static_cast<uint32_t>(value)); }
  ByteWriter& text(std::string_view value);
  ByteWriter& blob(std::span<const std::byte> value);   // with its length
  ByteWriter& bytes(std::span<const std::byte> value);  // bare
  ByteWriter& ranks(const std::set<int>& value);
  ByteWriter& status(const Status& value);

  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  size_t size() const { return bytes_.size(); }
  // What was written; the writer is empty afterwards.
  std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  template <typename T>
  ByteWriter& put(T value) {
    for (size_t i = 0; i < sizeof(T); i++)
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    return *this;
  }
  std::vector<std::byte> bytes_;
};

// Looks at the bytes that it was given, which must outlive it and what blob() and rest() return. It
// never reads past their end and never takes more memory than the bytes that really arrived. Once
// something does not fit it is "not ok" for good and gives zeros.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint8_t u8() { return get<uint8_t>(); }
  uint16_t u16() { return get<uint16_t>(); }
  uint32_t u32() { return get<uint32_t>(); }
  uint64_t u64() { return get<uint64_t>(); }
  int64_t i64() { return static_cast<int64_t>(u64()); }
  double f64();
  bool flag();                                    // 0 or 1, else not ok
  int rank() { return static_cast<int>(u32()); }  // any; the caller knows the limits
  int rank_below(int size);                       // in [0, size), else not ok
  // How many entries of at least `entry_bytes` follow; not ok where so many cannot have arrived.
  uint32_t count(size_t entry_bytes);
  std::string text();
  std::span<const std::byte> blob();
  std::span<const std::byte> rest();  // all that is left
  std::set<int> ranks(int size);      // all in [0, size), else not ok
  Status status();                    // an error, else not ok

  size_t left() const { return bytes_.size(); }
  bool ok() const { return ok_; }
  void fail();
  // Ok where all could be read and nothing is left over; else an internal error that says that
  // `what` is malformed.
  Status finish(std::string_view what) const;

 private:
  template <typename T>
  T get() {
    const auto taken = take(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < taken.size(); i++)
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(taken[i]) << (8 * i)));
    return value;
  }
  std::span<const std::byte> take(size_t count);
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace sennit
