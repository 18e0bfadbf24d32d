// whole.cpp: see collectives/tiered/whole.hpp.
#include "collectives/tiered/whole.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {
namespace {

struct Bases {  // of one stage node: a run of all bases
  int64_t first = 0, count = 0;
};

}  // namespace

std::vector<int32_t> whole_bases(const StageTree& tree, int stages) {
  std::vector<int32_t> bases;
  for (size_t i = 0; i < tree.nodes().size(); i++) {
    const StageNode& node = tree.nodes()[i];
    if (node.depth == stages || (node.depth < stages && node.children == 0))
      bases.push_back(static_cast<int32_t>(i));
  }
  std::sort(bases.begin(), bases.end(),
            [&](int32_t a, int32_t b) { return tree.node(a).first < tree.node(b).first; });
  return bases;
}

std::vector<StageMoves> whole_moves(const Forest& forest, const std::vector<int32_t>& bases,
                                    int stages, int position) {
  const StageTree& tree = forest.tree();
  const auto bases_of = [&](const StageNode& node) {
    const auto at = [&](int32_t p) {
      return std::lower_bound(
                 bases.begin(), bases.end(), p,
                 [&](int32_t base, int32_t place) { return tree.node(base).first < place; }) -
             bases.begin();
    };
    return Bases{at(node.first), at(node.first + node.size) - at(node.first)};
  };
  const std::vector<Forest::Step> path = forest.path(position);
  size_t own = 0;  // index of the base in the path
  while (tree.node(path[own].stage_node).depth > stages) own++;
  const StageNode& base = tree.node(path[own].stage_node);
  const Partition& partition = forest.partition(path[own].node);
  const auto pieces = partition.pieces_of(static_cast<uint32_t>(position - base.first));
  const int64_t base_index = bases_of(base).first;

  std::vector<StageMoves> result;
  for (size_t s = own + 1; s < path.size(); s++) {
    const StageNode& group = tree.node(path[s].stage_node);
    const StageNode& inner = tree.node(path[s - 1].stage_node);
    StageMoves stage;
    stage.node = path[s].stage_node;
    stage.child = static_cast<uint32_t>(path[s - 1].stage_node - group.first_child);
    stage.fanout = static_cast<uint32_t>(group.children);
    const Bases mine = bases_of(inner);
    const int64_t at = base_index - mine.first;
    for (int32_t c = 0; c < group.children; c++) {
      if (static_cast<uint32_t>(c) == stage.child) continue;
      const Bases theirs = bases_of(tree.node(group.first_child + c));
      const auto add = [&](Moves& moves, int64_t number) {
        const int32_t peer = bases[index(theirs.first + number)];
        const StageNode& peer_base = tree.node(peer);
        const Partition& peers = forest.partition(forest.node_of(peer));
        for (const uint32_t piece : pieces)
          peers.visit(partition.begin(piece), partition.end(piece),
                      [&](uint64_t begin, uint64_t end, uint32_t rank) {
                        append(moves.with(peer_base.first + static_cast<int32_t>(rank),
                                          static_cast<uint32_t>(c)),
                               begin, end);
                      });
      };
      add(stage.in, at * theirs.count / mine.count);
      // Their base j takes from this one where j * mine / theirs, rounded down, is `at`.
      const int64_t end = divided_up((at + 1) * theirs.count, mine.count);
      for (int64_t j = divided_up(at * theirs.count, mine.count); j < end; j++) add(stage.out, j);
    }
    stage.in.arrange();
    stage.out.arrange();
    result.push_back(std::move(stage));
  }
  return result;
}

}  // namespace sennit::tiered
