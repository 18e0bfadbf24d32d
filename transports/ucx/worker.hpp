// worker.hpp: UCX itself: its context, its worker, and endpoints to peers. What goes over them is
// in transports/ucx/ucx.hpp. Threads: the engine's lock.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "transports/transport.hpp"
#include "transports/ucx/library.hpp"

namespace sennit::ucx {

// start() comes first, and once; errors are SENNIT_UNSUPPORTED with UCX's words. Endpoints are to
// be closed before it is destroyed, which may still call the handler.
class Worker {
 public:
  Worker() = default;
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Messages of id `handler.id` come to the handler, out of progress().
  Status start(const TransportContext& context, const ucp_am_handler_param_t& handler);
  bool started() const { return worker_ != nullptr; }

  const Library& library() const { return library_; }
  ucp_worker_h get() const { return worker_; }
  std::span<const std::byte> address() const { return address_; }  // for peers
  int event_fd() const { return event_fd_; }
  bool progress() { return library_.worker_progress(worker_) != 0; }
  // Before sleeping on event_fd(): false if there is work already.
  bool arm() { return library_.worker_arm(worker_) == UCS_OK; }
  // Lets go of the descriptor of a message that was kept; its sender is done.
  void release(void* descriptor) { library_.am_data_release(worker_, descriptor); }
  const char* text(ucs_status_t status) const { return library_.status_string(status); }

  // `on_error(argument, endpoint, status)` is called when the endpoint breaks.
  ucs_status_t connect(std::span<const std::byte> address, ucp_err_handler_cb_t on_error,
                       void* argument, ucp_ep_h* endpoint);
  // By force: UCX gives up what it has under way there, and calls back for it. False: it does not
  // close within a while.
  bool close(ucp_ep_h endpoint);
  // Waits a little until what was sent last has reached the wire, if the peers take it.
  void flush();
  // Where calls were given up (`gave_up`), peers may be connecting to this rank for what it will
  // not take. UCX answers them by itself and does not flush that, and 1.13 ends the process where
  // it destroys a worker before such an answer is on its way.
  void settle_connections(bool gave_up);

 private:
  Status read_address();
  Status failure(const char* what, ucs_status_t status) const;
  bool drive(int64_t limit_ms, const std::function<bool()>& ready);

  const Library& library_ = Library::get();
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::vector<std::byte> address_;
};

}  // namespace sennit::ucx
