// auth.cpp: see transports/tcp/auth.hpp.
#include "transports/tcp/auth.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "base/process/sodium_ready.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMagic = 0x32'68'74'75'61'6e'6e'73;  // "snnauth2"
static_assert(std::endian::native == std::endian::little, "frames are in little-endian order");

unsigned char* bytes_of(std::array<std::byte, 32>& array) {
  return reinterpret_cast<unsigned char*>(array.data());
}
const unsigned char* bytes_of(const std::array<std::byte, 32>& array) {
  return reinterpret_cast<const unsigned char*>(array.data());
}

constexpr const char* kRemedy =
    "all ranks need the same SENNIT_SECRET and, unless that is key:..., the same MASTER_ADDR and "
    "port of rank 0";

const char* wire(uint8_t sealed) { return sealed ? "sealed" : "plain"; }

}  // namespace

PairKey derive_pair_key(std::span<const std::byte> secret, std::string_view purpose, uint64_t job,
                        int a, int b) {
  SENNIT_CHECK(sodium_ready());
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
    : config_(config),
      peer_(peer),
      connector_(connector),
      expected_(connector ? kChallenge : kHello),
      mine_{config.sealed, usable_ciphers()} {
  if (connector) queue(kHello);
}

// A hash that only the two ranks can make, over what has been said so far and perhaps one frame
// more.
void Handshake::keyed_hash(std::string_view label, const Frame* last,
                           std::span<std::byte> out) const {
  PairKey key = derive_pair_key(config_.secret, config_.purpose, config_.job, config_.self, peer_);
  crypto_generichash_state state;
  crypto_generichash_init(&state, bytes_of(key), key.size(), out.size());
  const auto update = [&](const void* data, size_t bytes) {
    crypto_generichash_update(&state, static_cast<const unsigned char*>(data), bytes);
  };
  update(label.data(), label.size());
  update(said_.data(), said_count_ * sizeof(Frame));
  if (last) update(last, sizeof *last);
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(out.data()), out.size());
  sodium_memzero(key.data(), key.size());
  sodium_memzero(&state, sizeof state);
}

std::array<std::byte, 32> Handshake::proof_of(Frame frame) const {
  frame.proof = {};
  std::array<std::byte, 32> out;
  keyed_hash("sennit proof 2", &frame, out);
  return out;
}

std::optional<SealKeys> Handshake::seal_keys() const {
  SENNIT_CHECK(state_ == State::done && said_count_ == said_.size());
  if (!config_.sealed) return {};
  SealKeys keys;
  keys.cipher = choose_cipher(mine_.ciphers, theirs_.ciphers);
  keyed_hash("sennit seal from the connector 1", nullptr, connector_ ? keys.out : keys.in);
  keyed_hash("sennit seal from the acceptor 1", nullptr, connector_ ? keys.in : keys.out);
  return keys;
}

void Handshake::queue(FrameKind kind, uint8_t verdict) {
  out_ = {};
  out_.magic = kMagic;
  out_.kind = kind;
  out_.verdict = verdict;
  if (kind == kHello) {
    out_.from = static_cast<uint32_t>(config_.self);
    out_.to = static_cast<uint32_t>(peer_);
  }
  if (kind == kHello || kind == kChallenge) {
    randombytes_buf(out_.nonce.data(), out_.nonce.size());
    out_.offer = mine_;
  } else if (verdict != kNoProof) {
    out_.proof = proof_of(out_);
  }
  remember(out_);
  sent_ = 0;
}

void Handshake::fail(ErrorKind kind, std::string text) {
  state_ = State::failed;
  status_ = Status(kind, std::move(text));
}

void Handshake::handle() {
  received_ = 0;
  if (in_.kind != expected_)
    return fail(SENNIT_REFUSED, "what answers is not a rank of this version of sennit");
  if (in_.kind == kHello) {
    const auto size = static_cast<uint32_t>(config_.size),
               self = static_cast<uint32_t>(config_.self);
    if (in_.from >= size || in_.from == self || in_.to != self)
      return fail(SENNIT_REFUSED, "it is looking for another rank or another job");
    peer_ = static_cast<int>(in_.from);
    theirs_ = in_.offer;
    remember(in_);
    queue(kChallenge);
    expected_ = kProof;
    return;
  }
  if (in_.kind == kChallenge) {
    theirs_ = in_.offer;
    remember(in_);
    queue(kProof);
    expected_ = kVerdict;
    return;
  }
  // which ends the attempt, no more
  if (in_.kind == kVerdict && in_.verdict == kNoProof) return conclude(kNoProof);
  const std::array<std::byte, 32> wanted = proof_of(in_);
  const bool proven = crypto_verify_32(bytes_of(wanted), bytes_of(in_.proof)) == 0;
  remember(in_);
  if (connector_) {
    if (proven) return conclude(in_.verdict);
    return fail(
        SENNIT_REFUSED,
        fmt::format("what answers as rank {} does not hold this job's secret; {}", peer_, kRemedy));
  }
  if (!proven) return queue(kVerdict, kNoProof);
  if (mine_.sealed != theirs_.sealed) return queue(kVerdict, kOtherWire);
  state_ = State::proven;
}

// What the acceptor's last word means at this end.
void Handshake::conclude(uint8_t verdict) {
  if (verdict == kAccepted) {
    state_ = State::done;
  } else if (verdict == kDeclined) {
    state_ = State::declined;
  } else if (verdict == kOtherWire) {
    fail(SENNIT_INVALID_ARGUMENT,
         fmt::format(
             "SENNIT_WIRE is {} at rank {}, and {} at rank {}; set it to the same on all ranks",
             wire(mine_.sealed), config_.self, wire(theirs_.sealed), peer_));
  } else if (connector_) {
    fail(SENNIT_REFUSED,
         fmt::format("rank {} answers that this process does not hold this job's secret; {}", peer_,
                     kRemedy));
  } else {
    fail(SENNIT_REFUSED,
         fmt::format("what calls itself rank {} does not hold this job's secret; {}", peer_,
                     kRemedy));
  }
}

void Handshake::decide(bool accept) {
  SENNIT_CHECK(state_ == State::proven);
  queue(kVerdict, accept ? kAccepted : kDeclined);
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
    const bool refusing = writing && out_.kind == kVerdict && out_.verdict != kAccepted;
    if (moved <= 0 && refusing) {  // whether it hears that or not
      conclude(out_.verdict);
    } else if (moved <= 0) {
      connection_lost_ = true;
      fail(SENNIT_LINK_FAILED,
           fmt::format("the connection ended before both sides had proved themselves ({})",
                       moved == 0 ? "closed by the other side" : std::strerror(errno)));
    } else if (writing) {
      sent_ += static_cast<size_t>(moved);
      // the acceptor's last word
      if (sent_ == kFrameBytes && out_.kind == kVerdict) conclude(out_.verdict);
    } else {
      received_ += static_cast<size_t>(moved);
      if (received_ >= sizeof in_.magic && in_.magic != kMagic)
        fail(SENNIT_REFUSED, "what answers is not a rank of this version of sennit");
      else if (received_ == kFrameBytes)
        handle();
    }
  }
  return state_;
}

}  // namespace sennit
