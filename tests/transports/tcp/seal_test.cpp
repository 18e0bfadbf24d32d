// Seal: the same bytes as libsodium gives for the same key and number, both ciphers; what was
// changed, repeated, left out or moved does not open; keys are replaced in step.
// ctest not-under-tsan: it has one thread
#include "transports/tcp/seal.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/seed.hpp"

using namespace sennit;

namespace {

using Bytes = std::vector<std::byte>;

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

SealKey some_key(int salt) {
  SealKey key;
  for (size_t i = 0; i < key.size(); i++)
    key[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(salt));
  return key;
}

Bytes some_bytes(size_t count, int salt) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; i++)
    bytes[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<size_t>(salt));
  return bytes;
}

Bytes sealed(Seal& seal, const Bytes& plain) {
  Bytes unit(plain.size() + Seal::kTagBytes);
  seal.close(plain.data(), plain.size(), unit.data());
  return unit;
}

bool opens(Seal& seal, Bytes& unit) {
  return seal.open(unit.data(), unit.size() - Seal::kTagBytes,
                   unit.data() + unit.size() - Seal::kTagBytes);
}

// The tests run for both; AES only where the processor has it.
class SealTest : public testing::TestWithParam<Cipher> {
 protected:
  void SetUp() override {
    if (!(usable_ciphers() & static_cast<uint8_t>(GetParam())))
      GTEST_SKIP() << "no AES in this processor";
  }
  // Unit `number` as libsodium makes it in one call.
  Bytes expected(const SealKey& key, uint64_t number, const Bytes& plain) const {
    unsigned char nonce[12] = {};
    std::memcpy(nonce, &number, sizeof number);
    Bytes out(plain.size() + 16);
    unsigned long long length = 0;
    const auto encrypt = GetParam() == Cipher::aes256_gcm
                             ? crypto_aead_aes256gcm_encrypt
                             : crypto_aead_chacha20poly1305_ietf_encrypt;
    encrypt(raw(out.data()), &length, raw(plain.data()), plain.size(), nullptr, 0, nullptr, nonce,
            raw(key.data()));
    EXPECT_EQ(length, out.size());
    return out;
  }
};

TEST_P(SealTest, IsWhatLibsodiumGives) {
  Seal out(GetParam(), some_key(1)), in(GetParam(), some_key(1));
  uint64_t number = 0;
  for (const size_t bytes : {1, 15, 16, 17, 56, 4096, 131072}) {
    const Bytes plain = some_bytes(bytes, 3);
    Bytes unit = sealed(out, plain);
    EXPECT_EQ(unit, expected(some_key(1), number++, plain));
    EXPECT_TRUE(opens(in, unit));
    unit.resize(bytes);
    EXPECT_EQ(unit, plain);
  }
}

// From the specifications: RFC 8439, 2.8.2 has associated data; these are the empty messages' tags,
// all-zero key and nonce (GCM: test case 13 of McGrew and Viega).
TEST_P(SealTest, KnownAnswer) {
  Seal out(GetParam(), SealKey{});
  std::byte tag[16];
  out.close(tag, 0, tag);
  const unsigned char gcm[16] = {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9,
                                 0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b};
  const unsigned char chacha[16] = {0x4e, 0xb9, 0x72, 0xc9, 0xa8, 0xfb, 0x3a, 0x1b,
                                    0x38, 0x2b, 0xb4, 0xd3, 0x6f, 0x5f, 0xfa, 0xd1};
  EXPECT_EQ(std::memcmp(tag, GetParam() == Cipher::aes256_gcm ? gcm : chacha, 16), 0);
}

TEST_P(SealTest, InPlaceIsTheSame) {
  Seal one(GetParam(), some_key(2)), other(GetParam(), some_key(2));
  const Bytes plain = some_bytes(5000, 1);
  Bytes in_place = plain;
  in_place.resize(plain.size() + Seal::kTagBytes);
  other.close(in_place.data(), plain.size(), in_place.data());
  EXPECT_EQ(sealed(one, plain), in_place);
}

TEST_P(SealTest, EveryFlippedBitIsFound) {
  const Bytes plain = some_bytes(40, 1);
  for (size_t bit = 0; bit < 8 * (plain.size() + Seal::kTagBytes); bit++) {
    Seal out(GetParam(), some_key(1)), in(GetParam(), some_key(1));
    Bytes unit = sealed(out, plain), next = sealed(out, plain);
    unit[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(opens(in, unit));
    EXPECT_FALSE(opens(in, next)) << "nothing opens after that";
  }
}

TEST_P(SealTest, RepeatedLeftOutOrMovedIsFound) {
  const auto three = [&](Seal& out) {
    return std::vector<Bytes>{sealed(out, some_bytes(40, 1)), sealed(out, some_bytes(40, 2)),
                              sealed(out, some_bytes(40, 3))};
  };
  for (const auto& [order, good] : std::vector<std::pair<std::vector<size_t>, size_t>>{
           {{0, 0}, 1}, {{0, 1, 0}, 2}, {{1}, 0}, {{0, 2}, 1}, {{1, 0}, 0}, {{2, 1, 0}, 0}}) {
    Seal out(GetParam(), some_key(1)), in(GetParam(), some_key(1));
    const std::vector<Bytes> units = three(out);
    for (size_t i = 0; i < order.size(); i++) {
      Bytes unit = units[order[i]];
      EXPECT_EQ(opens(in, unit), i < good);
    }
  }
}

TEST_P(SealTest, KeysAreReplacedInStep) {
  Seal out(GetParam(), some_key(1), 4), in(GetParam(), some_key(1), 4),
      never(GetParam(), some_key(1));
  const Bytes plain = some_bytes(100, 1);
  for (int i = 0; i < 50; i++) {
    Bytes unit = sealed(out, plain);
    EXPECT_EQ(unit == sealed(never, plain), i < 4) << i;
    EXPECT_TRUE(opens(in, unit)) << i;
    EXPECT_EQ(std::memcmp(unit.data(), plain.data(), plain.size()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, SealTest,
                         testing::Values(Cipher::aes256_gcm, Cipher::chacha20_poly1305),
                         [](const auto& of) {
                           return of.param == Cipher::aes256_gcm ? "aes" : "chacha";
                         });

TEST(Ciphers, TheBetterOneThatBothHave) {
  EXPECT_EQ(choose_cipher(3, 3), Cipher::aes256_gcm);
  EXPECT_EQ(choose_cipher(3, 2), Cipher::chacha20_poly1305);
  EXPECT_EQ(choose_cipher(2, 3), Cipher::chacha20_poly1305);
  EXPECT_EQ(choose_cipher(2, 2), Cipher::chacha20_poly1305);
  EXPECT_TRUE(usable_ciphers() & 2);
}

}  // namespace
