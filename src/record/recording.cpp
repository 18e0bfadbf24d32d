// recording.cpp: see record/recording.hpp.
#include "record/recording.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/process/file_room.hpp"
#include "record/notes.hpp"

namespace sennit {
namespace {

constexpr time_t kSecondsKept = 3600;
constexpr size_t kNoteHead = Recording::kNoteHeadBytes;

std::string prefix() { return fmt::format("{}{}-", kRecordingName, getuid()); }

// What of the folder's file system recordings of ranks that have ended may take.
uint64_t room_for_ended(const std::string& folder) {
  constexpr uint64_t kMost = 64 << 20, kPart = 8;
  struct statvfs room {};
  if (statvfs(folder.c_str(), &room) != 0) return kMost;
  return std::min(kMost, uint64_t{room.f_blocks} * room.f_frsize / kPart);
}

// What the table takes with the head that makes it a note; nothing where there is none.
size_t table_bytes(size_t places) {
  return places == 0 ? 0 : kNoteHead + places * sizeof(ConnectionRecord);
}

struct Ended {
  std::string path;
  time_t when = 0;
  uint64_t bytes = 0;
};

// When the rank wrote last. What it stores into mapped pages does not change the file's time.
time_t last_written(int fd, const struct stat& info) {
  constexpr uint64_t kNsPerS = 1'000'000'000;
  alignas(RecordingHeader) std::byte page[RecordingHeader::kBytes];
  if (pread(fd, page, sizeof page, 0) != sizeof page) return info.st_mtime;
  const auto& header = *reinterpret_cast<const RecordingHeader*>(page);
  const uint64_t recorded = header.recorded.load(std::memory_order_relaxed);
  TraceEvent last;
  if (recorded == 0 || !std::has_single_bit(header.events)) return info.st_mtime;
  const uint64_t at =
      RecordingHeader::kBytes + ((recorded - 1) & (header.events - 1)) * sizeof(TraceEvent);
  if (pread(fd, &last, sizeof last, static_cast<off_t>(at)) != sizeof last) return info.st_mtime;
  const uint64_t when_ns = header.realtime_ns + (last.posted_ns - header.monotonic_ns);
  return std::max(info.st_mtime, static_cast<time_t>(when_ns / kNsPerS));
}

// This user's recordings in the folder whose ranks have ended, newest first. One that is just being
// made is not locked yet, and left alone.
std::vector<Ended> ended_in(const std::string& folder) {
  std::vector<Ended> all;
  DIR* const entries = opendir(folder.c_str());
  if (!entries) return all;
  while (const dirent* entry = readdir(entries)) {
    if (!std::string_view(entry->d_name).starts_with(prefix())) continue;
    const std::string path = fmt::format("{}/{}", folder, entry->d_name);
    struct stat named {};
    const bool young =
        lstat(path.c_str(), &named) != 0 || std::time(nullptr) - named.st_mtime < kSecondsKept;
    if (young && path.ends_with(kUnfinishedRecording)) continue;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat info {};
    if (fstat(fd, &info) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
      all.push_back({path, last_written(fd, info), static_cast<uint64_t>(info.st_size)});
    close(fd);
  }
  closedir(entries);
  std::sort(all.begin(), all.end(), [](const Ended& a, const Ended& b) { return a.when > b.when; });
  return all;
}

// Removes those that are old, and the oldest where they take too much room.
void remove_ended(const std::string& folder) {
  uint64_t left = room_for_ended(folder);
  for (const Ended& ended : ended_in(folder)) {
    const bool old = std::time(nullptr) - ended.when > kSecondsKept;
    if (old || ended.bytes > left)
      unlink(ended.path.c_str());
    else
      left -= ended.bytes;
  }
}

// ---- what a process that ends by exit() leaves ----

struct OpenRecordings {
  Mutex mutex;
  std::vector<Recording*> all SENNIT_GUARDED_BY(mutex);
};

OpenRecordings& open_recordings();

void end_all(int status, void*) {
  OpenRecordings& open = open_recordings();
  const MutexLock lock(open.mutex);
  for (Recording* recording : open.all) recording->end(status == 0);
}

OpenRecordings& open_recordings() {
  static auto* const instance = new OpenRecordings;  // outlives all that may end
  return *instance;
}

// Before there are threads: one that forks in the middle of this would leave its child with locks,
// those of a static and of on_exit(), that nobody releases.
[[maybe_unused]] const bool kRegistered = [] {
  hold_across_fork(open_recordings().mutex);
  return on_exit(end_all, nullptr) == 0;
}();

}  // namespace

void RecordingHeader::take(const RecordingHeader& other) {
  std::memcpy(magic, other.magic, sizeof magic);
  version = other.version;
  event_bytes = other.event_bytes;
  job = other.job;
  rank = other.rank;
  size = other.size;
  pid = other.pid;
  events = other.events;
  realtime_ns = other.realtime_ns;
  monotonic_ns = other.monotonic_ns;
  std::memcpy(host, other.host, sizeof host);
  paused.store(other.paused.load(std::memory_order_relaxed), std::memory_order_relaxed);
  for (size_t p = 0; p < kPauses; p++) {
    pauses[p].begin_ns.store(other.pauses[p].begin_ns.load(std::memory_order_relaxed),
                             std::memory_order_relaxed);
    pauses[p].end_ns.store(other.pauses[p].end_ns.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  }
  clock = other.clock;
  cores_between.store(other.cores_between.load(std::memory_order_relaxed),
                      std::memory_order_relaxed);
}

Recording::Recording(size_t events, size_t connections) : table_places_(connections) {
  const size_t count = std::bit_ceil(std::clamp<size_t>(events, 2, kMostEvents));
  mask_ = count - 1;
  bytes_ = RecordingHeader::kBytes + count * sizeof(TraceEvent) + table_bytes(connections);
}

std::unique_ptr<Recording> Recording::in_memory(size_t events) {
  std::unique_ptr<Recording> made(new Recording(events, 0));
  void* const memory =
      mmap(nullptr, made->bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  made->use(memory, {});
  return made;
}

std::unique_ptr<Recording> Recording::open(const RecordingOwner& owner, const std::string& folder,
                                           size_t events) {
  if (folder == "0") return in_memory(events);
  std::unique_ptr<Recording> made(new Recording(
      events, std::min(kMostConnectionRecords, static_cast<size_t>(std::max(owner.size, 1) - 1))));
  made->kept_ = !folder.empty();
  const std::string where = folder.empty() ? kRecordingFolder : folder;
  if (!made->kept_) remove_ended(where);
  if (made->make_file(owner, where)) return made;
  log(made->kept_ ? LogLevel::warn : LogLevel::info,
      "{}: no recording of what this rank does can be kept there: {}", where, std::strerror(errno));
  return in_memory(events);
}

// False, and errno, where there can be none.
bool Recording::make_file(const RecordingOwner& owner, const std::string& folder) {
  path_ = fmt::format("{}/{}{:016x}-{}", folder, prefix(), owner.job, owner.rank);
  // Nobody sees it by its name, and takes it for one whose rank has ended, before it is locked.
  const std::string unfinished = path_ + kUnfinishedRecording;
  fd_ = open_guarded([&] {
    return ::open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0600);
  });
  if (fd_ < 0) return false;
  void* memory = MAP_FAILED;
  const auto takes_room = [this] {
    const int error = give_room(fd_, 0, static_cast<off_t>(bytes_));
    if (error != 0) errno = error;
    return error == 0;
  };
  // Taken now: a write into a hole of a full file system would kill the process.
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 && takes_room())
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED || rename(unfinished.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(unfinished.c_str());
    if (memory != MAP_FAILED) munmap(memory, bytes_);
    close_guarded(std::exchange(fd_, -1));
    errno = error;
    return false;
  }
  use(memory, owner);
  OpenRecordings& open = open_recordings();
  const MutexLock lock(open.mutex);
  open.all.push_back(this);
  return true;
}

// `memory`: bytes_ of zeros.
void Recording::use(void* memory, const RecordingOwner& owner) {
  header_ = new (memory) RecordingHeader;
  ring_ = reinterpret_cast<TraceEvent*>(static_cast<std::byte*>(memory) + RecordingHeader::kBytes);
  if (table_places_ > 0) {
    // An empty table, whose head is that of encode(Note), is what the zeros become by it.
    std::byte* const table = static_cast<std::byte*>(memory) + bytes_ - table_bytes(table_places_);
    const std::vector<std::byte> head = encode(ConnectionsNote{});
    std::memcpy(table, head.data(), kNoteHead);
    const auto length = static_cast<uint32_t>(table_places_ * sizeof(ConnectionRecord));
    std::memcpy(table + kNoteHead - sizeof length, &length, sizeof length);
    table_ = {reinterpret_cast<ConnectionRecord*>(table + kNoteHead), table_places_};
  }
  header_->version = RecordingHeader::kVersion;
  header_->event_bytes = sizeof(TraceEvent);
  header_->job = owner.job;
  header_->rank = owner.rank;
  header_->size = owner.size;
  header_->pid = getpid();
  header_->events = mask_ + 1;
  header_->realtime_ns = realtime_ns();
  header_->monotonic_ns = now_ns();
  owner.host.copy(header_->host, sizeof header_->host - 1);
  std::memcpy(header_->magic, RecordingHeader::kMagic, sizeof header_->magic);
}

Recording::~Recording() {
  if (!header_ || origin_.forked()) return;
  if (fd_ >= 0) {
    OpenRecordings& open = open_recordings();
    const MutexLock lock(open.mutex);
    std::erase(open.all, this);
  }
  munmap(header_, bytes_);
  if (fd_ >= 0) close_guarded(fd_);
}

void Recording::pause(const Pause& pause) {
  const uint64_t number = header_->paused.load(std::memory_order_relaxed);
  RecordingHeader::PauseSlot& slot = header_->pauses[number % RecordingHeader::kPauses];
  slot.begin_ns.store(pause.begin_ns, std::memory_order_relaxed);
  slot.end_ns.store(pause.end_ns, std::memory_order_relaxed);
  header_->paused.store(number + 1, std::memory_order_release);
}

void Recording::cores_between(std::optional<double> cores) {
  constexpr double kThousandths = 1000, kMostCores = 1e6;
  const uint32_t known =
      cores ? 1 + static_cast<uint32_t>(kThousandths * std::clamp(*cores, 0.0, kMostCores)) : 0;
  header_->cores_between.store(1 + known, std::memory_order_relaxed);
}

void Recording::note(std::span<const std::byte> note, NoteKind kind) {
  constexpr size_t kMost[] = {kMostFewBytes, kMostCommunicatorBytes, kMostPlanBytes};
  std::atomic<size_t>& bytes = note_bytes_[static_cast<size_t>(kind)];
  if (fd_ < 0 || notes_cut_off_ || bytes + note.size() > kMost[static_cast<size_t>(kind)]) return;
  bytes += note.size();
  // One write to a file that is appended to: notes of several threads do not mix.
  const ssize_t written = ::write(fd_, note.data(), note.size());
  // Behind one that was cut off nothing could be read.
  if (written != static_cast<ssize_t>(note.size())) notes_cut_off_ = true;
}

void Recording::connections(std::span<const ConnectionRecord> records) {
  if (origin_.forked()) return;
  const size_t count = std::min(records.size(), table_.size());
  for (size_t i = 0; i < count; i++) {
    ConnectionRecord record = records[i];
    record.check = record.expected_check();
    table_[i] = record;
  }
  for (ConnectionRecord& none : table_.subspan(count)) none = {};
}

void Recording::clock(MeasuredClock measured) {
  if (origin_.forked()) return;
  measured.check = measured.expected_check();
  header_->clock = measured;
}

void Recording::end(bool well) {
  if (origin_.forked()) return;
  header_->ended.store(realtime_ns(), std::memory_order_release);
  if (well && troubles_ == 0 && !kept_ && fd_ >= 0) unlink(path_.c_str());
}

}  // namespace sennit
