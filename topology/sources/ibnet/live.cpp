// live.cpp: the live InfiniBand subnet as a source, walked with libibnetdisc from the ports of this
// host. The walk sends management packets to every switch and adapter, two at a time (2,048 hosts:
// under a second), so it is done where nobody has written the fabric down: an operator runs `sennit
// topo --save /etc/sennit/fabric` once, and no job walks. It needs read and write access to
// /dev/infiniband/umad*, which is root's alone on most systems. libibnetdisc is opened at run time:
// where it is not installed, there is nothing to walk and nothing to say.
#include <endian.h>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>

#include <infiniband/ibnetdisc.h>
#include <infiniband/umad.h>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/process/forked.hpp"
#include "base/process/shared_library.hpp"
#include "topology/source.hpp"
#include "topology/sources/ibnet/ibnet.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {
namespace {

// With what it needs itself, libibumad and libibmad, whose functions are found through it.
struct Ibnet : SharedLibrary {
  Ibnet() : SharedLibrary("libibnetdisc.so.5") {}
  const Function<decltype(ibnd_discover_fabric)> discover_fabric{*this, "ibnd_discover_fabric"};
  const Function<decltype(ibnd_destroy_fabric)> destroy_fabric{*this, "ibnd_destroy_fabric"};
  const Function<decltype(::umad_init)> initialise{*this, "umad_init"};
  const Function<decltype(umad_get_cas_names)> get_cas_names{*this, "umad_get_cas_names"};
  const Function<decltype(umad_get_ca)> get_ca{*this, "umad_get_ca"};
  const Function<decltype(umad_release_ca)> release_ca{*this, "umad_release_ca"};
  const Function<decltype(umad_open_port)> open_port{*this, "umad_open_port"};
  const Function<decltype(umad_close_port)> close_port{*this, "umad_close_port"};
  const Function<decltype(mad_get_field)> get_field{*this, "mad_get_field"};
  const Function<decltype(mad_get_field64)> get_field64{*this, "mad_get_field64"};
};

const Ibnet& ibnet() {
  const ForeignCall call;  // a child forked while it is opened would wait for it for ever
  static const Ibnet library;
  return library;
}

IbPortRates rates_of(ibnd_port_t* port) {
  constexpr size_t kBytes = 64;
  static_assert(sizeof port->info >= kBytes);
  const ibnd_port_t* const first =
      port->node->type == IB_NODE_SWITCH ? port->node->ports[0] : nullptr;
  const bool fdr10 =
      (ibnet().get_field(port->ext_info, 0, IB_MLNX_EXT_PORT_LINK_SPEED_ACTIVE_F) & 1) != 0;
  return ib_port_rates(
      std::span<const uint8_t, kBytes>(port->info, kBytes),
      std::span<const uint8_t, kBytes>(first != nullptr ? first->info : port->info, kBytes), fdr10);
}

// Collects what walks from several ports find: each rail may be a subnet of its own.
class Records {
 public:
  void add(const ibnd_fabric_t& fabric) {
    std::unordered_map<const ibnd_node_t*, int> at;
    for (ibnd_node_t* node = fabric.nodes; node != nullptr; node = node->next)
      at[node] = find(*node);
    for (ibnd_node_t* node = fabric.nodes; node != nullptr; node = node->next) {
      for (int p = 1; p <= node->numports && node->ports != nullptr; p++) {
        ibnd_port_t* const port = node->ports[p];
        if (port == nullptr) continue;
        seen_.insert(port->guid);
        const auto peer = port->remoteport != nullptr ? at.find(port->remoteport->node) : at.end();
        if (peer == at.end()) continue;
        IbPort record;
        record.number = p;
        record.peer = peer->second;
        record.peer_port = port->remoteport->portnum;
        record.rates = rates_of(port);
        record.lid = port->base_lid;
        record.guid = port->guid;
        add_port(&subnet_.nodes[index(at.at(node))], record);
      }
    }
  }
  bool seen(uint64_t port_guid) const { return seen_.count(port_guid) != 0; }
  size_t nodes() const { return subnet_.nodes.size(); }
  IbSubnet take() { return std::move(subnet_); }

 private:
  int find(const ibnd_node_t& node) {
    const auto [entry, added] = nodes_.emplace(node.guid, static_cast<int>(subnet_.nodes.size()));
    if (!added) return entry->second;
    IbNode record;
    record.kind = node.type == IB_NODE_SWITCH ? IbKind::switch_
                  : node.type == IB_NODE_CA   ? IbKind::adapter
                                              : IbKind::router;
    record.guid = node.guid;
    // the decoder takes it so, and only reads
    uint8_t* const info = const_cast<uint8_t*>(node.info);
    record.system_guid = ibnet().get_field64(info, 0, IB_NODE_SYSTEM_GUID_F);
    record.description = std::string(node.nodedesc, strnlen(node.nodedesc, sizeof node.nodedesc));
    record.lid = node.smalid;
    subnet_.nodes.push_back(std::move(record));
    return entry->second;
  }

  IbSubnet subnet_;
  std::unordered_map<uint64_t, int> nodes_;  // by GUID
  std::set<uint64_t> seen_;                  // GUIDs of ports
};

struct Port {
  std::string device;
  int number = 0;
  uint64_t guid = 0;
  bool active = false;
};

std::vector<Port> infiniband_ports() {
  std::vector<Port> ports;
  char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN] = {};
  const int count = ibnet().initialise() < 0 ? 0 : ibnet().get_cas_names(names, UMAD_MAX_DEVICES);
  for (int c = 0; c < count; c++) {
    umad_ca_t device{};
    if (ibnet().get_ca(names[c], &device) < 0) continue;
    for (const umad_port_t* port : device.ports) {
      constexpr unsigned kActive = 4;
      if (port == nullptr || std::string_view(port->link_layer) == "Ethernet") continue;
      ports.push_back({names[c], port->portnum, be64toh(port->port_guid), port->state == kActive});
    }
    ibnet().release_ca(&device);
  }
  return ports;
}

// Nothing is sent.
Status may_send(const Port& port) {
  errno = 0;
  const int fd = ibnet().open_port(port.device.c_str(), port.number);
  if (fd >= 0) {
    ibnet().close_port(fd);
    return {};
  }
  const int why = errno;
  const std::string text =
      fmt::format("the InfiniBand subnet of {} port {} cannot be read: {}", port.device,
                  port.number, std::strerror(why != 0 ? why : -fd));
  if (why == EACCES || why == EPERM)
    return {SENNIT_UNSUPPORTED,
            text +
                "; have root run `sennit topo --save /etc/sennit/fabric` once, or give "
                "access to /dev/infiniband/umad*"};
  return {SENNIT_UNSUPPORTED,
          text + "; is the module ib_umad loaded, and /dev/infiniband/umad* there?"};
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  // What somebody wrote down is used instead. An empty file, such as /dev/null, is no reason not to
  // look.
  const bool given = !context.fabric_file.empty() && context.fabric_file != "/dev/null";
  if (given || (context.fabric_file.empty() && file_exists(kFabricFile)))
    return std::optional<Fabric>();
  const Result<std::optional<IbSubnet>> subnet = read_live_subnet();
  if (!subnet) return subnet.status();
  if (!subnet->has_value()) return std::optional<Fabric>();
  return std::optional<Fabric>(fabric_of(**subnet));
}

}  // namespace

Result<std::optional<IbSubnet>> read_live_subnet() {
  if (!ibnet().usable()) return std::optional<IbSubnet>();
  const std::vector<Port> ports = infiniband_ports();
  if (ports.empty()) return std::optional<IbSubnet>();
  Records records;
  const Port* first = nullptr;
  for (const Port& port : ports) {
    if (!port.active || records.seen(port.guid)) continue;
    if (first == nullptr) first = &port;
    SENNIT_RETURN_IF_ERROR(may_send(port));
    ibnd_config_t config{};
    config.timeout_ms = 1000;
    config.retries = 2;
    std::string device = port.device;
    ibnd_fabric_t* const fabric =
        ibnet().discover_fabric(device.data(), port.number, nullptr, &config);
    if (fabric == nullptr)
      return Status(
          SENNIT_UNSUPPORTED,
          fmt::format(
              "the InfiniBand subnet of {} port {} cannot be walked; try `ibnetdiscover -C {} "
              "-P {}`, which says why",
              port.device, port.number, port.device, port.number));
    records.add(*fabric);
    ibnet().destroy_fabric(fabric);
  }
  if (first == nullptr)
    return Status(
        SENNIT_UNSUPPORTED,
        fmt::format(
            "no InfiniBand port is active here ({} port {} and {} others are not): `ibstat` says "
            "why; a port that only initializes waits for a subnet manager",
            ports[0].device, ports[0].number, ports.size() - 1));
  if (records.nodes() < 2)
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("the InfiniBand subnet of {} port {} is empty but for this adapter: "
                              "`ibnetdiscover` and `iblinkinfo` show what it sees",
                              first->device, first->number));
  return std::optional<IbSubnet>(records.take());
}

SENNIT_SOURCE_ENTRY(ibnet, 80, false, read)

}  // namespace sennit
