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

#include "control/channels.hpp"
#include "transports/tcp/auth.hpp"

namespace sennit::control {

// Owns its descriptor and closes it when destroyed. The loop calls drive() when the descriptor is
// ready and looks at end() after that.
class Connection final : public Channel {
 public:
  static constexpr size_t kUnitBytes = 128 * 1024;

  // Takes over fd. `connecting`: a connection attempt of ours that is still under way.
  Connection(int fd, Handshake handshake, Role role, int rank, bool connecting, int64_t now);
  ~Connection() { close_socket(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Goes as far as it can; appends the frames that arrived. May both give frames and set end().
  void drive(std::vector<ReceivedFrame>* messages, int64_t now);
  void send(const EncodedFrame& buffer, int64_t now);  // queued until the peer has proved itself
  void shut();  // no more will be sent; takes effect when all is written

  int fd() const { return fd_; }
  // accepted ones: it has begun to prove itself
  bool greeted() const { return handshake_.peer() >= 0; }
  bool wants_write() const {
    return connecting_ || (proven ? !out_.empty() : handshake_.wants_write());
  }
  bool drained() const { return out_.empty(); }
  End end() const { return end_; }
  const std::string& reason() const { return reason_; }

  // What the loop waits for.
  uint32_t epoll_events = 0;

 private:
  // The keys' state, and what is under way in each direction.
  struct Sealed {
    explicit Sealed(const SealKeys& keys) : out(keys.cipher, keys.out), in(keys.cipher, keys.in) {}
    Seal out, in;
    bool header_open = false;        // of the frame that the unread bytes begin with
    std::vector<std::byte> leaving;  // out_.front()
  };

  bool read_frames(std::vector<ReceivedFrame>* messages);
  bool take_frame(size_t* used, ReceivedFrame* message);
  void write_frames();
  void finish_forged();
  bool open_header(std::byte* at);
  bool open_payload(std::byte* at, size_t length, std::vector<std::byte>* out);
  void seal_front();
  void finish(End end, std::string reason);

  int fd_;
  Handshake handshake_;
  bool connecting_;
  bool shutting_ = false, shut_ = false;
  End end_ = End::none;
  std::string reason_;
  std::vector<std::byte> in_;
  std::deque<EncodedFrame> out_;
  size_t out_offset_ = 0;
  std::unique_ptr<Sealed> sealed_;  // from `proven` on; none: the connection is plain
};

}  // namespace sennit::control
