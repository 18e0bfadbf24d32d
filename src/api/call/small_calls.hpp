// small_calls.hpp: blocking calls that are small and made again and again, kept ready for the short
// way.
//
// A call that differs from an earlier one in its buffers only needs no checks of its arguments, no
// Request and no Work: its Execution is kept here, compiled (engine/short_way.hpp). There are
// sixteen places, by a hash of the call; a call whose place is taken by another takes it over.
// Where the short way is not possible, the place remembers that.
//
// claim() is for any thread and takes no lock; the rest is behind Preparation's lock. A place
// is one thread's as long as that has claimed it: meanwhile others take the general way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "api/call/call.hpp"
#include "engine/engine.hpp"
#include "engine/execution.hpp"

namespace sennit {

class SmallCalls {
 public:
  struct KeptCall {
    std::atomic<bool> claimed = false;
    std::atomic<bool> forgotten = false;  // its plan is another by now
    Call call;                            // without the buffers
    bool in_place = false;
    std::unique_ptr<Execution> execution;  // none: the short way is not for this call

    // Whether it holds what is known of the like of `call`.
    bool holds(const Call& other, int rank) const {
      return call.count == other.count && call.collective == other.collective &&
             call.type == other.type && call.op == other.op && call.root == other.root &&
             in_place == is_in_place(other, rank) && !forgotten.load(std::memory_order_relaxed);
    }
  };
  // A place that is its holder's alone; or none, where such a call never goes the short way or
  // another thread has the place.
  class Claim {
   public:
    explicit Claim(KeptCall* place) : place_(place) {
      if (place_ && place_->claimed.exchange(true, std::memory_order_acquire)) place_ = nullptr;
    }
    ~Claim() {
      if (place_) place_->claimed.store(false, std::memory_order_release);
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    explicit operator bool() const { return place_ != nullptr; }
    KeptCall* operator->() const { return place_; }

   private:
    KeptCall* place_;
  };

  // `engine` is where executions give their scratch back to, under its lock.
  explicit SmallCalls(Engine& engine) : engine_(engine) {}
  ~SmallCalls();
  SmallCalls(const SmallCalls&) = delete;
  SmallCalls& operator=(const SmallCalls&) = delete;

  // The place for the like of `call`, whatever it holds now. Null: such a call never goes the short
  // way.
  KeptCall* place(const Call& call) {
    if (call.count > kMostBytes || !qualifies(call)) return nullptr;
    // Different odd factors keep calls apart that differ in one thing; kGolden spreads them.
    constexpr uint64_t kOfCount = 31, kOfCollective = 7, kOfType = 3;
    const uint64_t hash =
        (call.count * kOfCount + static_cast<uint64_t>(call.collective) * kOfCollective +
         static_cast<uint64_t>(call.type) * kOfType + static_cast<uint64_t>(call.op)) *
        kGolden;
    return &places_[hash >> (64 - kPlacesLog2)];
  }
  Claim claim(const Call& call) { return Claim(place(call)); }
  // Keeps `execution`, whose buffers have been filled for `call`, if it can be compiled, and if the
  // place is free.
  void keep(const Call& call, bool in_place, std::unique_ptr<Execution> execution);
  // Forgets the calls of this collective: their plan is another from now on.
  void forget(Collective collective);

 private:
  static constexpr uint64_t kMostBytes = 64 * 1024;  // transports set the limit of a message
  static constexpr int kPlacesLog2 = 4;
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;  // 2^64 / the golden ratio

  static bool qualifies(const Call& call) {
    if (call.collective == Collective::barrier) return true;
    if (call.vector_variant || call.collective == Collective::send_recv) return false;
    return call.op < SENNIT_OP_CUSTOM_BASE && call.send && call.recv && call.count > 0 &&
           call.count * type_bytes(call.type) <= kMostBytes;
  }

  Engine& engine_;
  std::array<KeptCall, 1 << kPlacesLog2> places_;
};

}  // namespace sennit
