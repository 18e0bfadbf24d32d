// graph.hpp: the network that Slurm's files describe in either syntax: switches and blocks with
// hostlists of what is below them. Private to topology/sources/slurm/parse.cpp and
// topology/sources/slurm/yaml.cpp. Cost: linear in the names that the hostlists stand for.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/text/scan.hpp"

namespace sennit {

// Links two vertices, by their indices, in both directions. Capacity and latency are unknown, which
// Slurm's files do not tell.
void add_slurm_link(Fabric* fabric, int a, int b);

// The fabric of a description of Slurm's, put together as it is read. `file` is for messages.
class SlurmGraph {
 public:
  explicit SlurmGraph(const std::string& file) : file_(file) {}

  // A switch, or a block where `tier` is "block"; gives its vertex. Errors are at `name`.
  Result<int> add_switch(const Token& name, const std::string& tier);
  // What is below a switch or block: a hostlist of switches or of nodes. To be read by finish(),
  // for switches may come later in the file.
  void add_below(int vertex, const Token& list, bool switches);
  // The sizes of blocks, of blocks of blocks, ...; each a larger multiple of the one before.
  Status add_block_size(const Token& size);
  bool has_block_sizes() const { return !sizes_.empty(); }

  Result<Fabric> finish();

 private:
  struct Below {
    int vertex = -1;
    Token list;
    bool switches = false;
  };

  Status error(const Token& token, std::string_view expected) const {
    return error_at(file_, token, expected);
  }
  Result<int> add_vertex(VertexKind kind, const std::string& name, const std::string& tier,
                         const Token& at);
  Status connect(const Below& entry);
  Status check_cycles() const;
  Status join_blocks();

  const std::string& file_;
  Fabric fabric_;
  std::unordered_map<std::string, int> index_;
  std::vector<Below> entries_;
  std::unordered_map<int, std::vector<int>> below_;  // switches of switches
  std::unordered_map<int, Token> lists_;
  std::vector<int> blocks_, lower_;
  std::vector<uint64_t> sizes_;
  Token sizes_at_;
};

}  // namespace sennit
