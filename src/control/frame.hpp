// frame.hpp: what the control plane says goes in frames of {length, type, 0, payload}, integers
// little-endian. Each type has a struct in control/messages.hpp; encode() makes a frame of one,
// decode() takes one from a payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/status.hpp"

namespace sennit::control {

// What a frame says, in a word; control/messages.hpp says of each who sends it and what follows.
// The numbers are part of the wire format.
enum class FrameType : uint16_t {
  // Start: the first frame of a connection is one of the first three; to the maker of a unique id
  // it is enlist or root_at.
  enlist = 1,      // any rank -> 0: who and where I am
  attach = 2,      // child -> parent: I hang below you
  probe = 3,       // coordinator -> suspect: are you alive?
  probe_answer,    // yes, I am rank r
  parent,          // 0 -> any rank: where its parent listens, or "it is I, keep this connection"
  refuse,          // to a connection that is authentic, but has no place here: kind, text
  joined,          // child -> parent: my whole subtree is attached
  table,           // down: all ranks' addresses, hosts and pids; the start is complete
  start_failed,    // up to rank 0 as a complaint, down to everybody: kind, text
  heartbeat,       // tree neighbours
  welcome,         // parent -> child that attached after the start: what was decided so far
  gather,          // up: (rank, blob) pairs of collective number seq; may come in parts
  gathered,        // down: all blobs
  broadcast,       // down: blob
  collective_off,  // down: collective number seq failed: kind, text
  suspect,         // up: rank r may be dead, because
  decision,        // down: the failed set and the text
  link_down,       // down: the link between a and b broke, both live
  stall,           // up: a call makes no progress, or its messages do not match
  inquire,         // down: what are you doing in call seq on communicator comm?
  answers,         // up: what ranks do in it
  comm_failed,     // down: communicator comm is in error
  abort_request,   // up
  goodbye,         // up: rank r leaves
  goodbye_ack,     // down to r: the coordinator knows
  leaving,         // to children that stay longer than their parent: look for another
  root_at,         // rank 0 <-> the maker of the unique id -> any rank: where rank 0 is
  shared,          // 0 -> all ranks: the start is over, an older job carries the communicator
  tell,            // up: what ranks' users have to say to the coordinator's
  announce,        // down: what the coordinator's user has to say to all ranks'
  clock_ask,       // child -> parent: what time is it with you?
  clock_answer,    // parent -> child: its time, and how it stands to the coordinator's
  last_ = clock_answer
};
// For errors and logs; a string that lives forever.
const char* name(FrameType type);

inline constexpr size_t kFrameHeaderBytes = 8;
// Longest payload before the peer's place in the job is known, and after. The longest of the first
// kind is an attach that names who has left and who is dead: at most eight bytes for each rank of
// the job. All who send one have proved themselves, and there are at most 256 of them at a time.
inline constexpr size_t kFirstFrameBytes = size_t{1} << 20;
inline constexpr size_t kFrameBytes = size_t{512} << 20;

// A finished frame; shared when it goes to many.
using EncodedFrame = std::shared_ptr<const std::vector<std::byte>>;

// What a connection delivers.
struct ReceivedFrame {
  FrameType type = FrameType::heartbeat;
  std::vector<std::byte> payload;
};

// What the first kFrameHeaderBytes of a frame say. Nothing is checked but the type.
struct FrameHeader {
  size_t length = 0;  // of the payload
  FrameType type = FrameType::heartbeat;
  bool known = false;  // its type is one of the above; nothing is said about the length
};
// Never fails; the caller judges the type and the length.
FrameHeader read_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes);

// A header and a copy of the payload.
EncodedFrame make_frame(FrameType type, std::span<const std::byte> payload);
// The message that a frame of our own was made of.
ReceivedFrame open_frame(const EncodedFrame& frame);

// For encode(): a header with room for the length, which is filled in at the end.
ByteWriter begin_frame(FrameType type);
// Fills in the length of what begin_frame() made and takes it over.
EncodedFrame finish_frame(ByteWriter out);

// The frame that says `message`, one of control/messages.hpp.
template <typename T>
EncodedFrame encode(const T& message) {
  ByteWriter out = begin_frame(T::kType);
  message.write(out);
  return finish_frame(std::move(out));
}

// What a payload of T's type says to a rank of a job of `size` ranks. An error where it does not
// fit exactly, or names ranks that the job does not have.
template <typename T>
Result<T> decode(std::span<const std::byte> payload, int size) {
  ByteReader in(payload);
  T message;
  message.read(in, size);
  SENNIT_RETURN_IF_ERROR(in.finish(name(T::kType)));
  return message;
}

}  // namespace sennit::control
