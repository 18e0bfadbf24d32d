// routes.hpp: the forwarding tables of a subnet's switches, as `dump_fts` and `ibroute` write them,
// line by line behind a dump:
//   Unicast lids [0x0-0x11] of switch Lid 3 guid 0x0000000000200700 (leaf1):
//   0x0004 005 : (Channel Adapter portguid 0x0000000000100301: 'node0 mlx5_0')
// Memory: O(switches x LIDs), a byte each, and no more than kMostBytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {

// The forwarding tables of a dump, line after line. One thread.
class RouteTables {
 public:
  static constexpr size_t kMostBytes = size_t{256} << 20;
  struct Wrong {
    size_t at;  // in the line
    std::string expected;
  };
  // Whether the line belongs to a table; then it has been read.
  bool takes(std::string_view line, std::optional<Wrong>* wrong);
  // Fills in IbPort::routes and IbNode::way_to of the switches that have a table. Once.
  void apply(IbSubnet* subnet);

 private:
  std::optional<Wrong> begin(std::string_view line);
  std::optional<Wrong> read_route(std::string_view line);

  struct Table {
    std::array<int, 256> hosts = {};  // by port: how many ports of hosts it is the way to
    std::vector<uint8_t> way_to;      // as IbNode::way_to
  };
  std::unordered_map<uint64_t, Table> tables_;  // by the switch's GUID
  Table* current_ = nullptr;
  size_t bytes_ = 0;  // of all tables
};

}  // namespace sennit
