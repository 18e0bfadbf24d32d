// symmetry.hpp: which ranks of a collective do the same thing at the same time, so that one of them
// is simulated for all.
//
// Colour refinement (the equitable partition of Weisfeiler and Leman) over ranks and groups
// together. Two ranks stay alike while their programs have the same steps, lengths and
// dependencies, and their k-th peers are alike, at the same distance, and know them by the same
// number; two groups while their capacities, latencies, parents and children are. All ranks of a
// class then send and receive at the same moments, and every group of a class carries the same
// number of each of their flows: the simulation of one rank per class and one link per class of
// groups is that of all. Lengths that differ by rounding alone, by less than 1 in 1,000, are taken
// as equal; of more than 1,024 ranks by less than 1 in 64, since no two of so many would be alike
// otherwise. Of many ranks under a root hardly any are alike, and one stands for all of its kind
// instead, nearly (simulate/kinds.cpp). Cost: all programs once, then O(peers of all ranks) a
// round; memory O(peers of all ranks).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/algorithm.hpp"
#include "schedule/layout.hpp"
#include "schedule/prepared.hpp"
#include "simulate/simulate.hpp"

namespace sennit::simulation {

inline constexpr uint32_t kNone = ~uint32_t{0};

// One request and the ranks that run it together: all of the tree, or some. A rank that is in
// several calls counts as one member in each; members are numbered call after call. What it points
// to must outlive it.
struct GroupCall {
  const Request* request;
  uint32_t chunks;
  const Blueprint* blueprint;      // calls with the same one have the same request and chunks
  std::vector<int32_t> positions;  // of the tree, by the blueprint's position
  Layout layout() const {
    Layout layout;
    layout.count = request->count;
    if (!request->counts.empty()) layout.counts = request->counts.data();
    return layout;
  }
};
// The call of all ranks.
GroupCall whole_tree(const TierTree& tree, const Request& request, uint32_t chunks,
                     const Blueprint& blueprint);

// Which ranks and groups do the same, and what one of each class does.
struct Symmetry {
  struct RankClass {
    uint32_t call = 0;   // that of the member that stands for all
    int position = 0;    // of the tree; likewise
    uint32_t ranks = 0;  // how many they are
    std::shared_ptr<const Prepared> prepared;
    std::vector<uint32_t> partner;  // by step, of sends: the receive that it meets at the peer
    // By kind only, by step, of receives: how many messages it waits for, and another receive that
    // the same message fills.
    std::vector<uint32_t> fills, also;
    std::vector<uint32_t> peer_class;    // by Prepared::peers
    std::vector<int32_t> peer_position;  // likewise, of the tree
  };
  // Ranks stand for all of their kind, which meet their peers in another order.
  bool by_kind = false;
  std::vector<RankClass> classes;
  std::vector<uint32_t> class_of_member;
  std::vector<uint32_t> class_of_group;
  std::vector<uint32_t> groups_of_class;
};

// What a step sends, or writes; and its elements in one chunk.
const Operand& moved_by(const Program& program, const Step& step);
uint64_t elements_of(const GroupCall& call, const Program& program, const Operand& operand,
                     uint32_t chunk);

// What is kept of a program. Equal hashes: the same steps, lengths and dependencies, and the same
// order of meeting peers.
struct Look {
  struct Shape {
    std::vector<std::vector<uint32_t>> sends, receives;  // by peer: steps, by tag
  };
  uint64_t hash = 0;
  std::vector<int32_t> peers;  // in the order in which the program meets them
  Shape shape;
};
uint64_t exact_elements(const GroupCall& call);  // shorter lengths are told apart to the element
// `lengths`: false leaves these out of the hash.
Look look_at(const GroupCall& call, const Program& program, bool lengths = true);
// Whether two programs of equal hash without lengths have the same lengths, but for rounding.
bool same_lengths(const GroupCall& call, const Program& a, const Program& b);

// Whether the call is of all ranks, each at its own position.
bool is_all_of(const TierTree& tree, const GroupCall& call);

// By group: a hash of what it is, of what is in it, in any order, and of what it is in. `held`: by
// position, what is there.
std::vector<uint64_t> group_colours(const TierTree& tree, const std::vector<uint64_t>& held);
// Makes groups of one colour one class.
void class_groups(const std::vector<uint64_t>& colours, Symmetry* symmetry);

// The one class of a call that is all of a tree of equal groups, where the blueprint says that all
// ranks do the same (simulate/uniform_symmetry.cpp). None: they do not, or lengths round
// differently here and there.
std::optional<Symmetry> one_class(const TierTree& tree, const GroupCall& call);

// One class for each of the kinds that the blueprint tells (Blueprint::kinds), where the call is
// all of a tree and has a root (simulate/kinds.cpp). None: it tells none, or more than most_kinds;
// pieces are so short that lengths differ much by rounding; ranks of a kind are in groups of
// different capacities; or the kinds' programs do not fit together.
std::optional<Symmetry> classes_by_kind(const TierTree& tree, const GroupCall& call,
                                        size_t most_kinds);

// Whether there is memory for the programs of all ranks that differ, judged by a few of them;
// `symmetry` as for find_symmetry. Errors: how much they need, and how much there is
// (simulate/memory.cpp).
Status check_memory(std::span<const GroupCall> calls, bool symmetry);

// By SimulateOptions::symmetry (false makes every rank and group a class of its own) and
// most_programs. Errors: a message that has one end only, or a peer that does not exist: the
// schedule's fault.
Result<Symmetry> find_symmetry(const TierTree& tree, std::span<const GroupCall> calls,
                               const SimulateOptions& options);

}  // namespace sennit::simulation
