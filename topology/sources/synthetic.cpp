// synthetic.cpp: made-up trees: any depth, unequal groups; the syntax is in topology/FORMATS.md. A
// specification is read to a list of switches, parents first, and from that to a Fabric or straight
// to a TierTree. Cost: linear in the ranks, at most 524,288 of them.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

// kSyntheticPresets names them.
struct Preset {
  std::string_view name, spec;
};
constexpr Preset kPresets[] = {
    {"meta24k",
     "pods=8x192x2;ranks=8;nic=400GB/s;oversubscription=1,7;local=500GB/s;latency=14us;"
     "local_latency=3.4us"},
    {"fourtier98k",
     "shape=4x8x192x2;ranks=8;nic=400GB/s;oversubscription=1,7,2;local=500GB/s;latency=14us;"
     "local_latency=3.4us"}};
constexpr int kMaxDepth = 16;

struct Switch {
  int parent = -1;
  int height = 1;  // 1: holds hosts
  int hosts = 0;
  std::vector<int> children;
  Capacity uplink;
  std::string name, tier;
};

struct Shape {
  std::vector<Switch> switches;  // depth first; 0 is the root
  int hosts = 0;
  int ranks = 1;   // on every host
  int cables = 1;  // of every switch's uplink
  Capacity nic, local;
  uint64_t latency_ns = 0, local_latency_ns = 0;
  Wire wire = Wire::unknown;
  std::vector<uint64_t> uplinks;            // bytes/s by height, the last for all above
  std::vector<uint64_t> oversubscriptions;  // millionths, likewise
  bool devices() const { return ranks > 1 || local.known() || local_latency_ns != 0; }
};

class SpecReader {
 public:
  explicit SpecReader(std::string_view spec) : spec_(spec) {}

  Result<Shape> read() {
    bool have_shape = false;
    while (at_ < spec_.size()) {
      const size_t begin = at_;
      const size_t equals = spec_.find('=', at_);
      const size_t end = std::min(spec_.find(';', at_), spec_.size());
      if (equals > end) return error(begin, end, "KEY=VALUE");
      const std::string_view key = spec_.substr(begin, equals - begin);
      at_ = equals + 1;
      end_ = end;
      if (key == "hosts" || key == "racks" || key == "pods" || key == "shape") {
        if (have_shape) return error(begin, equals, "one shape only");
        have_shape = true;
        shape_.switches.emplace_back();
        SENNIT_RETURN_IF_ERROR(read_list(0, 0));
        if (at_ != end) return error(at_, end, "\",\", \"x\" or the end of the shape");
      } else {
        SENNIT_RETURN_IF_ERROR(read_figure(key, begin));
      }
      at_ = end + 1;
    }
    if (!have_shape) return error(spec_.size(), spec_.size(), "a shape, e.g. racks=2x4");
    if (shape_.hosts > static_cast<int>(kMaxVertices) / shape_.ranks)
      return error(0, spec_.size(), fmt::format("at most {} ranks", kMaxVertices));
    if (!shape_.uplinks.empty() && !shape_.oversubscriptions.empty())
      return error(0, spec_.size(), "either uplink or oversubscription");
    finish();
    return std::move(shape_);
  }

 private:
  Status error(size_t begin, size_t end, std::string_view expected) const {
    return error_at("synthetic", {spec_.substr(begin, end - begin), 1, begin + 1, false}, expected);
  }
  bool skip(char c) {
    if (at_ >= end_ || spec_[at_] != c) return false;
    at_++;
    return true;
  }

  Status read_number(int* value, int most) {
    const char* const begin = spec_.data() + at_;
    const auto [stop, failed] = std::from_chars(begin, spec_.data() + end_, *value);
    if (failed != std::errc() || *value < 1 || *value > most)
      return error(at_, end_, fmt::format("a number from 1 to {}", most));
    at_ += static_cast<size_t>(stop - begin);
    return {};
  }

  // All of a value.
  Status read_value(int* value, int most) {
    const size_t begin = at_;
    SENNIT_RETURN_IF_ERROR(read_number(value, most));
    return at_ == end_ ? Status() : error(begin, end_, fmt::format("a number from 1 to {}", most));
  }

  // Items of a switch. A single number says how many hosts it has; else every item is a switch
  // below it.
  Status read_list(int parent, int depth) {
    const size_t begin = at_;
    int number = 0;
    if (at_ < end_ && spec_[at_] != '(') {
      SENNIT_RETURN_IF_ERROR(read_number(&number, static_cast<int>(kMaxVertices)));
      if (at_ == end_ || spec_[at_] == ')') return add_hosts(parent, number, begin);
      at_ = begin;
    }
    do {
      SENNIT_RETURN_IF_ERROR(read_item(parent, depth));
    } while (skip(','));
    return {};
  }

  // NUMBER | NUMBER "x" item | "(" list ")": one or several switches below `parent`.
  Status read_item(int parent, int depth) {
    if (depth > kMaxDepth) return error(at_, end_, fmt::format("at most {} levels", kMaxDepth));
    const size_t begin = at_;
    if (skip('(')) {
      Result<int> below = add_switch(parent, begin);
      if (!below) return below.status();
      SENNIT_RETURN_IF_ERROR(read_list(*below, depth + 1));
      return skip(')') ? Status() : error(at_, end_, "\",\" or \")\"");
    }
    int number = 0;
    SENNIT_RETURN_IF_ERROR(read_number(&number, static_cast<int>(kMaxVertices)));
    if (!skip('x')) {
      Result<int> below = add_switch(parent, begin);
      return below ? add_hosts(*below, number, begin) : below.status();
    }
    // Copies of what follows, read again for each; `parent` of a further "x" is one switch per
    // copy.
    const size_t item = at_;
    for (int copy = 0; copy < number; copy++) {
      at_ = item;
      SENNIT_RETURN_IF_ERROR(read_copy(parent, depth + 1));
    }
    return {};
  }

  // What follows an "x": exactly one switch.
  Status read_copy(int parent, int depth) {
    const size_t begin = at_;
    int number = 0;
    if (at_ < end_ && spec_[at_] != '(') {
      SENNIT_RETURN_IF_ERROR(read_number(&number, static_cast<int>(kMaxVertices)));
      const bool more = at_ < end_ && spec_[at_] == 'x';
      at_ = begin;
      if (more) {
        Result<int> below = add_switch(parent, begin);
        return below ? read_item(*below, depth) : below.status();
      }
    }
    return read_item(parent, depth);
  }

  Result<int> add_switch(int parent, size_t begin) {
    if (shape_.switches.size() >= kMaxVertices)
      return error(begin, end_, fmt::format("at most {} switches", kMaxVertices));
    Switch below;
    below.parent = parent;
    const int at = static_cast<int>(shape_.switches.size());
    shape_.switches[index(parent)].children.push_back(at);
    shape_.switches.push_back(std::move(below));
    return at;
  }

  Status add_hosts(int at, int number, size_t begin) {
    if (number > static_cast<int>(kMaxVertices) - shape_.hosts)
      return error(begin, end_, fmt::format("at most {} hosts", kMaxVertices));
    shape_.switches[index(at)].hosts = number;
    shape_.hosts += number;
    return {};
  }

  Status read_figure(std::string_view key, size_t begin) {
    if (!figures_.insert(key).second) return error(begin, begin + key.size(), "every key once");
    const std::string_view value = spec_.substr(at_, end_ - at_);
    if (key == "ranks") return read_value(&shape_.ranks, 4096);
    if (key == "cables") return read_value(&shape_.cables, 1024);
    if (key == "nic" || key == "local") {
      const std::optional<uint64_t> rate = parse_rate(value);
      if (!rate) return error(at_, end_, "a rate, e.g. 400Mbit/s, 50GB/s or unknown");
      (key == "nic" ? shape_.nic : shape_.local) = {
          *rate, *rate == 0 ? Provenance::unknown : Provenance::declared};
      return {};
    }
    if (key == "latency" || key == "local_latency") {
      const std::optional<uint64_t> time = parse_latency(value);
      if (!time) return error(at_, end_, kLatencies);
      (key == "latency" ? shape_.latency_ns : shape_.local_latency_ns) = *time;
      return {};
    }
    if (key == "wire") {
      shape_.wire = wire_called(value);
      if (shape_.wire == Wire::unknown) return error(at_, end_, kWires);
      return {};
    }
    if (key != "uplink" && key != "oversubscription")
      return error(begin, begin + key.size(),
                   "hosts, racks, pods, shape, ranks, nic, uplink, cables, oversubscription, "
                   "local, latency, local_latency or wire");
    for (size_t from = at_; from <= end_;) {
      const size_t comma = std::min(spec_.find(',', from), end_);
      const std::string_view item = spec_.substr(from, comma - from);
      if (key == "uplink") {
        const std::optional<uint64_t> rate = parse_rate(item);
        if (!rate) return error(from, comma, "a rate, e.g. 229Mbit/s");
        shape_.uplinks.push_back(*rate);
      } else {
        // in millionths
        const std::optional<uint64_t> ratio = parse_rate(fmt::format("{}MB/s", item));
        if (!ratio) return error(from, comma, "a ratio, e.g. 7 or 2.5");
        shape_.oversubscriptions.push_back(*ratio);
      }
      from = comma + 1;
    }
    return {};
  }

  // Heights from the hosts, names in order, uplinks from the hosts outwards.
  void finish() {
    std::vector<Switch>& switches = shape_.switches;
    for (size_t i = switches.size(); i-- > 1;) {
      Switch& parent = switches[index(switches[i].parent)];
      parent.height = std::max(parent.height, switches[i].height + 1);
    }
    std::array<int, 2 * kMaxDepth + 4> next{};
    switches[0].name = "root";
    for (size_t i = 1; i < switches.size(); i++) {
      const int height = switches[i].height;
      switches[i].tier = height == 1 ? "rack" : height == 2 ? "pod" : fmt::format("tier{}", height);
      switches[i].name =
          fmt::format("{}{}{}", switches[i].tier, height > 2 ? "." : "", next[index(height)]++);
    }
    for (size_t i = switches.size(); i-- > 1;) switches[i].uplink = uplink_of(switches[i]);
  }

  Capacity uplink_of(const Switch& s) const {
    const size_t level = index(s.height) - 1;
    uint64_t rate = 0;
    if (!shape_.uplinks.empty()) {
      rate = shape_.uplinks[std::min(level, shape_.uplinks.size() - 1)];
    } else if (!shape_.oversubscriptions.empty()) {
      unsigned __int128 sum =
          static_cast<unsigned __int128>(shape_.nic.bytes_per_s) * index(s.hosts);
      for (const int child : s.children) sum += shape_.switches[index(child)].uplink.bytes_per_s;
      sum = sum * 1'000'000 /
            shape_.oversubscriptions[std::min(level, shape_.oversubscriptions.size() - 1)];
      // However narrow, it is known where the rates below are.
      if (shape_.nic.known())
        rate = static_cast<uint64_t>(std::clamp<unsigned __int128>(sum, 1, UINT64_MAX));
    }
    return {rate, rate == 0 ? Provenance::unknown : Provenance::declared};
  }

  std::string_view spec_;
  size_t at_ = 0;
  size_t end_ = 0;
  std::set<std::string_view> figures_;  // that were read
  Shape shape_;
};

Result<Shape> read_spec(std::string_view spec) {
  for (const Preset& preset : kPresets)
    if (spec == preset.name) return SpecReader(preset.spec).read();
  return SpecReader(spec).read();
}

void add_link(Fabric* fabric, size_t below, size_t above, const Capacity& capacity,
              uint64_t latency_ns, Wire wire, int cables = 1) {
  Link link;
  link.cables = cables;
  link.from = static_cast<int>(below);
  link.to = static_cast<int>(above);
  link.capacity = capacity;
  link.latency_ns = latency_ns;
  link.wire = wire;
  fabric->links.push_back(link);
  std::swap(link.from, link.to);
  fabric->links.push_back(link);
}

// Half a message's way to its host, and from there to the switch, which takes something where a
// latency between hosts is declared.
uint64_t device_way(const Shape& shape) { return shape.devices() ? shape.local_latency_ns / 2 : 0; }
uint64_t host_way(const Shape& shape) {
  if (shape.latency_ns == 0) return 0;
  return std::max(shape.latency_ns / 2, device_way(shape) + 1) - device_way(shape);
}

// Nodes of one switch's hosts, with their ranks from `rank` on.
void add_hosts(const Shape& shape, const Switch& s, int* host, int* rank, std::vector<Node>* nodes,
               std::vector<int>* children) {
  for (int h = 0; h < s.hosts; h++) {
    std::vector<int> leaves;
    for (int r = 0; r < shape.ranks; r++) {
      Node leaf;
      leaf.rank = leaf.least_rank = (*rank)++;
      leaf.egress = leaf.ingress = shape.local;
      leaves.push_back(static_cast<int>(nodes->size()));
      nodes->push_back(std::move(leaf));
    }
    const int node = leaves.size() == 1 ? leaves[0] : add_group(nodes, Node::kHost, leaves);
    Node& group = (*nodes)[index(node)];
    group.egress = group.egress.known() ? narrower(group.egress, shape.nic) : shape.nic;
    group.ingress = group.egress;
    if (shape.ranks > 1) group.latency_ns = 2 * device_way(shape);
    group.wire = shape.wire;
    group.name = fmt::format("h{}", (*host)++);
    children->push_back(node);
  }
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  constexpr std::string_view kPrefix = "synthetic:";
  if (context.fabric_file.rfind(kPrefix, 0) != 0) return std::optional<Fabric>();
  Result<Fabric> fabric =
      synthetic_fabric(std::string_view(context.fabric_file).substr(kPrefix.size()));
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

}  // namespace

Result<Fabric> synthetic_fabric(std::string_view spec) {
  const Result<Shape> shape = read_spec(spec);
  if (!shape) return shape.status();
  Fabric fabric;
  fabric.name = spec;
  for (const Switch& s : shape->switches)
    fabric.vertices.push_back({VertexKind::switch_, s.name, s.tier, -1});
  for (size_t i = 1; i < shape->switches.size(); i++)
    add_link(&fabric, i, index(shape->switches[i].parent), shape->switches[i].uplink, 0,
             shape->wire, shape->cables);
  int host = 0;
  for (size_t at = 0; at < shape->switches.size(); at++) {  // the reader made them depth first
    const Switch& s = shape->switches[at];
    for (int h = 0; h < s.hosts; h++) {
      const size_t vertex = fabric.vertices.size();
      const std::string name = fmt::format("h{}", host++);
      fabric.vertices.push_back({VertexKind::host, name, "", -1});
      add_link(&fabric, vertex, at, shape->nic, host_way(*shape), shape->wire);
      for (int r = 0; shape->devices() && r < shape->ranks; r++) {
        fabric.vertices.push_back(
            {VertexKind::gpu, fmt::format("{}/gpu{}", name, r), "", static_cast<int>(vertex)});
        add_link(&fabric, fabric.vertices.size() - 1, vertex, shape->local, device_way(*shape),
                 Wire::unknown);
      }
    }
  }
  return fabric;
}

Result<TierTree> synthetic_tree(std::string_view spec) {
  const Result<Shape> shape = read_spec(spec);
  if (!shape) return shape.status();
  std::vector<Node> nodes;
  nodes.reserve(index(shape->hosts) * index(shape->ranks + 1) + shape->switches.size());
  std::vector<std::vector<int>> held(shape->switches.size());
  int host = 0;
  int rank = 0;
  for (size_t i = 0; i < held.size(); i++)
    add_hosts(*shape, shape->switches[i], &host, &rank, &nodes, &held[i]);
  for (size_t i = held.size(); i-- > 0;) {
    const Switch& s = shape->switches[i];
    std::reverse(held[i].begin(), held[i].end());
    int node = held[i][0];
    if (held[i].size() == 1) {
      if (i != 0) nodes[index(node)].egress = narrower(nodes[index(node)].egress, s.uplink);
      if (i != 0) nodes[index(node)].cables = std::max(nodes[index(node)].cables, shape->cables);
    } else {
      node = add_group(&nodes, Node::kHost + 2 * s.height, held[i]);
      nodes[index(node)].egress = s.uplink;
      nodes[index(node)].cables = i != 0 ? shape->cables : 1;
      if (shape->latency_ns > 0)
        nodes[index(node)].latency_ns = 2 * device_way(*shape) + 2 * host_way(*shape);
      nodes[index(node)].switches = static_cast<uint8_t>(std::min(2 * s.height - 1, 255));
      nodes[index(node)].name = s.name;
      nodes[index(node)].tier = s.tier;
    }
    nodes[index(node)].ingress = nodes[index(node)].egress;
    if (i != 0) held[index(s.parent)].push_back(node);
  }
  const int root =
      static_cast<int>(held[0].size()) == 1 ? held[0][0] : static_cast<int>(nodes.size()) - 1;
  nodes[index(root)].egress = nodes[index(root)].ingress = Capacity();
  nodes[index(root)].cables = 1;
  return assemble(nodes, root, {});
}

SENNIT_SOURCE_ENTRY(synthetic, 0, false, read, true,
                    [](const SourceContext& context) { return context.fabric_file; })

}  // namespace sennit
