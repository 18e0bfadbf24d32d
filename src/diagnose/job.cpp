// job.cpp: see diagnose/job.hpp.
#include "diagnose/job.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"
#include "diagnose/links.hpp"

namespace sennit::diagnose {
namespace {

// "rack1" is "out of rack1" as well.
bool blame_same_link(const VerdictNote& a, const VerdictNote& b) {
  constexpr double kAnyFactor = 2;
  const std::vector<SlowBoundary> of_b = slow_boundaries(b.links, kAnyFactor);
  for (const SlowBoundary& link : slow_boundaries(a.links, kAnyFactor))
    if (std::find(of_b.begin(), of_b.end(), link) != of_b.end()) return true;
  return false;
}

bool blame_same_rank(const VerdictNote& a, const VerdictNote& b) {
  return std::any_of(a.ranks.begin(), a.ranks.end(), [&](int rank) {
    return std::find(b.ranks.begin(), b.ranks.end(), rank) != b.ranks.end();
  });
}

// Whether what was told before is over by this. What is withdrawn is said once more as it was told,
// but for a hang's evidence, which stood behind it.
bool ends(const VerdictNote& note, const VerdictNote& before) {
  if (!note.withdrawn) return blame_same_rank(note, before) || blame_same_link(note, before);
  return note.ranks == before.ranks && note.links == before.links &&
         before.sentence.starts_with(note.sentence);
}

}  // namespace

const RankRecording* JobRecording::find(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= index_of_rank.size()) return nullptr;
  const int at = index_of_rank[static_cast<size_t>(rank)];
  return at < 0 ? nullptr : &ranks[static_cast<size_t>(at)];
}

const VerdictNote* JobRecording::last_told(VerdictAbout about) const {
  std::vector<const VerdictNote*> told, standing;
  for (const VerdictNote& note : verdicts)  // of all ranks, one after the other
    if (note.about == about) told.push_back(&note);
  std::stable_sort(told.begin(), told.end(), [](const VerdictNote* a, const VerdictNote* b) {
    return a->when_ns < b->when_ns;
  });
  for (const VerdictNote* const note : told) {
    std::erase_if(standing, [&](const VerdictNote* before) { return ends(*note, *before); });
    if (!note->withdrawn) standing.push_back(note);
  }
  return standing.empty() ? nullptr : standing.back();
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
