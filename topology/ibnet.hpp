// ibnet.hpp: an InfiniBand subnet as records, from a saved ibnetdiscover dump or from the live subnet, and
// the one function that makes a Fabric of either.
//
// Rates are data rates, what a cable can carry of users' bytes and packet headers: lanes times the signalling
// rate (libibmad's dump.c has these in Gbaud; the InfiniBand Architecture Specification, volume 1, PortInfo,
// is where they come from) times the line code's share: 8b/10b for SDR, DDR and QDR, 64b/66b for FDR10, FDR
// and EDR, and for HDR, NDR and XDR 256b/257b with RS(544,514) error correction, which is 16/17. So 4xSDR
// is 8 Gbit/s, 4xFDR 54.54 (rounded down to a byte), 4xEDR 100, 4xHDR 200, 4xNDR 400.
// Pure but for read_live_subnet. Cost: O(text + ports log ports).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric.hpp"

namespace sennit {

enum class IbSpeed : uint8_t { unknown, sdr, ddr, qdr, fdr10, fdr, edr, hdr, ndr, xdr };

struct IbPort {  // one that has a cable
  int number = 0;
  int peer = -1;  // index into IbSubnet::nodes
  int peer_port = 0;
  int width = 0;  // lanes; 0: unknown
  IbSpeed speed = IbSpeed::unknown;
  int lid = 0;        // adapters: 0 where unknown; a switch has one for all
  uint64_t guid = 0;  // adapters; 0: unknown
};

enum class IbKind : uint8_t { switch_, adapter, router };

struct IbNode {
  IbKind kind = IbKind::switch_;
  uint64_t guid = 0;
  uint64_t system_guid = 0;  // the same for all switches of one chassis; 0: unknown
  std::string description;   // "node018 mlx5_3"
  int lid = 0;
  std::vector<IbPort> ports;  // by number
};

struct IbSubnet {
  std::vector<IbNode> nodes;
  std::vector<std::string> conflicts;
};

// bytes/s of one cable; 0: unknown.
uint64_t ib_data_rate(int width, IbSpeed speed);
// Lanes of a width as PortInfo and ibv_port_attr code it (LinkWidthActive); 0: none of the known ones.
int ib_lanes(uint32_t width_code);

// Whether a text is a dump, by its first statement.
bool is_ibnetdiscover(std::string_view text);
// Takes what ibnetdiscover writes, also with --grouping and --full. Dumps of several subnets one after the
// other are one text. Nodes that are only named by a cable, as in a part of a dump, are taken with what the
// cable says of them. `file` is for messages only.
Result<IbSubnet> parse_ibnetdiscover(std::string_view text, const std::string& file);

// Hosts and their adapters by node description ("host mlx5_0", "host HCA-1", "host"), by system GUID where
// that is a model's and not a host's; switches, those of a chassis as one where it blocks nothing inside; the
// cables between two of these as one link. Routing is not read: all cables are taken to share the load.
// Sorted by name, so that the same subnet gives the same fabric wherever it was read from.
Fabric fabric_of(const IbSubnet& subnet);

// The subnets that this host's active InfiniBand ports are in; nothing where it has no such port at all. An
// error says what is missing, and the remedy. In ibnet_live.cpp, which is left out where libibnetdisc is.
Result<std::optional<IbSubnet>> read_live_subnet();

}  // namespace sennit
