// outbox.hpp: what is to go out over one connection: headers and messages in the order in which
// they go, framed, sealed where the connection is, and offered as bytes for the socket.
//
// Control headers go first, then eager messages, then the next piece of the oldest large message.
// Headers and eager messages are copied into a staging buffer, so that many of them cost one system
// call; a large message is offered out of its own segments, a piece at a time. Sealed, every header
// and whatever follows one is a unit of its own (transports/tcp/seal.hpp), and all is encrypted
// into the staging buffer.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "transports/request_list.hpp"
#include "transports/segments.hpp"
#include "transports/tcp/eager_windows.hpp"
#include "transports/tcp/seal.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit::tcp {

// Touches no socket and may outlive one: what is queued waits in it. Requests and their memory are
// the caller's, and stay until sent() or take_sends_if() names them. Not thread-safe.
class Outbox {
 public:
  // Headers take along the credit that `windows`, which outlive this, owe.
  explicit Outbox(EagerWindows& windows) : windows_(windows) {}

  // From the first byte on everything is sealed with the keys of this end.
  void seal(const SealKeys& keys) { seal_ = std::make_unique<Seal>(keys.cipher, keys.out); }

  void post_control(const WireHeader& header) { controls_.push_back(header); }
  void post_eager(SendRequest& request) { eager_.push_back(request); }      // paid for
  void post_granted(SendRequest& request) { granted_.push_back(request); }  // its receive is posted

  // Bytes were staged that have not gone yet.
  bool has_staged() const { return staged_begin_ < staged_.size(); }
  // Nothing is staged, queued or under way.
  bool empty() const {
    return !has_staged() && !outgoing_ && eager_.empty() && granted_.empty() &&
           controls_begin_ == controls_.size();
  }

  // The bytes that go next, in at most `count` pieces, of which there is one at least unless there
  // is nothing to send. They stay in place until sent() or take_sends_if().
  int gather(iovec* pieces, int count);
  // So many of them have gone. `done(request)` is called for each send whose last byte has.
  template <typename Done>
  void sent(size_t bytes, Done done);

  // Takes out the sends that `which` selects; what is half sent is completed from a private copy,
  // so the connection stays in step.
  template <typename Which, typename Taken>
  void take_sends_if(Which which, Taken taken) {
    eager_.take_if(which, taken);
    granted_.take_if(which, taken);
    for (SendRequest*& request : staged_sends_)
      if (request && which(*request)) taken(*std::exchange(request, nullptr));
    if (outgoing_ && which(*outgoing_)) taken(*detach_outgoing());
  }

 private:
  // Grows without filling what is written anyway.
  template <typename T>
  struct Unfilled : std::allocator<T> {
    template <typename U>
    struct rebind {
      using other = Unfilled<U>;
    };
    template <typename U>
    void construct(U* at) {
      ::new (static_cast<void*>(at)) U;
    }
    using std::allocator<T>::allocator;
  };

  void stage();
  std::byte* stage_bytes(size_t bytes);
  void stage_header(WireHeader header);
  void stage_eager(SendRequest& request);
  bool stage_piece();
  void stage_sealed_piece();
  SendRequest* detach_outgoing();

  EagerWindows& windows_;
  std::unique_ptr<Seal> seal_;  // none: the connection is plain
  std::vector<WireHeader> controls_;
  size_t controls_begin_ = 0;
  RequestList<SendRequest> eager_, granted_;

  // Staged bytes go first, then what is left of the current piece.
  std::vector<std::byte, Unfilled<std::byte>> staged_;
  size_t staged_begin_ = 0;
  std::vector<SendRequest*> staged_sends_;  // done when all that is staged has gone
  SendRequest* outgoing_ = nullptr;         // the large message under way
  SegmentCursor outgoing_cursor_;
  size_t outgoing_left_ = 0;  // of the message, beyond this piece
  // May be above 0 without outgoing_: then it is the private copy's.
  size_t outgoing_piece_left_ = 0;
  std::vector<std::byte> private_copy_;
  Segment private_segment_;
};

template <typename Done>
void Outbox::sent(size_t bytes, Done done) {
  const size_t of_staged = std::min(bytes, staged_.size() - staged_begin_);
  staged_begin_ += of_staged;
  if (!has_staged()) {
    for (SendRequest* request : staged_sends_)
      if (request) done(*request);
    staged_sends_.clear();
  }
  const size_t of_piece = bytes - of_staged;
  if (of_piece == 0) return;
  outgoing_cursor_.advance(of_piece);
  outgoing_piece_left_ -= of_piece;
  if (outgoing_piece_left_ > 0) return;
  if (!outgoing_)
    private_copy_ = {};
  else if (outgoing_left_ == 0)
    done(*std::exchange(outgoing_, nullptr));
}

}  // namespace sennit::tcp
