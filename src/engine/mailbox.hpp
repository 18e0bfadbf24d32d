// mailbox.hpp: the messages between single ranks of one communicator, by peer and tag: their
// numbers, and the receives that wait until it is known from whom they receive.
//
// A receive takes the first message of its peer and tag that no earlier receive took. One from any
// source takes the first that has come from any peer. Receives of the same tag that were started
// after it wait behind it, so that they do not take what belongs to it. All calls are made under
// the engine's lock. Cost: a look into a hash for each message; while a receive from any source
// waits, a look for each peer whenever the engine makes progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "engine/execution.hpp"

namespace sennit {

class Engine;

class Mailbox {
 public:
  static constexpr int kAnySource = -1;  // as a peer

  // `peers`: the world ranks that a receive from any source takes from. The engine outlives this.
  Mailbox(Engine& engine, uint32_t comm, std::vector<int> peers)
      : engine_(engine), comm_(comm), peers_(std::move(peers)) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  uint32_t comm() const { return comm_; }
  // Start the execution of one message, which outlives its being under way. A receive may have to
  // wait: then waits() holds, and look() starts it.
  void send(Execution& execution, int peer, uint32_t tag);
  void receive(Execution& execution, int peer, uint32_t tag);

  // Whether a receive of this tag waits until it is known from whom, and others behind it.
  bool waits_for(uint32_t tag) const { return waiting_.contains(tag); }
  // The number of a message that is made later, as part of a graph: the next of this peer and tag.
  uint32_t number_send(int peer, uint32_t tag) { return ++sent_[lane(peer, tag)]; }
  uint32_t number_receive(int peer, uint32_t tag) { return ++received_[lane(peer, tag)]; }

  // The messages of this peer and tag begin at their first number again, at both ends or at none:
  // for a tag that nothing is under way of, so that its numbers need not be kept.
  void forget(int peer, uint32_t tag) {
    sent_.erase(lane(peer, tag));
    received_.erase(lane(peer, tag));
  }

  bool waits() const { return !waiting_.empty(); }
  // Starts the receives that wait and need not any more; whether there was one.
  bool look();
  // The communicator has failed, and with it all that waits.
  void drop() { waiting_.clear(); }

 private:
  struct Waiting {
    Execution* execution;
    int peer;  // or kAnySource
  };
  using Numbers = std::unordered_map<uint64_t, uint32_t>;  // of messages so far, by peer and tag

  static uint64_t lane(int peer, uint32_t tag) {
    return static_cast<uint64_t>(static_cast<uint32_t>(peer)) << 32 | tag;
  }
  void start_receive(Execution& execution, int peer, uint32_t tag);
  // The peer whose next message of this tag has come; kAnySource: none.
  int find_source(uint32_t tag);

  Engine& engine_;
  const uint32_t comm_;
  const std::vector<int> peers_;
  size_t first_ = 0;  // of the peers, at the next look: none is always before the others
  Numbers sent_, received_;
  std::map<uint32_t, std::deque<Waiting>> waiting_;  // by tag; the first of each is from any source
};

}  // namespace sennit
