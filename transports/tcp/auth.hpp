// auth.hpp: how two ranks prove to each other, over a fresh connection, that they hold the job's
// secret, and agree on the keys that seal it.
//
// Mutual challenge and response with keyed BLAKE2b (libsodium). Four frames of one fixed size:
//   connector: hello {from, to, nonce c, offer}     acceptor: challenge {nonce a, offer}
//   connector: proof {over all of the above}        acceptor: verdict {yes or no, proof over all}
// An offer says plain or sealed (SENNIT_WIRE) and which ciphers the process has. The key is derived
// from the job's secret, the purpose, the job and the pair of ranks, and a proof covers every bit
// that was said before it as its maker saw it: it is worth nothing on another connection, and
// nobody on the path can weaken what is agreed. The acceptor says nothing that depends on the
// secret before the connector has proved itself, so a stranger who dials gets nothing to test
// guesses on; who is dialled, or listens on the path, does. Until then nothing but the two ranks in
// the hello is looked at, and no memory is taken that the peer could choose the size of.
//
// Sealed, both ends have one key per direction afterwards (transports/tcp/seal.hpp), from the
// pair's key and all four frames. Plain, the proof is for the opening of the connection: what
// follows is not signed, so whoever can inject into a TCP stream can forge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.hpp"
#include "transports/tcp/seal.hpp"

namespace sennit {

using PairKey = std::array<std::byte, 32>;
// The key that ranks a and b share for `purpose`. An empty secret (SENNIT_INSECURE) gives a key
// that anybody can derive.
PairKey derive_pair_key(std::span<const std::byte> secret, std::string_view purpose, uint64_t job,
                        int a, int b);

// What one end brings to a handshake.
struct HandshakeConfig {
  std::span<const std::byte> secret;  // 32 bytes, or empty: insecure. Must outlive the handshake
  std::string_view purpose;  // "tcp", "control"; the same on both sides. Must outlive the handshake
  uint64_t job = 0;          // the same on both sides; 0 where it is not known yet
  int self = 0;              // this rank
  int size = 1;              // ranks of the job
  bool sealed = false;       // SENNIT_WIRE
};

// One end's state machine: drive(fd) goes as far as it can without blocking and reads no byte
// beyond its last frame. It has no time limit and does not own the descriptor: its user closes
// connections that take too long. Cost: two round trips, about 10 microseconds of hashing.
// Not thread-safe.
class Handshake {
 public:
  enum class State : uint8_t {
    running,   // call drive() again when fd is readable, or writable if wants_write()
    proven,    // acceptor: peer() holds the secret; call decide(), then drive()
    done,      // both sides agreed: the connection is the user's
    declined,  // the acceptor decided against it (it has a better connection)
    // status() says why; close the connection. SENNIT_INVALID_ARGUMENT: another SENNIT_WIRE
    failed,
  };

  static Handshake connector(const HandshakeConfig& config, int peer) {
    return {config, peer, true};
  }
  static Handshake acceptor(const HandshakeConfig& config) { return {config, -1, false}; }

  State drive(int fd);
  State state() const { return state_; }
  bool wants_write() const { return sent_ < kFrameBytes; }
  void decide(bool accept);  // in state proven

  int peer() const { return peer_; }  // acceptor: valid from state proven on
  const Status& status() const { return status_; }
  // Failed because the connection ended, not because of what the peer said: trying again may help.
  bool connection_lost() const { return connection_lost_; }
  // In state done: the keys of this end; none if the connection is plain.
  std::optional<SealKeys> seal_keys() const;

 private:
  enum FrameKind : uint32_t { kHello = 1, kChallenge = 2, kProof = 3, kVerdict = 4 };
  enum Verdict : uint8_t {
    // the last one unproven
    kAccepted = 1,
    kDeclined = 2,
    kOtherWire = 3,
    kNoProof = 4
  };
  struct Offer {
    uint8_t sealed = 0, ciphers = 0;
  };
  struct Frame {
    uint64_t magic;
    uint32_t kind;
    uint32_t from, to;
    uint8_t verdict;
    Offer offer;
    uint8_t unused;
    std::array<std::byte, 32> nonce;
    std::array<std::byte, 32> proof;
  };
  static constexpr size_t kFrameBytes = 88;
  static_assert(sizeof(Frame) == kFrameBytes);

  Handshake(const HandshakeConfig& config, int peer, bool connector);
  void queue(FrameKind kind, uint8_t verdict = 0);
  void handle();
  void conclude(uint8_t verdict);
  void fail(ErrorKind kind, std::string text);
  std::array<std::byte, 32> proof_of(Frame frame) const;
  void keyed_hash(std::string_view label, const Frame* last, std::span<std::byte> out) const;
  void remember(const Frame& frame) { said_[said_count_++] = frame; }

  HandshakeConfig config_;
  int peer_;
  bool connector_;
  State state_ = State::running;
  bool connection_lost_ = false;
  Status status_;
  FrameKind expected_;  // the next frame to come
  Offer mine_, theirs_;
  std::array<Frame, 4> said_{};  // by either side, in order
  size_t said_count_ = 0;
  Frame out_{}, in_{};
  size_t sent_ = kFrameBytes, received_ = 0;
};

}  // namespace sennit
