// peer.hpp: what the shm transport keeps about a peer and about messages under way.
//
// A request is in one list or table at a time: `waiting` (a send that the ring had no room for),
// `offered` (the peer knows where it lies), `streaming` (the peer asked for it through the ring),
// the Matcher (a posted receive), `receiving` (a receive whose bytes are being fetched). Threads:
// none of its own.
#pragma once

#include <deque>
#include <vector>

#include "transports/segments.hpp"
#include "transports/shm/arena.hpp"
#include "transports/shm/ring.hpp"
#include "transports/shm/segment.hpp"

namespace sennit::shm {

// A doubly linked list through MessageRequest::next and previous.
template <typename Request>
class RequestList {
 public:
  bool empty() const { return first_ == nullptr; }
  Request* front() const { return static_cast<Request*>(first_); }
  static Request* after(const Request* request) { return static_cast<Request*>(request->next); }
  void push_back(Request& request) {
    request.next = nullptr;
    request.previous = last_;
    (last_ ? last_->next : first_) = &request;
    last_ = &request;
  }
  void push_front(Request& request) {
    request.previous = nullptr;
    request.next = first_;
    (first_ ? first_->previous : last_) = &request;
    first_ = &request;
  }
  void remove(Request& request) {
    (request.previous ? request.previous->next : first_) = request.next;
    (request.next ? request.next->previous : last_) = request.previous;
    request.next = request.previous = nullptr;
  }

 private:
  MessageRequest* first_ = nullptr;
  MessageRequest* last_ = nullptr;
};

// Values under ids that are not reused for 2^32 turns of their place; 0 is no id.
template <typename Value>
class IdTable {
 public:
  uint64_t insert(Value value) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Entry& entry = entries_[index];
    entry.value = std::move(value);
    entry.used = true;
    return uint64_t{entry.turn} << 32 | index;
  }
  Value* find(uint64_t id) {
    const uint32_t index = static_cast<uint32_t>(id);
    if (index >= entries_.size() || !entries_[index].used || entries_[index].turn != id >> 32)
      return nullptr;
    return &entries_[index].value;
  }
  void erase(uint64_t id) {  // nothing, where there is none of that id
    if (!find(id)) return;
    Entry& entry = entries_[static_cast<uint32_t>(id)];
    entry.used = false;
    entry.turn++;
    free_.push_back(static_cast<uint32_t>(id));
  }

 private:
  struct Entry {
    Value value{};
    uint32_t turn = 1;
    bool used = false;
  };
  std::deque<Entry> entries_;  // values stay where they are
  std::vector<uint32_t> free_;
};

// Where a request keeps its id and place: indices into MessageRequest::scratch.
enum Scratch : int { kId = 0, kToken = 1, kOffset = 2 };

// What came early on one communicator from one peer.
struct EarlyState {
  uint32_t comm = 0;
  uint64_t early_bytes = 0;  // of the peer's messages, kept here
  bool held = false;         // the peer was told to send offers only
};

struct Control {
  Kind kind;
  bool flag;
  uint64_t signature;
  std::byte body[kInlineBytes];
};

enum class ReadMode : uint8_t { unknown, direct, bounce };

struct Peer {
  int rank = -1;
  Address address{};
  Mapping segment;  // none: it was gone before this rank looked for it
  Producer out;     // a ring in the peer's segment; claimed when first used
  uint32_t out_index = UINT32_MAX;
  Consumer in;  // the peer's ring in our segment
  size_t eager_bytes = 0;
  bool same_pid_namespace = false;
  ReadMode read_mode = ReadMode::unknown;
  RemoteArenas arenas;
  size_t arenas_told = 0;
  std::deque<Control> control;  // had no room in the ring
  RequestList<SendRequest> waiting, offered, streaming;
  RequestList<RecvRequest> receiving;
  size_t posted = 0;  // receives in the matcher
  std::vector<EarlyState> comms;
  bool active = false;
  bool reported = false;  // its death
  Status failed;
  int pid_fd = -1;
  bool pid_fd_tried = false;

  bool busy() const {
    return posted || !waiting.empty() || !offered.empty() || !streaming.empty() ||
           !receiving.empty() || !control.empty();
  }
  EarlyState& early_state(uint32_t comm) {
    for (EarlyState& state : comms)
      if (state.comm == comm) return state;
    comms.push_back({comm, 0, false});
    return comms.back();
  }
  void forget_if_idle(EarlyState& state) {
    if (state.early_bytes || state.held) return;
    state = comms.back();
    comms.pop_back();
  }
};

// A receive whose bytes are fetched from the peer's memory, or come through the ring.
struct Transfer {
  RecvRequest* request = nullptr;
  Peer* peer = nullptr;
  uint64_t offer = 0;  // the sender's id
  uint64_t left = 0;   // bytes
  SegmentCursor target;
  std::vector<RemoteSegment> source;
  size_t source_index = 0;
  uint64_t source_offset = 0;
};

}  // namespace sennit::shm
