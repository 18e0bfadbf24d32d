// job.cpp: see diagnose/job.hpp.
#include "diagnose/job.hpp"

#include <set>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"

namespace sennit::diagnose {

const RankRecording* JobRecording::find(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= index_of_rank.size()) return nullptr;
  const int at = index_of_rank[static_cast<size_t>(rank)];
  return at < 0 ? nullptr : &ranks[static_cast<size_t>(at)];
}

const VerdictNote* JobRecording::last_told(VerdictAbout about) const {
  const VerdictNote* last = nullptr;
  for (const VerdictNote& note : verdicts)  // of all ranks, one after the other
    if (note.about == about && (!last || note.when_ns >= last->when_ns)) last = &note;
  return last && !last->withdrawn ? last : nullptr;
}

std::string JobRecording::comm_name(uint32_t comm) const {
  constexpr uint32_t kChannel = 0x80000000;
  const uint32_t own = comm & ~kChannel;
  const auto number = numbers.find(own);
  const uint32_t known_by = number == numbers.end() ? own : number->second;
  size_t namesakes = 0;
  for (const auto& [other, its] : numbers) namesakes += its == known_by;
  std::string text = fmt::format("communicator {}", known_by);
  if (namesakes > 1) {
    const std::vector<int>& members = communicators.at(own);
    text += " of " + name_ranks(std::set<int>(members.begin(), members.end()));
  }
  return text;
}

void JobRecording::take_notes(const RankRecording& from) {
  for (const Note& note : from.notes) {
    if (const auto* its = std::get_if<FabricNote>(&note)) {
      fabric = its->fabric;
      placements = its->placements;
    } else if (const auto* plan = std::get_if<PlanNote>(&note)) {
      plans.insert({{plan->comm, plan->hash}, *plan});
    } else if (const auto* failure = std::get_if<FailureNote>(&note)) {
      failures.emplace_back(from.rank, *failure);
    } else if (const auto* verdict = std::get_if<VerdictNote>(&note)) {
      verdicts.push_back(*verdict);
    }
  }
}

void JobRecording::index() {
  index_of_rank.assign(static_cast<size_t>(size), -1);
  missing.clear();
  for (size_t i = 0; i < ranks.size(); i++)
    index_of_rank[static_cast<size_t>(ranks[i].rank)] = static_cast<int>(i);
  for (int rank = 0; rank < size; rank++)
    if (!find(rank)) missing.push_back(rank);
}

}  // namespace sennit::diagnose
