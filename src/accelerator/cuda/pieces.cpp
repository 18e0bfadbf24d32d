// pieces.cpp: see accelerator/cuda/pieces.hpp.
#include "accelerator/cuda/pieces.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace sennit::cuda {
namespace {

constexpr size_t kPieceBytes = 32 * 1024 * 1024;

}  // namespace

Result<std::byte*> Pieces::cut(size_t block) {
  {
    const MutexLock lock(mutex_);
    if (std::byte* const memory = cut_of_those(block)) return memory;
  }
  Piece piece;
  Address memory = 0;
  piece.exported.bytes = std::max(block, kPieceBytes);
  int error = driver_.cuMemAlloc_v2(&memory, piece.exported.bytes);
  if (error != kSuccess) {  // there may be little left
    piece.exported.bytes = block;
    error = driver_.cuMemAlloc_v2(&memory, block);
  }
  if (error != kSuccess)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("cuMemAlloc of {} bytes: {}", block, error_text(driver_, error)));
  piece.exported.begin = reinterpret_cast<std::byte*>(memory);
  piece.exported.process = getpid();
  MemoryHandle handle{};
  static_assert(sizeof handle == sizeof piece.exported.handle);
  if (driver_.cuIpcGetMemHandle(&handle, memory) != kSuccess) refused_ = true;
  std::memcpy(piece.exported.handle.data(), &handle, sizeof handle);
  piece.used = block;
  const MutexLock lock(mutex_);
  pieces_.push_back(piece);
  return piece.exported.begin;
}

// Null: none has room.
std::byte* Pieces::cut_of_those(size_t block) {
  for (Piece& piece : pieces_)
    if (piece.exported.bytes - piece.used >= block)
      return piece.exported.begin + std::exchange(piece.used, piece.used + block);
  return nullptr;
}

ExportedMemory Pieces::holding(const std::byte* memory) const {
  const MutexLock lock(mutex_);
  for (const Piece& piece : pieces_)
    if (memory >= piece.exported.begin && memory < piece.exported.begin + piece.exported.bytes)
      return piece.exported;
  return {};
}

}  // namespace sennit::cuda
