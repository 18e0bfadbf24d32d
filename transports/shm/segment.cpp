// segment.cpp: see transports/shm/segment.hpp.
#include "transports/shm/segment.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/file_room.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace sennit::shm {
namespace {

constexpr uint64_t kMagic = 0x32'6d'68'73'74'6e'6e'73;  // "snntshm2"; other layouts, other magic
constexpr uint32_t kMostRings = 1024;
constexpr const char* kFolder = "/dev/shm";

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

struct ProcessStat {
  bool known = false;
  char state = '?';
  long threads = 0;
  uint64_t start_time = 0;
};

// Fields of /proc/PID/stat, as proc(5) counts them.
constexpr int kStateField = 3;
constexpr int kThreadsField = 20;
constexpr int kStartTimeField = 22;
constexpr size_t kMostStatBytes = 1024;  // more than what stands before the start time takes

ProcessStat read_stat(int pid) {
  ProcessStat result;
  char text[kMostStatBytes];
  const int fd = open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return result;
  const ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  if (bytes <= 0) return result;
  text[bytes] = 0;
  // "pid (name) S ppid ...": the name may hold anything, so start after the last parenthesis.
  const char* field = strrchr(text, ')');
  if (!field || field[1] != ' ') return result;
  field += 2;
  result.state = *field;
  for (int i = kStateField; i < kStartTimeField && field; i++) {
    if (i == kThreadsField) result.threads = std::strtol(field, nullptr, 10);
    field = strchr(field + 1, ' ');
  }
  if (!field) return result;
  result.start_time = std::strtoull(field, nullptr, 10);
  result.known = true;
  return result;
}

uint64_t pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

std::string name_of(uint64_t job, const ProcessId& process, uint64_t nonce) {
  return fmt::format("sennit-{:016x}-{}-{}-{}-{:016x}", job, process.pid, process.start_time,
                     process.pid_namespace, nonce);
}

std::string path_of(const char* name) { return fmt::format("{}/{}", kFolder, name); }

// Every rank has a ring for every other one of its host: the more ranks, the smaller the rings.
constexpr int kFewRanks = 16, kSomeRanks = 64;
constexpr Geometry kLargeRing = {256, 128 << 10}, kMiddleRing = {128, 64 << 10},
                   kSmallRing = {64, 16 << 10};

Geometry geometry_for(int ranks) {
  if (ranks <= kFewRanks) return kLargeRing;
  if (ranks <= kSomeRanks) return kMiddleRing;
  return kSmallRing;
}

// Where a peer's segment cannot be had.
const char* remedy_of(int error) {
  switch (error) {
    case ENOENT:
      return " (that rank has ended, or has another /dev/shm)";
    case EMFILE:
      return " (raise the limit of open files: ulimit -n)";
    case ENFILE:
      return " (the system may not open more files: raise fs.file-max)";
    case ENOMEM:
      return " (raise the limit of address space, ulimit -v, or of mappings, vm.max_map_count)";
    default:
      return "";
  }
}

// Orders what stands before it and after it, other memory as well. The thread sanitizer does not
// understand fences; what this one is for lies in other processes, where it does not look.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
void fence(std::memory_order order) { std::atomic_thread_fence(order); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

Status full(size_t bytes, const std::string& what) {
  struct statvfs info {};
  const uint64_t free_bytes =
      statvfs(kFolder, &info) == 0 ? uint64_t{info.f_bavail} * info.f_bsize : 0;
  return {
      SENNIT_OUT_OF_RESOURCES,
      fmt::format(
          "{} is full: {} needs {} KiB, it has {} KiB: enlarge it (mount -o remount,size=... {}) "
          "or set SENNIT_TRANSPORTS=tcp",
          kFolder, what, (bytes + 1023) / 1024, free_bytes / 1024, kFolder)};
}

// ENOSPC: memory is not all that may run out.
bool takes_no_more_files() {
  struct statvfs info {};
  return statvfs(kFolder, &info) == 0 && info.f_files > 0 && info.f_ffree == 0;
}

Status too_many_files() {
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("{} takes no more files: remove what nobody uses, allow more (mount -o "
                      "remount,nr_inodes=... {}) or set SENNIT_TRANSPORTS=tcp",
                      kFolder, kFolder)};
}

}  // namespace

ProcessId this_process() {
  ProcessId result;
  result.pid = getpid();
  result.start_time = read_stat(result.pid).start_time;
  result.pid_namespace = pid_namespace();
  return result;
}

bool may_be_alive(const ProcessId& process) {
  if (process.pid_namespace != pid_namespace()) return true;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return false;
  const ProcessStat stat = read_stat(process.pid);
  if (!stat.known || process.start_time == 0) return true;
  // Where the first thread alone has ended the process looks like a zombie, but has others.
  const bool ended = (stat.state == 'Z' && stat.threads <= 1) || stat.state == 'X';
  return stat.start_time == process.start_time && !ended;
}

Status populate(void* memory, size_t bytes, const std::string& what) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory) / kPage * kPage;
  const uintptr_t end = round_up(reinterpret_cast<uintptr_t>(memory) + bytes, kPage);
  // Rounded to a page. NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const first = reinterpret_cast<void*>(start);
  if (madvise(first, end - start, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) return full(bytes, what);
  // Linux before 5.14 cannot do it, so look at the free space. Another process may take it before
  // we do; then touching it is SIGBUS, as it is for every program there.
  struct statvfs info {};
  if (statvfs(kFolder, &info) == 0 && uint64_t{info.f_bavail} * info.f_bsize < bytes)
    return full(bytes, what);
  return {};
}

// A forked child has no part in it, and is not to keep its memory when all ranks are gone.
Mapping::Mapping(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  madvise(memory, bytes, MADV_DONTFORK);
}

Mapping::~Mapping() {
  if (memory_) munmap(memory_, bytes_);
}

Result<std::unique_ptr<OwnSegment>> OwnSegment::create(const TransportContext& context) {
  std::unique_ptr<OwnSegment> own(new OwnSegment);
  SegmentAddress& address = own->address_;
  address.magic = kMagic;
  address.process = this_process();
  address.rank = context.rank;
  address.speaker = context.speaker;
  address.user = geteuid();
  if (getrandom(address.nonce, sizeof address.nonce, 0) != sizeof address.nonce)
    return Status(SENNIT_OUT_OF_RESOURCES, "shm: no random numbers from the kernel (getrandom)");
  own->probe_ = std::make_unique<std::atomic<uint64_t>>(address.nonce[0]);
  address.probe_address = reinterpret_cast<uint64_t>(own->probe_.get());
  const std::string name =
      name_of(context.job, address.process, address.nonce[0] ^ address.nonce[1]);
  SENNIT_CHECK(name.size() < sizeof address.name);
  std::copy(name.begin(), name.end(), address.name);

  const Geometry geometry = geometry_for(context.local_ranks);
  const uint32_t capacity =
      std::clamp<uint32_t>(static_cast<uint32_t>(context.local_ranks), 1, kMostRings);
  const size_t head =
      round_up(sizeof(SegmentHeader) + capacity * sizeof(std::atomic<int32_t>), kPage);
  const size_t stride = round_up(geometry.ring_bytes(), kPage);
  const size_t bytes = head + capacity * stride;

  const std::string path = path_of(address.name);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOSPC)
      return takes_no_more_files() ? too_many_files() : full(head, "the shm transport");
    return Status(
        error == EMFILE || error == ENFILE ? SENNIT_OUT_OF_RESOURCES : SENNIT_UNSUPPORTED,
        fmt::format("shm: cannot create {}: {}{}; or set SENNIT_TRANSPORTS=tcp", path,
                    strerror(error),
                    error == EMFILE ? ": raise the limit of open files (ulimit -n)" : ""));
  }
  own->linked_ = true;
  int error = give_length(fd, static_cast<off_t>(bytes));
  if (!error) error = give_room(fd, 0, static_cast<off_t>(head));
  void* memory =
      error ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!error && memory == MAP_FAILED) error = errno;
  close(fd);
  if (error == ENOSPC) return full(head, "the shm transport");
  if (error)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("shm: cannot map {} of {}: {}; or set SENNIT_TRANSPORTS=tcp",
                              format_bytes(bytes), path, room_error(error)));
  own->mapping_ = Mapping(memory, bytes);
  SegmentHeader& header = own->header();
  header.nonce[0] = address.nonce[0];
  header.nonce[1] = address.nonce[1];
  header.geometry = geometry;
  header.capacity = capacity;
  header.first_ring = head;
  header.ring_stride = stride;
  header.magic = kMagic;
  return own;
}

OwnSegment::~OwnSegment() {
  if (address_.process.pid != getpid()) return;  // a fork of the owner: the segment is not its own
  if (mapping_) header().closed.store(1, std::memory_order_release);
  unlink();
}

void OwnSegment::unlink() {
  if (linked_) ::unlink(path_of(address_.name).c_str());
  linked_ = false;
}

// The memory itself is used again after this, which must not be seen before the count.
void OwnSegment::note_cancelled(uint32_t comm) {
  const uint32_t count = header().cancelled_count.load(std::memory_order_relaxed);
  header().cancelled[count % SegmentHeader::kCancelledRemembered].store(comm,
                                                                        std::memory_order_relaxed);
  header().cancelled_count.store(count + 1, std::memory_order_seq_cst);
  fence(std::memory_order_seq_cst);
}

// The owner writes the next one before it counts it, over the oldest that is remembered.
TakenBack taken_back(SegmentHeader& header, uint32_t comm, uint16_t since) {
  fence(std::memory_order_acquire);
  const uint32_t count = header.cancelled_count.load(std::memory_order_acquire);
  const auto too_many = [&](uint32_t now) {
    return static_cast<uint16_t>(now - since) >= SegmentHeader::kCancelledRemembered;
  };
  if (too_many(count)) return TakenBack::unknown;
  for (uint32_t i = count; static_cast<uint16_t>(i) != since; i--) {
    const auto& noted = header.cancelled[(i - 1) % SegmentHeader::kCancelledRemembered];
    if (noted.load(std::memory_order_acquire) == comm) return TakenBack::yes;
  }
  return too_many(header.cancelled_count.load(std::memory_order_acquire)) ? TakenBack::unknown
                                                                          : TakenBack::no;
}

Result<Mapping> open_segment(const SegmentAddress& address, std::string* obstacle) {
  *obstacle = "its segment in /dev/shm is not that of a peer";
  if (address.magic != kMagic || address.name[sizeof address.name - 1] != 0 ||
      !std::string_view(address.name).starts_with("sennit-") || strchr(address.name, '/'))
    return Mapping();
  const std::string path = path_of(address.name);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    const int error = errno;
    const char* const remedy = remedy_of(error);
    *obstacle = fmt::format("cannot open its segment {}: {}{}", path, strerror(error), remedy);
    if (error == EMFILE || error == ENFILE || error == ENOMEM)
      return Status(SENNIT_OUT_OF_RESOURCES, *obstacle);
    return Mapping();
  }
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<size_t>(info.st_size) < kPage) {
    close(fd);
    return Mapping();
  }
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("cannot map {} of its segment {}: {}{}", format_bytes(bytes), path,
                              strerror(error), remedy_of(error)));
  Mapping mapping(memory, bytes);
  const SegmentHeader& header = *mapping.header();
  if (header.magic != kMagic || header.nonce[0] != address.nonce[0] ||
      header.nonce[1] != address.nonce[1] ||
      header.first_ring + header.capacity * header.ring_stride > mapping.bytes())
    return Mapping();
  mapping.header()->attached.fetch_add(1, std::memory_order_acq_rel);
  return mapping;
}

void remove_name(const SegmentAddress& address) { ::unlink(path_of(address.name).c_str()); }

void remove_stale_segments(uint64_t job) {
  DIR* folder = opendir(kFolder);
  if (!folder) return;
  const uint64_t own_namespace = pid_namespace();
  while (const dirent* entry = readdir(folder)) {
    unsigned long long entry_job = 0, start_time = 0, name_space = 0, nonce = 0;
    int pid = 0, end = 0;
    if (sscanf(entry->d_name, "sennit-%16llx-%d-%llu-%llu-%16llx%n", &entry_job, &pid, &start_time,
               &name_space, &nonce, &end) != 5 ||
        entry->d_name[end] != 0 || entry_job == job || name_space != own_namespace)
      continue;
    if (may_be_alive({pid, start_time, name_space})) continue;
    if (::unlink(path_of(entry->d_name).c_str()) == 0)
      log(LogLevel::info, "removed {}, left by process {}, which is dead", path_of(entry->d_name),
          pid);
  }
  closedir(folder);
}

}  // namespace sennit::shm
