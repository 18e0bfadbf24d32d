// group_maker.cpp: see api/group_maker.hpp.
#include "api/group_maker.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "plan/groups/share.hpp"

namespace sennit {
namespace {

// What a rank of a split tells the others, as three numbers of an all-gather.
struct Choice {
  int32_t color, key;
  int32_t drawn;  // the giver's: the number of the communicators to be made
};
constexpr size_t kChoiceNumbers = sizeof(Choice) / sizeof(int32_t);

// The ranks that chose a color, by key, then by rank; the colors in order. `own`: which is `color`.
std::vector<std::vector<int>> groups_of(const std::vector<Choice>& choices, int color,
                                        size_t* own) {
  std::map<int, std::vector<std::pair<int, int>>> chosen;  // key, rank
  for (size_t r = 0; r < choices.size(); r++)
    if (choices[r].color != SENNIT_NO_COLOR)
      chosen[choices[r].color].emplace_back(choices[r].key, static_cast<int>(r));
  std::vector<std::vector<int>> groups;
  for (auto& [of, members] : chosen) {
    if (of == color) *own = groups.size();
    std::sort(members.begin(), members.end());
    std::vector<int>& ranks = groups.emplace_back();
    for (const auto& [key, rank] : members) ranks.push_back(rank);
  }
  return groups;
}

}  // namespace

Result<TierTree> GroupMaker::tree_of(const Context& context, const std::vector<int>& members) {
  std::vector<Placement> placements;
  for (const int world : members) placements.push_back(context.placement(world));
  return contract(context.fabric(), placements);
}

Result<std::optional<NewCommunicator>> GroupMaker::split(int color, int key,
                                                         const AllGather& all_gather) {
  // One member hands out the number: not the one of another split that runs at the same time,
  // whoever makes it. Which member it is goes round, and begins beside the one that handed out this
  // communicator's own.
  const uint32_t turn = of_.id() - 1 + splits_++;
  const int giver = static_cast<int>(turn % static_cast<uint32_t>(of_.size()));
  const uint32_t drawn = giver == of_.rank() ? context_.draw_communicator_number() : 0;
  const Choice mine{color, key, static_cast<int32_t>(drawn)};
  std::vector<Choice> all(static_cast<size_t>(of_.size()));
  SENNIT_RETURN_IF_ERROR(all_gather(&mine, all.data(), kChoiceNumbers));
  const auto id = static_cast<uint32_t>(all[static_cast<size_t>(giver)].drawn);
  if (id == 0)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("split of communicator {}: rank {} has handed out all its numbers "
                              "for communicators",
                              of_.id(), of_.world_rank(giver)));
  if (color == SENNIT_NO_COLOR) return std::optional<NewCommunicator>();
  size_t own = 0;
  const std::vector<std::vector<int>> groups = groups_of(all, color, &own);
  std::vector<int> members;
  for (const int rank : groups[own]) members.push_back(of_.world_rank(rank));
  return std::optional<NewCommunicator>(
      {std::move(members), id, tree_of_group(tree_, groups, own, context_.concurrency())});
}

Result<NewCommunicator> GroupMaker::of_ranks(const std::vector<int>& ranks, int tag) {
  const Result<uint32_t> id = channel().agree_on_number(ranks, tag);
  if (!id) return id.status();
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(of_.world_rank(rank));
  const Result<TierTree> tree = tree_of(context_, members);
  if (!tree) return tree.status();
  std::vector<int> everyone(members.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  // Of siblings nobody has told its members, but it may be told of groups like itself.
  const int groups = context_.concurrency().siblings ? 1 : context_.concurrency().groups;
  return NewCommunicator{
      std::move(members), *id,
      tree_of_group(*tree, {everyone}, 0, {.siblings = false, .groups = groups})};
}

GroupChannel& GroupMaker::channel() {
  const MutexLock lock(mutex_);
  if (!channel_) channel_ = std::make_unique<GroupChannel>(context_, of_);
  return *channel_;
}

}  // namespace sennit
