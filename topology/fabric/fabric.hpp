// fabric.hpp: the network as a graph of GPUs, NUMA nodes, NICs, hosts and switches, with directed
// links. A link has capacity, latency, parallel cables and provenance. Immutable once built, has a
// fingerprint, reads and writes one text form.
//
// The text form (also what the file source reads and `to_text` writes; '#' starts a comment; one
// statement a line):
//   fabric "name"
//   switch NAME [tier NAME]
//   host NAME
//   nic NAME host HOST [id ID] | gpu NAME host HOST [id ID] | numa NAME host HOST
//   link A B RATE [latency TIME] [burst SIZE] [cables N] [plane N] [over infiniband|roce|ethernet]
//       [measured|declared|assumed] [source NAME]
//   arc A B RATE ...                   # one direction; link is both, alike
//   conflict "TEXT"                    # what sources disagreed on
//   note "TEXT"                        # what a source could not tell here, and what to do
// Another option of a link is `ports 7-12:4xHDR@64-60,8-13:1xHDR/4xHDR`: each of its cables, from
// A's port 7 to B's port 12, at which width and speed, /at which it could be, @how many ports of
// hosts it is the way to and back. RATE, of all cables together: 400Mbit/s, 50GB/s (decimal), or
// "unknown". TIME: 5us. The order of lines is free. Unquoted names may be hostlists: `host h[0-3]`,
// `link h[0-3] rack0 400Mbit/s`; two lists of the same length go pairwise. A name is unique in the
// fabric, so NICs are called HOST/DEVICE.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What a vertex stands for.
enum class VertexKind : uint8_t { gpu, numa, nic, host, switch_ };

// A switch, a host, or something in a host.
struct Vertex {
  VertexKind kind = VertexKind::host;
  std::string name;
  std::string tier;  // switches: "rack", "pod", ...; may be empty
  int host = -1;     // gpu, numa, nic: index of their host
  // What tells a device from all others, where known: of an InfiniBand NIC its node GUID,
  // "0x0008f10403961354" (16 lower-case digits); of a GPU its PCI bus id. By a NIC's, sources that
  // name hosts differently meet.
  std::string id = {};
};

// One of a link's cables, in the link's direction.
struct Cable {
  int from_port = 0, to_port = 0;
  std::string rate;  // width and speed, "4xHDR"; empty: unknown
  std::string able;  // what both ends could do, where that is known and more
  // How many ports of hosts the forwarding tables lead to over it, in this direction and back; -1:
  // not read.
  int routes = -1, routes_back = -1;
  bool operator==(const Cable&) const = default;
};

// The same cable as the link's other direction has it.
Cable reversed(Cable cable);

// One direction between two vertices, over cables that run in parallel. The two directions may
// differ, and one of them may be unknown.
struct Link {
  int from = -1, to = -1;
  Capacity capacity;        // of all cables together
  uint64_t latency_ns = 0;  // 0: unknown
  int cables = 1;
  int plane = 0;
  std::string source;  // which source said so: "file", "slurm", "probe 2026-11-21 12:03 UTC", ...
  std::vector<Cable> ports = {};  // as many as cables, or none where nobody saw them one by one
  // Of a link inside of a host: what the NIC at its end speaks.
  Wire wire = Wire::unknown;
};

inline constexpr size_t kMaxConflicts = 100;  // that are kept, and notes

// A network as a graph, as far as somebody told of it.
struct Fabric {
  std::string name;
  std::vector<Vertex> vertices;
  std::vector<Link> links;
  std::vector<std::string> conflicts;  // what sources disagreed on, for the screen
  std::vector<std::string> notes;  // what could not be read here; nothing is wrong with the network

  int find(std::string_view name) const;  // vertex by name, or -1; O(vertices)
  uint64_t fingerprint() const;  // of vertices and figures in any order, not of who said so
  std::string to_text() const;
};

// Errors name file, line, column and what was expected. `file` is for messages only.
Result<Fabric> parse_fabric(std::string_view text, const std::string& file);

// Where a rank runs.
struct Placement {
  std::string host;  // host vertex's name
  int numa = -1;     // NUMA node within the host; -1: unknown
  std::string nic;   // the NIC's name that it takes, or the nearest one's; empty: unknown
  bool operator==(const Placement&) const = default;
};

// Ranks on all hosts, in the order of the text; per_host 0: as many as the host has GPUs, at least
// one.
std::vector<Placement> ranks_on_all_hosts(const Fabric& fabric, int per_host);

// Contracts the fabric to tiers over these ranks (index: user's rank). Hosts that the fabric does
// not know hang directly below the root, with unknown capacity. Ranks of one host that share its
// NIC become a host group.
Result<TierTree> contract(const Fabric& fabric, const std::vector<Placement>& ranks);

}  // namespace sennit
