// memory.cpp: see memory.hpp.
//
// Kernels look addresses up without a lock: a lock would order their writes before whatever the
// host does next in the driver, and hide from the thread sanitizer what the program has forgotten
// to order. Entries are written with release and read with acquire, which orders in one direction
// only, from the one who allocated.
#include "tests/soft_gpu/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "tests/soft_gpu/process.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"

namespace soft_gpu {
namespace {

constexpr size_t kViewBytes = size_t{64} << 30;
constexpr size_t kGranuleBytes = 256 << 10;  // an allocation is that many, whole
constexpr size_t kGranules = kViewBytes / kGranuleBytes;
constexpr size_t kHostRanges = 16384;
constexpr size_t kPage = 4096;

struct Allocation {
  Allocation(uintptr_t its_first, size_t its_bytes, int its_device)
      : first(its_first), bytes(its_bytes), device(its_device) {}
  const uintptr_t first;
  const size_t bytes;
  const int device;
  std::atomic<bool> lives{true};
  bool shareable = false;
  // Of another process's, mapped here: what it is, and how often it was asked for.
  Shared shared{};
  int uses = 0;
};

struct HostRange {
  std::atomic<RangeKind> kind;  // unknown: the entry is free
  std::atomic<uintptr_t> first;
  std::atomic<size_t> bytes;
  std::atomic<int> device;
};

// Never destroyed: threads of streams use it until the process is gone.
struct Memory {
  std::mutex mutex;  // of all that write
  int file = -1;
  std::byte* view = nullptr;   // without any right
  std::byte* alias = nullptr;  // the same, to read and write
  std::deque<Allocation> allocations;
  std::atomic<Allocation*>* granules = new std::atomic<Allocation*>[kGranules]();
  size_t next_granule = 0;
  HostRange* host = new HostRange[kHostRanges]();
  std::atomic<size_t> host_used{0};  // entries from the first that were ever used

  Memory() {
    file = memfd_create("soft_gpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, kViewBytes) != 0) give_up();
    view = map(PROT_NONE);
    alias = map(PROT_READ | PROT_WRITE);
  }
  std::byte* map(int rights) {
    void* const at = mmap(nullptr, kViewBytes, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) give_up();
    madvise(at, kViewBytes, MADV_DONTDUMP);
    return static_cast<std::byte*>(at);
  }
  [[noreturn]] static void give_up() {
    std::perror("soft_gpu: no memory for a device");
    std::abort();
  }
  // By subtraction, which tells addresses below the view too.
  size_t offset(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(view); }
};

Memory& memory() {
  static Memory& it = *new Memory;
  return it;
}

bool is_free(size_t granule) {
  const Allocation* const there = memory().granules[granule].load(std::memory_order_relaxed);
  return there == nullptr || !there->lives.load(std::memory_order_relaxed);
}

size_t granules_of(size_t bytes) { return bytes / kGranuleBytes + (bytes % kGranuleBytes != 0); }

// The first of `count` free granules after those given out last, or kGranules.
size_t free_granules(size_t count) {
  if (count > kGranules) return kGranules;
  size_t first = memory().next_granule, free = 0;
  for (size_t looked = 0; looked < 2 * kGranules; looked++) {
    if (first + count > kGranules) first = free = 0;
    if (!is_free(first + free)) {
      first += free + 1;
      free = 0;
    } else if (++free == count) {
      return first;
    }
  }
  return kGranules;
}

// The caller holds the mutex.
Allocation& give_out(size_t first, size_t bytes, int device) {
  Memory& all = memory();
  const size_t count = granules_of(bytes);
  all.next_granule = first + count;
  Allocation& made = all.allocations.emplace_back(
      reinterpret_cast<uintptr_t>(all.view) + first * kGranuleBytes, bytes, device);
  for (size_t i = 0; i < count; i++)
    all.granules[first + i].store(&made, std::memory_order_release);
  return made;
}

// Or null.
Allocation* allocation_at(uintptr_t address) {
  Memory& all = memory();
  const size_t offset = all.offset(address);
  if (offset >= kViewBytes) return nullptr;
  Allocation* const there = all.granules[offset / kGranuleBytes].load(std::memory_order_acquire);
  const bool lives = there != nullptr && there->lives.load(std::memory_order_acquire);
  return lives && address - there->first < there->bytes ? there : nullptr;
}

// Has both mappings of these granules show a file from `offset` on.
bool map_over(size_t first, size_t bytes, int file, uint64_t offset) {
  Memory& all = memory();
  const auto map = [&](std::byte* at, int rights) {
    return mmap(at + first * kGranuleBytes, granules_of(bytes) * kGranuleBytes, rights,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file,
                static_cast<off_t>(offset)) != MAP_FAILED;
  };
  return map(all.view, PROT_NONE) && map(all.alias, PROT_READ | PROT_WRITE);
}

Range host_range_at(uintptr_t address) {
  Memory& all = memory();
  const size_t used = all.host_used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; i++) {
    const HostRange& entry = all.host[i];
    const RangeKind kind = entry.kind.load(std::memory_order_acquire);
    if (kind == RangeKind::unknown) continue;
    const uintptr_t first = entry.first.load(std::memory_order_relaxed);
    const size_t bytes = entry.bytes.load(std::memory_order_relaxed);
    if (address - first < bytes)
      return {kind, entry.device.load(std::memory_order_relaxed), first, bytes};
  }
  return {};
}

int add_host_range(const Range& range) {
  Memory& all = memory();
  size_t at = 0;
  while (at < kHostRanges && all.host[at].kind.load() != RangeKind::unknown) at++;
  if (at == kHostRanges) return kOutOfMemory;
  all.host[at].first.store(range.first, std::memory_order_relaxed);
  all.host[at].bytes.store(range.bytes, std::memory_order_relaxed);
  all.host[at].device.store(range.device, std::memory_order_relaxed);
  all.host[at].kind.store(range.kind, std::memory_order_release);
  all.host_used.store(std::max(all.host_used.load(), at + 1), std::memory_order_release);
  return 0;
}

bool host_ranges_overlap(uintptr_t first, size_t bytes) {
  Memory& all = memory();
  for (size_t i = 0; i < all.host_used.load(); i++) {
    const HostRange& entry = all.host[i];
    if (entry.kind.load() != RangeKind::unknown &&
        first < entry.first.load() + entry.bytes.load() && entry.first.load() < first + bytes)
      return true;
  }
  return false;
}

}  // namespace

int allocate_device(size_t bytes, int device, bool shareable, uintptr_t* address) {
  if (bytes == 0) return kInvalidValue;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const size_t first = free_granules(granules_of(bytes));
  if (first == kGranules) return kOutOfMemory;
  std::memset(all.alias + first * kGranuleBytes, 0xa5, std::min(bytes, kGranuleBytes));
  Allocation& made = give_out(first, bytes, device);
  made.shareable = shareable;
  *address = made.first;
  return 0;
}

int share(uintptr_t address, Shared* shared) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  Allocation* const there = allocation_at(address);
  struct stat file {};
  if (there == nullptr || !there->shareable || fstat(all.file, &file) != 0) return kInvalidValue;
  *shared = {getpid(), all.file, file.st_ino, all.offset(there->first), there->bytes};
  return 0;
}

int map_shared(const Shared& shared, int device, uintptr_t* address) {
  if (shared.process == getpid()) return kInvalidContext;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  for (Allocation& made : all.allocations)
    if (made.lives && made.shared == shared && made.device == device) {
      made.uses++;
      *address = made.first;
      return 0;
    }
  const std::string path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidValue;
  struct stat found {};
  const size_t first = free_granules(granules_of(shared.bytes));
  const bool maps = fstat(file, &found) == 0 && found.st_ino == shared.inode && first < kGranules &&
                    map_over(first, shared.bytes, file, shared.offset);
  close(file);
  if (!maps) return kInvalidValue;
  Allocation& made = give_out(first, shared.bytes, device);
  made.shared = shared;
  made.uses = 1;
  *address = made.first;
  return 0;
}

int unmap_shared(uintptr_t address) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  Allocation* const there = allocation_at(address);
  if (there == nullptr || there->first != address || there->uses == 0) return kInvalidValue;
  if (--there->uses > 0) return 0;
  there->lives.store(false, std::memory_order_release);
  const size_t offset = all.offset(address);
  return map_over(offset / kGranuleBytes, there->bytes, all.file, offset) ? 0 : kInvalidValue;
}

int allocate_host(RangeKind kind, size_t bytes, int device, uintptr_t* address) {
  if (bytes == 0) return kInvalidValue;
  void* const made = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (made == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<uintptr_t>(made);
  const std::lock_guard lock(memory().mutex);
  const int error = add_host_range({kind, device, *address, bytes});
  if (error != 0) std::free(made);
  return error;
}

int register_host(uintptr_t first, size_t bytes, int device) {
  if (first == 0 || bytes == 0 || memory().offset(first) < kViewBytes) return kInvalidValue;
  const std::lock_guard lock(memory().mutex);
  if (host_ranges_overlap(first, bytes)) return kAlreadyRegistered;
  return add_host_range({RangeKind::registered, device, first, bytes});
}

void forget(const Range& range) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  if (range.kind == RangeKind::device) {
    const size_t at = all.offset(range.first);
    all.granules[at / kGranuleBytes].load()->lives.store(false, std::memory_order_release);
    const size_t whole = (range.bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
    fallocate(all.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
              static_cast<off_t>(whole));
    return;
  }
  for (size_t i = 0; i < all.host_used.load(); i++)
    if (all.host[i].kind.load() == range.kind && all.host[i].first.load() == range.first)
      all.host[i].kind.store(RangeKind::unknown, std::memory_order_release);
  if (range.kind != RangeKind::registered) std::free(reinterpret_cast<void*>(range.first));
}

Range range_at(uintptr_t address) {
  Memory& all = memory();
  if (all.offset(address) >= kViewBytes) return host_range_at(address);
  const Allocation* const there = allocation_at(address);
  if (there == nullptr) return {};
  return {RangeKind::device, there->device, there->first, there->bytes};
}

std::byte* reach(uintptr_t address, size_t bytes) {
  const Range found = range_at(address);
  if (found.kind == RangeKind::unknown) return nullptr;
  const size_t here = found.first + found.bytes - address;
  if (found.kind == RangeKind::device)
    return bytes <= here ? memory().alias + memory().offset(address) : nullptr;
  // Ranges of the host's that touch serve as one.
  if (bytes > here && reach(address + here, bytes - here) == nullptr) return nullptr;
  return reinterpret_cast<std::byte*>(address);
}

std::byte* reach_for_copy(uintptr_t address, size_t bytes) {
  if (memory().offset(address) < kViewBytes) return reach(address, bytes);
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace soft_gpu

namespace {

std::byte* must_reach(const void* device, size_t bytes) {
  if (std::byte* const there = soft_gpu::reach(reinterpret_cast<uintptr_t>(device), bytes))
    return there;
  std::fprintf(stderr, "soft_gpu: %zu bytes at %p are no device's memory\n", bytes, device);
  std::abort();
}

}  // namespace

void soft_gpu_read(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, must_reach(device, bytes), bytes);
}
void soft_gpu_write(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(must_reach(device, bytes), host, bytes);
}
