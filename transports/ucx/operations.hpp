// operations.hpp: what UCX has in its hands: sends and receives, each with everything that must
// stay in place until UCX calls back.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "transports/transport.hpp"
#include "transports/ucx/wire.hpp"
#include "transports/ucx/worker.hpp"

namespace sennit::ucx {

class Operations;
struct RemoteWorker;

// One send or receive. Belongs to Operations, and is the caller's to fill in between begin() and
// send() or receive(); then UCX's, until on_ended() is called for it.
struct PendingOperation {
  Operations* owner = nullptr;
  RemoteWorker* peer = nullptr;
  SendRequest* send = nullptr;  // neither: a control message
  RecvRequest* recv = nullptr;
  Header header{};  // of what is sent
  std::vector<ucp_dt_iov_t> iov;
  Status doomed;  // given up: what the request ends with
  bool active = false;
};

// Who hears of the end of each operation: out of UCX's callbacks, or out of send() and receive()
// where it ends at once.
class OperationHandler {
 public:
  virtual ~OperationHandler() = default;
  // UCX is done with the operation, which serves again afterwards.
  virtual void on_ended(PendingOperation& operation, ucs_status_t status) = 0;
};

// All operations of one worker. UCX cannot withdraw memory from one under way: a request that was
// given up is marked with the status that it ends with, and ends when UCX lets go of it. Threads:
// the engine's lock.
class Operations {
 public:
  // Both outlive every operation.
  Operations(Worker& worker, OperationHandler& handler) : worker_(worker), handler_(handler) {}
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // One of its own for the caller to fill in, and then to give to send() or receive().
  PendingOperation& begin(RemoteWorker& peer);
  // Its header and the segments, over the endpoint; not eager: by UCX's rendezvous. It may have
  // ended before this returns, as with receive().
  void send(PendingOperation& operation, ucp_ep_h endpoint, std::span<const Segment> segments,
            bool eager);
  // The bytes of the rendezvous that `descriptor` stands for, into the segments.
  void receive(PendingOperation& operation, std::span<const Segment> segments, void* descriptor);

  // Requests under way that `which(request)` holds for end with `status`, when UCX lets go of them.
  template <typename Which>
  void doom(Which which, const Status& status) {
    for (PendingOperation& operation : all_) {
      if (!operation.active || !operation.doomed.ok()) continue;
      if (operation.send && which(*operation.send)) operation.doomed = status;
      if (operation.recv && which(*operation.recv)) operation.doomed = status;
    }
  }
  // Whether a send to this peer is under way that `which(request)` holds for.
  template <typename Which>
  bool any_send(const RemoteWorker& peer, Which which) const {
    for (const PendingOperation& operation : all_)
      if (operation.active && operation.peer == &peer && operation.send && which(*operation.send))
        return true;
    return false;
  }

 private:
  void started(PendingOperation& operation, ucs_status_ptr_t result);
  void ended(PendingOperation& operation, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* operation);

  Worker& worker_;
  OperationHandler& handler_;
  std::deque<PendingOperation> all_;  // that ever were; they stay in place
  std::vector<PendingOperation*> free_;
};

}  // namespace sennit::ucx
