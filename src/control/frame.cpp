// frame.cpp: see control/frame.hpp.
#include "control/frame.hpp"

#include <iterator>

namespace sennit::control {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kUsualFrameBytes = 64;

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

FrameHeader read_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  ByteReader in(bytes);
  FrameHeader header;
  header.length = in.u32();
  header.frame = static_cast<Frame>(in.u16());
  header.known = in.u16() == 0 && header.frame <= Frame::last_;
  return header;
}

ByteWriter begin_frame(Frame frame) {
  ByteWriter out;
  out.reserve(kUsualFrameBytes);
  out.u32(0).u16(static_cast<uint16_t>(frame)).u16(0);
  return out;
}

Buffer finish_frame(ByteWriter out) {
  std::vector<std::byte> bytes = out.take();
  const auto length = static_cast<uint32_t>(bytes.size() - kFrameHeaderBytes);
  for (size_t i = 0; i < kLengthBytes; i++) bytes[i] = static_cast<std::byte>(length >> (8 * i));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Buffer make_frame(Frame frame, std::span<const std::byte> payload) {
  ByteWriter out = begin_frame(frame);
  out.bytes(payload);
  return finish_frame(std::move(out));
}

Message open_frame(const Buffer& frame) {
  const std::span<const std::byte> bytes = *frame;
  const FrameHeader header = read_frame_header(bytes.first<kFrameHeaderBytes>());
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  return {header.frame, {payload.begin(), payload.end()}};
}

}  // namespace sennit::control
