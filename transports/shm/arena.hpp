// arena.hpp: memory that peers can read in place, and a peer's view of it.
//
// allocate() carves pages out of arenas: anonymous files (memfd) that are mapped here. A peer maps
// an arena once, read-only, through /proc/PID/fd, when the first message out of it comes, and
// checks the inode. An arena has no name and is no part of /dev/shm: it vanishes with the last
// process that maps it, however that dies, and Docker's 64 MB of /dev/shm do not limit it. Freed
// pages go back to the kernel; the arena stays mapped, so a peer may read it at any time without
// harm. Cost: one descriptor per arena; first fit over a map.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transports/shm/segment.hpp"

namespace sennit::shm {

// One of those files. Sizes are in whole pages, to which the caller rounds up, as Arenas does.
class Arena {
 public:
  // Of `bytes`, whole pages, which take memory only once they are allocated; nullptr: there can be
  // none here.
  static std::unique_ptr<Arena> create(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  uint64_t inode() const { return inode_; }
  bool contains(const void* memory) const { return memory >= data_ && memory < data_ + bytes_; }
  void* allocate(size_t bytes);  // whole pages, backed by memory; nullptr if there is no room
  bool free(void* memory);       // false: not what allocate() returned, or freed already
  // Maps `bytes` at `inside` at `address` as well, over what is there.
  bool map_at(void* address, const std::byte* inside, size_t bytes) const;

 private:
  Arena() = default;
  int fd_ = -1;
  uint64_t inode_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::map<size_t, size_t> free_;  // offset -> bytes, never adjacent
  std::map<size_t, size_t> used_;
};

// All arenas of this rank; more are made as they are needed.
class Arenas {
 public:
  void* allocate(size_t bytes);              // nullptr: there is no memory, or no arena can be made
  bool free(void* memory);                   // false: it is in none of them
  Arena* holding(const void* memory) const;  // nullptr: none does
  const std::vector<std::unique_ptr<Arena>>& all() const { return arenas_; }

 private:
  std::vector<std::unique_ptr<Arena>> arenas_;
};

// A peer's arenas as this process sees them.
class RemoteArenas {
 public:
  ~RemoteArenas();  // unmaps them
  // One that the peer has announced; it is mapped when it is first looked into.
  void add(const ArenaBody& arena, uint64_t inode) {
    arenas_.push_back({arena, inode, nullptr, false});
  }
  // Where the peer's memory at `address` lies here, or nullptr. `process` is the peer.
  const std::byte* find(const ProcessId& process, uint64_t address, uint64_t bytes);

 private:
  struct Remote {
    ArenaBody arena;
    uint64_t inode;
    std::byte* data;
    bool tried;
  };
  std::vector<Remote> arenas_;
};

}  // namespace sennit::shm
