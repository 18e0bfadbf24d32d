// idle_transport.hpp: a transport that reaches everybody over the network and moves nothing. Tests
// of the engine override what theirs does.
#pragma once

#include <span>
#include <vector>

#include "transports/transport.hpp"

namespace sennit_test {

// See above.
class IdleTransport : public sennit::Transport {
 public:
  std::vector<std::byte> address() const override { return {std::byte{1}}; }
  sennit::Reach reach(int, std::span<const std::byte>) override { return sennit::Reach::network; }
  sennit::Status add_peer(int, std::span<const std::byte>) override { return {}; }
  void send(sennit::SendRequest&) override {}
  void recv(sennit::RecvRequest&) override {}
  void release(sennit::RecvRequest&) override {}
  bool has_come(int, const sennit::Key&) override { return false; }
  bool progress(sennit::Completions&) override { return false; }
  void fail_peer(int, const sennit::Status&) override {}
  void cancel(uint32_t, const sennit::Status&) override {}
};

}  // namespace sennit_test
