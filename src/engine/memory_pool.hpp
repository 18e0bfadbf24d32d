// memory_pool.hpp: memory that the engine hands out, to users and as scratch for executions, and
// memory of users' own that they register. Exposable to peers where a transport offers that,
// else plain.
//
// Not thread-safe: all calls are made under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.hpp"
#include "engine/routes.hpp"

namespace sennit {

class MemoryPool {
 public:
  // Memory for scratch, with its true size.
  struct Scratch {
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };

  // `routes` has the transports. It may end before this, once free_scratch() was called.
  explicit MemoryPool(Routes& routes) : routes_(routes) {}
  // Frees the plain memory that its users have not.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Zeroed, 64-byte aligned; no more than there is.
  Result<void*> allocate(size_t bytes);
  bool free(void* memory);  // false: it is not from here
  // See sennit_mem_register. The same range again counts as one more.
  Status register_range(void* memory, size_t bytes);
  Status deregister_range(void* memory);

  // Scratch is kept for the next call: fresh pages cost more than the reduction that fills them. It
  // may be larger than what was asked for, and is given back as it was taken.
  Result<Scratch> take_scratch(size_t bytes);
  void give_back_scratch(const Scratch& scratch);  // null is nothing
  void free_scratch();                             // all that was given back

 private:
  struct Registered {
    size_t bytes;
    uint64_t times;
  };
  Status check_free_of_others(std::byte* begin, size_t bytes) const;

  Routes& routes_;
  std::vector<Scratch> scratch_;
  std::vector<void*> plain_;
  std::map<std::byte*, Registered> registered_;  // by address, never overlapping
};

}  // namespace sennit
