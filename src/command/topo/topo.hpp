// topo.hpp: what the parts of `sennit topo` share: what was read, its model, folds and suspects.
// Every output is made of the model; folding shows equal siblings once, for the eye.
//
//   sources ──▶ Reading (Fabric) ──▶ Model (tree of Items, suspects) ──▶ text, json, picture, order
//
// Everything but reading is pure. Names, never indexes, reach the screen. Cost: O(vertices + links)
// but for the order, which is O(ranks * depth).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"

namespace sennit::topo {

// ---- reading (command/topo/read.cpp) ----

// What one source had to say.
struct SourceReport {
  std::string name;
  int priority = 0;
  bool said = false;  // it had something to say
  std::string error;  // malformed and the like; the other sources went on
  // why it cannot be read here, and what to do; nothing is wrong with the network
  std::string note = {};
  std::string where = {};  // Source::where; empty: nothing beyond the name
};
struct Reading {
  Fabric fabric;
  std::vector<SourceReport> sources;
  std::string file;  // the fabric file or synthetic specification that was asked for; may be empty
  std::string host;  // this host; empty where a file alone was asked for
  bool outside = false;  // it is not part of the network, and left out
};
// A fabric file of any kind that the file source takes, "synthetic:SPEC", or SPEC where no such
// file exists.
Result<Reading> read_one(const std::string& file);
// All sources, as a job on this host would ask them.
Result<Reading> read_here();
// What the job that this process is a rank of finds when it probes; nothing on ranks other than 0.
// (command/topo/probe.cpp)
Result<std::optional<Reading>> read_job();
// Text to a file, or to standard output for "-".
Status write_text(const std::string& file, const std::string& text);

// ---- the model (command/topo/model.cpp, command/topo/origin.cpp) ----

// What an Item stands for.
enum class ItemKind : uint8_t { group, host, numa, nic, gpu };

struct Item {  // a group of hosts, a host, or what is inside of one
  ItemKind kind = ItemKind::group;
  // tier: "rack", ...; of the kinds below group: "host", "numa", "nic", "gpu"
  std::string name, tier;
  int group = -1;   // in Model::tree; -1 inside of hosts
  int vertex = -1;  // in the fabric; -1: a group
  Capacity egress, ingress;
  std::string origin;  // who said so: "file", "file + hwloc"; empty: nobody
  int cables = 0;      // of the egress; 0: unknown
  int planes = 1;
  uint64_t latency_ns = 0;
  double oversubscription = 0;  // 0: unknown
  int hosts = 0;                // in it
  std::vector<int> suspects;    // in Model::suspects
  std::vector<Item> children;
};

// Something that may be wrong with the network.
struct Suspect {
  // "slow port", "slow link", "missing uplink", "wrong rail", "conflict", "one way", "not
  // connected"
  std::string kind;
  std::string where;  // names
  std::string what;   // what is seen and what was expected, without the name in `where`
  int vertex = -1;    // in the fabric; -1: none
};

// What all outputs are made of.
struct Model {
  Fabric fabric;
  TierTree tree;
  Item root;
  std::vector<Suspect> suspects;
  std::vector<std::string> notes;   // that most cables of a kind are below what they could do
  bool above_known = false;         // whether anything is known beyond the hosts
  std::vector<std::string> way_up;  // of a single host: the switches above it, nearest first
  int links_compared = 0, links_unknown = 0;
};
Result<Model> make_model(Fabric fabric);

// Who stands behind a group's egress: the links that leave it.
struct Origin {
  std::string sources;
  int cables = 0;
};
struct Origins {
  std::vector<Origin> of_group;
  std::vector<int> group_of_vertex;  // where hosts and switches belong; -1: nowhere
};
Result<Origins> find_origins(const Fabric& fabric, const TierTree& tree,
                             const std::vector<Placement>& ranks);

// ---- suspects (command/topo/check.cpp, command/topo/ports.cpp, command/topo/rails.cpp) ----

// Fills in `suspects` and the counts of links.
Status find_suspects(Model* model, const std::vector<int>& group_of_vertex);
struct UpLink {  // of a host or switch towards the spine
  int lower = -1, upper = -1;
  int device = -1;  // the NIC, or `lower`
  int plane = 0;
};
// Whether a source saw each of a link's cables.
bool seen_by_port(const Link& link);
struct PortReport {
  std::vector<Suspect> suspects;
  std::vector<std::string> notes;
};
// Of links of one kind, each towards the spine.
PortReport slow_ports(const Fabric& fabric, const std::vector<const Link*>& alike);
// Where forwarding tables were read: cables of links of one kind that are the way to nothing, or to
// more than twice the average.
std::vector<Suspect> uneven_routes(const Fabric& fabric, const std::vector<const Link*>& alike);
// Hosts with several NICs whose leaves are not those that the same NICs of other hosts are on.
std::vector<Suspect> wrong_rails(const Fabric& fabric, const std::vector<UpLink>& links,
                                 const std::vector<int>& class_of_vertex);
std::string check_text(const Reading& reading, const Model& model);

// ---- folding (command/topo/fold.cpp) ----

struct Fold {  // equal siblings, or one, or the rest that found no place
  const Item* first = nullptr;
  int count = 1;
  std::vector<std::string> names;
  std::vector<Fold> children;  // of the first
  // of all of them; measured: rounded
  uint64_t about_egress_bytes_per_s = 0, about_ingress_bytes_per_s = 0;
  bool rest = false;  // several unlike ones, from least to most
  Capacity least, most;
};
struct FoldOptions {
  int most_classes = 16;  // beneath one item; the rest is one fold
  // siblings stay apart from the top down while there are at most so many leaves
  int unfolded_columns = 0;
  bool insides = true;  // show what is inside of hosts
};
Fold fold(const Model& model, const FoldOptions& options);
// "rack[0-3,7]"; what has no number stays as it is.
std::string fold_names(const std::vector<std::string>& names);

// ---- words (command/topo/wording.cpp) ----

std::string readable_rate(uint64_t bytes_per_s, bool bits = true);  // rounded, for people
std::string readable_ratio(double ratio);                           // "7:1"
std::string plural(int count, const std::string& tier);  // "1 rack", "2 racks", "3 leaves"
// "229 Mbit/s out, 400 Mbit/s in". Of several that were measured: "about 229 Mbit/s".
std::string rate_words(const Item& item);
std::string rate_words(const Fold& fold);
std::string members_words(const Item& item);     // "2 racks + 1 host"
std::string origin_words(const Item& item);      // "declared, file"
std::string tier_of_children(const Item& item);  // the commonest; empty: none
std::string heading(const Reading& reading, const Model& model);
// What was read: "file demo.fabric, hwloc".
std::string from_words(const Reading& reading);
std::string way_up_words(const Model& model);  // empty where hosts are drawn below their switches
std::vector<std::string> ways_to_learn();

// ---- outputs ----

// command/topo/text.cpp
std::string text_of(const Reading& reading, const Model& model, bool color);
std::string json_of(const Reading& reading, const Model& model);  // command/topo/json.cpp
// Of the picture, for a light ground; the page adds a dark one.
inline constexpr const char* kPictureStyle = R"(
.ground { fill:#ffffff; } .title { font-size:18px; font-weight:600; fill:#17202b; }
.box { fill:#eef2f8; stroke:#8a97a8; } .box.leaf { fill:#f8fafc; stroke:#b9c2cd; }
.box.bad { fill:#fdecec; stroke:#cf2f2f; stroke-width:1.6; }
.head { font-size:13px; font-weight:600; fill:#17202b; } .soft { font-size:11px; fill:#5d6875; }
.origin { font-size:10px; fill:#7b8795; }
.rate { font-size:11px; font-weight:600; fill:#17202b; } .fault { font-size:11px; fill:#b3201f; }
.ratio { font-size:13px; font-weight:600; fill:#3f7d3a; } .ratio.over { fill:#b85c00; }
.link { fill:none; stroke:#7f95b2; } .link.assumed { stroke-dasharray:7 4; }
.link.unknown { stroke-dasharray:2 4; stroke-width:2; } .link.bad { stroke:#cf2f2f; }
)";
// command/topo/draw.cpp
std::string svg_of(const Reading& reading, const Model& model, bool embedded);
std::string page_of(const Reading& reading, const Model& model);  // command/topo/page.cpp

// ---- comparing (command/topo/diff.cpp) ----

// What changed from one fabric to another: a line for each, and how many.
struct Difference {
  std::string text;
  int changes = 0;
};
Difference diff(const Fabric& a, const Fabric& b);

// ---- the order of ranks (command/topo/order.cpp, command/topo/hosts.cpp) ----

// Which host each rank is on, and who says so.
struct HostOrder {
  std::vector<std::string> hosts;  // by rank
  std::string from;  // "Slurm's job 17", "file hosts.txt", "the fabric's hosts, as written"
};
Result<HostOrder> read_order(const std::string& file, const Fabric& fabric);
struct OrderReport {
  std::string text;
  std::vector<std::string> best;  // host by rank
  std::vector<std::string> strangers;
};
Result<OrderReport> compare_orders(const Fabric& fabric, const HostOrder& order);
std::string hostfile_text(const std::vector<std::string>& hosts);
std::string nodelist_text(const std::vector<std::string>& hosts);
std::string rankfile_text(const std::vector<std::string>& hosts);

}  // namespace sennit::topo
