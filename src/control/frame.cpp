// frame.cpp: see control/frame.hpp.
#include "control/frame.hpp"

#include <iterator>

namespace sennit::control {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kUsualFrameBytes = 64;

}  // namespace

const char* name(FrameType type) {
  static constexpr const char* kNames[] = {
      "none",      "enlist",      "attach",      "probe",          "probe answer", "parent",
      "refuse",    "joined",      "table",       "start failed",   "heartbeat",    "welcome",
      "gather",    "gathered",    "broadcast",   "collective off", "suspect",      "decision",
      "link down", "stall",       "inquire",     "answers",        "comm failed",  "abort request",
      "goodbye",   "goodbye ack", "leaving",     "root at",        "shared",       "tell",
      "announce",  "clock_ask",   "clock_answer"};
  static_assert(std::size(kNames) == static_cast<size_t>(FrameType::last_) + 1);
  return type <= FrameType::last_ ? kNames[static_cast<size_t>(type)] : "unknown";
}

FrameHeader read_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  ByteReader in(bytes);
  FrameHeader header;
  header.length = in.u32();
  header.type = static_cast<FrameType>(in.u16());
  header.known = in.u16() == 0 && header.type <= FrameType::last_;
  return header;
}

ByteWriter begin_frame(FrameType type) {
  ByteWriter out;
  out.reserve(kUsualFrameBytes);
  out.u32(0).u16(static_cast<uint16_t>(type)).u16(0);
  return out;
}

EncodedFrame finish_frame(ByteWriter out) {
  std::vector<std::byte> bytes = out.take();
  const auto length = static_cast<uint32_t>(bytes.size() - kFrameHeaderBytes);
  for (size_t i = 0; i < kLengthBytes; i++) bytes[i] = static_cast<std::byte>(length >> (8 * i));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

EncodedFrame make_frame(FrameType type, std::span<const std::byte> payload) {
  ByteWriter out = begin_frame(type);
  out.bytes(payload);
  return finish_frame(std::move(out));
}

ReceivedFrame open_frame(const EncodedFrame& frame) {
  const std::span<const std::byte> bytes = *frame;
  const FrameHeader header = read_frame_header(bytes.first<kFrameHeaderBytes>());
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  return {header.type, {payload.begin(), payload.end()}};
}

}  // namespace sennit::control
