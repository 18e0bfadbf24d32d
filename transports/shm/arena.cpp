// arena.cpp: see transports/shm/arena.hpp.
#include "transports/shm/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/descriptors.hpp"
#include "base/process/file_room.hpp"
#include "base/process/memory_left.hpp"

namespace sennit::shm {
namespace {

constexpr size_t kArenaBytes = size_t{256} << 20;  // sparse: only what is allocated takes memory

}  // namespace

std::unique_ptr<Arena> Arena::create(size_t bytes) {
  std::unique_ptr<Arena> arena(new Arena);
  arena->fd_ = off_standard_streams(memfd_create("sennit", MFD_CLOEXEC));
  struct stat info {};
  int error = arena->fd_ < 0 ? errno : give_length(arena->fd_, static_cast<off_t>(bytes));
  if (!error && fstat(arena->fd_, &info) != 0) error = errno;
  if (error) {
    log(LogLevel::warn, "shm: no shared memory of {}: {}", format_bytes(bytes), room_error(error));
    return nullptr;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd_, 0);
  if (data == MAP_FAILED) {
    log(LogLevel::warn, "shm: cannot map {}: {}", format_bytes(bytes), strerror(errno));
    return nullptr;
  }
  arena->inode_ = info.st_ino;
  arena->data_ = static_cast<std::byte*>(data);
  arena->bytes_ = bytes;
  arena->free_.emplace(0, bytes);
  return arena;
}

Arena::~Arena() {
  if (data_) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

void* Arena::allocate(size_t bytes) {
  const auto extent = std::find_if(free_.begin(), free_.end(),
                                   [&](const auto& entry) { return entry.second >= bytes; });
  if (extent == free_.end()) return nullptr;
  const auto [offset, available] = *extent;
  const auto first = static_cast<off_t>(offset);
  const Status taken = take_memory(bytes, [&](size_t done, size_t piece) {
    return give_room(fd_, first + static_cast<off_t>(done), static_cast<off_t>(piece)) == 0;
  });
  if (!taken.ok()) {
    log(LogLevel::info, "shm: {}", taken.text());
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, static_cast<off_t>(bytes));
    return nullptr;
  }
  free_.erase(extent);
  if (available > bytes) free_.emplace(offset + bytes, available - bytes);
  used_.emplace(offset, bytes);
  return data_ + offset;
}

bool Arena::free(void* memory) {
  const auto entry = used_.find(static_cast<size_t>(static_cast<std::byte*>(memory) - data_));
  if (entry == used_.end()) return false;
  auto [offset, bytes] = *entry;
  used_.erase(entry);
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return true;
    }
  }
  free_.emplace(offset, bytes);
  return true;
}

bool Arena::map_at(void* address, const std::byte* inside, size_t bytes) const {
  return mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd_,
              inside - data_) != MAP_FAILED;
}

void* Arenas::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  for (const std::unique_ptr<Arena>& arena : arenas_)
    if (void* memory = arena->allocate(bytes)) return memory;
  std::unique_ptr<Arena> arena = Arena::create(std::max(bytes, kArenaBytes));
  void* memory = arena ? arena->allocate(bytes) : nullptr;
  if (memory) arenas_.push_back(std::move(arena));
  return memory;
}

Arena* Arenas::holding(const void* memory) const {
  for (const std::unique_ptr<Arena>& arena : arenas_)
    if (arena->contains(memory)) return arena.get();
  return nullptr;
}

bool Arenas::free(void* memory) {
  Arena* const arena = holding(memory);
  return arena && arena->free(memory);
}

RemoteArenas::~RemoteArenas() {
  for (const Remote& remote : arenas_)
    if (remote.data) munmap(remote.data, remote.arena.bytes);
}

const std::byte* RemoteArenas::find(const ProcessId& process, uint64_t address, uint64_t bytes) {
  for (Remote& remote : arenas_) {
    if (address < remote.arena.base || address - remote.arena.base >= remote.arena.bytes ||
        bytes > remote.arena.bytes - (address - remote.arena.base))
      continue;
    if (!remote.tried) {
      remote.tried = true;
      const int fd = open(fmt::format("/proc/{}/fd/{}", process.pid, remote.arena.fd).c_str(),
                          O_RDONLY | O_CLOEXEC);
      struct stat info {};
      if (fd >= 0 && fstat(fd, &info) == 0 && info.st_ino == remote.inode &&
          static_cast<uint64_t>(info.st_size) >= remote.arena.bytes) {
        void* data = mmap(nullptr, remote.arena.bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (data != MAP_FAILED) {
          // a child is not to keep the peer's memory
          madvise(data, remote.arena.bytes, MADV_DONTFORK);
          remote.data = static_cast<std::byte*>(data);
        }
      }
      if (fd >= 0) close(fd);
    }
    return remote.data ? remote.data + (address - remote.arena.base) : nullptr;
  }
  return nullptr;
}

}  // namespace sennit::shm
