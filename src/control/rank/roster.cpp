// roster.cpp: see control/rank/roster.hpp.
#include "control/rank/roster.hpp"

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/rank_ranges.hpp"
#include "control/tree/shape.hpp"
#include "topology/source.hpp"

namespace sennit::control {
namespace {

Address loopback_address() { return *parse_address("127.0.0.1", 0); }

}  // namespace

Address Roster::own_address() const {
  Address own = door_.is_open() ? door_.address() : loopback_address();
  if (own.wildcard()) own.ip = public_ ? public_->ip : loopback_address().ip;
  return own;
}

void Roster::begin() {
  census_.members.resize(static_cast<size_t>(self_.size));
  census_.members[0] = {own_address(), self_.pid, this_host()};
  arrived_.insert(0);
  sharing_.begin();
}

// ---- who comes ----

std::string Roster::describe(const Enlist& enlist) {
  return fmt::format("rank {} (host {}, pid {})", enlist.rank, enlist.member.host,
                     enlist.member.pid);
}

void Roster::turn_away(Channel& channel, const Enlist& enlist, const std::string& text) {
  const std::string who = describe(enlist);
  log(LogLevel::warn, "refused {}: {} {}", who, who, text);
  refuse(channels_, channel, self_.now_ms, {SENNIT_INVALID_ARGUMENT, who + " " + text});
}

bool Roster::admits(Channel& channel, const Enlist& enlist) {
  const int rank = enlist.rank;
  if (enlist.ranks != self_.size || rank < 0 || rank >= self_.size) {
    turn_away(
        channel, enlist,
        fmt::format("thinks the job has {} ranks, but rank 0 says {}", enlist.ranks, self_.size));
    return false;
  }
  if (enlist.job != 0 && enlist.job != self_.job) {
    turn_away(channel, enlist, "belongs to another job with the same secret");
    return false;
  }
  return true;
}

void Roster::keep(Channel& channel, int rank) {
  channels_.settle(channel, Role::enlisted, rank);
  waiting_[rank] = channel.id;
  arrived_.insert(rank);
}

void Roster::enlist(Channel& channel, const Enlist& enlist) {
  const int rank = enlist.rank;
  if (!self_.starting()) {
    const std::string text =
        fmt::format("the job is complete already, its rank {} is {}", rank, census_.describe(rank));
    log(LogLevel::warn, "refused {}: {}", describe(enlist), text);
    return refuse(channels_, channel, self_.now_ms, {SENNIT_INVALID_ARGUMENT, text});
  }
  Member& known = census_.members[static_cast<size_t>(rank)];
  const Member& member = enlist.member;
  const bool same_process = known.pid == member.pid && known.host == member.host;
  if (rank == self_.rank || (arrived_.count(rank) && !same_process))
    return turn_away(channel, enlist,
                     fmt::format("has come twice, first as {}: is RANK different on every rank?",
                                 census_.describe(rank)));
  if (const auto before = waiting_.find(rank); before != waiting_.end())
    channels_.drop(before->second);
  known = member;
  if (!public_ && !channels_.far_end(channel).loopback()) public_ = channels_.near_end(channel);
  channels_.settle(channel, Role::enlisted, rank);
  const bool first_time = arrived_.insert(rank).second;
  const bool was_possible = sharing_.possible();
  sharing_.hear(rank, enlist.claims);
  if (was_possible) {
    waiting_[rank] = channel.id;
    if (!sharing_.possible()) tell_parents();
    return;
  }
  if (arrived_.count(static_parent(rank)))
    tell_parent(channel);
  else
    waiting_[rank] = channel.id;
  if (!first_time) return;
  for_each_static_child(rank, self_.size, [&](int child) {
    const auto it = waiting_.find(child);
    if (it == waiting_.end()) return;
    if (Channel* const other = channels_.find(it->second)) tell_parent(*other);
    waiting_.erase(it);
  });
}

// Of all that wait, those whose parent has come.
void Roster::tell_parents() {
  std::erase_if(waiting_, [this](const auto& waiting) {
    if (!arrived_.count(static_parent(waiting.first))) return false;
    if (Channel* const channel = channels_.find(waiting.second)) tell_parent(*channel);
    return true;
  });
}

std::optional<SharedJob> Roster::share() {
  if (!sharing_.possible() || !all_arrived()) return std::nullopt;
  std::optional<SharedJob> shared = sharing_.choose();
  if (!shared) tell_parents();
  return shared;
}

void Roster::tell_parent(Channel& channel) {
  const int parent = static_parent(channel.rank);
  Address address = census_.address_of(parent);
  // A parent on rank 0's own host may know only the loopback address; others reach it where they
  // reach rank 0.
  if (address.loopback() && !channels_.far_end(channel).loopback())
    address.ip = channels_.near_end(channel).ip;
  channels_.send(channel, encode(Parent{self_.job, parent, address}));
  if (parent == 0) {
    channel.role = Role::child;
    tree_.add_child(channel);
  } else {
    channel.role = Role::visitor;  // it closes, having learnt what it came for
    channel.deadline_ms = self_.now_ms + kStrangerMs;
  }
}

void Roster::forget_arrival(int rank) {
  arrived_.erase(rank);
  census_.members[static_cast<size_t>(rank)] = {};
}

void Roster::forget(const Channel& channel) {
  const auto it = waiting_.find(channel.rank);
  if (it != waiting_.end() && it->second == channel.id) waiting_.erase(it);
}

void Roster::tell_waiting(const EncodedFrame& frame) {
  for (const auto& [rank, id] : waiting_)
    if (Channel* const channel = channels_.find(id)) channels_.send(*channel, frame);
}

// ---- when all are here, or not ----

Table Roster::table() {
  census_.members[0].address = own_address();
  if (public_)
    for (Member& member : census_.members)
      if (member.address.loopback()) member.address.ip = public_->ip;
  return {self_.job, census_.members};
}

Status Roster::missing() const {
  std::set<int> missing, unattached;
  for (int r = 0; r < self_.size; r++)
    if (!arrived_.count(r)) missing.insert(r);
  if (!missing.empty())
    return {SENNIT_TIMED_OUT,
            fmt::format("{} did not come within {} ms ({} of {} ranks are here); look at why they "
                        "did not start, or raise SENNIT_ARRIVAL_TIMEOUT",
                        name_ranks(missing), self_.options.arrival_timeout_ms, arrived_.size(),
                        self_.size)};
  for_each_static_child(self_.rank, self_.size, [&](int child) {
    const Channel* const channel = tree_.child(child);
    if (!channel || !channel->joined) unattached.insert(child);
  });
  return {SENNIT_TIMED_OUT,
          fmt::format("all {} ranks have come, but within {} ms some below {} could not connect to "
                      "their parent in the tree: does a firewall block ports between hosts?",
                      self_.size, self_.options.arrival_timeout_ms, name_ranks(unattached))};
}

}  // namespace sennit::control
