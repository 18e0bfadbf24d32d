// count.cpp: see collectives/tiered/count.hpp.
#include "collectives/tiered/count.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "schedule/layout.hpp"

namespace sennit::tiered {
namespace {

// Every tier has a group around every rank.
bool has_every_tier(const TierTree& tree) {
  return std::ranges::all_of(tree.groups, [&](const Group& group) {
    const int above = group.parent < 0 ? static_cast<int>(tree.tiers.size())
                                       : tree.groups[index(group.parent)].tier;
    return group.tier + 1 == above && (group.children > 0) == (group.tier > 0);
  });
}

// Distinct pairs of ranks.
class Pairs {
 public:
  void add(uint64_t from, uint64_t to) {
    if (pairs_.empty() || pairs_.back() != (from << 32 | to)) pairs_.push_back(from << 32 | to);
  }
  uint64_t take() {
    std::sort(pairs_.begin(), pairs_.end());
    const auto end = std::unique(pairs_.begin(), pairs_.end());
    const auto count = static_cast<uint64_t>(end - pairs_.begin());
    pairs_.clear();
    return count;
  }

 private:
  std::vector<uint64_t> pairs_;
};

class Counter {
 public:
  Counter(const TierTree& tree, const Request& request, const Forest& forest, int whole_stages,
          const std::vector<int32_t>& bases)
      : tree_(tree),
        request_(request),
        forest_(forest),
        stages_(forest.tree()),
        nodes_(forest.shares().nodes()),
        whole_stages_(whole_stages),
        bases_(bases),
        one_vector_(request.collective == Collective::all_reduce ||
                    request.collective == Collective::barrier) {
    describe();
  }

  Counts run() {
    Counts counts;
    counts.messages = inner_messages() + whole_messages();
    counts.rounds = !one_vector_     ? gather_rounds()
                    : bases_.empty() ? 2 * height(0)
                                     : whole_rounds();
    count_bytes(&counts);
    return counts;
  }

 private:
  // A stretch of data too short for one element is no message; a barrier's have none.
  bool carries(uint64_t begin, uint64_t end) const {
    if (request_.collective == Collective::barrier) return begin < end;
    return scaled(request_.count, end, kUnits) > scaled(request_.count, begin, kUnits);
  }
  bool carries(const RunList& runs, uint64_t from, uint64_t to) const {
    bool found = false;
    runs.visit_while(from, to, [&](uint64_t begin, uint64_t end, uint32_t) {
      const uint64_t block = begin / kUnits * kUnits;
      found = carries(begin - block, end - block);
      return !found;
    });
    return found;
  }

  // The node of every stage node, and how many stage nodes each describes, but for stages of whole
  // pieces.
  void describe() {
    node_of_.assign(stages_.nodes().size(), 0);
    node_of_[0] = forest_.shares().root();
    many_.assign(nodes_.size(), 0);
    for (size_t i = 0; i < node_of_.size(); i++) {
      const StageNode& at = stages_.nodes()[i];
      for (int32_t c = 0; c < at.children; c++)
        node_of_[index(at.first_child + c)] = nodes_[node_of_[i]].children[index(c)];
      many_[node_of_[i]] += at.depth >= whole_stages_;
    }
  }

  // By child of the node: its first rank within the node.
  std::vector<int32_t> firsts(uint32_t node) const {
    const StageNode& at = stages_.node(nodes_[node].example);
    std::vector<int32_t> result;
    for (int32_t c = 0; c < at.children; c++)
      result.push_back(stages_.node(at.first_child + c).first - at.first);
    return result;
  }
  static uint32_t child_of(const std::vector<int32_t>& firsts, uint32_t rank) {
    const auto after = std::upper_bound(firsts.begin(), firsts.end(), static_cast<int32_t>(rank));
    return static_cast<uint32_t>(after - firsts.begin()) - 1;
  }

  uint64_t inner_messages() const {
    uint64_t messages = 0;
    for (uint32_t node = 0; node < nodes_.size(); node++)
      if (many_[node] > 0 && !nodes_[node].children.empty())
        messages += many_[node] * (one_vector_ ? 2 * vector_pairs(node) : data_pairs(node));
    return messages;
  }

  // Who holds a piece for the node, and who holds it for another of its children: of pieces of
  // which moves(begin, end) says that something moves.
  template <typename Moves>
  void add_holders(uint32_t node, const std::vector<int32_t>& first, const Moves& moves,
                   Pairs* pairs) const {
    const Partition& of_group = forest_.partition(node);
    for (size_t piece = 0; piece < of_group.pieces(); piece++)
      for (uint32_t c = 0; c < first.size(); c++) {
        if (c == child_of(first, of_group.rank(piece))) continue;
        forest_.partition(nodes_[node].children[c])
            .visit(of_group.begin(piece), of_group.end(piece),
                   [&](uint64_t begin, uint64_t end, uint32_t rank) {
                     if (moves(begin, end))
                       pairs->add(of_group.rank(piece), static_cast<uint32_t>(first[c]) + rank);
                   });
      }
  }

  uint64_t vector_pairs(uint32_t node) const {
    Pairs pairs;
    const auto moves = [&](uint64_t begin, uint64_t end) { return carries(begin, end); };
    add_holders(node, firsts(node), moves, &pairs);
    return pairs.take();
  }

  // Data from outside of the node.
  std::vector<const RunList*> outside(uint32_t node) const {
    std::vector<const RunList*> result;
    for (int32_t at = nodes_[node].example; stages_.node(at).parent >= 0;
         at = stages_.node(at).parent) {
      const int32_t parent = stages_.node(at).parent;
      const auto branch = static_cast<uint32_t>(at - stages_.node(parent).first_child);
      for (const Forest::Flow& flow : forest_.flows(node_of_[index(parent)]))
        if (flow.from != branch && flow.runs->units() > 0) result.push_back(flow.runs);
    }
    std::ranges::sort(result, std::greater<>(), &RunList::units);
    return result;
  }

  uint64_t data_pairs(uint32_t node) const {
    const std::vector<int32_t> first = firsts(node);
    const auto holders = [&](uint32_t c) -> const Partition& {
      return forest_.partition(nodes_[node].children[c]);
    };
    const auto rank_of = [&](uint32_t c, uint32_t rank) {
      return static_cast<uint32_t>(first[c]) + rank;
    };
    Pairs relays, pairs;
    if (const std::vector<const RunList*> from_outside = outside(node); !from_outside.empty()) {
      const auto moves = [&](uint64_t begin, uint64_t end) {
        return std::ranges::any_of(from_outside, [&](const RunList* runs) {
          return carries(*runs, runs->cut(begin), runs->cut(end));
        });
      };
      add_holders(node, first, moves, &pairs);
    }
    for (const Forest::Flow& flow : forest_.flows(node)) {
      const bool direct = flow.from == flow.to;
      for (size_t i = 0; i < flow.runs->runs().size(); i++) {
        const uint64_t line = flow.runs->line_begin(i), end_of_run = flow.runs->line_begin(i + 1);
        for (uint32_t c = 0; c < first.size(); c++) {
          if (direct ? c == flow.from : c != flow.to) continue;
          flow.runs->visit_holders(
              holders(c), line, end_of_run, [&](uint64_t begin, uint64_t end, uint32_t rank) {
                if (carries(*flow.runs, begin, end))
                  (direct ? pairs : relays)
                      .add(rank_of(flow.from, flow.runs->runs()[i].carrier), rank_of(c, rank));
              });
        }
      }
      if (direct) continue;
      const Partition& relay = holders(flow.to);
      for (size_t piece = 0; piece < relay.pieces(); piece++)
        for (uint32_t c = 0; c < first.size(); c++)
          if (c != flow.from && c != flow.to)
            flow.runs->visit_holders(
                holders(c), flow.runs->cut(relay.begin(piece)), flow.runs->cut(relay.end(piece)),
                [&](uint64_t begin, uint64_t end, uint32_t rank) {
                  if (carries(*flow.runs, begin, end))
                    pairs.add(rank_of(flow.to, relay.rank(piece)), rank_of(c, rank));
                });
    }
    return relays.take() + pairs.take();
  }

  // f(group, base, base of a sibling from which it takes whole pieces), from the inner stages
  // outwards.
  template <typename F>
  void each_whole_message(F&& f) const {
    std::vector<int32_t> first(stages_.nodes().size(), 0), many(stages_.nodes().size(), 0);
    for (size_t b = 0; b < bases_.size(); b++)
      for (int32_t at = bases_[b]; at >= 0; at = stages_.node(at).parent)
        if (many[index(at)]++ == 0) first[index(at)] = static_cast<int32_t>(b);
    for (int depth = whole_stages_; depth-- > 0;)
      for (size_t g = 0; g < stages_.nodes().size(); g++) {
        const StageNode& group = stages_.nodes()[g];
        if (group.depth != depth) continue;
        for (int32_t c = group.first_child; c < group.first_child + group.children; c++)
          for (int32_t at = 0; at < many[index(c)]; at++)
            for (int32_t d = group.first_child; d < group.first_child + group.children; d++)
              if (d != c)
                f(group, first[index(c)] + at,
                  first[index(d)] +
                      static_cast<int32_t>(int64_t{at} * many[index(d)] / many[index(c)]));
      }
  }

  // Ranks of one base meet those of another where they hold a common stretch.
  uint64_t meetings(uint32_t node, uint32_t other) const {
    const Partition& of_one = forest_.partition(node);
    Pairs pairs;
    for (size_t piece = 0; piece < of_one.pieces(); piece++)
      forest_.partition(other).visit(of_one.begin(piece), of_one.end(piece),
                                     [&](uint64_t begin, uint64_t end, uint32_t rank) {
                                       if (carries(begin, end)) pairs.add(of_one.rank(piece), rank);
                                     });
    return pairs.take();
  }

  uint64_t whole_messages() const {
    uint64_t messages = 0;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> known;
    each_whole_message([&](const StageNode&, int32_t to, int32_t from) {
      const std::pair nodes(node_of_[index(bases_[index(to)])],
                            node_of_[index(bases_[index(from)])]);
      const auto [at, is_new] = known.try_emplace(nodes, 0);
      if (is_new) at->second = meetings(nodes.first, nodes.second);
      messages += at->second;
    });
    return messages;
  }

  uint64_t height(int32_t stage_node) const {
    const StageNode& at = stages_.node(stage_node);
    uint64_t most = 0;
    for (int32_t c = at.first_child; c < at.first_child + at.children; c++)
      most = std::max(most, height(c));
    return most + (at.children > 1);
  }

  uint64_t whole_rounds() const {
    std::vector<uint64_t> inner, done, next;
    for (const int32_t base : bases_) inner.push_back(height(base));
    next = done = inner;
    int depth = whole_stages_;
    each_whole_message([&](const StageNode& group, int32_t to, int32_t from) {
      if (group.depth != depth) done = next;
      depth = group.depth;
      next[index(to)] = std::max(next[index(to)], done[index(from)] + 1);
    });
    uint64_t rounds = 0;
    for (size_t b = 0; b < bases_.size(); b++) rounds = std::max(rounds, next[b] + inner[b]);
    return rounds;
  }

  // In the direction of all-gather; -1: there is no such data.
  uint64_t gather_rounds() const {
    std::vector<int> own(nodes_.size(), -1);  // messages until who carries a node's own data has it
    for (uint32_t node = 0; node < nodes_.size(); node++) {
      if (nodes_[node].children.empty())
        own[node] = stages_.shape(nodes_[node].shape).blocks > 0 ? 0 : -1;
      for (const Forest::Flow& flow : forest_.flows(node))
        if (flow.runs->units() > 0)
          own[node] =
              std::max(own[node], own[nodes_[node].children[flow.from]] + (flow.from != flow.to));
    }
    std::map<std::pair<uint32_t, int>, int> known;
    return static_cast<uint64_t>(
        std::max(0, rounds_below(forest_.shares().root(), -1, own, &known)));
  }

  // `outside`: messages until who holds data from outside of the node has it.
  int rounds_below(uint32_t node, int outside, const std::vector<int>& own,
                   std::map<std::pair<uint32_t, int>, int>* known) const {
    const auto found = known->find({node, outside});
    if (found != known->end()) return found->second;
    int rounds = std::max(outside, own[node]);
    const std::vector<uint32_t>& children = nodes_[node].children;
    for (uint32_t c = 0; c < children.size(); c++) {
      int arrives = outside < 0 ? -1 : outside + 1;
      for (const Forest::Flow& flow : forest_.flows(node)) {
        if (flow.from == c || flow.runs->units() == 0) continue;
        const bool last_hop = flow.to == flow.from || flow.to == c;
        arrives = std::max(arrives, own[children[flow.from]] + (last_hop ? 1 : 2));
      }
      rounds = std::max({rounds, arrives, rounds_below(children[c], arrives, own, known)});
    }
    (*known)[{node, outside}] = rounds;
    return rounds;
  }

  void count_bytes(Counts* counts) const {
    counts->tier_bytes.assign(tree_.tiers.size(), 0);
    if (request_.collective == Collective::barrier) return;
    const bool one_block = one_vector_ || has_root(request_.collective);
    const uint64_t data = request_.count * type_bytes(request_.type) *
                          (one_block ? 1 : static_cast<uint64_t>(tree_.ranks()));
    const auto add = [&](int group, uint64_t bytes) {
      for (int tier = 0; tier < tree_.groups[index(group)].tier; tier++)
        counts->tier_bytes[index(tier)] += bytes;
    };
    for (const StageNode& at : stages_.nodes())
      if (at.depth >= whole_stages_ && at.children > 1)
        add(at.real, (one_vector_ ? 2 : 1) * data * (static_cast<uint64_t>(at.children) - 1));
    each_whole_message([&](const StageNode& group, int32_t, int32_t) { add(group.real, data); });
  }

  const TierTree& tree_;
  const Request& request_;
  const Forest& forest_;
  const StageTree& stages_;
  const std::span<const Node> nodes_;
  const int whole_stages_;
  const std::vector<int32_t>& bases_;
  const bool one_vector_;
  std::vector<uint32_t> node_of_;  // by stage node
  std::vector<uint64_t> many_;     // by node
};

}  // namespace

std::optional<Counts> count(const TierTree& tree, const Request& request, const Forest& forest,
                            int whole_stages, const std::vector<int32_t>& bases) {
  if (!has_every_tier(tree) || !request.counts.empty()) return std::nullopt;
  return Counter(tree, request, forest, whole_stages, bases).run();
}

}  // namespace sennit::tiered
