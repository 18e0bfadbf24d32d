// direct_write.hpp: a large file from memory to the disk past the page cache, durable when it
// returns.
//
// O_DIRECT where the file system has it (the copy into the page cache would cost a core what
// training needs), otherwise in the ordinary way. Cost: the disk's own time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/status.hpp"

namespace sennit::trainer {

inline constexpr size_t kDirectAlignment = 4096;

// Memory that begins at a multiple of kDirectAlignment and may be written from up to the next
// multiple behind its end. Keeps what it has when it is asked for less. Errors: out of memory.
class DirectBuffer {
 public:
  DirectBuffer() = default;
  DirectBuffer(const DirectBuffer&) = delete;
  DirectBuffer& operator=(const DirectBuffer&) = delete;
  ~DirectBuffer();
  Status reserve(size_t bytes);
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// The file must not be there yet. With `wrote` it is written in small pieces, and that called after
// each with the bytes so far.
Status write_directly(const std::string& file, const DirectBuffer& buffer, size_t bytes,
                      const std::function<void(size_t)>& wrote = {});

}  // namespace sennit::trainer
