// share.cpp: see plan/groups/share.hpp.
#include "plan/groups/share.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"

namespace sennit {
namespace {

using namespace cuts;  // NOLINT: what must cross a boundary

void reduce_to(Wide own, Wide all, Capacity* capacity) {
  if (own == 0 || own >= all || !capacity->known()) return;
  capacity->bytes_per_s =
      std::max<uint64_t>(1, static_cast<uint64_t>(Wide{capacity->bytes_per_s} * own / all));
  capacity->burst_bytes = static_cast<uint64_t>(Wide{capacity->burst_bytes} * own / all);
}

}  // namespace

Whole Held::take(const Request& request, std::span<const int> members) {
  for (const int g : groups_) share_[index(g)] = {};
  groups_.clear();
  const Wide element = type_bytes(request.type);
  Whole all{&request, members.size(), 0, element * request.count};
  for (size_t i = 0; i < members.size(); i++) {
    const Wide bytes = element * request.count_of(static_cast<int>(i));
    all.bytes += bytes;
    const bool root = has_root(request.collective) && index(request.root) == i;
    for (int g = tree_.leaf_of_position[index(members[i])]; g >= 0;
         g = tree_.groups[index(g)].parent) {
      Share& share = share_[index(g)];
      if (share.members == 0) groups_.push_back(g);
      share.members += 1;
      share.bytes += bytes;
      share.root = share.root || root;
    }
  }
  return all;
}

SharedTree::SharedTree(const TierTree& tree, std::span<const ConcurrentCall> calls, uint64_t times)
    : tree_(tree), held_(tree_), all_(tree.groups.size()) {
  for (const ConcurrentCall& call : calls)
    for (std::vector<int> group : call.groups) {
      if (group.size() < 2) continue;
      std::sort(group.begin(), group.end());
      held_.each_boundary(held_.take(call.request, group), [&](int g, const Need& bytes) {
        all_[index(g)].out += times * bytes.out;
        all_[index(g)].in += times * bytes.in;
      });
    }
}

MemberTree SharedTree::of(const Request& request, std::vector<int> positions) {
  std::sort(positions.begin(), positions.end());
  std::vector<std::pair<int, Group>> before;
  held_.each_boundary(held_.take(request, positions), [&](int g, const Need& bytes) {
    Group& group = tree_.groups[index(g)];
    before.emplace_back(g, group);
    reduce_to(bytes.out, all_[index(g)].out, &group.egress);
    reduce_to(bytes.in, all_[index(g)].in, &group.ingress);
  });
  MemberTree result = member_tree(tree_, std::move(positions));
  for (auto& [g, group] : before) tree_.groups[index(g)] = std::move(group);
  return result;
}

Result<Concurrency> parse_concurrency(std::string_view text) {
  if (text == "siblings") return Concurrency{};
  if (text == "alone") return Concurrency{false, 1};
  int groups = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), groups);
  if (error != std::errc() || end != text.data() + text.size() || groups < 1)
    return invalid(fmt::format(
        "concurrency '{}': expected siblings, alone, or a number of groups of 1 or more", text));
  return Concurrency{false, groups};
}

TierTree tree_of_group(const TierTree& tree, const std::vector<std::vector<int>>& groups,
                       size_t own, Concurrency concurrency) {
  constexpr uint64_t kElements = 1 << 20;  // any: the parts are ratios
  ConcurrentCall call;
  call.request.collective = Collective::all_reduce;
  call.request.type = DataType::float32;
  call.request.count = kElements;
  const auto add = [&](const std::vector<int>& ranks) {
    std::vector<int>& positions = call.groups.emplace_back();
    for (const int rank : ranks) positions.push_back(tree.position_of_rank[index(rank)]);
  };
  if (concurrency.siblings)
    for (const std::vector<int>& ranks : groups) add(ranks);
  else
    add(groups[own]);
  const size_t mine = concurrency.siblings ? own : 0;
  const auto times = static_cast<uint64_t>(concurrency.siblings ? 1 : concurrency.groups);
  MemberTree part = SharedTree(tree, {&call, 1}, times).of(call.request, call.groups[mine]);
  std::map<int32_t, int32_t> number;  // in its group, of a rank of the tree
  for (const int rank : groups[own]) number.emplace(rank, static_cast<int32_t>(number.size()));
  for (size_t i = 0; i < part.positions.size(); i++)
    part.tree.rank_of_position[i] = number.at(tree.rank_of_position[index(part.positions[i])]);
  part.tree.finish();
  return std::move(part.tree);
}

}  // namespace sennit
