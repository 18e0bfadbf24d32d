// matcher.hpp: finds the receive for an arriving message, and the message for a receive, by (peer,
// Key).
//
// Threads: none of its own; used under the engine's lock. Cost: one hash and about one cache line
// per lookup; nothing is allocated once the tables and the pool have grown to the largest
// number outstanding.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/transport.hpp"

namespace sennit {

// An open-addressed hash of pointers to anything with members `peer` and `key`, which must stay in
// place and keep that name while they are in it. nullptr: there is none of that name.
template <typename Node>
class KeyTable {
 public:
  KeyTable() : slots_(64, nullptr) {}

  size_t size() const { return used_; }

  Node* find(int peer, const Key& key) const {
    const size_t slot = locate(peer, key);
    return slots_[slot];
  }

  // False if there is one of this name already; then nothing changes.
  bool insert(Node* node) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    const size_t slot = locate(node->peer, node->key);
    if (slots_[slot]) return false;
    slots_[slot] = node;
    used_++;
    return true;
  }

  Node* remove(int peer, const Key& key) {
    size_t hole = locate(peer, key);
    Node* node = slots_[hole];
    if (!node) return nullptr;
    // Linear probing without tombstones: later entries of the run that may live here move up.
    const size_t mask = slots_.size() - 1;
    for (size_t next = (hole + 1) & mask; slots_[next]; next = (next + 1) & mask) {
      const size_t home = hash(slots_[next]->peer, slots_[next]->key) & mask;
      if (((next - home) & mask) >= ((next - hole) & mask)) {
        slots_[hole] = slots_[next];
        hole = next;
      }
    }
    slots_[hole] = nullptr;
    used_--;
    return node;
  }

  template <typename Function>
  void each(Function function) const {
    for (const Node* node : slots_)
      if (node) function(*node);
  }

  // Takes out all for which `which(node)` is true and calls `taken(node)` on each. Not for the fast
  // path.
  template <typename Which, typename Taken>
  void remove_if(Which which, Taken taken) {
    std::vector<Node*> found;
    for (Node* node : slots_)
      if (node && which(*node)) found.push_back(node);
    for (Node* node : found) {
      remove(node->peer, node->key);
      taken(*node);
    }
  }

 private:
  static size_t hash(int peer, const Key& key) {
    uint64_t h = (static_cast<uint64_t>(key.comm) << 32 | static_cast<uint32_t>(peer)) *
                 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
    h = (h ^ (static_cast<uint64_t>(key.seq) << 32 | key.chunk)) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 32;
    h = (h ^ key.tag) * 0x94d049bb133111ebull;
    return static_cast<size_t>(h ^ h >> 31);
  }

  // The slot of the node of this name, or the free one where it would go.
  size_t locate(int peer, const Key& key) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash(peer, key) & mask;
    while (slots_[slot] && !(slots_[slot]->peer == peer && slots_[slot]->key == key))
      slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    std::vector<Node*> old(slots_.size() * 2, nullptr);
    old.swap(slots_);
    for (Node* node : old)
      if (node) slots_[locate(node->peer, node->key)] = node;
  }

  std::vector<Node*> slots_;  // a power of two, at most half full
  size_t used_ = 0;
};

// A message that came before its receive: its bytes (eager), or only the announcement of one that
// is still at the peer.
struct Arrival {
  int peer = -1;
  Key key;
  uint64_t signature = 0;
  size_t bytes = 0;
  uint64_t arrived_ns = 0;
  uint32_t sender_waited_us = RecvRequest::kNotTold;  // of a message that is here
  uint32_t sender_clock_us = 0;
  std::vector<std::byte> data;  // the bytes of an eager message; keeps its capacity in the pool
  uint64_t handle[4] = {};  // the transport's own: where the bytes are, how far they have come, ...
};

// Two tables: receives that wait for their message, and arrivals that wait for their receive. Owns
// the arrivals, whose number the caller bounds, but not the receives.
class Matcher {
 public:
  // If the message is here already: the arrival, which the caller consumes and then gives to
  // recycle(). Otherwise the receive is posted, and nullptr is returned.
  Arrival* post(RecvRequest& request);

  RecvRequest* find_receive(int peer, const Key& key) const { return receives_.find(peer, key); }
  RecvRequest* take_receive(int peer, const Key& key) { return receives_.remove(peer, key); }

  // Remembers a message that came early; data has size 0. nullptr if there is one of this name
  // already, which only a broken peer can cause.
  Arrival* keep(int peer, const Key& key, uint64_t signature, size_t bytes);
  Arrival* find_arrival(int peer, const Key& key) const { return arrivals_.find(peer, key); }
  Arrival* take_arrival(int peer, const Key& key) { return arrivals_.remove(peer, key); }
  void recycle(Arrival* arrival);  // one that was taken; it serves again

  template <typename Function>
  void each_receive(Function function) const {
    receives_.each(function);
  }
  // Takes out the receives (arrivals) of a peer or communicator. `taken` gets each of them.
  template <typename Which, typename Taken>
  void take_receives_if(Which which, Taken taken) {
    receives_.remove_if(which, taken);
  }
  template <typename Which, typename Taken>
  void take_arrivals_if(Which which, Taken taken) {
    arrivals_.remove_if(which, taken);
  }
  // The same for arrivals that need no further care.
  template <typename Which>
  void drop_arrivals_if(Which which) {
    arrivals_.remove_if(which, [this](Arrival& arrival) { recycle(&arrival); });
  }

  size_t posted() const { return receives_.size(); }
  size_t waiting() const { return arrivals_.size(); }

 private:
  KeyTable<RecvRequest> receives_;
  KeyTable<Arrival> arrivals_;
  std::vector<std::unique_ptr<Arrival>> all_;  // owns; grows to the largest number outstanding
  std::vector<Arrival*> free_;
};

// Whether the message that came for this receive is the one it expects. If not, fills status
// (SENNIT_MISMATCH) and arrived_*.
bool check_match(RecvRequest& request, uint64_t signature, size_t bytes);
// The status of a send whose receiver expects something else.
Status send_mismatch(const SendRequest& request, size_t expected_bytes);

}  // namespace sennit
