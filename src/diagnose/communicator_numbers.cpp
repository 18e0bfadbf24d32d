// communicator_numbers.cpp: see diagnose/communicator_numbers.hpp.
#include "diagnose/communicator_numbers.hpp"

#include <set>
#include <variant>

namespace sennit::diagnose {
namespace {

constexpr uint32_t kFirstFree = 0x78000000;  // beyond those that splits draw

}  // namespace

bool is_sound(const CommunicatorNote& comm, int rank, int ranks) {
  const std::set<int> each(comm.members.begin(), comm.members.end());
  return each.size() == comm.members.size() && each.contains(rank) && *each.begin() >= 0 &&
         *each.rbegin() < ranks;
}

bool CommunicatorNumbers::knows(const CommunicatorNote& comm) const {
  return known_.contains({comm.id, comm.members});
}

uint32_t CommunicatorNumbers::take(const CommunicatorNote& comm) {
  const auto [known, added] = known_.try_emplace({comm.id, comm.members}, comm.id);
  if (!added) return known->second;
  if (job_.communicators.contains(comm.id))
    known->second = kFirstFree + static_cast<uint32_t>(known_.size());
  job_.communicators[known->second] = comm.members;
  job_.numbers[known->second] = comm.id;
  for (const int member : comm.members) of_rank_[{comm.id, member}] = known->second;
  return known->second;
}

std::optional<uint32_t> CommunicatorNumbers::of(uint32_t comm, int rank) const {
  const auto found = of_rank_.find({comm & ~kChannel, rank});
  if (found == of_rank_.end()) return std::nullopt;
  return found->second | (comm & kChannel);
}

void CommunicatorNumbers::apply(RankRecording* rank) {
  for (const Note& note : rank->notes)
    if (const auto* comm = std::get_if<CommunicatorNote>(&note)) take(*comm);
  const auto renumber = [&](uint32_t* comm) { *comm = of(*comm, rank->rank).value_or(*comm); };
  for (TraceEvent& event : rank->events) renumber(&event.comm);
  for (Note& note : rank->notes) {
    if (auto* plan = std::get_if<PlanNote>(&note)) renumber(&plan->comm);
    if (auto* failure = std::get_if<FailureNote>(&note)) renumber(&failure->comm);
  }
}

}  // namespace sennit::diagnose
