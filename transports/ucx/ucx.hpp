// ucx.hpp: the transport over UCX, for whatever UCX finds: InfiniBand, RoCE, GPU memory, tcp.
//
// A message is one UCP active message: our header (sender, key, signature, size), the bytes eager
// or, when large or when the communicator's window at the peer is used up, by UCX's rendezvous,
// which moves them only once the receive is posted. The receiver returns window by the quarter, per
// communicator. Endpoints are made when first used, with peer error handling, and say hello, so
// that both sides see the other die. UCX cannot withdraw memory from an operation under way: after
// cancel() and fail_peer() such a request is handed back when UCX lets go of it
// (withdraws_at_once() is false). UCX's handshake is not authenticated: it is used only where both
// sides have RDMA, or where SENNIT_TRANSPORTS names it.
#pragma once

#include <deque>
#include <unordered_map>

#include "transports/cancelled.hpp"
#include "transports/matcher.hpp"
#include "transports/returns.hpp"
#include "transports/ucx/worker.hpp"

namespace sennit::ucx {

enum class MessageKind : uint32_t { message = 1, hello, credit, withdraw };

struct Header {
  MessageKind kind;
  int32_t from;
  Key key;  // of a credit or a withdrawal: comm only
  uint64_t signature;
  uint64_t bytes;  // of a credit: how much window comes back
};

struct RemoteWorker;

// An operation that UCX has, with everything that must stay in place until it calls back.
struct PendingOperation {
  RemoteWorker* peer = nullptr;
  SendRequest* send = nullptr;  // neither: a control message
  RecvRequest* recv = nullptr;
  Header header{};
  std::vector<ucp_dt_iov_t> iov;
  Status doomed;  // cancelled: what to hand the request back with
  bool active = false;
};

struct CommWindow {
  uint32_t comm = 0;
  uint64_t in_flight = 0;  // eager bytes sent that the peer has not returned
  uint64_t to_return = 0;  // eager bytes of the peer consumed here
};

struct RemoteWorker {
  class UcxTransport* transport = nullptr;
  int rank = -1;
  std::vector<std::byte> worker_address;  // empty until add_peer()
  ucp_ep_h endpoint = nullptr;
  bool broken = false;  // UCX said so; requests wait for the control plane's verdict
  Status failed;        // the verdict
  std::vector<CommWindow> windows;
  std::vector<SendRequest*> orphan_sends;  // UCX gave up on them, or would
  std::vector<RecvRequest*> orphan_receives;
  CommWindow& window(uint32_t comm);
};

class UcxTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> make(const TransportContext& context);
  ~UcxTransport() override;
  std::string_view name() const override { return "ucx"; }
  std::vector<std::byte> address() const override;
  Reach reach(int peer, std::span<const std::byte> address) override;
  Status add_peer(int peer, std::span<const std::byte> address) override;
  void send(SendRequest& request) override;
  void recv(RecvRequest& request) override;
  void release(RecvRequest&) override {}  // exposes nothing
  bool progress(Completions& completions) override;
  void fail_peer(int peer, const Status& status) override;
  void cancel(uint32_t comm, const Status& status) override;
  void forget(const std::function<bool(uint32_t comm)>& over) override;
  bool withdraws_at_once() const override { return false; }
  // Where there is RDMA its headers are few.
  std::optional<WireOverhead> wire_overhead(bool) const override { return WireOverhead(); }
  int event_fd() const override { return worker_.event_fd(); }
  bool prepare_wait() override;
  std::string statistics() const override;

 private:
  explicit UcxTransport(const TransportContext& context) : context_(context) {}
  Status start();
  RemoteWorker& peer(int rank);
  RemoteWorker& known(int rank);    // also before add_peer()
  Status connect(RemoteWorker& p);  // p.broken: there is no way to it
  const Status* refused(const RemoteWorker& p, uint32_t comm) const;
  PendingOperation& new_operation(RemoteWorker& p);
  void post(PendingOperation& operation, std::span<const Segment> segments, uint32_t flags);
  void control(RemoteWorker& p, MessageKind kind, uint32_t comm, uint64_t bytes);
  void fetch(RecvRequest& request, void* descriptor);
  void started(PendingOperation& operation, ucs_status_ptr_t result);
  void ended(PendingOperation& operation, ucs_status_t status);
  void broke(RemoteWorker& p, ucs_status_t status);
  void consumed(RemoteWorker& p, uint32_t comm, size_t bytes);
  void drop(Arrival& arrival);
  template <typename Which>
  void hand_back(Which which, const Status& status);
  void close(RemoteWorker& p);

  ucs_status_t arrived(const Header& header, void* data, size_t bytes, bool rendezvous);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* operation);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  TransportContext context_;
  bool gave_up_ = false;  // on a call
  std::unordered_map<int, std::unique_ptr<RemoteWorker>> peers_;
  Cancelled cancelled_;
  Matcher matcher_;
  std::deque<PendingOperation> operations_;  // all that ever were; they stay in place
  std::vector<PendingOperation*> free_;
  // matched inside UCX's callback, started after it
  std::vector<std::pair<RecvRequest*, void*>> to_fetch_;
  Returns returns_;
  uint64_t eager_ = 0, rendezvous_ = 0, early_ = 0, connections_ = 0;
  Worker worker_;  // the last: while it ends it calls back for what is above
};

}  // namespace sennit::ucx
