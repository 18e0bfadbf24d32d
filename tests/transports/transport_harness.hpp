// transport_harness.hpp: ranks with a transport each, in one process, for the conformance suite.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transports/faulty.hpp"
#include "transports/transport.hpp"

namespace sennit::test {

// A number whose bits all depend on those of x.
inline uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15ull;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ull;
  return x ^ x >> 32;
}

// Byte i of the message of this name.
class Pattern {
 public:
  Pattern(int from, int to, const Key& key)
      : seed_(mix(mix(mix(static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to)) ^
                      (static_cast<uint64_t>(key.comm) << 32 | key.seq)) ^
                  (static_cast<uint64_t>(key.chunk) << 32 | key.tag))) {}
  void fill(std::byte* out, size_t bytes) const {
    each_word(bytes, [out](size_t at, const uint64_t& word, size_t length) {
      std::memcpy(out + at, &word, length);
      return true;
    });
  }
  // Where the first wrong byte's word is, or `bytes`.
  size_t first_wrong(const std::byte* data, size_t bytes) const {
    size_t wrong = bytes;
    each_word(bytes, [&](size_t at, const uint64_t& word, size_t length) {
      if (std::memcmp(data + at, &word, length) != 0) wrong = at;
      return wrong == bytes;
    });
    return wrong;
  }

 private:
  template <typename Do>
  void each_word(size_t bytes, Do what) const {
    for (size_t at = 0; at < bytes; at += 8)
      if (!what(at, (seed_ + at / 8) * 0x9e3779b97f4a7c15ull, std::min<size_t>(8, bytes - at)))
        return;
  }
  uint64_t seed_;
};

// Cuts `bytes` bytes of `memory` into `pieces` segments of uneven sizes, some of them empty.
inline std::vector<Segment> cut(std::byte* memory, size_t bytes, int pieces) {
  std::vector<Segment> segments;
  size_t at = 0;
  for (int i = 0; i < pieces; i++) {
    const size_t left = bytes - at;
    size_t take = i + 1 == pieces ? left
                                  : mix(bytes * 31 + static_cast<size_t>(i)) %
                                        (2 * left / static_cast<size_t>(pieces - i) + 1);
    take = std::min(take, left);
    segments.push_back({memory + at, take});
    at += take;
  }
  return segments;
}

// A request and the memory that it points to. It must not move before it is done.
template <typename Request>
struct Posted {
  Request request;
  std::vector<std::byte> memory;
  std::vector<Segment> segments;
  bool done = false;
};
using PostedSend = Posted<SendRequest>;
using PostedRecv = Posted<RecvRequest>;

// Posts messages whose bytes follow from (sender, receiver, key), so that every receive can be
// checked by itself, and keeps account of what is outstanding. It owns its transport and the memory
// of what is posted until forget(). One thread at a time.
class Rank {
 public:
  Rank(int number, std::unique_ptr<Transport> instance)
      : rank(number), transport(std::move(instance)) {}
  ~Rank() { transport.reset(); }  // before the memory of its requests

  PostedSend& send(int peer, const Key& key, size_t bytes, int pieces = 1,
                   uint64_t signature = 42) {
    PostedSend& posted = post(sends, peer, key, bytes, pieces, signature);
    Pattern(rank, peer, key).fill(posted.memory.data(), bytes);
    transport->send(posted.request);
    return posted;
  }

  PostedRecv& recv(int peer, const Key& key, size_t bytes, int pieces = 1, uint64_t signature = 42,
                   bool may_expose = false) {
    PostedRecv& posted = post(receives, peer, key, bytes, pieces, signature);
    posted.request.may_expose = may_expose;
    transport->recv(posted.request);
    return posted;
  }

  bool progress() {
    completions.clear();
    const bool moved = transport->progress(completions);
    for (SendRequest* request : completions.sends)
      finish(*static_cast<PostedSend*>(request->owner));
    for (RecvRequest* request : completions.receives) {
      auto& posted = *static_cast<PostedRecv*>(request->owner);
      finish(posted);
      if (request->status.ok() && check_contents) check(posted);
      if (request->exposed && release_at_once) transport->release(*request);
    }
    events.insert(events.end(), completions.events.begin(), completions.events.end());
    return moved;
  }

  // The bytes that came are those that were sent.
  void check(const PostedRecv& posted) const {
    const RecvRequest& request = posted.request;
    const std::byte* data = request.exposed ? request.exposed : posted.memory.data();
    const size_t wrong = Pattern(request.peer, rank, request.key).first_wrong(data, request.bytes);
    EXPECT_EQ(wrong, request.bytes)
        << "rank " << rank << ": from there on a message from " << request.peer << " differs";
  }

  void forget() {  // frees what is complete
    ASSERT_EQ(outstanding, 0u);
    sends.clear();
    receives.clear();
  }

  const int rank;
  size_t outstanding = 0;
  bool check_contents = true;
  bool release_at_once = true;
  Completions completions;
  std::vector<PeerEvent> events;
  std::deque<PostedSend> sends;
  std::deque<PostedRecv> receives;
  std::unique_ptr<Transport> transport;

 private:
  template <typename P>
  P& post(std::deque<P>& list, int peer, const Key& key, size_t bytes, int pieces,
          uint64_t signature) {
    P& posted = list.emplace_back();
    posted.memory.resize(bytes);
    posted.segments = cut(posted.memory.data(), bytes, pieces);
    posted.request.peer = peer;
    posted.request.key = key;
    posted.request.signature = signature;
    posted.request.segments = posted.segments;
    posted.request.bytes = bytes;
    posted.request.owner = &posted;
    outstanding++;
    return posted;
  }

  template <typename P>
  void finish(P& posted) {
    EXPECT_FALSE(posted.done) << "completed twice";
    posted.done = true;
    outstanding--;
  }
};

// Null where there is none of this name.
inline const TransportFactory* find_transport(std::string_view name) {
  for (const TransportFactory& factory : transports())
    if (factory.name == name) return &factory;
  return nullptr;
}

// Ranks that know each other's addresses. One thread drives them in turn, or run_threads() gives
// each its own.
class World {
 public:
  // Ranks that reach each other; ok() is false where this machine cannot. "NAME+delay": each
  // message is held back a little, so that everything overtakes everything. "NAME+sealed": as under
  // SENNIT_WIRE=sealed.
  World(const std::string& name, int size, size_t eager_bytes = 8192) {
    static uint64_t job =
        mix(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
    const bool delay = name.ends_with("+delay");
    const TransportFactory* factory = find_transport(name.substr(0, name.find('+')));
    job++;
    for (int rank = 0; rank < size; rank++) {
      TransportContext context;
      context.rank = rank;
      context.size = size;
      context.job = job;
      context.secret.assign(32, std::byte{0x5e});
      context.host_interface = "127.0.0.1";
      context.local_ranks = size;
      context.eager_bytes = eager_bytes;
      context.asked_for = true;
      context.sealed = name.ends_with("+sealed");
      Result<std::unique_ptr<Transport>> made = factory->make(context);
      if (!made) {
        why_not_ = made.status().text();
        ranks_.clear();
        return;
      }
      if (delay) {
        FaultPlan plan;
        plan.delay_ns = 100'000;
        plan.seed = job + static_cast<uint64_t>(rank);
        made = make_faulty(std::move(*made), plan);
      }
      ranks_.push_back(std::make_unique<Rank>(rank, std::move(*made)));
    }
    for (const auto& rank : ranks_)
      for (const auto& other : ranks_) {
        if (rank == other) continue;
        const std::vector<std::byte> address = other->transport->address();
        EXPECT_LE(address.size(), 512u);
        if (rank->transport->reach(other->rank, address) == Reach::none) {
          why_not_ = name + " does not reach between ranks of one process here";
          ranks_.clear();
          return;
        }
        EXPECT_TRUE(rank->transport->add_peer(other->rank, address).ok());
      }
  }

  bool ok() const { return !ranks_.empty(); }
  const std::string& why_not() const { return why_not_; }
  Rank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  void destroy(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }

  // Drives all ranks from this thread until `ready`; false after a time that no working transport
  // needs.
  bool drive_until(const std::function<bool()>& ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!ready()) {
      bool moved = false;
      for (const auto& rank : ranks_)
        if (rank) moved |= rank->progress();
      if (!moved) std::this_thread::yield();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  // Until nothing is outstanding.
  bool drive() {
    return drive_until([this] {
      for (const auto& rank : ranks_)
        if (rank && rank->outstanding > 0) return false;
      return true;
    });
  }
  // A while, to see that nothing more happens.
  void drive_for(int milliseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    drive_until([end] { return std::chrono::steady_clock::now() > end; });
  }

  void run_threads(const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (const auto& rank : ranks_) threads.emplace_back([&body, &rank] { body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string why_not_;
};

// Drives one rank from its own thread, asleep on its descriptor where it has one.
inline bool drive_rank(Rank& rank, const std::function<bool()>& ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!ready()) {
    if (rank.progress()) continue;
    if (rank.transport->event_fd() >= 0 && rank.transport->prepare_wait()) {
      pollfd wait{rank.transport->event_fd(), POLLIN, 0};
      poll(&wait, 1, 100);
    } else {
      std::this_thread::yield();
    }
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

}  // namespace sennit::test
