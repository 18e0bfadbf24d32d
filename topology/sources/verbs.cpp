// verbs.cpp: see topology/sources/verbs.hpp. Through libibverbs, opened at run time: where it is
// not installed, or no driver is loaded, there is nothing to list and nothing to say.
#include "topology/sources/verbs.hpp"

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/process/forked.hpp"
#include "base/process/shared_library.hpp"
#include "topology/fabric/inside.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

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

IbSpeed speed(int code) {
  constexpr std::array<IbSpeed, 9> kSpeeds = {IbSpeed::sdr,   IbSpeed::ddr, IbSpeed::qdr,
                                              IbSpeed::fdr10, IbSpeed::fdr, IbSpeed::edr,
                                              IbSpeed::hdr,   IbSpeed::ndr, IbSpeed::xdr};
  for (size_t i = 0; i < kSpeeds.size(); i++)
    if (code == 1 << i) return kSpeeds[i];
  return IbSpeed::unknown;
}

// What a lane carries in Mbit/s where Ethernet drivers use InfiniBand's codes: 10GbE is 4x SDR or
// 1x QDR (or FDR10), 25GbE 1x EDR, 40GbE 4x QDR, 50GbE 1x HDR or 2x EDR, 56GbE 4x FDR, 100GbE 4x
// EDR, ...
uint64_t ethernet_lane_mbit_per_s(IbSpeed of) {
  switch (of) {
    case IbSpeed::sdr:
      return 2'500;
    case IbSpeed::ddr:
      return 5'000;
    case IbSpeed::qdr:
    case IbSpeed::fdr10:
      return 10'000;
    case IbSpeed::fdr:
      return 14'000;
    case IbSpeed::edr:
      return 25'000;
    case IbSpeed::hdr:
      return 50'000;
    case IbSpeed::ndr:
      return 100'000;
    case IbSpeed::xdr:
      return 200'000;
    case IbSpeed::unknown:
      return 0;
  }
  return 0;
}

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

Result<std::optional<Fabric>> read(const SourceContext& context) {
  const std::vector<VerbsDevice> devices = read_verbs_devices();
  if (devices.empty()) return std::optional<Fabric>();
  return std::optional<Fabric>(fabric_of(devices, context.host, several_numa_from_sysfs("/sys")));
}

}  // namespace

uint64_t verbs_rate(const VerbsPort& port) {
  const IbSpeed of = speed(port.speed_code);
  if (!port.ethernet) return ib_data_rate(ib_lanes(static_cast<uint32_t>(port.width_code)), of);
  return static_cast<uint64_t>(ib_lanes(static_cast<uint32_t>(port.width_code))) *
         ethernet_lane_mbit_per_s(of) * kMbit;
}

Fabric fabric_of(const std::vector<VerbsDevice>& devices, const std::string& host,
                 bool several_numa) {
  HostRecord record;
  record.host = host;
  record.several_numa = several_numa;
  std::vector<std::string> down;
  for (const VerbsDevice& device : devices) {
    NicRecord nic;
    nic.name = device.name;
    nic.numa = device.numa;
    if (device.node_guid != 0) nic.id = fmt::format("0x{:016x}", device.node_guid);
    for (const VerbsPort& port : device.ports) {
      if (port.active)
        nic.bytes_per_s = std::max(nic.bytes_per_s, verbs_rate(port));
      else
        down.push_back(fmt::format("{}/{}: port {} is not active", host, device.name, port.number));
    }
    record.nics.push_back(std::move(nic));
  }
  Fabric fabric = fabric_of(record);
  fabric.notes = std::move(down);
  return fabric;
}

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

SENNIT_SOURCE_ENTRY(verbs, 35, true, read)

}  // namespace sennit
