// worker.cpp: see transports/ucx/worker.hpp.
#include "transports/ucx/worker.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sched.h>

#include <cstdlib>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/process/forked.hpp"
#include "transports/ucx/rdma.hpp"

namespace sennit::ucx {
namespace {

constexpr int64_t kFlushMs = 300;
constexpr int64_t kCloseMs = 200;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr uint64_t kQuietNs = 2'000'000;
constexpr uint64_t kQuietAfterCancelNs = 50'000'000;
constexpr uint64_t kMostSettleNs = 300'000'000;

// The name of the interface that has this numeric address, or "".
std::string interface_of(const std::string& address) {
  std::string name;
  ifaddrs* list = nullptr;
  if (address.empty() || getifaddrs(&list) != 0) return name;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    const int family = entry->ifa_addr->sa_family;
    const void* raw = nullptr;
    if (family == AF_INET) raw = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    if (family == AF_INET6)
      raw = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    if (raw && inet_ntop(family, raw, text, sizeof text) && address == text) name = entry->ifa_name;
  }
  freeifaddrs(list);
  return name;
}

}  // namespace

const Library& Library::get() {
  const ForeignCall call;  // a child forked while it is opened would wait for it for ever
  static const Library library;
  return library;
}

Worker::~Worker() {
  if (worker_) library_.worker_destroy(worker_);
  if (context_) library_.cleanup(context_);
}

Status Worker::failure(const char* what, ucs_status_t status) const {
  return {SENNIT_UNSUPPORTED, fmt::format("ucx: {}: {}", what, text(status))};
}

Status Worker::start(const TransportContext& context, const ucp_am_handler_param_t& handler) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = library_.config_read(nullptr, nullptr, &config); status != UCS_OK)
    return failure("reading the configuration (UCX_* variables)", status);
  // On plain Ethernet stay on the interface that reaches the other ranks; UCX's own variable goes
  // before.
  const std::string interface = interface_of(context.host_interface);
  if (!has_rdma() && !interface.empty() && !getenv("UCX_NET_DEVICES"))
    if (library_.config_modify(config, "NET_DEVICES", interface.c_str()) != UCS_OK)
      log(LogLevel::info, "ucx: cannot restrict it to {}", interface);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(context.size);
  ucs_status_t status = library_.init(&params, config, &context_);
  library_.config_release(config);
  if (status != UCS_OK) return failure("starting", status);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = library_.worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return failure("making a worker", status);
  status = library_.worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return failure("getting a descriptor to wait on", status);
  status = library_.worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return failure("setting the message handler", status);
  return read_address();
}

Status Worker::read_address() {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  const ucs_status_t status = library_.worker_query(worker_, &attributes);
  if (status != UCS_OK) return failure("getting the address", status);
  const auto* first = reinterpret_cast<const std::byte*>(attributes.address);
  address_.assign(first, first + attributes.address_length);
  library_.worker_release_address(worker_, attributes.address);
  return {};
}

ucs_status_t Worker::connect(std::span<const std::byte> address, ucp_err_handler_cb_t on_error,
                             void* argument, ucp_ep_h* endpoint) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = argument;
  return library_.ep_create(worker_, &params, endpoint);
}

bool Worker::drive(int64_t limit_ms, const std::function<bool()>& ready) {
  const uint64_t end_ns = now_ns() + static_cast<uint64_t>(limit_ms * kNsPerMs);
  while (!ready())
    if (!progress() && now_ns() > end_ns) return false;
  return true;
}

bool Worker::close(ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = library_.ep_close_nbx(endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) return true;
  const bool closed =
      drive(kCloseMs, [&] { return library_.request_check_status(request) != UCS_INPROGRESS; });
  library_.request_free(request);
  return closed;
}

void Worker::flush() {
  ucp_request_param_t param{};
  const ucs_status_ptr_t request = library_.worker_flush_nbx(worker_, &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  drive(kFlushMs, [&] { return library_.request_check_status(request) != UCS_INPROGRESS; });
  library_.request_free(request);
}

void Worker::settle_connections(bool gave_up) {
  const uint64_t quiet_ns = gave_up ? kQuietAfterCancelNs : kQuietNs, begin = now_ns();
  uint64_t now = begin;
  for (uint64_t moved = begin; now - begin < kMostSettleNs && now - moved < quiet_ns;
       now = now_ns())
    if (progress())
      moved = now;
    else
      sched_yield();
}

}  // namespace sennit::ucx
