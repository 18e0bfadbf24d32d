// job.cpp: see diagnose/job.hpp.
#include "diagnose/job.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"
#include "diagnose/communicator_numbers.hpp"
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
// but for a hang's evidence, which stood behind it. What the calls of another communicator show of
// the same ranks or links is withdrawn by itself; hangs are told one at a time.
bool ends(const VerdictNote& note, const VerdictNote& before) {
  const bool same_calls = note.comm == before.comm && note.first_member == before.first_member;
  if (note.about != VerdictAbout::hang && !same_calls) return false;
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
  // By real time, but those of one rank in its order, also where real time was set back meanwhile.
  std::vector<std::pair<uint64_t, const VerdictNote*>> told;
  std::map<int, uint64_t> latest_ns;
  for (const auto& [rank, note] : verdicts) {
    latest_ns[rank] = std::max(latest_ns[rank], note.when_ns);
    if (note.about == about) told.emplace_back(latest_ns[rank], &note);
  }
  std::stable_sort(told.begin(), told.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const VerdictNote*> standing;
  for (const auto& one : told) {
    const VerdictNote* const note = one.second;
    std::erase_if(standing, [&](const VerdictNote* before) { return ends(*note, *before); });
    if (!note->withdrawn) standing.push_back(note);
  }
  return standing.empty() ? nullptr : standing.back();
}

uint32_t JobRecording::known_as(uint32_t comm) const {
  const auto number = numbers.find(comm & ~kChannel);
  return number == numbers.end() ? comm & ~kChannel : number->second;
}

std::vector<int> JobRecording::members_of(uint32_t comm) const {
  const auto found = communicators.find(comm & ~kChannel);
  return found == communicators.end() ? std::vector<int>() : found->second;
}

std::string JobRecording::comm_name(uint32_t comm) const {
  const uint32_t known_by = known_as(comm);
  size_t namesakes = 0;
  for (const auto& [other, its] : numbers) namesakes += its == known_by;
  std::string text = fmt::format("communicator {}", known_by);
  if (namesakes > 1) {
    const std::vector<int> members = members_of(comm);
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
      verdicts.emplace_back(from.rank, *verdict);
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
