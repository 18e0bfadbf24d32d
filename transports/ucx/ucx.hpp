// ucx.hpp: the transport over UCX, for whatever UCX finds: InfiniBand, RoCE, GPU memory, tcp.
//
// A message is one UCP active message: our header (sender, key, signature, size), the bytes eager
// or, when large or when the communicator's window at the peer is used up, by UCX's rendezvous,
// which moves them only once the receive is posted. The receiver returns window by the quarter, per
// communicator. Endpoints are made when first used, with peer error handling, and say hello, so
// that both sides see the other die.
#pragma once

#include <unordered_map>

#include "transports/cancelled.hpp"
#include "transports/matcher.hpp"
#include "transports/returns.hpp"
#include "transports/ucx/address_head.hpp"
#include "transports/ucx/eager_credit.hpp"
#include "transports/ucx/operations.hpp"
#include "transports/ucx/worker.hpp"

namespace sennit::ucx {

class UcxTransport;

// What is kept of a peer.
struct RemoteWorker {
  UcxTransport* transport = nullptr;
  int rank = -1;
  std::vector<std::byte> worker_address;  // empty until add_peer()
  ucp_ep_h endpoint = nullptr;
  bool broken = false;  // UCX said so; requests wait for the control plane's verdict
  Status failed;        // the verdict
  EagerCredit credit;
  std::vector<SendRequest*> orphan_sends;  // UCX gave up on them, or would
  std::vector<RecvRequest*> orphan_receives;
};

// UCX cannot withdraw memory from an operation under way: after cancel() and fail_peer() such a
// request is handed back when UCX lets go of it. UCX's handshake is not authenticated: this is used
// only where both sides have RDMA, or where SENNIT_TRANSPORTS names it on both.
class UcxTransport final : public Transport, private OperationHandler {
 public:
  static Result<std::unique_ptr<Transport>> make(const TransportContext& context);
  ~UcxTransport() override;
  std::string_view name() const override { return "ucx"; }
  std::vector<std::byte> address() const override;
  Reach reach(int peer, std::span<const std::byte> address) override;
  std::string obstacle() const override {
    return "not both have RDMA, nor do both name it in SENNIT_TRANSPORTS";
  }
  Status add_peer(int peer, std::span<const std::byte> address) override;
  void send(SendRequest& request) override;
  void recv(RecvRequest& request) override;
  void release(RecvRequest&) override {}  // exposes nothing
  bool has_come(int peer, const Key& key) override {
    return matcher_.find_arrival(peer, key) != nullptr;
  }
  bool progress(Completions& completions) override;
  void fail_peer(int peer, const Status& status) override;
  void cancel(uint32_t comm, const Status& status) override;
  void forget(const std::function<bool(uint32_t comm)>& over) override;
  bool withdraws_at_once() const override { return false; }
  // Where there is RDMA its headers are few.
  std::optional<WireOverhead> wire_overhead(bool) const override {
    return WireOverhead{.rdma = head_.has_rdma != 0};
  }
  int event_fd() const override { return worker_.event_fd(); }
  bool prepare_wait() override;
  std::string statistics() const override;

 private:
  UcxTransport(const TransportContext& context, bool rdma)
      : context_(context),
        head_{.has_rdma = rdma, .asked_for = context.asked_for},
        operations_(worker_, *this) {}
  Status start();
  RemoteWorker& peer(int rank);
  RemoteWorker& known(int rank);    // also before add_peer()
  Status connect(RemoteWorker& p);  // p.broken: there is no way to it
  const Status* refused(const RemoteWorker& p, uint32_t comm) const;
  void control(RemoteWorker& p, MessageKind kind, uint32_t comm, uint64_t bytes);
  void fetch(RecvRequest& request, void* descriptor);
  void on_ended(PendingOperation& operation, ucs_status_t status) override;
  void broke(RemoteWorker& p, ucs_status_t status);
  void consumed(RemoteWorker& p, uint32_t comm, size_t bytes);
  void drop(Arrival& arrival);
  template <typename Which>
  void hand_back(Which which, const Status& status);
  void close(RemoteWorker& p);

  ucs_status_t arrived(const Header& header, void* data, size_t bytes, bool rendezvous);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  TransportContext context_;
  const AddressHead head_;  // of address()
  bool gave_up_ = false;    // on a call
  std::unordered_map<int, std::unique_ptr<RemoteWorker>> peers_;
  Cancelled cancelled_;
  Matcher matcher_;
  Operations operations_;
  // matched inside UCX's callback, started after it
  std::vector<std::pair<RecvRequest*, void*>> to_fetch_;
  Returns returns_;
  uint64_t eager_ = 0, rendezvous_ = 0, early_ = 0, connections_ = 0;
  Worker worker_;  // the last: while it ends it calls back for what is above
};

}  // namespace sennit::ucx
