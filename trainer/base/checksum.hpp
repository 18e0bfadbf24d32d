// checksum.hpp: the checksum of every file that the trainer writes: XXH3, 64 bits, as 16
// hexadecimal digits. It finds accidents (a cut file, a bad disk), at memory speed; it does not
// stop a forger.
#pragma once

#include <cstdint>
#include <string>

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

namespace sennit::trainer {

// Of bytes that come in pieces: value() is checksum_of() of all that was added since the last
// reset(), however it was cut, and may be asked for in between. One thread at a time.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~Checksum() { XXH3_freeState(state_); }
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void reset() { XXH3_64bits_reset(state_); }
  void add(const void* data, size_t bytes) { XXH3_64bits_update(state_, data, bytes); }
  uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

// checksum_of() gives the number itself, checksum_text() the 16 digits as they stand in files.
// Which documents are held out and which rank writes a replica follow from these numbers, too, so
// they stay as they are.
inline std::string checksum_text(uint64_t value) { return fmt::format("{:016x}", value); }
inline uint64_t checksum_of(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }
inline std::string checksum_text(const void* data, size_t bytes) {
  return checksum_text(checksum_of(data, bytes));
}

}  // namespace sennit::trainer
