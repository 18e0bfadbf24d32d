// seal.cpp: see transports/tcp/seal.hpp.
#include "transports/tcp/seal.hpp"

#include <atomic>
#include <cstring>

#include "base/process/sodium_ready.hpp"
#include "base/status.hpp"

namespace sennit {
namespace {

constexpr uint8_t kAes = static_cast<uint8_t>(Cipher::aes256_gcm);
constexpr uint8_t kChaCha = static_cast<uint8_t>(Cipher::chacha20_poly1305);

std::atomic<uint8_t> g_pretended{0};  // 0: nothing is

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

uint8_t usable_ciphers() {
  SENNIT_CHECK(sodium_ready());
  if (const uint8_t pretended = g_pretended) return pretended;
  return crypto_aead_aes256gcm_is_available() ? kAes | kChaCha : kChaCha;
}

void pretend_usable_ciphers(uint8_t ciphers) { g_pretended = ciphers; }

Cipher choose_cipher(uint8_t mine, uint8_t theirs) {
  return mine & theirs & kAes ? Cipher::aes256_gcm : Cipher::chacha20_poly1305;
}

Seal::Seal(Cipher cipher, const SealKey& key, uint64_t units_per_key)
    : cipher_(cipher), units_per_key_(units_per_key), key_(key) {
  set_key();
}

Seal::~Seal() {
  sodium_memzero(key_.data(), key_.size());
  sodium_memzero(&aes_, sizeof aes_);
}

void Seal::set_key() {
  if (cipher_ == Cipher::aes256_gcm) crypto_aead_aes256gcm_beforenm(&aes_, raw(key_.data()));
}

// The unit's number; a key that has sealed enough is replaced first.
std::array<unsigned char, 12> Seal::next_nonce() {
  if (units_ > 0 && units_ % units_per_key_ == 0) {
    static constexpr unsigned char kLabel[] = "sennit next seal key 1";
    SealKey next;
    crypto_generichash(raw(next.data()), next.size(), kLabel, sizeof kLabel - 1, raw(key_.data()),
                       key_.size());
    key_ = next;
    sodium_memzero(next.data(), next.size());
    set_key();
  }
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &units_, sizeof units_);
  units_++;
  return nonce;
}

void Seal::close(const std::byte* from, size_t bytes, std::byte* to) {
  const auto nonce = next_nonce();
  unsigned char* const tag = raw(to + bytes);
  if (cipher_ == Cipher::aes256_gcm)
    crypto_aead_aes256gcm_encrypt_detached_afternm(raw(to), tag, nullptr, raw(from), bytes, nullptr,
                                                   0, nullptr, nonce.data(), &aes_);
  else
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(raw(to), tag, nullptr, raw(from), bytes,
                                                       nullptr, 0, nullptr, nonce.data(),
                                                       raw(key_.data()));
}

bool Seal::open(std::byte* data, size_t bytes, const std::byte* tag) {
  if (broken_) return false;
  const auto nonce = next_nonce();
  const int error =
      cipher_ == Cipher::aes256_gcm
          ? crypto_aead_aes256gcm_decrypt_detached_afternm(
                raw(data), nullptr, raw(data), bytes, raw(tag), nullptr, 0, nonce.data(), &aes_)
          : crypto_aead_chacha20poly1305_ietf_decrypt_detached(raw(data), nullptr, raw(data), bytes,
                                                               raw(tag), nullptr, 0, nonce.data(),
                                                               raw(key_.data()));
  broken_ = error != 0;
  return !broken_;
}

}  // namespace sennit
