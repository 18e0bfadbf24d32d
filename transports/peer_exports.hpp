// peer_exports.hpp: what a rank and one of its peers know of the memory that each other's device
// exports: who was told of what, has mapped it, and takes which communicators' messages there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "transports/transport.hpp"

namespace sennit {

// Used under the engine's lock.
class PeerExports {
 public:
  // ---- memory of this rank's device ----
  // Whether there is sense in asking whether it reads some.
  bool may_read() const { return told_.empty() || !mapped_.empty(); }
  bool was_told(const ExportedMemory& memory) const { return holds(told_, memory.begin); }
  // Whether the peer reads this communicator's messages there.
  bool reads(const ExportedMemory& memory, uint32_t comm) const {
    return holds(mapped_, memory.begin) && holds(taken_, comm);
  }
  void told(const ExportedMemory& memory) { told_.push_back(memory.begin); }
  void mapped(const std::byte* begin) { mapped_.push_back(begin); }
  void takes(uint32_t comm) { taken_.push_back(comm); }

  // ---- the peer's ----
  void add(const ExportedMemory& memory) { imports_.push_back({memory}); }
  void append_unanswered(int peer, std::vector<PeerMemory>* all) const {
    for (const Import& import : imports_)
      if (!import.answered) all->push_back({peer, import.memory});
  }
  // As Transport::answer().
  bool answer(const ExportedMemory& memory, std::byte* here) {
    const auto import = std::find_if(imports_.begin(), imports_.end(), [&](const Import& i) {
      return i.memory.begin == memory.begin && !i.answered;
    });
    if (import == imports_.end()) return false;
    import->answered = true;
    import->here = here;
    some_here_ |= here != nullptr;
    return true;
  }
  bool some_is_here() const { return some_here_; }
  // Whether the peer is to be told that this rank takes the communicator's messages there.
  bool has_to_tell(uint32_t comm) const { return some_here_ && !holds(told_takes_, comm); }
  void told_takes(uint32_t comm) { told_takes_.push_back(comm); }
  // Where the peer's memory at `address` lies for this rank's device, or null.
  const std::byte* find(uint64_t address, uint64_t bytes) const {
    for (const Import& import : imports_) {
      const uint64_t before = address - reinterpret_cast<uint64_t>(import.memory.begin);
      if (import.here && before <= import.memory.bytes && bytes <= import.memory.bytes - before)
        return import.here + before;
    }
    return nullptr;
  }

  void forget(const std::function<bool(uint32_t comm)>& over) {
    std::erase_if(taken_, over);
    std::erase_if(told_takes_, over);
  }

 private:
  struct Import {
    ExportedMemory memory;
    std::byte* here = nullptr;
    bool answered = false;
  };
  template <typename T>
  static bool holds(const std::vector<T>& all, std::type_identity_t<T> one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  std::vector<const std::byte*> told_, mapped_;  // where they begin
  std::vector<uint32_t> taken_;                  // communicators, by the peer
  std::vector<Import> imports_;
  bool some_here_ = false;            // of imports_, some are mapped
  std::vector<uint32_t> told_takes_;  // communicators, by this rank
};

// What a receive ends with whose message lies where its device does not read.
inline Status not_imported(int peer) {
  return {SENNIT_UNSUPPORTED,
          "the message of rank " + std::to_string(peer) +
              " lies in memory of its device that this call's device has not mapped: let all "
              "communicators of a rank use one device, or set SENNIT_DEVICE_IPC=0"};
}

}  // namespace sennit
