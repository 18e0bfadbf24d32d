// auth.hpp: how two ranks prove to each other, over a fresh connection, that they hold the job's secret.
//
// Mutual challenge and response with keyed BLAKE2b (libsodium). Four frames of one fixed size:
//   connector: hello {from, to, nonce c}      acceptor: challenge {nonce a, proof over role a, from, to, c,
//   a} connector: proof {proof over role c, ...}  acceptor: verdict {accepted or declined, proof over it}
// The key is derived from the job's secret, the purpose, the job and the pair of ranks, so a proof is worth
// nothing on another connection. Before a proof is verified, nothing but the two ranks in the hello is looked
// at, and no memory is taken that the peer could choose the size of. Nothing is encrypted. The proof is for
// the opening of the connection: what follows is not signed, so whoever can inject into a TCP stream can
// forge.
//
// A state machine: drive(fd) goes as far as it can without blocking and reads no byte beyond its last frame.
// It has no time limit; its user closes connections that take too long. Cost: two round trips, about 10
// microseconds of hashing. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "status.hpp"

namespace sennit {

using PairKey = std::array<std::byte, 32>;
// The key that ranks a and b share for `purpose`. An empty secret (SENNIT_INSECURE) gives a key that anybody
// can derive.
PairKey derive_pair_key(std::span<const std::byte> secret, std::string_view purpose, uint64_t job, int a,
                        int b);

struct HandshakeConfig {
  std::span<const std::byte> secret;  // 32 bytes, or empty: insecure. Must outlive the handshake
  std::string_view purpose;           // "tcp", "control"; the same on both sides. Must outlive the handshake
  uint64_t job = 0;                   // the same on both sides; 0 where it is not known yet
  int self = 0;                       // this rank
  int size = 1;                       // ranks of the job
};

class Handshake {
 public:
  enum class State : uint8_t {
    running,   // call drive() again when fd is readable, or writable if wants_write()
    proven,    // acceptor: peer() holds the secret; call decide(), then drive()
    done,      // both sides agreed: the connection is the user's
    declined,  // the acceptor decided against it (it has a better connection)
    failed,    // status() says why; close the connection
  };

  static Handshake connector(const HandshakeConfig& config, int peer) { return {config, peer, true}; }
  static Handshake acceptor(const HandshakeConfig& config) { return {config, -1, false}; }

  State drive(int fd);
  State state() const { return state_; }
  bool wants_write() const { return sent_ < kFrameBytes; }
  void decide(bool accept);  // in state proven

  int peer() const { return peer_; }  // acceptor: valid from state proven on
  const Status& status() const { return status_; }
  // Failed because the connection ended, not because of what the peer said: trying again may help.
  bool connection_lost() const { return connection_lost_; }

 private:
  enum Kind : uint32_t { kHello = 1, kChallenge = 2, kProof = 3, kVerdict = 4 };
  struct Frame {
    uint64_t magic;
    uint32_t kind;
    uint32_t from, to;
    uint32_t accepted;
    std::array<std::byte, 32> nonce;
    std::array<std::byte, 32> proof;
  };
  static constexpr size_t kFrameBytes = 88;
  static_assert(sizeof(Frame) == kFrameBytes);

  Handshake(const HandshakeConfig& config, int peer, bool connector);
  void queue(Kind kind, uint32_t accepted);
  void handle();
  void fail(ErrorKind kind, std::string text);
  std::array<std::byte, 32> proof(Kind kind, uint32_t accepted) const;

  HandshakeConfig config_;
  int peer_;
  bool connector_;
  State state_ = State::running;
  bool connection_lost_ = false;
  Status status_;
  Kind expected_;  // the next frame to come
  std::array<std::byte, 32> nonce_connector_{}, nonce_acceptor_{};
  Frame out_{}, in_{};
  size_t sent_ = kFrameBytes, received_ = 0;
};

}  // namespace sennit
