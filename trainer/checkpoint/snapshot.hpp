// snapshot.hpp: this rank's share of a checkpoint, copied into memory as the bytes of its
// safetensors file.
//
// plan() decides what this rank writes (its part of boxes that several ranks hold) and where;
// copy() is all that the run waits for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "trainer/base/checksum.hpp"
#include "trainer/base/direct_write.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/tensor_box.hpp"

namespace sennit::trainer {

class Snapshot {
 public:
  // Errors: a piece that is off, two of the same box, no memory.
  Status plan(std::span<const TensorPiece> pieces);
  void touch();  // the memory, so that copy() meets no page for the first time
  void copy(int threads);
  // The checksums of the file's first so many bytes.
  void sum_up_to(uint64_t bytes);
  // The note of what is in the file; computes the checksums that are not there yet.
  Manifest note(int64_t step, const std::string& file_name);
  const DirectBuffer& buffer() const { return buffer_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    const TensorPiece* piece = nullptr;
    Box box;
    uint64_t at = 0;  // in the file
    std::string name, stored;
    Type type = Type::f32;
    Sizes shape;
    std::string checksum = {};
  };
  std::vector<Entry> entries_;
  std::vector<TensorPiece> pieces_;
  DirectBuffer buffer_;
  std::string header_;
  uint64_t bytes_ = 0;           // of the file
  size_t summed_ = 0;            // entries
  uint64_t summed_of_next_ = 0;  // bytes
  Checksum sum_;
};

}  // namespace sennit::trainer
