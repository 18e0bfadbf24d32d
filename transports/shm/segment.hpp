// segment.hpp: the segment of a rank: what its peers open, and what lies in it.
//
// A rank makes one file in /dev/shm. It holds a header and room for one ring per local peer; only
// the header takes memory, a ring takes its own when its sender claims it. Opening a peer's file
// and finding its nonce inside is the proof that both are on one host: two hosts, or two containers
// with a /dev/shm each, cannot open each other's. Ranks that could, but that the job counts as of
// different hosts (TransportContext::speaker), do not try: there are rings for local peers only,
// and the name is removed as soon as all of them have mapped it. If the process dies before that,
// the name, which has the process's id, start time and PID namespace in it, is removed by the next
// peer that notices the death, or by the next sennit process of this user that starts. Descriptors
// are closed after mapping.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "transports/shm/ring.hpp"
#include "transports/transport.hpp"

namespace sennit::shm {

inline constexpr size_t kPage = 4096;

// Which process, whatever is done with process ids later.
struct ProcessId {
  int32_t pid = 0;
  uint64_t start_time = 0;     // field 22 of /proc/PID/stat; 0 if it cannot be read
  uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid; a pid means nothing outside of it
  bool operator==(const ProcessId&) const = default;
};
ProcessId this_process();
// False only if it is certain: no such process, another one of that number, or a zombie.
bool may_be_alive(const ProcessId& process);

// What a rank tells its peers, as these bytes: who may open its segment, where that is, and how
// they know that they have found the right one.
struct SegmentAddress {
  uint64_t magic;
  uint64_t nonce[2];
  // in the process's memory there lies nonce[0]: reading it proves reading works
  uint64_t probe_address;
  ProcessId process;
  int32_t rank;
  int32_t speaker;  // TransportContext::speaker
  uint32_t user;    // whose file it is; others may not open it
  char name[100];   // in /dev/shm, without the slash
};

// What a segment begins with. The owner fills it in before anybody hears of its address; from then
// on peers map it writable, and only the atomics change.
struct SegmentHeader {
  static constexpr uint32_t kCancelledRemembered = 1022;

  uint64_t magic;
  uint64_t nonce[2];
  Geometry geometry;
  uint32_t capacity;     // rings that there is room for
  uint64_t first_ring;   // offset
  uint64_t ring_stride;  // bytes
  // How many peers have mapped this; whether the owner has left.
  alignas(kLine) std::atomic<uint32_t> attached;
  std::atomic<uint32_t> closed;
  alignas(kLine) std::atomic<uint32_t> claimed;  // rings claimed by senders
  // Communicators on which the owner has taken its memory back: what was read from it may be torn.
  // All are counted, the last of them are remembered.
  alignas(kLine) std::atomic<uint32_t> cancelled_count;
  std::atomic<uint32_t> cancelled[kCancelledRemembered];
  // Followed by `capacity` atomic<int32_t>: who claimed the ring, world rank + 1; 0: not ready.
  std::atomic<int32_t>* senders() { return reinterpret_cast<std::atomic<int32_t>*>(this + 1); }
};

// Gives memory to a part of a shared mapping, so that a full /dev/shm is an error here and not
// SIGBUS later.
Status populate(void* memory, size_t bytes, const std::string& what);

// A mapping of a segment; movable, unmaps itself. The functions but `bool` want one that is not
// empty.
class Mapping {
 public:
  Mapping() = default;
  // Takes over what mmap() returned.
  Mapping(void* memory, size_t bytes);
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  SegmentHeader* header() const { return static_cast<SegmentHeader*>(memory_); }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return memory_ != nullptr; }
  void* ring(uint32_t index) const {
    return data() + header()->first_ring + index * header()->ring_stride;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// The segment of this rank.
class OwnSegment {
 public:
  // Makes the file and its header. An error where /dev/shm is full, or not to be written.
  static Result<std::unique_ptr<OwnSegment>> create(const TransportContext& context);
  ~OwnSegment();  // marks it closed and removes the name
  const SegmentAddress& address() const { return address_; }
  SegmentHeader& header() { return *mapping_.header(); }
  void* ring(uint32_t index) const { return mapping_.ring(index); }
  // Removes the name from /dev/shm; nobody can map it afterwards.
  void unlink();
  bool linked() const { return linked_; }
  // Peers that read this rank's memory see it with taken_back().
  void note_cancelled(uint32_t comm);
  // How often that was, modulo 2^16.
  uint16_t cancelled_count() const {
    const auto& count = mapping_.header()->cancelled_count;
    return static_cast<uint16_t>(count.load(std::memory_order_relaxed));
  }

 private:
  OwnSegment() = default;
  Mapping mapping_;
  SegmentAddress address_{};
  std::unique_ptr<std::atomic<uint64_t>> probe_;
  bool linked_ = false;
};

// Maps the segment behind an address, if it can be found and is the right one; else an empty
// mapping, and `obstacle` says why. SENNIT_OUT_OF_RESOURCES where it is only this process that
// lacks something.
Result<Mapping> open_segment(const SegmentAddress& address, std::string* obstacle);

// Whether the owner has taken its memory back on a communicator. Unknown: it has done so on more of
// them than are remembered.
enum class TakenBack : uint8_t { no, yes, unknown };
// Since the owner counted `since`. What was read of its memory before this call is whole where it
// has not.
TakenBack taken_back(SegmentHeader& header, uint32_t comm, uint16_t since);

// Removes what dead processes left in /dev/shm, except of `job`, which is starting.
void remove_stale_segments(uint64_t job);
// The name of a dead process's segment; nothing where it is gone already.
void remove_name(const SegmentAddress& address);

}  // namespace sennit::shm
