// peer_connection.hpp: one authenticated connection to a peer: queues of what is to go out, framing, and bytes
// moved between the socket and the messages' own memory.
//
// Large messages are written from, and read into, their segments (sendmsg, recvmsg), a piece at a
// time. Headers and eager messages are copied through a staging buffer and a 64 KiB receive buffer,
// so that many of them cost one system call. What a message means is the Handler's business.
// Threads: the engine's lock. A connection outlives its socket: queued requests wait in it, before it is
// open and after it broke.
//
// Sealed (transports/tcp/sealed.cpp), every header and whatever follows one is a unit of its own
// (transports/tcp/seal.hpp). Going out, all is encrypted into the staging buffer, one piece at a
// time. Coming in, a piece is received where it belongs and opened there, or in a buffer where it
// belongs to several segments; nothing is reported before it has opened.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transports/segments.hpp"
#include "transports/tcp/seal.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit::tcp {

class PeerConnection;

class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  // An eager message with its bytes, or a control header. An error ends the connection.
  virtual Status on_message(PeerConnection& connection, const WireHeader& header,
                            std::span<const std::byte> bytes) = 0;
  // A large message begins: where it goes, or nullptr to drop it. The connection holds the receive until
  // ...
  virtual RecvRequest* on_first_piece(PeerConnection& connection, const WireHeader& header) = 0;
  virtual void on_received(RecvRequest& request) = 0;  // ... all of it is there, or
  virtual void on_given_up(PeerConnection& connection,
                           RecvRequest& request) = 0;  // ... its sender gave up.
  virtual void on_sent(SendRequest& request) = 0;
};

class PeerConnection {
 public:
  PeerConnection(int peer, size_t window_bytes, MessageHandler& handler)
      : peer_(peer), window_bytes_(window_bytes), handler_(handler) {}
  ~PeerConnection() { shut(); }
  PeerConnection(const PeerConnection&) = delete;
  PeerConnection& operator=(const PeerConnection&) = delete;

  int peer() const { return peer_; }
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // takes the socket over; keys: it is sealed
  void open(int fd, const std::optional<SealKeys>& keys = {});
  void shut();  // queues keep what they hold

  // Queues; write() moves it.
  void post_control(const WireHeader& header) {
    controls_.push_back(header);
    expected_ += header.kind == HeaderKind::ready;
  }
  // Sealed: see transports/tcp/sealed.cpp. True: a question was posted.
  bool post_ask();
  void post_answer(uint64_t received);
  void post_eager(SendRequest& request) { eager_.push(request); }  // paid for with take_window()
  void post_granted(SendRequest& request) { granted_.push(request); }

  // Moves bytes until the socket blocks or the call has moved enough for now; then `more` is set.
  // An error means that the connection is over.
  Status write(bool& more);
  // `to_the_end`: the socket was reported closing, so a short read does not mean that it is empty.
  Status read(bool to_the_end, bool& more);
  bool blocked() const { return blocked_; }
  void unblock() { blocked_ = false; }
  bool receiving() const { return incoming_ != nullptr; }
  bool has_staged() const { return staged_begin_ < staged_.size(); }

  // The window of eager messages, per communicator.
  bool take_window(uint32_t comm, size_t bytes);    // sender: false if there is not enough of it
  bool hold(uint32_t comm, size_t bytes);           // receiver: false if the peer exceeds it
  void return_window(uint32_t comm, size_t bytes);  // receiver: the message was consumed

  void forget(const std::function<bool(uint32_t comm)>& over);

  // Takes out the sends (the receive) that `which` selects; what is half moved is completed from a
  // private copy, or dropped on arrival, so the connection stays in step.
  template <typename Which, typename Taken>
  void take_sends_if(Which which, Taken taken) {
    eager_.take_if(which, taken);
    granted_.take_if(which, taken);
    for (SendRequest*& request : staged_sends_)
      if (request && which(*request)) taken(*std::exchange(request, nullptr));
    if (outgoing_ && which(*outgoing_)) taken(*detach_outgoing());
  }
  template <typename Which, typename Taken>
  void take_receive_if(Which which, Taken taken) {
    if (!incoming_ || !which(*incoming_)) return;
    if (sealed_) receive_elsewhere();
    taken(*std::exchange(incoming_, nullptr));
  }

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  // First in, first out, through the requests' own links.
  class SendQueue {
   public:
    SendRequest* front() const { return static_cast<SendRequest*>(head_); }
    void push(SendRequest& request) {
      request.next = nullptr;
      (tail_ ? tail_->next : head_) = &request;
      tail_ = &request;
    }
    void pop() {
      head_ = head_->next;
      if (!head_) tail_ = nullptr;
    }
    template <typename Which, typename Taken>
    void take_if(Which which, Taken taken) {
      SendRequest* request = front();
      head_ = tail_ = nullptr;
      while (request) {
        auto* next = static_cast<SendRequest*>(request->next);
        if (which(*request))
          taken(*request);
        else
          push(*request);
        request = next;
      }
    }

   private:
    MessageRequest* head_ = nullptr;
    MessageRequest* tail_ = nullptr;
  };

  struct Window {
    size_t available;  // as a sender
    size_t held = 0;   // as a receiver: sent by the peer and not returned yet
    size_t owed = 0;   // ... of which consumed, to be returned with a header
    bool credit_posted = false;
  };

  struct Sealed {
    explicit Sealed(const SealKeys& keys) : out(keys.cipher, keys.out), in(keys.cipher, keys.in) {}
    Seal out, in;
    bool header_open = false;  // the one that the receive buffer begins with
    bool piece_due = false;    // a piece has come but for its tag
    bool aside = false;        // the piece comes into `buffer`
    Segment place;             // where the piece comes
    SegmentCursor rest;        // of the message, from this piece on
    std::vector<std::byte> buffer;
    uint64_t silent_at = 0;  // bytes_received_ at the last stall ...
    uint32_t stalls = 0;     // ... and how many there have been since the last byte came
  };
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

  Window& window(uint32_t comm);
  Window* known_window(uint32_t comm);  // null: nothing has moved on it
  void stage();
  // What `bytes` of a header, an eager message or a piece are on the wire.
  size_t unit_bytes(size_t bytes) const {
    return bytes + (sealed_ && bytes > 0 ? Seal::kTagBytes : 0);
  }
  std::byte* stage_bytes(size_t bytes);
  void stage_header(WireHeader header);
  SendRequest* detach_outgoing();
  void piece_received();
  Status parse();
  Status begin_piece(const WireHeader& header);
  void message_received();
  // transports/tcp/sealed.cpp
  Status forged() const;
  void stage_sealed_piece();
  bool header_opened(Status& status);
  Status place_piece(size_t bytes);
  Status open_piece();
  void receive_elsewhere();

  const int peer_;
  const size_t window_bytes_;
  MessageHandler& handler_;
  int fd_ = -1;
  bool blocked_ = false;
  std::unique_ptr<Sealed> sealed_;  // none: the connection is plain

  // Outgoing: staged bytes first, then what is left of the current piece.
  std::vector<WireHeader> controls_;
  size_t controls_begin_ = 0;
  SendQueue eager_, granted_;
  std::vector<std::byte, Unfilled<std::byte>> staged_;
  size_t staged_begin_ = 0;
  std::vector<SendRequest*> staged_sends_;  // done when the kernel has what is staged
  SendRequest* outgoing_ = nullptr;         // the large message under way
  SegmentCursor outgoing_cursor_;
  size_t outgoing_left_ = 0;  // of the message, beyond this piece
  // may be above 0 without outgoing_: then it is the private copy's
  size_t outgoing_piece_left_ = 0;
  std::vector<std::byte> private_copy_;
  Segment private_segment_;

  // Incoming.
  size_t expected_ = 0;  // large messages that were asked for
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  RecvRequest* incoming_ = nullptr;
  SegmentCursor incoming_cursor_;
  size_t incoming_left_ = 0;        // of the message, beyond this piece
  size_t incoming_piece_left_ = 0;  // without incoming_: to be dropped

  std::unordered_map<uint32_t, Window> windows_;
  uint32_t last_comm_ = 0;
  Window* last_window_ = nullptr;
  uint64_t bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace sennit::tcp
