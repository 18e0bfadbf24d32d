// wire.hpp: what the control plane says: frames of {length, type, payload}, and the means to write
// and read payloads. Integers are little-endian, texts and blobs carry their length, sets of ranks
// go as ranges.
//
// A Reader never reads past its end and never takes more memory than the bytes that really arrived:
// it turns "not ok" and gives zeros, and the caller drops the connection. Cost: one pass, one copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/socket.hpp"

namespace sennit::control {

enum class Frame : uint16_t {
  // Start: the first frame of a connection is one of the first three.
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
  gathered,        // down: all pairs
  broadcast,       // down: blob
  collective_off,  // down: collective number seq failed: kind, text
  suspect,         // up: rank r may be dead, because
  decision,        // down: the failed set and the text
  link_down,       // down: the link between a and b broke, both live
  stall,           // up: a call makes no progress, or its messages do not match
  inquire,         // down: what are you doing in call seq on communicator comm?
  answer,          // up
  comm_failed,     // down: communicator comm is in error
  abort_request,   // up
  goodbye,         // up: rank r leaves
  goodbye_ack,     // down to r: the coordinator knows
  leaving,         // to children that stay longer than their parent: look for another
  last_ = leaving
};
const char* name(Frame frame);

inline constexpr size_t kFrameHeaderBytes = 8;
// before the peer's place in the job is known
inline constexpr size_t kFirstFrameBytes = 64 * 1024;
inline constexpr size_t kFrameBytes = size_t{512} << 20;  // after
// a finished frame; shared when flooded
using Buffer = std::shared_ptr<const std::vector<std::byte>>;

class Writer {
 public:
  explicit Writer(Frame frame);
  Writer& u8(uint8_t value);
  Writer& u16(uint16_t value);
  Writer& u32(uint32_t value);
  Writer& u64(uint64_t value);
  Writer& rank(int value) { return u32(static_cast<uint32_t>(value)); }
  Writer& text(std::string_view value);
  Writer& blob(std::span<const std::byte> value);   // with its length
  Writer& bytes(std::span<const std::byte> value);  // bare
  Writer& ranks(const std::set<int>& value);
  Writer& address(const Address& value);
  Writer& status(const Status& value);
  Buffer finish();  // fills in the length

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint8_t u8();
  uint16_t u16();
  uint32_t u32();
  uint64_t u64();
  int rank() { return static_cast<int>(u32()); }
  std::string text();
  std::span<const std::byte> blob();
  std::set<int> ranks(int size);  // all in [0, size), else not ok
  Address address();
  Status status();  // an error, else not ok
  size_t left() const { return bytes_.size(); }
  bool ok() const { return ok_; }
  void fail() { ok_ = false, bytes_ = {}; }

 private:
  std::span<const std::byte> take(size_t count);
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

struct Message {
  Frame frame = Frame::heartbeat;
  std::vector<std::byte> payload;
};
Buffer forward(const Message& message);  // the same once more, for somebody else

// {0, 1, 2, 4} -> "0-2,4"; "rank 4" or "ranks 0-2,4".
std::string format_ranks(const std::set<int>& ranks);
std::string name_ranks(const std::set<int>& ranks);

}  // namespace sennit::control
