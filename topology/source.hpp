// source.hpp: the contract of the topology family: where a fabric's shape is written down.
//
// A source fills in what it knows. Sources are asked by falling priority and merged: a figure of a
// higher priority stands, a disagreement is kept in Fabric::conflicts. Measured outranks declared
// outranks assumed, whatever the source.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "topology/fabric/fabric.hpp"

namespace sennit {

inline constexpr const char* kFabricFile = "/etc/sennit/fabric";

// What a source is told of where it is asked.
struct SourceContext {
  std::string host;  // this host's name as the job knows it
  // SENNIT_FABRIC: a file, or "synthetic:SPEC"; empty: kFabricFile if there
  std::string fabric_file;
};

// Where a fabric's shape may be written down, as a source's entry says it of itself.
struct Source {
  std::string_view name;
  int priority;  // by how much it knows for certain; topology/sources/README.md has the table
  // gives each host's inside: asked once per host, by one rank; else asked by rank 0 only
  bool per_host;
  // nullopt: nothing to say here, which is no error. An error is a malformed file and the like, or
  // SENNIT_UNSUPPORTED where this machine or user cannot read what there is; the text says what to
  // do.
  std::function<Result<std::optional<Fabric>>(const SourceContext&)> read;
  // It reads what SourceContext::fabric_file names, and nothing where that is not for it. Somebody
  // asked for it, so its error is the caller's. Else the error becomes one of Fabric::conflicts, or
  // one of Fabric::notes where it is a hint, and the other sources go on.
  bool reads_fabric_file = false;
  // For people, where it reads that: a file's name. Asked where it had something to say. Null: its
  // name tells all.
  std::string (*where)(const SourceContext&) = nullptr;
};
std::span<const Source> sources();  // all registered, by falling priority
struct SourceEntry {
  explicit SourceEntry(Source source);
};
// SENNIT_SOURCE_ENTRY(NAME, priority, per_host, read[, reads_fabric_file[, where]]) in namespace
// sennit registers the source "NAME"; NAME is an identifier.
#define SENNIT_SOURCE_ENTRY(NAME, ...)                               \
  namespace {                                                        \
  const SourceEntry kSourceEntry_##NAME(Source{#NAME, __VA_ARGS__}); \
  }

// A form in which a network is written down as text: a source that knows one registers it.
// SENNIT_FABRIC takes a file of any. The tests read every file of tests/data/topology/forms/NAME,
// and tests/fuzz feeds the form with damaged ones. Pure functions.
struct TextForm {
  std::string_view name;
  // at most one form does; none: the fabric's own text form
  bool (*recognises)(std::string_view text);
  // `file` is for messages; `host` is the name of the host that a text about one host is about.
  Result<Fabric> (*parse)(std::string_view text, const std::string& file, const std::string& host);
};
std::span<const TextForm> text_forms();  // by name
struct TextFormEntry {
  explicit TextFormEntry(TextForm form);
};
// SENNIT_TEXT_FORM_ENTRY(NAME, recognises, parse) in namespace sennit registers the form "NAME".
#define SENNIT_TEXT_FORM_ENTRY(NAME, ...)                                  \
  namespace {                                                              \
  const TextFormEntry kTextFormEntry_##NAME(TextForm{#NAME, __VA_ARGS__}); \
  }
Result<Fabric> parse_any_form(std::string_view text, const std::string& file,
                              const std::string& host);

// Merges fabrics, the one of higher priority first. A figure that is better founded (measured,
// declared, assumed, in this order) replaces one that is not; else the first stands. What they
// disagree on is kept in Fabric::conflicts. Where two sources hang a host on different switches, or
// a switch among different switches, the first is believed. "n1" and "n1.cluster" are one host; so
// are two that have a NIC of the same id. Cost: of add(), by `more` alone.
class Merger {
 public:
  explicit Merger(const Fabric& base = {});
  ~Merger();
  void add(const Fabric& more, std::string_view source);  // `source` is for links that name none
  Fabric take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
Fabric merge(const Fabric& base, const Fabric& more, std::string_view source);

// Asks all sources of one kind, by falling priority, and merges what they say. What each host gets
// with per_host = true is meant to be sent to rank 0 as text and added there to what that gets with
// false.
bool is_hint(const Status& status);  // nothing is wrong but that it cannot be read here
Result<Fabric> read_sources(const SourceContext& context, bool per_host);

// This host as descriptions of the network name it: Slurm's name of the node in a job of Slurm
// (NodeName and NodeHostname may differ), else the system's.
std::string this_host();

// Where this process runs: its host as the job knows it, the NUMA node that it is bound to, if to
// one, and the adapter that UCX_NET_DEVICES restricts it to, if to one.
Placement place_this_process(const std::string& host);

// Synthetic trees: "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5", "meta24k", ... (syntax in
// topology/FORMATS.md). Rank r of ranks_on_all_hosts() is rank r of the tree.
inline constexpr const char* kSyntheticPresets = "meta24k, fourtier98k";
Result<Fabric> synthetic_fabric(std::string_view spec);
// The same straight to a TierTree, without building a graph; ranks 0..n-1 in fabric order.
Result<TierTree> synthetic_tree(std::string_view spec);

}  // namespace sennit
