// routes.cpp: see topology/sources/ibnet/routes.hpp.
#include "topology/sources/ibnet/routes.hpp"

#include <charconv>
#include <utility>

#include <fmt/core.h>

namespace sennit {
namespace {

constexpr std::string_view kBegin = "Unicast lids ", kGuid = " guid 0x";

bool has(std::string_view line, std::string_view part) {
  return line.find(part) != std::string_view::npos;
}

}  // namespace

bool RouteTables::takes(std::string_view line, std::optional<Wrong>* wrong) {
  if (line.substr(0, kBegin.size()) == kBegin) {
    *wrong = begin(line);
    return true;
  }
  if (current_ == nullptr) return false;
  if (line.substr(0, 2) == "0x") {
    *wrong = read_route(line);
    return true;
  }
  // Headings, and what is said of the whole table.
  if (has(line, "Destination") || has(line, "Info") || has(line, "lids dumped")) return true;
  current_ = nullptr;
  return false;
}

std::optional<RouteTables::Wrong> RouteTables::begin(std::string_view line) {
  const size_t at = line.find(kGuid);
  if (at == std::string_view::npos)
    return Wrong{kBegin.size(), "\" guid 0x...\" of the switch on this line"};
  uint64_t guid = 0;
  const char* const from = line.data() + at + kGuid.size();
  const auto [stop, failed] = std::from_chars(from, line.data() + line.size(), guid, 16);
  if (failed != std::errc() || guid == 0 || *from == '-')
    return Wrong{at + kGuid.size() - 2, "the switch's GUID, hexadecimal and not 0"};
  if (sizeof(Table) > kMostBytes - bytes_)
    return Wrong{0, "fewer switches: the tables take 256 MiB"};
  const auto [entry, added] = tables_.try_emplace(guid);
  if (!added)
    return Wrong{at + 1,
                 fmt::format("one table a switch; there is one of 0x{:016x} already", guid)};
  bytes_ += sizeof(Table);
  current_ = &entry->second;
  return std::nullopt;
}

// "0x0004 005 : (Channel Adapter ...", a switch's own LID has port 000.
std::optional<RouteTables::Wrong> RouteTables::read_route(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  const size_t at = std::min(line.find_first_not_of(' ', space), line.size());
  unsigned port = 0;
  const auto [stop, failed] = std::from_chars(line.data() + at, line.data() + line.size(), port);
  if (failed != std::errc() || port > 255) return Wrong{at, "a port's number from 0 to 255"};
  if (has(line, "(Channel Adapter")) current_->hosts[port]++;
  constexpr size_t kPrefix = 2;  // 0x
  uint16_t lid = 0;
  std::from_chars(line.data() + kPrefix, line.data() + line.size(), lid, 16);
  if (lid == 0 || port == 0) return std::nullopt;
  if (current_->way_to.size() <= lid) {
    const size_t more = lid + size_t{1} - current_->way_to.size();
    if (more > kMostBytes - bytes_) return Wrong{0, "smaller LIDs: the tables take 256 MiB"};
    bytes_ += more;
    current_->way_to.resize(lid + size_t{1}, 0);
  }
  current_->way_to[lid] = static_cast<uint8_t>(port);
  return std::nullopt;
}

void RouteTables::apply(IbSubnet* subnet) {
  for (IbNode& node : subnet->nodes) {
    const auto table = tables_.find(node.guid);
    if (table == tables_.end() || node.kind != IbKind::switch_) continue;
    for (IbPort& port : node.ports)
      port.routes = table->second.hosts[static_cast<size_t>(port.number)];
    node.way_to = std::move(table->second.way_to);
  }
}

}  // namespace sennit
