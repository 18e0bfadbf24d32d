// endpoint.cpp: the ucx transport's start, its endpoints, and its end. See transports/ucx/ucx.hpp.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sched.h>

#include <filesystem>

#include <fmt/format.h>

#include "base/descriptors.hpp"
#include "base/forked.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "transports/ucx/ucx.hpp"

namespace sennit::ucx {
namespace {

constexpr int64_t kFlushMs = 300;
constexpr int64_t kCloseMs = 200;
constexpr uint64_t kQuietNs = 2'000'000, kQuietAfterCancelNs = 50'000'000;
constexpr uint64_t kMostSettleNs = 300'000'000;
// devices, event loops, shared memory; UCX 1.13 takes 25 at least
constexpr size_t kOwnDescriptors = 64;
// without RDMA: sockets, two where both sides connect at once
constexpr size_t kDescriptorsPerPeer = 2;
constexpr size_t kDescriptorsToConnect = 8;  // at the least
constexpr uint32_t kMagic = 0x31786375;      // "ucx1"

struct AddressHead {
  uint32_t magic = kMagic;
  uint32_t has_rdma = 0;
};

bool has_rdma() {
  std::error_code error;
  const std::filesystem::path devices("/sys/class/infiniband");
  return std::filesystem::exists(devices, error) && !std::filesystem::is_empty(devices, error);
}

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

Status failure(const char* what, ucs_status_t status) {
  return {SENNIT_UNSUPPORTED,
          fmt::format("ucx: {}: {}", what, Library::get().status_string(status))};
}

}  // namespace

const Library& Library::get() {
  static const Library library;
  return library;
}

Result<std::unique_ptr<Transport>> UcxTransport::make(const TransportContext& context) {
  // Not even started where it would not be used, or not with too few descriptors: UCX ends the
  // process when it runs out of them.
  if (!context.asked_for && !has_rdma())
    return Status(SENNIT_UNSUPPORTED,
                  "ucx: no RDMA device here; name it in SENNIT_TRANSPORTS to use it all the same");
  // In a child UCX takes its parent's thread for alive, and adds to the set of descriptors that
  // they share.
  static const Origin first_use;
  if (first_use.forked())
    return Status(
        SENNIT_UNSUPPORTED,
        "ucx: this process was made by fork() from one that uses UCX, which works in one of them "
        "only; exec a program first, or use SENNIT_TRANSPORTS=shm,tcp");
  if (!Library::get().usable())
    return Status(SENNIT_UNSUPPORTED, "ucx: " + Library::get().why_not());
  const size_t needed =
      kOwnDescriptors + (has_rdma() ? 0 : kDescriptorsPerPeer * static_cast<size_t>(context.size));
  if (const size_t left = reserve_descriptors(needed); left < needed)
    return Status(SENNIT_OUT_OF_RESOURCES, "ucx: " + descriptors_lacking("UCX", needed, left));
  std::unique_ptr<UcxTransport> transport(new UcxTransport(context));
  SENNIT_RETURN_IF_ERROR(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status UcxTransport::start() {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = library_.config_read(nullptr, nullptr, &config); status != UCS_OK)
    return failure("reading the configuration (UCX_* variables)", status);
  // On plain Ethernet stay on the interface that reaches the other ranks; UCX's own variable goes
  // before.
  const std::string interface = interface_of(context_.host_interface);
  if (!has_rdma() && !interface.empty() && !getenv("UCX_NET_DEVICES"))
    if (library_.config_modify(config, "NET_DEVICES", interface.c_str()) != UCS_OK)
      log(LogLevel::info, "ucx: cannot restrict it to {}", interface);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(context_.size);
  ucs_status_t status = library_.init(&params, config, &ucp_);
  library_.config_release(config);
  if (status != UCS_OK) return failure("starting", status);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = library_.worker_create(ucp_, &worker_params, &worker_);
  if (status != UCS_OK) return failure("making a worker", status);
  status = library_.worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return failure("getting a descriptor to wait on", status);

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = static_cast<unsigned>(MessageKind::message);
  handler.cb = on_message;
  handler.arg = this;
  status = library_.worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return failure("setting the message handler", status);

  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  status = library_.worker_query(worker_, &attributes);
  if (status != UCS_OK) return failure("getting the address", status);
  AddressHead head;
  head.has_rdma = has_rdma();
  address_.resize(sizeof head + attributes.address_length);
  std::memcpy(address_.data(), &head, sizeof head);
  std::memcpy(address_.data() + sizeof head, attributes.address, attributes.address_length);
  library_.worker_release_address(worker_, attributes.address);
  return {};
}

Reach UcxTransport::reach(int, std::span<const std::byte> address) {
  AddressHead head;
  if (address.size() <= sizeof head) return Reach::none;
  std::memcpy(&head, address.data(), sizeof head);
  if (head.magic != kMagic) return Reach::none;
  return context_.asked_for || (head.has_rdma && has_rdma()) ? Reach::network : Reach::none;
}

Status UcxTransport::add_peer(int rank, std::span<const std::byte> address) {
  if (address.size() <= sizeof(AddressHead))
    return {SENNIT_LINK_FAILED, fmt::format("ucx: rank {} has no address", rank)};
  Peer& p = known(rank);
  if (!p.worker_address.empty()) return {};
  const auto worker_address = address.subspan(sizeof(AddressHead));
  p.worker_address.assign(worker_address.begin(), worker_address.end());
  return {};
}

Status UcxTransport::connect(Peer& p) {
  if (p.endpoint || p.broken) return {};
  if (const size_t left = descriptors_left(); left < kDescriptorsToConnect)
    return {SENNIT_OUT_OF_RESOURCES,
            "ucx: " + descriptors_lacking(fmt::format("a connection to rank {}", p.rank),
                                          kDescriptorsToConnect, left)};
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(p.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = &p;
  // A peer that has died refuses: whether that is so, or only this way to it is broken, the control
  // plane finds out.
  if (const ucs_status_t status = library_.ep_create(worker_, &params, &p.endpoint);
      status != UCS_OK) {
    p.endpoint = nullptr;
    p.broken = true;
    returns_.add_event(
        p.rank,
        {SENNIT_LINK_FAILED,
         fmt::format(
             "ucx: cannot connect to rank {}: {} (UCX_TLS and UCX_NET_DEVICES restrict what it "
             "uses; SENNIT_TRANSPORTS=shm,tcp goes without it)",
             p.rank, library_.status_string(status))});
    return {};
  }
  connections_++;
  control(p, MessageKind::hello, 0, 0);
  return {};
}

bool UcxTransport::drive(int64_t limit_ms, const std::function<bool()>& ready) {
  const uint64_t end_ns = now_ns() + static_cast<uint64_t>(limit_ms) * 1'000'000;
  while (!ready()) {
    if (!library_.worker_progress(worker_) && now_ns() > end_ns) return false;
  }
  return true;
}

// Closes the endpoint by force: UCX gives up what it has under way there, and calls back for it.
void UcxTransport::close(Peer& p) {
  if (!p.endpoint) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = library_.ep_close_nbx(p.endpoint, &param);
  p.endpoint = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  if (!drive(kCloseMs, [&] { return library_.request_check_status(request) != UCS_INPROGRESS; }))
    log(LogLevel::warn, "ucx: the endpoint to rank {} does not close", p.rank);
  library_.request_free(request);
}

// Where calls were given up, peers may be connecting to this rank for what it will not take. UCX
// answers them by itself and does not flush that, and 1.13 ends the process where it destroys a
// worker before such an answer is on its way.
void UcxTransport::settle_connections() {
  const uint64_t quiet_ns = gave_up_ ? kQuietAfterCancelNs : kQuietNs, begin = now_ns();
  uint64_t now = begin;
  for (uint64_t moved = begin; now - begin < kMostSettleNs && now - moved < quiet_ns;
       now = now_ns())
    if (library_.worker_progress(worker_))
      moved = now;
    else
      sched_yield();
}

UcxTransport::~UcxTransport() {
  if (worker_) {
    // What was sent last must reach the wire, if the peers take it; then nothing is waited for.
    ucp_request_param_t param{};
    const ucs_status_ptr_t flush = library_.worker_flush_nbx(worker_, &param);
    if (UCS_PTR_IS_PTR(flush)) {
      drive(kFlushMs, [&] { return library_.request_check_status(flush) != UCS_INPROGRESS; });
      library_.request_free(flush);
    }
    settle_connections();
    for (auto& [rank, p] : peers_) close(*p);
    // Only now: before, it would tell the senders that all is well.
    matcher_.take_arrivals_if([](const Arrival&) { return true; },
                              [&](Arrival& arrival) { drop(arrival); });
    library_.worker_destroy(worker_);
  }
  if (ucp_) library_.cleanup(ucp_);
}

}  // namespace sennit::ucx
