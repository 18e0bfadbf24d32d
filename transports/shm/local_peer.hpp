// local_peer.hpp: what the shm transport keeps about a peer.
#pragma once

#include <deque>
#include <vector>

#include "transports/peer_exports.hpp"
#include "transports/request_list.hpp"
#include "transports/shm/arena.hpp"
#include "transports/shm/ring.hpp"
#include "transports/shm/segment.hpp"

namespace sennit::shm {

// Where a request keeps its id and place, and what its offer's slot said: indices into
// MessageRequest::scratch.
enum ScratchIndex : int { kId = 0, kToken = 1, kOffset = 2, kCancelledCount = 3 };

// What came early on one communicator from one peer.
struct EarlyState {
  uint32_t comm = 0;
  uint64_t early_bytes = 0;  // of the peer's messages, kept here
  bool held = false;         // the peer was told to send offers only
};

// A message about messages.
struct QueuedControl {
  SlotKind kind;
  bool flag;
  uint64_t signature;
  std::byte body[kInlineBytes];
};

// How a peer's memory is read where it lies in no arena: by process_vm_readv (direct), or not at
// all, so that the peer sends it through the ring (bounce). Unknown until it is first needed.
enum class ReadMode : uint8_t { unknown, direct, bounce };

// A request is in one list or table at a time: `waiting` (a send that the ring had no room for),
// `offered` (the peer knows where it lies), `streaming` (the peer asked for it through the ring),
// the Matcher (a posted receive), `receiving` (a receive whose bytes are being fetched). Used under
// the engine's lock; stays at its address.
struct LocalPeer {
  int rank = -1;
  SegmentAddress address{};
  Mapping segment;  // none: it was gone before this rank looked for it
  Producer out;     // a ring in the peer's segment; claimed when first used
  uint32_t out_index = UINT32_MAX;
  Consumer in;  // the peer's ring in our segment
  size_t eager_bytes = 0;
  bool same_pid_namespace = false;
  ReadMode read_mode = ReadMode::unknown;
  RemoteArenas arenas;
  size_t arenas_told = 0;
  PeerExports exports;
  std::deque<QueuedControl> control;  // had no room in the ring
  RequestList<SendRequest> waiting, offered, streaming;
  RequestList<RecvRequest> receiving;
  size_t posted = 0;  // receives in the matcher
  std::vector<EarlyState> comms;
  bool active = false;    // in Peers::active()
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

  // Puts a control message into the ring; false: there is no room. `bytes` of the body, at most
  // kInlineBytes.
  bool push_control(SlotKind kind, bool flag, uint64_t signature, const void* body, size_t bytes);
  // The same, or behind those that wait for room: then the peer is busy, and wants progress().
  template <typename Body>
  void post_control(SlotKind kind, bool flag, uint64_t signature, const Body& body) {
    static_assert(sizeof body <= kInlineBytes);
    if (control.empty() && push_control(kind, flag, signature, &body, sizeof body)) return;
    QueuedControl& waits = control.emplace_back(QueuedControl{kind, flag, signature, {}});
    std::memcpy(waits.body, &body, sizeof body);
  }
  bool flush_control();  // whether any had room
};

}  // namespace sennit::shm
