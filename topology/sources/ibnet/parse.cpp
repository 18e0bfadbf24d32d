// parse.cpp: ibnetdiscover's text to records, line by line, in one pass:
//   vendid=0x2c9                 KEY=VALUE lines announce the node that follows
//   sysimgguid=0x5442ba00003080
//   Switch  24 "S-005442ba00003080"  # "ISR9024" base port 0 lid 6 lmc 0
//   [22]  "H-0008f10403961354"[1](8f10403961355)  # "node018 mlx5_3" lid 4 4xSDR
//   Ca  2 "H-0008f10403961354"  # "node018 mlx5_3"
//   [1](8f10403961355)  "S-005442ba00003080"[22]  # lid 4 lmc 0 "ISR9024" lid 6 4xSDR
// The rate is in a comment, and may be missing. Memory: O(nodes + cables), both bounded as in a
// fabric.
#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/sources/ibnet/ibnet.hpp"
#include "topology/sources/ibnet/routes.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr int kMaxPort = 255;
constexpr size_t kMaxNodes = kMaxVertices / 2;  // an adapter and its host are two vertices
constexpr std::array<std::string_view, 6> kKeys = {"vendid",     "devid",  "sysimgguid",
                                                   "switchguid", "caguid", "rtguid"};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

class DumpReader {
 public:
  DumpReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<IbSubnet> read() {
    for (size_t begin = 0; begin < text_.size(); begin = end_ + 1) {
      at_ = begin;
      end_ = std::min(text_.find('\n', begin), text_.size());
      skip_space();
      if (at_ < end_ && peek() != '#') SENNIT_RETURN_IF_ERROR(read_statement());
    }
    SENNIT_RETURN_IF_ERROR(check_cables());
    routes_.apply(&subnet_);
    return std::move(subnet_);
  }

 private:
  struct Id {
    IbKind kind = IbKind::switch_;
    uint64_t guid = 0;
    size_t at = 0;
  };

  Status error(size_t at, std::string_view expected) const {
    const std::string_view before = text_.substr(0, at);
    Token token;
    token.line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    token.column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    size_t end = at;
    while (end < text_.size() && !is_space(text_[end]) && text_[end] != '\n') end++;
    token.text = text_.substr(at, end - at);
    return error_at(file_, token, expected);
  }

  char peek() const { return at_ < end_ ? text_[at_] : '\0'; }
  bool skip(char c) {
    if (peek() != c || at_ >= end_) return false;
    at_++;
    return true;
  }
  bool skip(std::string_view word) {
    if (text_.substr(at_, std::min(word.size(), end_ - at_)) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < end_ && is_space(text_[at_])) at_++;
  }

  Status read_statement() {
    const size_t begin = at_;
    std::optional<RouteTables::Wrong> wrong;
    const bool routes = routes_.takes(text_.substr(begin, end_ - begin), &wrong);
    if (wrong) return error(begin + wrong->at, wrong->expected);
    if (routes) return {};
    if (peek() == '[') return read_port();
    current_ = -1;
    for (const auto& [word, kind] : {std::pair(std::string_view("Switch"), IbKind::switch_),
                                     std::pair(std::string_view("Ca"), IbKind::adapter),
                                     std::pair(std::string_view("Rt"), IbKind::router)}) {
      if (skip(word) && is_space(peek())) return read_node(kind);
      at_ = begin;
    }
    // of ibnetdiscover --grouping
    for (const std::string_view heading : {"Chassis ", "Non-Chassis ", "Hostname: "})
      if (skip(heading)) return {};
    const size_t equals = text_.find('=', begin);
    const std::string_view key = text_.substr(begin, std::min(equals, end_) - begin);
    if (equals >= end_ || std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return error(begin,
                   "Switch, Ca, Rt, [PORT], Chassis, or one of vendid=, devid=, sysimgguid=, "
                   "switchguid=, caguid= and rtguid=");
    at_ = equals + 1;
    skip("0x");
    uint64_t value = 0;
    uint64_t port = 0;
    SENNIT_RETURN_IF_ERROR(read_hex(&value));
    SENNIT_RETURN_IF_ERROR(read_port_guid(&port));
    if (key == "sysimgguid") system_guid_ = value;
    return read_end();
  }

  Status read_hex(uint64_t* value) {
    const size_t begin = at_;
    const char* const from = text_.data() + at_;
    const auto [stop, failed] = std::from_chars(from, text_.data() + end_, *value, 16);
    at_ += static_cast<size_t>(stop - from);
    if (failed != std::errc() || *from == '-')
      return error(begin, "a hexadecimal number of at most 16 digits");
    return {};
  }

  Status read_number(int least, int most, int* value) {
    const size_t begin = at_;
    const char* const from = text_.data() + at_;
    const auto [stop, failed] = std::from_chars(from, text_.data() + end_, *value);
    at_ += static_cast<size_t>(stop - from);
    if (failed != std::errc() || *value < least || *value > most)
      return error(begin, fmt::format("a number from {} to {}", least, most));
    return {};
  }

  // "(8f10403961355)", where there is one.
  Status read_port_guid(uint64_t* guid) {
    if (!skip('(')) return {};
    SENNIT_RETURN_IF_ERROR(read_hex(guid));
    return skip(')') ? Status() : error(at_, "\")\" after the port's GUID");
  }

  Status read_end() {
    skip_space();
    return at_ >= end_ || peek() == '#' ? Status() : error(at_, "\"#\" or the end of the line");
  }

  // "S-005442ba00003080" in quotes.
  Status read_id(Id* id) {
    id->at = at_;
    constexpr std::string_view kExpected =
        "a node such as \"S-005442ba00003080\", \"H-...\" or \"R-...\"";
    const char letter = at_ + 2 < end_ ? text_[at_ + 1] : '\0';
    if (!skip('"') || (letter != 'S' && letter != 'H' && letter != 'R'))
      return error(id->at, kExpected);
    id->kind = letter == 'S' ? IbKind::switch_ : letter == 'H' ? IbKind::adapter : IbKind::router;
    at_++;
    if (!skip('-')) return error(id->at, kExpected);
    SENNIT_RETURN_IF_ERROR(read_hex(&id->guid));
    if (!skip('"')) return error(at_, "a closing quote after the node's GUID");
    return id->guid != 0 ? Status() : error(id->at, "a node whose GUID is not 0");
  }

  // The node of that GUID, new or not.
  Result<int> node_of(const Id& id) {
    const auto [entry, added] = nodes_.emplace(id.guid, static_cast<int>(subnet_.nodes.size()));
    if (added) {
      if (subnet_.nodes.size() >= kMaxNodes)
        return error(id.at, fmt::format("at most {} nodes", kMaxNodes));
      IbNode node;
      node.kind = id.kind;
      node.guid = id.guid;
      subnet_.nodes.push_back(std::move(node));
      described_at_.push_back(0);
      port_at_.emplace_back();
    }
    if (subnet_.nodes[index(entry->second)].kind != id.kind)
      return error(id.at, "the same letter as elsewhere before this GUID");
    return entry->second;
  }

  Status read_node(IbKind kind) {
    skip_space();
    SENNIT_RETURN_IF_ERROR(read_number(0, kMaxPort, &ports_));
    skip_space();
    Id id;
    SENNIT_RETURN_IF_ERROR(read_id(&id));
    if (id.kind != kind) return error(id.at, "an id of the kind that the line begins with");
    const Result<int> at = node_of(id);
    if (!at) return at.status();
    const bool again = described_at_[index(*at)] != 0;
    // An adapter with ports in two subnets is in the dumps of both, each time with those of one.
    if (again && kind != IbKind::adapter)
      return error(id.at, fmt::format("a node that line {} does not describe already",
                                      line_of(described_at_[index(*at)])));
    if (!again) described_at_[index(*at)] = id.at;
    SENNIT_RETURN_IF_ERROR(read_end());
    current_ = *at;
    taken_.reset();
    IbNode& node = subnet_.nodes[index(current_)];
    for (const IbPort& port : node.ports) taken_.set(index(port.number));
    const uint64_t system_guid = std::exchange(system_guid_, 0);
    Comment comment;
    SENNIT_RETURN_IF_ERROR(read_comment(&comment));
    if (again) return {};
    node.system_guid = system_guid;
    node.description = comment.description;
    node.lid = comment.peer_lid;
    return {};
  }

  // [22][ext 3](GUID) "H-..."[1][ext 4](GUID) # ...
  Status read_port() {
    const size_t begin = at_;
    if (current_ < 0) return error(begin, "a Switch, Ca or Rt line before its ports");
    IbPort port;
    SENNIT_RETURN_IF_ERROR(read_port_number(ports_, &port.number));
    if (taken_.test(index(port.number))) return error(begin, "a port that is not listed already");
    SENNIT_RETURN_IF_ERROR(read_port_guid(&port.guid));
    skip_space();
    Id id;
    SENNIT_RETURN_IF_ERROR(read_id(&id));
    SENNIT_RETURN_IF_ERROR(read_port_number(kMaxPort, &port.peer_port));
    skip_space();
    uint64_t peer_guid = 0;
    SENNIT_RETURN_IF_ERROR(read_port_guid(&peer_guid));
    SENNIT_RETURN_IF_ERROR(read_end());
    Comment comment;
    SENNIT_RETURN_IF_ERROR(read_comment(&comment));
    const Result<int> peer = node_of(id);
    if (!peer) return peer.status();
    if (++cables_ > kMaxLinks) return error(begin, fmt::format("at most {} ports", kMaxLinks));
    port.peer = *peer;
    port.lid = comment.own_lid;
    port.rates.width = comment.width;
    port.rates.speed = comment.speed;
    IbNode& other = subnet_.nodes[index(*peer)];
    if (other.description.empty()) other.description = comment.description;
    taken_.set(index(port.number));
    subnet_.nodes[index(current_)].ports.push_back(port);
    port_at_[index(current_)].push_back(begin);
    return {};
  }

  Status read_port_number(int most, int* number) {
    if (!skip('[')) return error(at_, "\"[\" and a port's number");
    SENNIT_RETURN_IF_ERROR(read_number(1, most, number));
    if (!skip(']')) return error(at_, "\"]\" after the port's number");
    int outside = 0;  // the number that is printed on the chassis
    if (!skip("[ext ")) return {};
    SENNIT_RETURN_IF_ERROR(read_number(0, 65535, &outside));
    return skip(']') ? Status() : error(at_, "\"]\" after the port's number");
  }

  struct Comment {
    std::string description;
    int own_lid = 0;   // before the description
    int peer_lid = 0;  // after it
    int width = 0;
    IbSpeed speed = IbSpeed::unknown;
  };

  // # lid 4 lmc 0 "ISR9024" lid 6 4xSDR
  Status read_comment(Comment* comment) {
    if (!skip('#')) return {};
    const std::string_view rest = text_.substr(at_, end_ - at_);
    const size_t open = rest.find('"');
    const size_t close = rest.rfind('"');
    if (open == close && open != std::string_view::npos)
      return error(at_ + open, "a closing quote on this line");
    if (open != std::string_view::npos) {
      comment->description = rest.substr(open + 1, close - open - 1);
      if (comment->description.size() > kMaxNameBytes)
        return error(at_ + open, fmt::format("a description of at most {} bytes", kMaxNameBytes));
      const size_t after = at_ + close + 1;
      SENNIT_RETURN_IF_ERROR(read_lid(at_ + open, &comment->own_lid));
      at_ = after;
    }
    SENNIT_RETURN_IF_ERROR(read_lid(end_, &comment->peer_lid));
    return read_rate(comment);
  }

  // Up to the word after "lid", or to `stop`.
  Status read_lid(size_t stop, int* lid) {
    const size_t begin = at_;
    while (at_ < stop) {
      skip_space();
      const size_t word = at_;
      while (at_ < stop && !is_space(peek())) at_++;
      if (text_.substr(word, at_ - word) != "lid") continue;
      skip_space();
      return read_number(0, 65535, lid);
    }
    at_ = begin;
    return {};
  }

  // WIDTHxSPEED among the words that are left; "?" stands for what ibnetdiscover did not know.
  Status read_rate(Comment* comment) {
    while (at_ < end_) {
      skip_space();
      const size_t begin = at_;
      while (at_ < end_ && !is_space(peek())) at_++;
      const std::string_view word = text_.substr(begin, at_ - begin);
      const size_t x = word.find('x');
      if (word.substr(0, 2) == "??") return {};
      if (word.empty() || !is_digit(word[0]) || x == std::string_view::npos) continue;
      constexpr std::array<std::pair<std::string_view, int>, 5> kWidths = {
          {{"1", 1}, {"2", 2}, {"4", 4}, {"8", 8}, {"12", 12}}};
      for (const auto& [digits, width] : kWidths)
        if (word.substr(0, x) == digits) comment->width = width;
      comment->speed = ib_speed_named(word.substr(x + 1));
      if (comment->width == 0 ||
          (comment->speed == IbSpeed::unknown && word.substr(x + 1) != "???"))
        return error(
            begin,
            "a width of 1x, 2x, 4x, 8x or 12x and one of SDR, DDR, QDR, FDR10, FDR, EDR, HDR, "
            "NDR and XDR, e.g. 4xHDR");
      return {};
    }
    return {};
  }

  size_t line_of(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  }

  // Both ends of a cable must name each other, as far as both nodes are described.
  Status check_cables() {
    std::vector<std::array<uint8_t, kMaxPort + 1>> place;  // by node: port -> its index + 1
    for (size_t n = 0; n < subnet_.nodes.size(); n++) {
      place.emplace_back();
      place.back().fill(0);
      for (size_t p = 0; p < subnet_.nodes[n].ports.size(); p++)
        place.back()[index(subnet_.nodes[n].ports[p].number)] = static_cast<uint8_t>(p + 1);
    }
    for (size_t n = 0; n < subnet_.nodes.size(); n++) {
      for (size_t p = 0; p < subnet_.nodes[n].ports.size(); p++) {
        const IbPort& port = subnet_.nodes[n].ports[p];
        const IbNode& peer = subnet_.nodes[index(port.peer)];
        if (described_at_[index(port.peer)] == 0) continue;
        const int back = place[index(port.peer)][index(port.peer_port)];
        if (back == 0) {
          if (subnet_.conflicts.size() < kMaxConflicts)
            subnet_.conflicts.push_back(fmt::format(
                "\"{}\" port {} has a cable to \"{}\" port {}, which does not list it",
                subnet_.nodes[n].description, port.number, peer.description, port.peer_port));
          continue;
        }
        const IbPort& other = peer.ports[index(back - 1)];
        if (other.peer != static_cast<int>(n) || other.peer_port != port.number)
          return error(port_at_[n][p],
                       fmt::format("a cable whose other end, on line {}, leads back here",
                                   line_of(port_at_[index(port.peer)][index(back - 1)])));
      }
    }
    for (IbNode& node : subnet_.nodes)
      std::sort(node.ports.begin(), node.ports.end(),
                [](const IbPort& a, const IbPort& b) { return a.number < b.number; });
    return {};
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  size_t end_ = 0;  // of the line
  IbSubnet subnet_;
  std::unordered_map<uint64_t, int> nodes_;   // by GUID
  std::vector<size_t> described_at_;          // by node: where; 0: not yet
  std::vector<std::vector<size_t>> port_at_;  // by node and port: where
  uint64_t system_guid_ = 0;                  // of the node that comes next
  int current_ = -1;                          // the node whose ports follow
  int ports_ = 0;                             // how many it may have
  std::bitset<kMaxPort + 1> taken_;           // its ports so far
  size_t cables_ = 0;
  RouteTables routes_;
};

}  // namespace

bool is_ibnetdiscover(std::string_view text) {
  size_t at = 0;
  for (; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    while (at < text.size() && is_space(text[at])) at++;
    if (at < text.size() && text[at] != '#' && text[at] != '\n') break;
  }
  const std::string_view rest = text.substr(std::min(at, text.size()));
  for (const std::string_view word : {"Switch", "Ca", "Rt", "Chassis"})
    if (rest.substr(0, word.size()) == word && rest.size() > word.size() &&
        is_space(rest[word.size()]))
      return true;
  return std::any_of(kKeys.begin(), kKeys.end(), [&](std::string_view key) {
    return rest.substr(0, key.size()) == key && rest.substr(key.size(), 1) == "=";
  });
}

Result<IbSubnet> parse_ibnetdiscover(std::string_view text, const std::string& file) {
  return DumpReader(text, file).read();
}

}  // namespace sennit
