// file.cpp: see diagnose/file.hpp.
#include "diagnose/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include <fmt/core.h>

#include "base/process/forked.hpp"

namespace sennit::diagnose {
namespace {

// How many bytes could be read.
size_t read_at(int fd, uint64_t offset, std::span<std::byte> data) {
  size_t got = 0;
  while (got < data.size()) {
    const ssize_t n =
        pread(fd, data.data() + got, data.size() - got, static_cast<off_t>(offset + got));
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

bool is_sound(const TraceEvent& event) {
  constexpr int kMostScale = 31;
  return event.kind <= EventKind::stall && event.scale <= kMostScale;
}

}  // namespace

Result<std::unique_ptr<RecordingFile>> RecordingFile::open(const std::string& path) {
  const int fd =
      open_guarded([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  std::unique_ptr<RecordingFile> file(new RecordingFile(fd, path));
  if (read_at(fd, 0, file->page_) < sizeof file->page_) std::memset(file->page_, 0, 1);
  SENNIT_RETURN_IF_ERROR(file->check_header());
  struct stat info {};
  if (fstat(fd, &info) != 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  const uint64_t ring_bytes = file->header().events * sizeof(TraceEvent);
  if (static_cast<uint64_t>(info.st_size) < RecordingHeader::kBytes + ring_bytes)
    return invalid(fmt::format("{} is cut off: it has {} bytes, of which the events alone take {}",
                               path, info.st_size, RecordingHeader::kBytes + ring_bytes));
  return file;
}

RecordingFile::~RecordingFile() { close_guarded(fd_); }

Status RecordingFile::check_header() const {
  const RecordingHeader& header = this->header();
  if (std::memcmp(header.magic, RecordingHeader::kMagic, sizeof header.magic) != 0)
    return invalid(path_ + " is no recording of a rank");
  if (header.version != RecordingHeader::kVersion || header.event_bytes != sizeof(TraceEvent))
    return {SENNIT_UNSUPPORTED,
            fmt::format("{} is of version {} of the format, this program reads version {}: read it "
                        "with the sennit that wrote it",
                        path_, header.version, RecordingHeader::kVersion)};
  constexpr int kMostRanks = 1 << 20;
  const bool sound = header.events > 0 && header.events <= Recording::kMostEvents &&
                     header.size <= kMostRanks && (header.events & (header.events - 1)) == 0 &&
                     header.rank >= 0 && header.rank < header.size;
  return sound ? Status() : invalid(path_ + " is damaged: its header makes no sense");
}

// Of this moment. 0 where it cannot be read.
uint64_t RecordingFile::recorded() const {
  uint64_t number = 0;
  read_at(fd_, offsetof(RecordingHeader, recorded), std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

Result<RecordingFile::Events> RecordingFile::events_from(uint64_t number, uint64_t most) {
  const uint64_t room = header().events, all = recorded();
  Events read;
  read.first = std::min(all, std::max(number, all - std::min(all, room)));
  read.next = std::min(all, read.first + most);
  read.events.resize(read.next - read.first);
  for (uint64_t at = read.first; at < read.next;) {  // the ring's end, and then its begin
    const uint64_t in_ring = at & (room - 1);
    const uint64_t count = std::min(read.next - at, room - in_ring);
    const std::span<TraceEvent> part(read.events.data() + (at - read.first), count);
    const uint64_t offset = RecordingHeader::kBytes + in_ring * sizeof(TraceEvent);
    if (read_at(fd_, offset, std::as_writable_bytes(part)) < part.size_bytes())
      return invalid(path_ + " was cut off while it was read");
    at += count;
  }
  // What was overwritten meanwhile is left out; one may be half written.
  const uint64_t after = recorded();
  const uint64_t sure = after >= room ? after - room + 1 : 0;
  if (sure > read.first) {
    const uint64_t gone = std::min(sure, read.next) - read.first;
    read.events.erase(read.events.begin(), read.events.begin() + static_cast<ptrdiff_t>(gone));
    read.first = sure;
  }
  std::erase_if(read.events, [](const TraceEvent& event) { return !is_sound(event); });
  return read;
}

// The oldest may be overwritten meanwhile, and is left out.
std::vector<Pause> RecordingFile::pauses() const {
  constexpr uint64_t kRoom = RecordingHeader::kPauses;
  const RecordingHeader& header = this->header();
  const uint64_t ever = header.paused.load(std::memory_order_relaxed);
  std::vector<Pause> pauses;
  for (uint64_t n = ever - std::min(ever, kRoom - 1); n < ever; n++) {
    const RecordingHeader::PauseSlot& slot = header.pauses[n % kRoom];
    const Pause pause{slot.begin_ns.load(std::memory_order_relaxed),
                      slot.end_ns.load(std::memory_order_relaxed)};
    const bool follows = pauses.empty() || pause.begin_ns >= pauses.back().end_ns;
    if (follows && pause.begin_ns < pause.end_ns) pauses.push_back(pause);
  }
  return pauses;
}

std::optional<double> RecordingFile::cores_between() const {
  constexpr double kThousandths = 1000;
  const uint32_t known = header().cores_between.load(std::memory_order_relaxed);
  return known > 1 ? std::optional((known - 2) / kThousandths) : std::nullopt;
}

bool RecordingFile::was_watched() const {
  return header().cores_between.load(std::memory_order_relaxed) > 0;
}

std::vector<Note> RecordingFile::notes() const { return decode_notes(note_bytes()); }

std::vector<std::byte> RecordingFile::note_bytes() const {
  // What is behind that nobody has written: a damaged file may seem to be of any size.
  constexpr uint64_t kMost = Recording::kMostTableBytes + Recording::kMostNoteBytes;
  struct stat info {};
  const uint64_t from = RecordingHeader::kBytes + header().events * sizeof(TraceEvent);
  if (fstat(fd_, &info) != 0 || static_cast<uint64_t>(info.st_size) <= from) return {};
  std::vector<std::byte> bytes(std::min(static_cast<uint64_t>(info.st_size) - from, kMost));
  bytes.resize(read_at(fd_, from, bytes));
  return bytes;
}

}  // namespace sennit::diagnose
