// verbs.cpp: see topology/sources/verbs.hpp.
#include "topology/sources/verbs.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "topology/fabric/inside.hpp"
#include "topology/fabric/units.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {
namespace {

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
      if (!port.active) {
        down.push_back(fmt::format("{}/{}: port {} is not active", host, device.name, port.number));
        continue;
      }
      nic.bytes_per_s = std::max(nic.bytes_per_s, verbs_rate(port));
      nic.wire = slower(nic.wire, port.ethernet ? Wire::roce : Wire::infiniband);
    }
    record.nics.push_back(std::move(nic));
  }
  Fabric fabric = fabric_of(record);
  fabric.notes = std::move(down);
  return fabric;
}

}  // namespace sennit
