#include "control/wire.hpp"

#include <cstring>

#include <fmt/format.h>

namespace sennit::control {
namespace {

template <typename T>
void put(std::vector<std::byte>& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); i++) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
}

template <typename T>
T get(std::span<const std::byte> bytes) {
  T value = 0;
  for (size_t i = 0; i < bytes.size(); i++)
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[i]) << (8 * i)));
  return value;
}

// Calls visit(first, last) for each run of consecutive ranks.
template <typename Visit>
void runs(const std::set<int>& ranks, Visit visit) {
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    while (++it != ranks.end() && *it == last + 1) last++;
    visit(first, last);
  }
}

}  // namespace

const char* name(Frame frame) {
  static constexpr const char* kNames[] = {
      "none",      "enlist",      "attach",    "probe",          "probe answer", "parent",
      "refuse",    "joined",      "table",     "start failed",   "heartbeat",    "welcome",
      "gather",    "gathered",    "broadcast", "collective off", "suspect",      "decision",
      "link down", "stall",       "inquire",   "answer",         "comm failed",  "abort request",
      "goodbye",   "goodbye ack", "leaving"};
  static_assert(std::size(kNames) == static_cast<size_t>(Frame::last_) + 1);
  return frame <= Frame::last_ ? kNames[static_cast<size_t>(frame)] : "unknown";
}

Writer::Writer(Frame frame) {
  bytes_.reserve(64);
  u32(0).u16(static_cast<uint16_t>(frame)).u16(0);
}
Writer& Writer::u8(uint8_t value) {
  put(bytes_, value);
  return *this;
}
Writer& Writer::u16(uint16_t value) {
  put(bytes_, value);
  return *this;
}
Writer& Writer::u32(uint32_t value) {
  put(bytes_, value);
  return *this;
}
Writer& Writer::u64(uint64_t value) {
  put(bytes_, value);
  return *this;
}
Writer& Writer::text(std::string_view value) { return blob(std::as_bytes(std::span(value))); }
Writer& Writer::blob(std::span<const std::byte> value) {
  return u32(static_cast<uint32_t>(value.size())).bytes(value);
}
Writer& Writer::bytes(std::span<const std::byte> value) {
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  return *this;
}
Writer& Writer::ranks(const std::set<int>& value) {
  uint32_t count = 0;
  runs(value, [&](int, int) { count++; });
  u32(count);
  runs(value, [&](int first, int last) { rank(first).rank(last); });
  return *this;
}
Writer& Writer::address(const Address& value) {
  for (const uint8_t octet : value.ip) u8(octet);
  return u16(value.port);
}
Writer& Writer::status(const Status& value) {
  return u8(static_cast<uint8_t>(value.kind())).text(value.text());
}
Buffer Writer::finish() {
  const uint32_t length = static_cast<uint32_t>(bytes_.size() - kFrameHeaderBytes);
  for (size_t i = 0; i < 4; i++) bytes_[i] = static_cast<std::byte>(length >> (8 * i));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes_));
}

std::span<const std::byte> Reader::take(size_t count) {
  if (count > bytes_.size()) {
    fail();
    return {};
  }
  const auto taken = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return taken;
}
uint8_t Reader::u8() { return get<uint8_t>(take(1)); }
uint16_t Reader::u16() { return get<uint16_t>(take(2)); }
uint32_t Reader::u32() { return get<uint32_t>(take(4)); }
uint64_t Reader::u64() { return get<uint64_t>(take(8)); }
std::span<const std::byte> Reader::blob() { return take(u32()); }
std::string Reader::text() {
  const auto bytes = blob();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::set<int> Reader::ranks(int size) {
  std::set<int> result;
  uint32_t count = u32();
  if (count > left() / 8) fail();
  int next = 0;  // ranges ascend and do not touch
  for (; ok_ && count > 0; count--) {
    const int first = rank(), last = rank();
    if (first < next || last < first || last >= size) {
      fail();
      break;
    }
    for (int r = first; r <= last; r++) result.insert(result.end(), r);
    next = last + 1;
  }
  return result;
}
Address Reader::address() {
  Address result;
  for (uint8_t& octet : result.ip) octet = u8();
  result.port = u16();
  return result;
}

Status Reader::status() {
  const uint8_t kind = u8();
  std::string what = text();
  if (kind <= SENNIT_IN_PROGRESS || kind > SENNIT_INTERNAL) fail();
  return ok_ ? Status{static_cast<ErrorKind>(kind), std::move(what)} : Status{};
}

Buffer forward(const Message& message) {
  Writer out(message.frame);
  return out.bytes(message.payload).finish();
}

std::string format_ranks(const std::set<int>& ranks) {
  std::string text;
  runs(ranks, [&](int first, int last) {
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  });
  return text;
}

std::string name_ranks(const std::set<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", format_ranks(ranks));
}

}  // namespace sennit::control
