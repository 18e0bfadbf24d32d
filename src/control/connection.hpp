// connection.hpp: one connection of the control plane: connects, proves the secret in both
// directions (transports/tcp/auth.hpp), then carries frames.
//
// Owned and driven by the control thread. Nothing a peer says is looked at before it has proved
// itself; until its place in the job is known its frames are at most kFirstFrameBytes long. Memory
// grows with the bytes that arrived, not with the lengths they claim. Sealed, a frame's header is
// one unit (transports/tcp/seal.hpp) and its payload one for every kUnitBytes, so that no length is
// believed before it is authenticated.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "control/wire.hpp"
#include "transports/tcp/auth.hpp"

namespace sennit::control {

enum class Role : uint8_t {
  stranger,   // accepted; has not said yet what it wants
  enlisting,  // to rank 0, at the start: where is my parent?
  enlisted,   // at rank 0: waits for its parent to come
  parent,     // tree
  child,      // tree
  probing,    // coordinator to a suspect
  visitor,    // a probe that has been answered, or somebody that was refused
};

// Why a connection ended.
enum class End : uint8_t {
  none,
  refused,      // nobody listens there
  unreachable,  // host or network
  closed,       // by the other side, or reset
  unproven,     // it does not hold the secret
  disagrees,    // it does, but its SENNIT_WIRE is another
  garbage,      // what it says is no frame
  forged,       // sealed: what came is not what was sent
};

inline constexpr int64_t kStrangerMs = 10'000;  // to prove itself and say what it wants

class Connection {
 public:
  static constexpr size_t kUnitBytes = 128 * 1024;

  // Takes over fd. `connecting`: a connection attempt of ours that is still under way.
  Connection(int fd, Handshake handshake, Role role, int rank, bool connecting, int64_t now);
  ~Connection() { close_socket(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Goes as far as it can; appends the frames that arrived. May both give frames and set end().
  void drive(std::vector<Message>* messages, int64_t now);
  void send(const Buffer& buffer, int64_t now);  // queued until the peer has proved itself
  void shut();  // no more will be sent; takes effect when all is written

  int fd() const { return fd_; }
  bool open() const { return open_; }  // the secret is proved; frames flow
  // accepted ones: it has begun to prove itself
  bool greeted() const { return handshake_.peer() >= 0; }
  bool wants_write() const {
    return connecting_ || (open_ ? !out_.empty() : handshake_.wants_write());
  }
  bool drained() const { return out_.empty(); }
  End end() const { return end_; }
  const std::string& reason() const { return reason_; }

  uint64_t id = 0;
  const bool outgoing;  // this rank connected
  Address other;        // the far end
  Role role;
  int rank;                       // the peer's; -1: not known yet
  int64_t since_ms;               // opened
  int64_t deadline_ms;            // must have got on by then; 0: none
  int64_t handshake_time_ms = 0;  // from when it is connected; 0: the deadline stands
  int64_t last_in_ms, last_out_ms;
  bool said_goodbye = false;  // the peer's closing is no failure
  bool joined = false;        // child: its subtree is complete (start); parent: it has welcomed us
  uint32_t epoll_events = 0;  // what the loop waits for

 private:
  struct Sealed {
    explicit Sealed(const SealKeys& keys) : out(keys.cipher, keys.out), in(keys.cipher, keys.in) {}
    Seal out, in;
    bool header_open = false;        // of the frame that the unread bytes begin with
    std::vector<std::byte> leaving;  // out_.front()
  };

  bool read_frames(std::vector<Message>* messages);
  bool take_frame(size_t* used, Message* message);
  void write_frames();
  void finish_forged();
  bool open_header(std::byte* at);
  bool open_payload(std::byte* at, size_t length, std::vector<std::byte>* out);
  void seal_front();
  void finish(End end, std::string reason);

  int fd_;
  Handshake handshake_;
  bool connecting_;
  bool open_ = false;
  bool shutting_ = false, shut_ = false;
  End end_ = End::none;
  std::string reason_;
  std::vector<std::byte> in_;
  std::deque<Buffer> out_;
  size_t out_offset_ = 0;
  std::unique_ptr<Sealed> sealed_;  // from open_ on; none: the connection is plain
};

}  // namespace sennit::control
