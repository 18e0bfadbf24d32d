// ibnet.hpp: an InfiniBand subnet as records, from a saved ibnetdiscover dump or from the live
// subnet, and the one function that makes a Fabric of either.
//
// Rates are data rates, what a cable can carry of users' bytes and packet headers: lanes times the
// signalling rate (libibmad's dump.c has these in Gbaud; the InfiniBand Architecture Specification,
// volume 1, PortInfo, is where they come from) times the line code's share: 8b/10b for SDR, DDR and
// QDR, 64b/66b for FDR10, FDR and EDR, and for HDR, NDR and XDR 256b/257b with RS(544,514) error
// correction, which is 16/17. So 4xSDR is 8 Gbit/s, 4xFDR 54.54 (rounded down to a byte), 4xEDR
// 100, 4xHDR 200, 4xNDR 400.
// Pure but for read_live_subnet. Cost: O(text + ports log ports).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// Of one lane; slowest first.
enum class IbSpeed : uint8_t { unknown, sdr, ddr, qdr, fdr10, fdr, edr, hdr, ndr, xdr };

// What a port runs at, and what it could.
struct IbPortRates {
  int width = 0;  // lanes; 0: unknown
  IbSpeed speed = IbSpeed::unknown;
  // What is enabled, where that is known, as a dump does not say: width codes, and a bit for each
  // speed.
  uint8_t able_widths = 0;
  uint16_t able_speeds = 0;
};

// A port that has a cable; one without is left out of its node.
struct IbPort {
  int number = 0;
  int peer = -1;  // index into IbSubnet::nodes
  int peer_port = 0;
  IbPortRates rates;
  int lid = 0;        // adapters: 0 where unknown; a switch has one for all
  uint64_t guid = 0;  // adapters; 0: unknown
  int routes = -1;    // switches: how many ports of hosts this is the way to; -1: not read
};

// What a node is.
enum class IbKind : uint8_t { switch_, adapter, router };

// A switch, an adapter, or a router.
struct IbNode {
  IbKind kind = IbKind::switch_;
  uint64_t guid = 0;
  uint64_t system_guid = 0;  // the same for all switches of one chassis; 0: unknown
  std::string description;   // "node018 mlx5_3"
  int lid = 0;
  std::vector<IbPort> ports;  // by number
  // Switches: by LID, the port that leads there; 0: none, or this one. Empty: not read.
  std::vector<uint8_t> way_to;
};

// All that a dump or a walk tells; `conflicts` are for Fabric::conflicts.
struct IbSubnet {
  std::vector<IbNode> nodes;
  std::vector<std::string> conflicts;
};

// "HDR", and "???" where it is unknown; and back, where any other word is IbSpeed::unknown.
std::string_view name(IbSpeed speed);
IbSpeed ib_speed_named(std::string_view name);
// "4xHDR"; empty where either is unknown.
std::string ib_rate_name(int width, IbSpeed speed);
// bytes/s of one cable; 0: unknown.
uint64_t ib_data_rate(int width, IbSpeed speed);
uint64_t ib_data_rate(std::string_view rate_name);
// The best that both ends have enabled; empty where that is unknown.
std::string ib_able_name(const IbPortRates& here, const IbPortRates& there);
// From the attribute PortInfo; a switch has the capabilities of its port 0. fdr10: what the
// vendor's own attribute says of a port at QDR.
IbPortRates ib_port_rates(std::span<const uint8_t, 64> info,
                          std::span<const uint8_t, 64> capabilities, bool fdr10);
// Lanes of a width as PortInfo and ibv_port_attr code it (LinkWidthActive); 0: none of the known
// ones.
int ib_lanes(uint32_t width_code);

// Puts the port in its place, by number, unless the node has it already. A walk from the second
// subnet may find an adapter's first port last.
void add_port(IbNode* node, const IbPort& port);

// Whether a text is a dump, by its first statement.
bool is_ibnetdiscover(std::string_view text);
// Takes what ibnetdiscover writes, also with --grouping and --full. Dumps of several subnets one
// after the other are one text, in which an adapter may come again with further ports; forwarding
// tables, as dump_fts writes them, may follow. Nodes that are only named by a cable, as in a part
// of a dump, are taken with what the cable says of them. `file` is for messages only.
Result<IbSubnet> parse_ibnetdiscover(std::string_view text, const std::string& file);

// Hosts and their adapters by node description ("host mlx5_0", "host HCA-1", "host"), by system
// GUID where that is a model's and not a host's; switches, those of a chassis as one where it
// blocks nothing inside; the cables between two of these as one link. Where the forwarding tables
// were not read, all cables are taken to share the load; a note says which of the two.
// Sorted by name, so that the same subnet gives the same fabric wherever it was read from.
Fabric fabric_of(const IbSubnet& subnet);

// The subnets that this host's active InfiniBand ports are in; nothing where it has no such port at
// all. An error says what is missing, and the remedy. In topology/sources/ibnet/live.cpp, which is
// left out where libibnetdisc is.
Result<std::optional<IbSubnet>> read_live_subnet();

}  // namespace sennit
