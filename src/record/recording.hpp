// recording.hpp: what a rank did lately, always on: a ring of events of which the newest win, in a
// file that others may read while the rank runs, hangs, is stopped, or after it was killed.
//
// The file has a header of one page, the ring, and behind it notes: what the events are about, each
// written once (record/notes.hpp); the first is the table of connections. It lies in /dev/shm, or
// in the folder that SENNIT_TRACE names, is this user's alone, and is locked (flock) as long as its
// rank lives. In /dev/shm it goes with a rank that ends well. Those of ranks that did not are taken
// away by whoever starts next, once they are an hour old, or the oldest of more than 64 MiB or an
// eighth of the file system. What is in a folder of the user's stays there.
//
// Where no file can be had the ring is plain memory, and there are no notes.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/process/forked.hpp"
#include "record/connections.hpp"
#include "record/event.hpp"
#include "record/measured_clock.hpp"
#include "record/pause.hpp"

namespace sennit {

inline constexpr const char* kRecordingFolder = "/dev/shm";
// What a recording's file name begins with, and what it ends with until it is complete.
inline constexpr const char* kRecordingName = "sennit-trace-";
inline constexpr const char* kUnfinishedRecording = ".new";

// The first page of the file, little-endian. Times are of one moment, when it was made.
struct RecordingHeader {
  static constexpr char kMagic[8] = {'s', 'n', 'n', 't', 'r', 'e', 'c', 0};
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kBytes = 4096;

  char magic[8] = {};
  uint32_t version = 0;
  uint32_t event_bytes = 0;  // sizeof(TraceEvent)
  uint64_t job = 0;
  int32_t rank = 0, size = 0;
  int64_t pid = 0;
  uint64_t events = 0;  // room in the ring, a power of two
  uint64_t realtime_ns = 0, monotonic_ns = 0;
  char host[128] = {};
  alignas(64) std::atomic<uint64_t> recorded = 0;  // ever; the last lies at (recorded - 1) % events
  std::atomic<uint64_t> ended = 0;                 // not 0: its rank has left the job
  // CLOCK_MONOTONIC; not 0: this is a copy, made then, of what a rank that ran had recorded.
  uint64_t dumped_ns = 0;
  // Times in which the process did not run: number n lies at n % kPauses. A pair may be half
  // written.
  static constexpr size_t kPauses = 64;
  struct PauseSlot {
    std::atomic<uint64_t> begin_ns = 0, end_ns = 0;
  };
  std::atomic<uint64_t> paused = 0;  // so often, ever
  PauseSlot pauses[kPauses];
  MeasuredClock clock;  // the latest; as all of the header that older writers did not know: zeros
  // How much of the cores the process asked for lately while it was in no call: thousandths of one,
  // and two more. 1: that is not known; 0: nobody has looked, nor for pauses.
  std::atomic<uint32_t> cores_between = 0;

  // Whose it is, and how it is laid out; not what is in it.
  void take(const RecordingHeader& other);
};
static_assert(sizeof(RecordingHeader) <= RecordingHeader::kBytes);

// Whose it is.
struct RecordingOwner {
  uint64_t job = 0;
  int rank = 0, size = 1;
  std::string host;
};

// The writer's end. record() is for one thread at a time, pause() for one, which may be another,
// and note() for any.
class Recording {
 public:
  static std::unique_ptr<Recording> in_memory(size_t events = kEvents);
  // In a file; in memory where none can be had, which is logged. `folder`: empty, kRecordingFolder;
  // "0", none.
  static std::unique_ptr<Recording> open(const RecordingOwner& owner, const std::string& folder,
                                         size_t events = kEvents);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void record(const TraceEvent& event) {
    const uint64_t number = header_->recorded.load(std::memory_order_relaxed);
    ring_[number & mask_] = event;
    header_->recorded.store(number + 1, std::memory_order_release);
  }
  void pause(const Pause& pause);
  // Of communicators and plans a job may make any number. The other notes are few.
  enum class NoteKind : uint8_t { few, communicator, plan };
  // Kept for who reads the file, until as much has been written of its kind as may be: many of one
  // take no room from another.
  void note(std::span<const std::byte> note, NoteKind kind = NoteKind::few);
  // What is to be seen of the connections to other ranks from now on, the most telling first; what
  // was seen before is gone. One thread at a time.
  void connections(std::span<const ConnectionRecord> records);
  // How this rank's clock stands to the first rank's from now on. One thread at a time.
  void clock(MeasuredClock measured);
  // Cores that this process asked for lately while it was in no call, where that is known. One
  // thread at a time.
  void cores_between(std::optional<double> cores);
  // Something has failed: the file is kept when the rank ends.
  void trouble() { troubles_++; }
  uint32_t troubles() const { return troubles_; }  // how many there were
  // The rank has left, `well` or not. Where the process ends by exit(0) before, it ended well.
  void end(bool well);

  uint64_t recorded() const { return header_->recorded.load(std::memory_order_relaxed); }
  const std::string& path() const { return path_; }  // empty: there is no file

  static constexpr size_t kEvents = 16384, kMostEvents = 1 << 24;
  // Of notes, by kind and of all together; who reads them reads all of them again and again.
  static constexpr size_t kMostCommunicatorBytes = 16 << 20, kMostPlanBytes = 1 << 20,
                          kMostFewBytes = 47 << 20;
  static constexpr size_t kMostNoteBytes = kMostCommunicatorBytes + kMostPlanBytes + kMostFewBytes;
  // A note's kind and length, and of the table of connections, with them, the longest.
  static constexpr size_t kNoteHeadBytes = 2 * sizeof(uint32_t);
  static constexpr size_t kMostTableBytes =
      kNoteHeadBytes + kMostConnectionRecords * sizeof(ConnectionRecord);

 private:
  Recording(size_t events, size_t connections);
  void use(void* memory, const RecordingOwner& owner);
  bool make_file(const RecordingOwner& owner, const std::string& folder);

  const Origin origin_;
  RecordingHeader* header_ = nullptr;
  TraceEvent* ring_ = nullptr;
  uint64_t mask_ = 0;
  size_t bytes_ = 0;                   // that are mapped
  std::span<ConnectionRecord> table_;  // behind the ring; empty where there is no file
  const size_t table_places_;
  int fd_ = -1;
  std::string path_;
  bool kept_ = false;  // also where all went well
  std::atomic<uint32_t> troubles_ = 0;
  std::array<std::atomic<size_t>, 3> note_bytes_{};  // by kind
  std::atomic<bool> notes_cut_off_ = false;
};

}  // namespace sennit
