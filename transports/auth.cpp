// auth.cpp: see auth.hpp.
#include "auth.hpp"

#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace sennit {
namespace {

constexpr uint64_t kMagic = 0x31'68'74'75'61'6e'6e'73;  // "snnauth1"
static_assert(std::endian::native == std::endian::little, "frames are in little-endian order");

unsigned char* bytes_of(std::array<std::byte, 32>& array) {
  return reinterpret_cast<unsigned char*>(array.data());
}
const unsigned char* bytes_of(const std::array<std::byte, 32>& array) {
  return reinterpret_cast<const unsigned char*>(array.data());
}

}  // namespace

PairKey derive_pair_key(std::span<const std::byte> secret, std::string_view purpose, uint64_t job, int a,
                        int b) {
  SENNIT_CHECK(sodium_init() >= 0);
  SENNIT_CHECK(secret.empty() || secret.size() == 32);
  static constexpr std::array<std::byte, 32> kNoSecret{};
  const unsigned char* key =
      secret.empty() ? bytes_of(kNoSecret) : reinterpret_cast<const unsigned char*>(secret.data());
  const auto low = static_cast<uint32_t>(std::min(a, b));
  const auto high = static_cast<uint32_t>(std::max(a, b));
  PairKey out;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key, 32, out.size());
  const auto update = [&](const void* data, size_t bytes) {
    crypto_generichash_update(&state, static_cast<const unsigned char*>(data), bytes);
  };
  constexpr std::string_view kLabel = "sennit pair key 1";
  update(kLabel.data(), kLabel.size());
  const auto purpose_bytes = static_cast<uint32_t>(purpose.size());
  update(&purpose_bytes, sizeof purpose_bytes);
  update(purpose.data(), purpose.size());
  update(&job, sizeof job);
  update(&low, sizeof low);
  update(&high, sizeof high);
  crypto_generichash_final(&state, bytes_of(out), out.size());
  sodium_memzero(&state, sizeof state);
  return out;
}

Handshake::Handshake(const HandshakeConfig& config, int peer, bool connector)
    : config_(config), peer_(peer), connector_(connector), expected_(connector ? kChallenge : kHello) {
  SENNIT_CHECK(sodium_init() >= 0);
  randombytes_buf(connector ? nonce_connector_.data() : nonce_acceptor_.data(), 32);
  if (connector) queue(kHello, 0);
}

std::array<std::byte, 32> Handshake::proof(Kind kind, uint32_t accepted) const {
  PairKey key = derive_pair_key(config_.secret, config_.purpose, config_.job, config_.self, peer_);
  const struct {
    uint32_t kind, accepted, from, to;
    std::array<std::byte, 32> nonce_connector, nonce_acceptor;
  } text = {kind,
            accepted,
            static_cast<uint32_t>(connector_ ? config_.self : peer_),
            static_cast<uint32_t>(connector_ ? peer_ : config_.self),
            nonce_connector_,
            nonce_acceptor_};
  static_assert(sizeof text == 80);
  std::array<std::byte, 32> out;
  crypto_generichash(bytes_of(out), out.size(), reinterpret_cast<const unsigned char*>(&text), sizeof text,
                     bytes_of(key), key.size());
  sodium_memzero(key.data(), key.size());
  return out;
}

void Handshake::queue(Kind kind, uint32_t accepted) {
  out_ = {};
  out_.magic = kMagic;
  out_.kind = kind;
  if (kind == kHello) {
    out_.from = static_cast<uint32_t>(config_.self);
    out_.to = static_cast<uint32_t>(peer_);
    out_.nonce = nonce_connector_;
  } else {
    if (kind == kChallenge) out_.nonce = nonce_acceptor_;
    out_.accepted = accepted;
    out_.proof = proof(kind, accepted);
  }
  sent_ = 0;
}

void Handshake::fail(ErrorKind kind, std::string text) {
  state_ = State::failed;
  status_ = Status(kind, std::move(text));
}

void Handshake::handle() {
  received_ = 0;
  if (in_.magic != kMagic || in_.kind != expected_)
    return fail(SENNIT_REFUSED, "what answers is not a rank of this version of sennit");
  if (in_.kind == kHello) {
    const auto size = static_cast<uint32_t>(config_.size), self = static_cast<uint32_t>(config_.self);
    if (in_.from >= size || in_.from == self || in_.to != self)
      return fail(SENNIT_REFUSED, "it is looking for another rank or another job");
    peer_ = static_cast<int>(in_.from);
    nonce_connector_ = in_.nonce;
    queue(kChallenge, 0);
    expected_ = kProof;
    return;
  }
  if (in_.kind == kChallenge) nonce_acceptor_ = in_.nonce;
  const std::array<std::byte, 32> wanted = proof(expected_, in_.accepted);
  if (crypto_verify_32(bytes_of(wanted), bytes_of(in_.proof)) != 0)
    return fail(
        SENNIT_REFUSED,
        fmt::format("what calls itself rank {} does not hold this job's secret; all ranks need the same "
                    "SENNIT_SECRET",
                    peer_));
  switch (expected_) {
    case kChallenge:
      queue(kProof, 0);
      expected_ = kVerdict;
      break;
    case kProof:
      state_ = State::proven;
      break;
    default:
      state_ = in_.accepted ? State::done : State::declined;
  }
}

void Handshake::decide(bool accept) {
  SENNIT_CHECK(state_ == State::proven);
  queue(kVerdict, accept ? 1 : 0);
  state_ = State::running;
}

Handshake::State Handshake::drive(int fd) {
  while (state_ == State::running) {
    const bool writing = sent_ < kFrameBytes;
    const ssize_t moved = writing ? ::send(fd, reinterpret_cast<const char*>(&out_) + sent_,
                                           kFrameBytes - sent_, MSG_NOSIGNAL | MSG_DONTWAIT)
                                  : ::recv(fd, reinterpret_cast<char*>(&in_) + received_,
                                           kFrameBytes - received_, MSG_DONTWAIT);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (moved <= 0) {
      connection_lost_ = true;
      fail(SENNIT_LINK_FAILED,
           fmt::format("the connection ended before both sides had proved themselves ({})",
                       moved == 0 ? "closed by the other side" : std::strerror(errno)));
      break;
    }
    if (writing) {
      sent_ += static_cast<size_t>(moved);
      // The verdict is the acceptor's last word.
      if (sent_ == kFrameBytes && out_.kind == kVerdict)
        state_ = out_.accepted ? State::done : State::declined;
    } else {
      received_ += static_cast<size_t>(moved);
      if (received_ == kFrameBytes) handle();
    }
  }
  return state_;
}

}  // namespace sennit
