// shm.hpp: the transport between processes of one host.
//
// Small messages are copied through a ring (transports/shm/ring.hpp, transports/shm/small.hpp). For
// a large one the sender offers its memory (transports/shm/offers.hpp) and the receiver takes it,
// by the first way that works (transports/shm/transfers.hpp): memory from allocate(), or
// registered, is mapped and read in place or exposed (transports/shm/arena.hpp,
// transports/shm/registered.hpp); any memory with process_vm_readv, in blocks; where that is
// forbidden, the sender streams it through the ring. What lies in a device's memory is exposed to
// peers that have mapped that (transports/shm/device_exports.hpp), and goes no other way. A
// communicator whose early messages fill its window at a peer sends offers only, until they are
// drained, so it blocks no other. A peer's death is seen by transports/shm/peers.hpp. Cost:
// progress() looks at one cache line for each peer that something is expected from.
#pragma once

#include "transports/shm/device_exports.hpp"
#include "transports/shm/offers.hpp"
#include "transports/shm/small.hpp"
#include "transports/shm/transfers.hpp"

namespace sennit::shm {

class ShmTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> make(const TransportContext& context);
  ~ShmTransport() override;

  std::string_view name() const override { return "shm"; }
  std::vector<std::byte> address() const override;
  Reach reach(int peer, std::span<const std::byte> address) override;
  std::string obstacle() const override { return peers_.obstacle(); }
  Status add_peer(int peer, std::span<const std::byte> address) override;
  void send(SendRequest& request) override;
  void recv(RecvRequest& request) override;
  void release(RecvRequest& request) override { transfers_.release(request); }
  bool has_come(int peer, const Key& key) override;
  bool progress(Completions& completions) override;
  size_t now_bytes() const override { return eager_bytes_; }
  Now send_now(const SmallMessage& message) override { return small_.send_now(message); }
  Now recv_now(const SmallMessage& message) override;
  void fail_peer(int peer, const Status& status) override;
  void cancel(uint32_t comm, const Status& status) override;
  void forget(const std::function<bool(uint32_t comm)>& over) override;
  void* allocate(size_t bytes) override { return arenas_.allocate(bytes); }
  bool free(void* memory) override { return arenas_.free(memory); }
  Status register_memory(void* memory, size_t bytes) override {
    return registered_.add(memory, bytes);
  }
  Status deregister_memory(void* memory) override;
  bool exposes_devices(int peer) override { return device_exports_.exposes(peer); }
  bool is_mapped(int peer, uint32_t comm, const ExportedMemory& memory) override {
    return device_exports_.is_mapped(peer, comm, memory);
  }
  bool reads_devices(int peer) const override { return device_exports_.reads(peer); }
  void takes_exported(int peer, uint32_t comm) override { device_exports_.takes(peer, comm); }
  std::vector<PeerMemory> unanswered() const override { return device_exports_.unanswered(); }
  bool answer(const PeerMemory& memory, std::byte* here) override {
    return device_exports_.answer(memory, here);
  }
  std::string statistics() const override;

  // Tests and benchmarks: never read a peer's memory with process_vm_readv; stream through the
  // ring.
  void forbid_direct_reads() { transfers_.forbid_direct_reads(); }

 private:
  ShmTransport(const TransportContext& context, std::unique_ptr<OwnSegment> own)
      : eager_bytes_(context.eager_bytes), peers_(context, std::move(own), returns_) {}

  bool try_send(LocalPeer& p, SendRequest& request);
  bool poll(LocalPeer& p);
  void take(LocalPeer& p, const Slot& slot);
  template <typename Which>
  void hand_back(LocalPeer& p, Which which, const Status& status);

  const size_t eager_bytes_;
  Returns returns_;
  Clock clock_;
  Peers peers_;
  Arenas arenas_;
  Registrations registered_{arenas_};
  Matcher matcher_;
  SmallMessages small_{peers_, matcher_, returns_, clock_};
  Offers offers_{peers_, returns_, clock_, arenas_, registered_};
  DeviceExports device_exports_{peers_};
  Transfers transfers_{peers_, matcher_, returns_, clock_};
  uint32_t calls_ = 0;  // of progress()
};

}  // namespace sennit::shm
