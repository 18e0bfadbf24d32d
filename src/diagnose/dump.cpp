// dump.cpp: see diagnose/dump.hpp.
#include "diagnose/dump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "diagnose/file.hpp"

namespace sennit::diagnose {
namespace {

std::atomic<uint64_t> asked = 0;
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a signal's handler adds to it");

// The header's page and the ring of a recording's file, of what was read of one. Events, because
// those are aligned as both must be.
std::vector<TraceEvent> image_of(const RecordingFile& file, const RecordingFile::Events& events) {
  constexpr size_t kHeader = RecordingHeader::kBytes / sizeof(TraceEvent);
  const uint64_t room = file.header().events;
  TraceEvent none;  // where one was overwritten while it was read
  none.scale = UINT8_MAX;
  std::vector<TraceEvent> image(kHeader + room, none);
  std::memset(static_cast<void*>(image.data()), 0, RecordingHeader::kBytes);
  auto* const header = new (image.data()) RecordingHeader;
  header->take(file.header());
  header->recorded = events.next;
  header->dumped_ns = now_ns();
  for (size_t i = 0; i < events.events.size(); i++)
    image[kHeader + ((events.first + i) & (room - 1))] = events.events[i];
  return image;
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote > 0)
      bytes = bytes.subspan(static_cast<size_t>(wrote));
    else if (wrote < 0 && errno != EINTR)
      return false;
  }
  return true;
}

}  // namespace

Status dump_recording(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (fs::equivalent(fs::path(path).parent_path(), folder, none)) return {};
  Result<std::unique_ptr<RecordingFile>> file = RecordingFile::open(path);
  if (!file) return file.status();
  const Result<RecordingFile::Events> events = (*file)->events_from(0);
  if (!events) return events.status();
  const std::string copy = (fs::path(folder) / fs::path(path).filename()).string();
  const std::string unfinished = copy + kUnfinishedRecording;
  const std::vector<TraceEvent> image = image_of(**file, *events);
  // Not as this library opens its own files: no fork waits for a folder that may be slow.
  const int fd =
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return invalid(fmt::format("{}: {}", unfinished, std::strerror(errno)));
  bool well =
      write_all(fd, std::as_bytes(std::span(image))) && write_all(fd, (*file)->note_bytes());
  int error = errno;
  ::close(fd);
  if (well && rename(unfinished.c_str(), copy.c_str()) != 0) well = false, error = errno;
  if (well) return {};
  unlink(unfinished.c_str());
  return invalid(fmt::format("{}: {}", copy, std::strerror(error)));
}

void count_dump_signals() {
  struct sigaction now {};
  if (sigaction(SIGUSR2, nullptr, &now) != 0) return;
  const bool free = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (!free) return;
  struct sigaction count {};
  count.sa_handler = [](int) { asked.fetch_add(1, std::memory_order_relaxed); };
  count.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &count, nullptr);
}

uint64_t dumps_asked() { return asked.load(std::memory_order_relaxed); }

}  // namespace sennit::diagnose
