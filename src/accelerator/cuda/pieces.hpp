// pieces.hpp: memory of a CUDA device that other processes can map, in pieces of which many blocks
// are cut.
//
// What a process maps it maps as a whole, and asks the driver for it. So there are few pieces, and
// none is given back.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "accelerator/cuda/driver.hpp"
#include "base/mutex.hpp"
#include "base/process/exported_memory.hpp"
#include "base/status.hpp"

namespace sennit::cuda {

// Of one device. Any thread.
class Pieces {
 public:
  explicit Pieces(const Driver& driver) : driver_(driver) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // So many bytes, aligned as the sizes of all blocks are. The device's context is current.
  Result<std::byte*> cut(size_t block) SENNIT_EXCLUDES(mutex_);
  // The piece that this lies in; of no bytes where it lies in none.
  ExportedMemory holding(const std::byte* memory) const SENNIT_EXCLUDES(mutex_);
  // Whether others can map them, as far as it is known.
  bool can_be_mapped() const { return !refused_; }

 private:
  struct Piece {
    ExportedMemory exported;
    size_t used = 0;
  };
  std::byte* cut_of_those(size_t block) SENNIT_REQUIRES(mutex_);

  const Driver& driver_;
  std::atomic<bool> refused_{false};
  mutable Mutex mutex_;
  std::vector<Piece> pieces_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit::cuda
