// registered.cpp: see transports/shm/registered.hpp.
#include "transports/shm/registered.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/process/descriptors.hpp"

namespace sennit::shm {
namespace {

std::byte* at(uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// One line of /proc/self/maps: [begin, end) is mapped like this.
struct Area {
  uintptr_t begin = 0, end = 0;
  char access[5] = "";  // "rw-p"
  uint64_t offset = 0, inode = 0;
  std::string name;  // "[heap]", "/lib/..."
};

// The areas that [begin, end) touches, ascending. SENNIT_UNSUPPORTED where /proc is not to be had.
Result<std::vector<Area>> areas(uintptr_t begin, uintptr_t end) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (!file) return Status(SENNIT_UNSUPPORTED, fmt::format("/proc/self/maps: {}", strerror(errno)));
  std::vector<Area> result;
  char line[4352];
  while (std::fgets(line, sizeof line, file.get())) {
    Area area;
    int name = 0;
    if (std::sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &area.begin, &area.end, area.access,
                    &area.offset, &area.inode, &name) < 5)
      continue;
    if (area.end <= begin) continue;
    if (area.begin >= end) break;
    area.name = line + name;
    while (!area.name.empty() && area.name.back() == '\n') area.name.pop_back();
    result.push_back(std::move(area));
  }
  return result;
}

// Why the pages of [begin, end) cannot be replaced, or OK.
Status replaceable(uintptr_t begin, uintptr_t end) {
  const Result<std::vector<Area>> found = areas(begin, end);
  if (!found) return found.status();
  const auto refuse = [](const Area& area, const char* why) -> Status {
    return {SENNIT_UNSUPPORTED,
            fmt::format(
                "memory at {:#x} ({}{}{}) cannot be registered: {}; it can be used unregistered",
                area.begin, area.access, area.name.empty() ? "" : " ", area.name, why)};
  };
  uintptr_t covered = begin;
  for (const Area& area : *found) {
    if (area.begin > covered) break;
    covered = area.end;
    if (area.inode != 0 || area.access[3] != 'p')
      return refuse(area,
                    "it is a file's, a device's, of huge pages or shared with other processes");
    if (std::string_view(area.access, 3) != "rw-")
      return refuse(area, "it is not both readable and writable");
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (area.name == "[stack]" || (here >= begin && here < end))
      return refuse(area, "it is a stack");
  }
  if (covered < end) return invalid(fmt::format("no memory is mapped at {:#x}", covered));
  return {};
}

}  // namespace

bool fill_hole(void* address, const std::byte* from, size_t bytes) {
  void* const made = mmap(address, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (made == MAP_FAILED) return errno == EEXIST;
  if (made != address) {  // there is something, and the kernel, before 4.17, does not know the flag
    munmap(made, bytes);
    return true;
  }
  std::memcpy(made, from, bytes);
  return true;
}

Registrations::~Registrations() {
  if (page_map_ >= 0) close(page_map_);
}

Status Registrations::add(void* memory, size_t bytes) {
  if (arenas_.holding(memory)) return {};  // peers read it in place already
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage,
                  end = (address + bytes) / kPage * kPage;
  if (begin >= end) return {};  // no whole page
  SENNIT_RETURN_IF_ERROR(replaceable(begin, end));
  const size_t whole = end - begin;
  auto* const piece = static_cast<std::byte*>(arenas_.allocate(whole + 2 * kPage));
  if (!piece)
    return {
        SENNIT_OUT_OF_RESOURCES,
        fmt::format("no shared memory for {} bytes: free some, or leave it unregistered", whole)};
  std::byte* const inside = piece + kPage;
  Arena* const arena = arenas_.holding(inside);
  std::memcpy(inside, at(begin), whole);
  if (!arena->map_at(at(begin), inside, whole)) {
    const int error = errno;
    // Older kernels have unmapped what was there by then.
    const bool as_before = fill_hole(at(begin), inside, whole);
    arena->free(piece);
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("cannot map {} bytes of shared memory: {}{}{}", whole, strerror(error),
                        error == ENOMEM ? ": raise vm.max_map_count" : "",
                        as_before ? "" : "; nor is there memory for what was there: it is lost")};
  }
  if (page_map_ < 0)
    page_map_ = off_standard_streams(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  pages_.emplace(address, Pages{memory, bytes, begin, end, arena, inside, false});
  return {};
}

void Registrations::release(Entry place) {
  place->second.arena->free(place->second.inside - kPage);
  pages_.erase(place);
}

// Private pages over those of the arena that are still there, then the bytes. No mremap(): the
// hooks that UCX and Open MPI put into it lose the new address.
Status Registrations::put_back(const Pages& pages) {
  const Result<std::vector<Area>> found = areas(pages.begin, pages.end);
  if (!found) return found.status();
  for (const Area& area : *found) {
    const uintptr_t from = std::max(area.begin, pages.begin), to = std::min(area.end, pages.end);
    std::byte* const inside = pages.inside + (from - pages.begin);
    const auto offset = static_cast<uint64_t>(inside - pages.arena->data());
    if (area.inode != pages.arena->inode() || area.offset + (from - area.begin) != offset) continue;
    if (mmap(at(from), to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
      const int error = errno;
      pages.arena->map_at(at(from), inside, to - from);  // older kernels have unmapped it by then
      return {SENNIT_OUT_OF_RESOURCES,
              fmt::format("no memory for {} bytes in place of shared ones: {}", to - from,
                          strerror(error))};
    }
    std::memcpy(at(from), inside, to - from);
  }
  return {};
}

Status Registrations::remove(void* memory) {
  const auto place = pages_.find(reinterpret_cast<uintptr_t>(memory));
  if (place == pages_.end()) return {};  // no whole page, an arena's, or found gone meanwhile
  SENNIT_RETURN_IF_ERROR(put_back(place->second));
  release(place);
  return {};
}

void Registrations::clear() {
  while (!pages_.empty()) {
    const auto place = pages_.begin();
    const Status status = put_back(place->second);
    if (status.ok()) {
      release(place);
    } else {
      log(LogLevel::warn, "shm: {}: they stay shared", status.text());
      pages_.erase(place);
    }
  }
}

std::span<const std::byte> Registrations::range(const void* memory) const {
  const auto place = pages_.find(reinterpret_cast<uintptr_t>(memory));
  if (place == pages_.end()) return {};
  return {static_cast<const std::byte*>(memory), place->second.bytes};
}

// Whether the first and the last page of [begin, end) belong to a file, as ours do and fresh ones
// do not.
bool Registrations::still_ours(uintptr_t begin, uintptr_t end) {
  if (page_map_ < 0) return true;
  constexpr uint64_t kPresent = 1ull << 63, kOfFile = 1ull << 61;
  for (const uintptr_t page : {begin / kPage, (end - 1) / kPage}) {
    uint64_t entry = 0;
    if (pread(page_map_, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) !=
            sizeof entry ||
        !(entry & kPresent) || !(entry & kOfFile))
      return false;
  }
  return true;
}

void Registrations::locate(const Segment& segment, std::vector<RemoteSegment>* result) {
  uintptr_t begin = reinterpret_cast<uintptr_t>(segment.data);
  const uintptr_t end = begin + segment.bytes;
  auto next = pages_.upper_bound(begin);
  if (next != pages_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin)
    --next;
  while (begin < end && next != pages_.end() && next->first < end) {
    const uintptr_t first = next->first;
    Pages& pages = next->second;
    ++next;
    const uintptr_t from = std::max(begin, first), to = std::min(end, first + pages.bytes);
    const uintptr_t whole_from = std::max(from, pages.begin), whole_to = std::min(to, pages.end);
    if (whole_from < whole_to && !still_ours(whole_from, whole_to)) {
      if (!std::exchange(pages.told, true))
        log(LogLevel::warn,
            "shm: memory registered at {} was freed, unmapped or replaced before "
            "sennit_mem_deregister; it is sent as any memory is",
            pages.memory);
      continue;
    }
    if (from > begin) result->push_back({begin, from - begin});
    // The ends in partial pages. Until the message is done, nobody changes these bytes.
    if (from < pages.begin)
      std::memcpy(pages.inside - (pages.begin - from), at(from), std::min(to, pages.begin) - from);
    if (const uintptr_t tail = std::max(from, pages.end); tail < to)
      std::memcpy(pages.inside + (tail - pages.begin), at(tail), to - tail);
    std::byte* const inside = pages.inside + static_cast<ptrdiff_t>(from - pages.begin);
    result->push_back({reinterpret_cast<uint64_t>(inside), to - from});
    begin = to;
  }
  if (begin < end || segment.bytes == 0) result->push_back({begin, end - begin});
}

}  // namespace sennit::shm
