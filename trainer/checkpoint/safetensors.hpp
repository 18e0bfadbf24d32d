// safetensors.hpp: the header of a safetensors file (huggingface/safetensors, format of 2022). A
// file is 8 bytes of length, JSON, then the tensors' bytes without a hole.
//
// Reading is strict, as the format asks: a header that is too long, a name twice, an offset outside
// of the file, tensors that overlap or leave a hole, or a length that is not its shape's are
// errors, found before a byte of data is used. Types that the trainer has no use for are errors,
// too.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {

// A tensor of a file, whose elements lie dense and row-major.
struct StoredTensor {
  std::string name;
  Type type = Type::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // of its bytes, counted from the end of the header
};

// A header that was found to be right: its tensors fill the file's data without a hole.
struct SafetensorsHeader {
  uint64_t data_at = 0;               // in the file
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// The type in the format's words: "F32", "BF16".
const char* safetensors_name(Type type);

// The whole header with its length, padded with spaces so that the data begins at a multiple of
// `alignment`. Sets the tensors' begin and end, in their order.
std::string safetensors_header(std::vector<StoredTensor>* tensors,
                               const std::map<std::string, std::string>& metadata,
                               size_t alignment);

// file: its first bytes, at least the header; file_bytes: of all of it; name: for errors.
Result<SafetensorsHeader> parse_safetensors(std::span<const uint8_t> file, uint64_t file_bytes,
                                            const std::string& name);

// The product of the extents, or -1 where one is below 0 or it is above 2^62.
int64_t elements_of(const std::vector<int64_t>& shape);

}  // namespace sennit::trainer
