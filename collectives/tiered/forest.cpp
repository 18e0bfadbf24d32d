// forest.cpp: see collectives/tiered/forest.hpp.
#include "collectives/tiered/forest.hpp"

#include "base/arithmetic.hpp"
#include "base/sort_stretches.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {
namespace {

uint64_t part_of(uint64_t length, uint64_t units) {
  return static_cast<uint64_t>(Wide{length} * units / kUnits);
}

uint64_t block_place(int32_t position) { return static_cast<uint64_t>(position) * kUnits; }

// Units [begin, end) out of kUnits of every run.
std::vector<CarriedRun> cut_every(const RunList& list, uint64_t begin, uint64_t end) {
  std::vector<CarriedRun> result;
  for (CarriedRun run : list.runs()) {
    const uint64_t length = run.end - run.begin, from = run.begin;
    run.begin = from + part_of(length, begin);
    run.end = from + part_of(length, end);
    if (run.begin < run.end) result.push_back(run);
  }
  return result;
}

}  // namespace

Places& Moves::with(int32_t peer, uint32_t child) {
  if (moves_.empty() || moves_.back().peer != peer) {
    const auto [it, is_new] = by_peer_.try_emplace(peer, moves_.size());
    if (!is_new) return moves_[it->second].places;
    moves_.push_back({peer, child, {}});
  }
  return moves_.back().places;
}

void Moves::arrange() {
  std::erase_if(moves_, [](const Move& m) { return m.places.empty(); });
  for (Move& m : moves_) tiered::arrange(m.places);
}

Forest::Forest(const TierTree& tree, const Request& request, std::span<const uint16_t> radices,
               Shares::Pattern pattern, const GroupRates& rates)
    : pattern_(pattern), tree_(tree, request, radices, rates), shares_(tree_, pattern) {
  const uint32_t n = static_cast<uint32_t>(shares_.nodes().size());
  const bool all_reduce = pattern == Shares::Pattern::all_reduce;
  partitions_.resize(n);
  runs_.resize(n);
  flows_.resize(n);
  // children come first; nobody is outside of the root, which comes last
  for (uint32_t i = 0; i < n; i++) {
    const bool root = i + 1 == n;
    if (all_reduce || !root) make_partition(i);
    if (all_reduce) continue;
    make_flows(i);
    if (!root) make_runs(i);
  }
}

int32_t Forest::child_first(uint32_t node, uint32_t child) const {
  const StageNode& stage = tree_.node(shares_.node(node).example);
  return tree_.node(stage.first_child + static_cast<int32_t>(child)).first - stage.first;
}

void Forest::make_partition(uint32_t node) {
  const Node& at = shares_.node(node);
  if (at.children.empty()) {
    partitions_[node] = Partition::single();
    return;
  }
  std::vector<Partition::Child> parts;
  parts.reserve(at.children.size());
  for (uint32_t c = 0; c < at.children.size(); c++)
    parts.push_back({&partitions_[at.children[c]], static_cast<uint32_t>(child_first(node, c))});
  partitions_[node] = Partition::combine(parts, at.share);
}

void Forest::make_flows(uint32_t node) {
  const Node& at = shares_.node(node);
  std::vector<Flow>& flows = flows_[node];
  flows.reserve(at.children.size() + at.relays.size());
  auto relay = at.relays.begin();
  for (uint32_t c = 0; c < at.children.size(); c++) {
    const RunList& own = *runs_[at.children[c]];
    if (relay == at.relays.end() || relay->from != c) {
      flows.push_back({c, c, &own});
      continue;
    }
    const auto add = [&](uint32_t to, uint64_t begin, uint64_t end) {
      cuts_.push_back(std::make_unique<RunList>(cut_every(own, begin, end), tree_.weighted()));
      flows.push_back({c, to, cuts_.back().get()});
    };
    if (relay->begin > 0) add(c, 0, relay->begin);
    for (; relay != at.relays.end() && relay->from == c; ++relay)
      add(relay->to, relay->begin, relay->end);
  }
}

// The group's own data with its carriers, in the order of the group's partition: so rank i of a
// group exchanges with rank i of groups like it.
void Forest::make_runs(uint32_t node) {
  const Node& at = shares_.node(node);
  std::vector<CarriedRun> runs;
  size_t count = 0;
  for (const Flow& flow : flows_[node]) count += flow.runs->runs().size();
  runs.reserve(count);
  if (at.children.empty()) {
    const Shape& shape = tree_.shape(at.shape);
    if (shape.blocks > 0) runs.push_back({0, kUnits, 0, shape.weight});
    runs_[node] = std::make_unique<RunList>(std::move(runs), tree_.weighted());
    return;
  }
  for (const Flow& flow : flows_[node]) {
    const int32_t from = child_first(node, flow.from), to = child_first(node, flow.to);
    const auto add = [&](const CarriedRun& run, uint32_t carrier, uint64_t begin, uint64_t end) {
      runs.push_back({begin + block_place(from), end + block_place(from), carrier, run.weight});
    };
    for (size_t i = 0; i < flow.runs->runs().size(); i++) {
      const CarriedRun& run = flow.runs->runs()[i];
      if (flow.from == flow.to) {
        add(run, run.carrier + static_cast<uint32_t>(from), run.begin, run.end);
        continue;
      }
      const uint64_t line = flow.runs->line_begin(i);
      flow.runs->visit_holders(partitions_[at.children[flow.to]], line,
                               line + (run.end - run.begin),
                               [&](uint64_t begin, uint64_t end, uint32_t rank) {
                                 add(run, rank + static_cast<uint32_t>(to),
                                     run.begin + (begin - line), run.begin + (end - line));
                               });
    }
  }
  const Partition& partition = partitions_[node];
  const auto order = [&](uint32_t rank) {
    const auto pieces = partition.pieces_of(rank);
    return pieces.empty() ? partition.pieces() + rank : pieces[0];
  };
  sort_stretches(runs, [&](const CarriedRun& a, const CarriedRun& b) {
    return a.carrier != b.carrier ? order(a.carrier) < order(b.carrier) : a.begin < b.begin;
  });
  runs_[node] = std::make_unique<RunList>(std::move(runs), tree_.weighted());
}

uint32_t Forest::node_of(int32_t stage_node) const {
  const StageNode& at = tree_.node(stage_node);
  if (at.parent < 0) return shares_.root();
  const uint32_t child = static_cast<uint32_t>(stage_node - tree_.node(at.parent).first_child);
  return shares_.node(node_of(at.parent)).children[child];
}

std::vector<Forest::Step> Forest::path(int position) const {
  std::vector<Step> path;
  for (int32_t at = tree_.leaf(position); at >= 0; at = tree_.node(at).parent)
    path.push_back({at, node_of(at)});
  return path;
}

std::vector<StageMoves> Forest::moves(int position, int outermost) const {
  const std::vector<Step> steps = path(position);
  std::vector<StageMoves> stages;
  for (size_t s = 1; s < steps.size(); s++) {
    const StageNode& node = tree_.node(steps[s].stage_node);
    if (node.depth < outermost) break;
    StageMoves stage;
    stage.node = steps[s].stage_node;
    stage.child = static_cast<uint32_t>(steps[s - 1].stage_node - node.first_child);
    stage.fanout = static_cast<uint32_t>(node.children);
    const Role at{steps[s], steps[s - 1], position};
    if (pattern_ == Shares::Pattern::all_reduce)
      spread_vector(at, stage);
    else
      spread_all(steps, s, at, stage);
    for (Moves* moves : {&stage.relay_in, &stage.relay_out, &stage.in, &stage.out})
      moves->arrange();
    stages.push_back(std::move(stage));
  }
  return stages;
}

// All data in fabric order, so that places come in ascending order: what lies before the group, the
// group's own data, what lies behind it.
void Forest::spread_all(const std::vector<Step>& steps, size_t s, const Role& at,
                        StageMoves& stage) const {
  const auto outside = [&](size_t a, bool before) {
    const StageNode& ancestor = tree_.node(steps[a].stage_node);
    const uint32_t branch = static_cast<uint32_t>(steps[a - 1].stage_node - ancestor.first_child);
    for (const Flow& flow : flows_[steps[a].node]) {
      if (before ? flow.from >= branch : flow.from <= branch) continue;
      const int32_t first =
          tree_.node(ancestor.first_child + static_cast<int32_t>(flow.from)).first;
      spread(*flow.runs, block_place(first), at, stage);
    }
  };
  for (size_t a = steps.size() - 1; a > s; a--) outside(a, true);
  for (const Flow& flow : flows_[steps[s].node])
    if (flow.from == stage.child)
      cross_own(flow, at, stage);
    else
      cross_others(flow, at, stage);
  for (size_t a = s + 1; a < steps.size(); a++) outside(a, false);
}

void Forest::spread_vector(const Role& at, StageMoves& stage) const {
  const StageNode& group = tree_.node(at.group.stage_node);
  const StageNode& inner = tree_.node(at.inner.stage_node);
  const Partition& of_group = partitions_[at.group.node];
  const Partition& of_inner = partitions_[at.inner.node];
  const auto& children = shares_.node(at.group.node).children;
  for (const uint32_t piece : of_group.pieces_of(static_cast<uint32_t>(at.position - group.first)))
    for (uint32_t c = 0; c < children.size(); c++) {
      if (c == stage.child) continue;
      const int32_t first = tree_.node(group.first_child + static_cast<int32_t>(c)).first;
      partitions_[children[c]].visit(of_group.begin(piece), of_group.end(piece),
                                     [&](uint64_t begin, uint64_t end, uint32_t rank) {
                                       append(stage.out.with(first + static_cast<int32_t>(rank), c),
                                              begin, end);
                                     });
    }
  for (const uint32_t piece : of_inner.pieces_of(static_cast<uint32_t>(at.position - inner.first)))
    of_group.visit(of_inner.begin(piece), of_inner.end(piece),
                   [&](uint64_t begin, uint64_t end, uint32_t rank) {
                     const int32_t peer = group.first + static_cast<int32_t>(rank);
                     if (peer != at.position) append(stage.in.with(peer, 0), begin, end);
                   });
}

// Data from outside of the group, which the group's partition holds and its children's partitions
// are to hold.
void Forest::spread(const RunList& runs, uint64_t offset, const Role& at, StageMoves& stage) const {
  const StageNode& group = tree_.node(at.group.stage_node);
  const StageNode& inner = tree_.node(at.inner.stage_node);
  const Partition& of_group = partitions_[at.group.node];
  const Partition& of_inner = partitions_[at.inner.node];
  const auto& children = shares_.node(at.group.node).children;
  for (const uint32_t piece :
       of_group.pieces_of(static_cast<uint32_t>(at.position - group.first))) {
    const uint64_t from = runs.cut(of_group.begin(piece)), to = runs.cut(of_group.end(piece));
    for (uint32_t c = 0; c < children.size(); c++) {
      if (c == stage.child) continue;
      const int32_t first = tree_.node(group.first_child + static_cast<int32_t>(c)).first;
      runs.visit_holders(partitions_[children[c]], from, to,
                         [&](uint64_t begin, uint64_t end, uint32_t rank) {
                           Places& places = stage.out.with(first + static_cast<int32_t>(rank), c);
                           runs.append_places(begin, end, offset, places);
                         });
    }
  }
  for (const uint32_t piece : of_inner.pieces_of(static_cast<uint32_t>(at.position - inner.first)))
    runs.visit_holders(of_group, runs.cut(of_inner.begin(piece)), runs.cut(of_inner.end(piece)),
                       [&](uint64_t begin, uint64_t end, uint32_t rank) {
                         const int32_t peer = group.first + static_cast<int32_t>(rank);
                         if (peer != at.position)
                           runs.append_places(begin, end, offset, stage.in.with(peer, 0));
                       });
}

// Data of this rank's own child of the group: what it carries goes to the other children, or up to
// a relay.
void Forest::cross_own(const Flow& flow, const Role& at, StageMoves& stage) const {
  const StageNode& group = tree_.node(at.group.stage_node);
  const StageNode& inner = tree_.node(at.inner.stage_node);
  const auto& children = shares_.node(at.group.node).children;
  const uint32_t rank_here = static_cast<uint32_t>(at.position - inner.first);
  const bool direct = flow.to == flow.from;
  Moves& moves = direct ? stage.out : stage.relay_out;
  for (size_t i = 0; i < flow.runs->runs().size(); i++) {
    const CarriedRun& run = flow.runs->runs()[i];
    if (run.carrier != rank_here) continue;
    const uint64_t line = flow.runs->line_begin(i);
    const uint64_t offset = block_place(inner.first) + run.begin - line;
    for (uint32_t c = 0; c < children.size(); c++) {
      if (direct ? c == stage.child : c != flow.to) continue;
      const int32_t first = tree_.node(group.first_child + static_cast<int32_t>(c)).first;
      flow.runs->visit_holders(partitions_[children[c]], line, line + (run.end - run.begin),
                               [&](uint64_t begin, uint64_t end, uint32_t rank) {
                                 append(moves.with(first + static_cast<int32_t>(rank), c),
                                        offset + begin, offset + end);
                               });
    }
  }
}

// Data of another child of the group, which this rank is to hold for its own child.
void Forest::cross_others(const Flow& flow, const Role& at, StageMoves& stage) const {
  const StageNode& group = tree_.node(at.group.stage_node);
  const StageNode& inner = tree_.node(at.inner.stage_node);
  const Partition& of_inner = partitions_[at.inner.node];
  const auto& children = shares_.node(at.group.node).children;
  const auto first_of = [&](uint32_t c) {
    return tree_.node(group.first_child + static_cast<int32_t>(c)).first;
  };
  const uint64_t offset = block_place(first_of(flow.from));
  // To or from those of child c that hold the stretch for it.
  const auto holders = [&](Moves& moves, uint32_t c, uint64_t from, uint64_t to) {
    flow.runs->visit_holders(
        partitions_[children[c]], from, to, [&](uint64_t begin, uint64_t end, uint32_t rank) {
          flow.runs->append_places(begin, end, offset,
                                   moves.with(first_of(c) + static_cast<int32_t>(rank), c));
        });
  };
  for (const uint32_t piece :
       of_inner.pieces_of(static_cast<uint32_t>(at.position - inner.first))) {
    const uint64_t from = flow.runs->cut(of_inner.begin(piece)),
                   to = flow.runs->cut(of_inner.end(piece));
    if (flow.to == flow.from || flow.to == stage.child) {
      Moves& moves = flow.to == flow.from ? stage.in : stage.relay_in;
      flow.runs->visit(from, to, [&](uint64_t begin, uint64_t end, uint32_t carrier) {
        append(moves.with(first_of(flow.from) + static_cast<int32_t>(carrier), flow.from),
               offset + begin, offset + end);
      });
    } else {
      holders(stage.in, flow.to, from, to);
    }
    if (flow.to != stage.child) continue;
    for (uint32_t c = 0; c < children.size(); c++)  // this rank's child distributes it
      if (c != stage.child && c != flow.from) holders(stage.out, c, from, to);
  }
}

}  // namespace sennit::tiered
