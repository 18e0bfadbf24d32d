// verbs_live.cpp: this host's RDMA adapters, through libibverbs, opened at run time: where it is
// not installed, or no driver is loaded, there is nothing to list and nothing to say. What is read
// becomes a Fabric in topology/sources/verbs.hpp.
#include <endian.h>
#include <infiniband/verbs.h>

#include <fmt/core.h>

#include "base/process/forked.hpp"
#include "base/process/shared_library.hpp"
#include "topology/fabric/inside.hpp"
#include "topology/source.hpp"
#include "topology/sources/verbs.hpp"

namespace sennit {
namespace {

struct Verbs : SharedLibrary {
  Verbs() : SharedLibrary("libibverbs.so.1") {}
  const Function<decltype(ibv_get_device_list)> get_device_list{*this, "ibv_get_device_list"};
  const Function<decltype(ibv_free_device_list)> free_device_list{*this, "ibv_free_device_list"};
  const Function<decltype(ibv_get_device_name)> get_device_name{*this, "ibv_get_device_name"};
  const Function<decltype(ibv_get_device_guid)> get_device_guid{*this, "ibv_get_device_guid"};
  const Function<decltype(ibv_open_device)> open_device{*this, "ibv_open_device"};
  const Function<decltype(ibv_close_device)> close_device{*this, "ibv_close_device"};
  const Function<decltype(ibv_query_device)> query_device{*this, "ibv_query_device"};
  const Function<decltype(ibv_query_gid)> query_gid{*this, "ibv_query_gid"};
  // As the header's macro of that name: the device's own, which knows the whole structure, else the
  // library's, which fills in what it had at first.
  int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attributes) const {
    const verbs_context* const device = verbs_get_ctx_op(context, query_port);
    if (device != nullptr)
      return device->query_port(context, number, attributes, sizeof *attributes);
    return query_port_(context, number, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
  }

 private:
  const Function<decltype(ibv_query_port)> query_port_{*this, "ibv_query_port"};
};

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (size_t i = 0; i < 16; i++)
    text += fmt::format("{}{:02x}", i > 0 && i % 2 == 0 ? ":" : "", gid.raw[i]);
  return text;
}

VerbsPort read_port(const Verbs& verbs, ibv_context* context, uint8_t number) {
  VerbsPort port;
  port.number = number;
  ibv_port_attr attributes{};
  if (verbs.query_port(context, number, &attributes) != 0) return port;
  port.active = attributes.state == IBV_PORT_ACTIVE;
  port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = attributes.lid;
  port.width_code = attributes.active_width;
  port.speed_code = attributes.active_speed;
  ibv_gid gid{};
  if (verbs.query_gid(context, number, 0, &gid) == 0) port.gid = gid_text(gid);
  return port;
}

// Empty where there is no device, or none that may be opened. Some ms a device.
std::vector<VerbsDevice> read_verbs_devices() {
  const ForeignCall call;
  std::vector<VerbsDevice> found;
  static const Verbs verbs;
  if (!verbs.usable()) return found;
  int count = 0;
  ibv_device** const list = verbs.get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; i++) {
    VerbsDevice device;
    device.name = verbs.get_device_name(list[i]);
    device.node_guid = be64toh(verbs.get_device_guid(list[i]));
    device.numa = numa_from_sysfs("/sys", "/class/infiniband/" + device.name + "/device");
    ibv_context* const context = verbs.open_device(list[i]);
    if (context == nullptr) continue;
    ibv_device_attr attributes{};
    if (verbs.query_device(context, &attributes) == 0)
      for (int port = 1; port <= attributes.phys_port_cnt; port++)
        device.ports.push_back(read_port(verbs, context, static_cast<uint8_t>(port)));
    verbs.close_device(context);
    found.push_back(std::move(device));
  }
  if (list != nullptr) verbs.free_device_list(list);
  return found;
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  const std::vector<VerbsDevice> devices = read_verbs_devices();
  if (devices.empty()) return std::optional<Fabric>();
  return std::optional<Fabric>(fabric_of(devices, context.host, several_numa_from_sysfs("/sys")));
}

}  // namespace

SENNIT_SOURCE_ENTRY(verbs, 35, true, read)

}  // namespace sennit
