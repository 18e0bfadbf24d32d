// seal.hpp: one direction of a sealed connection: units of bytes, encrypted and authenticated one
// after the other. By libsodium: AES-256-GCM, or ChaCha20-Poly1305 where the processor lacks AES.
//
// A unit is as many bytes as before and a tag of kTagBytes behind them. Its nonce is its number,
// which is not sent: a unit that was changed, repeated, left out or moved does not open, and
// neither does any after it. Both ends know from what they have opened how long the next unit is,
// so no length goes in the clear, and none is believed before it is authenticated. After
// kUnitsPerKey units the key is replaced by its own hash: at most 128 GiB a key, a third of what
// TLS 1.3 allows AES-GCM. Cost: one pass (sealing) or two (opening) over the bytes;
// perf/components/ seal_benchmark.
#pragma once

#include <sodium.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace sennit {

enum class Cipher : uint8_t { aes256_gcm = 1, chacha20_poly1305 = 2 };  // bits of a set of ciphers
// The set that this processor has; ChaCha20-Poly1305 is always in it.
uint8_t usable_ciphers();
// For tests: from now on usable_ciphers() says so.
void pretend_usable_ciphers(uint8_t ciphers);
// The better one of those that both have; both sets hold ChaCha20-Poly1305.
Cipher choose_cipher(uint8_t mine, uint8_t theirs);

using SealKey = std::array<std::byte, 32>;
// The keys of one end, by direction; the other end has the same two, the other way round.
struct SealKeys {
  Cipher cipher = Cipher::chacha20_poly1305;
  SealKey out{}, in{};
};

// One end of one direction: either all calls are close(), or all are open(), for both count the
// same units. Both ends need the same cipher, key and units_per_key. Not thread-safe.
class Seal {
 public:
  static constexpr size_t kTagBytes = 16;
  static constexpr uint64_t kUnitsPerKey = 1 << 20;

  Seal(Cipher cipher, const SealKey& key, uint64_t units_per_key = kUnitsPerKey);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // Writes the next unit to `to`, which has room for bytes + kTagBytes and may be `from`.
  void close(const std::byte* from, size_t bytes, std::byte* to);
  // Opens the next unit in place. False: these are not the bytes that were sealed; none of them is
  // to be used, and the connection is over.
  [[nodiscard]] bool open(std::byte* data, size_t bytes, const std::byte* tag);

 private:
  void set_key();
  std::array<unsigned char, 12> next_nonce();

  const Cipher cipher_;
  const uint64_t units_per_key_;
  SealKey key_;
  uint64_t units_ = 0;
  bool broken_ = false;
  crypto_aead_aes256gcm_state aes_;
};

}  // namespace sennit
