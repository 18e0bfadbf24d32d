// plans.cpp: see diagnose/plans.hpp.
#include "diagnose/plans.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "topology/fabric/units.hpp"

namespace sennit::diagnose {

Plans::Plans(const JobRecording& job) : job_(job) {
  if (job.fabric.empty() && job.placements.empty()) {
    why_none_ = "rank 0's recording, which has the fabric, is not there";
    return;
  }
  Result<Fabric> fabric = parse_fabric(job.fabric, "the fabric in rank 0's recording");
  if (fabric)
    fabric_ = *std::move(fabric);
  else
    why_none_ = fabric.status().text();
}

Plans::~Plans() = default;

const TierTree* Plans::tree(uint32_t comm) {
  const auto [entry, added] = trees_.try_emplace(comm);
  if (!added || !fabric_) return entry->second.get();
  const auto members = job_.communicators.find(comm);
  if (members == job_.communicators.end()) return nullptr;
  std::vector<Placement> placements;
  for (const int rank : members->second) {
    if (rank < 0 || static_cast<size_t>(rank) >= job_.placements.size()) return nullptr;
    placements.push_back(job_.placements[static_cast<size_t>(rank)]);
  }
  Result<TierTree> tree = contract(*fabric_, placements);
  if (!tree) {
    why_none_ = tree.status().text();
    return nullptr;
  }
  entry->second = std::make_unique<TierTree>(*std::move(tree));
  return entry->second.get();
}

const PlanNote* Plans::note(uint32_t comm, uint64_t plan) {
  const auto found = job_.plans.find({comm, plan});
  if (found == job_.plans.end()) return nullptr;
  const Request& request = found->second.request;
  const auto members = job_.communicators.find(comm);
  if (members == job_.communicators.end()) return nullptr;
  const size_t ranks = members->second.size();
  const bool fits = request.root >= 0 && static_cast<size_t>(request.root) < ranks &&
                    (request.counts.empty() || request.counts.size() == ranks) &&
                    check_size(request, static_cast<int>(ranks)).ok();
  return fits ? &found->second : nullptr;
}

Plans::Made* Plans::made(uint32_t comm, uint64_t plan, bool in_place) {
  const PlanNote* const noted = note(comm, plan);
  const TierTree* const tree = this->tree(comm);
  if (!noted || !tree) return nullptr;
  const auto [entry, added] = made_.try_emplace({comm, plan, in_place});
  Made& made = entry->second;
  if (added) {
    made.request = noted->request;
    made.request.in_place = in_place;
    made.tree = slowed(*tree, noted->slow);
    const Algorithm* const algorithm = find_algorithm(noted->algorithm);
    if (algorithm && algorithm->applies(made.tree, made.request) &&
        check_parameters(*algorithm, made.request.collective, noted->parameters).ok())
      made.blueprint = algorithm->prepare(made.tree, made.request, noted->parameters);
  }
  return made.blueprint ? &made : nullptr;
}

const Blueprint* Plans::blueprint(uint32_t comm, uint64_t plan, bool in_place) {
  const Made* const known = made(comm, plan, in_place);
  return known ? known->blueprint.get() : nullptr;
}

const ExpectedPlan& Plans::expected(uint32_t comm, uint64_t plan, double took_ns) {
  Made& known = *made(comm, plan, true);
  constexpr size_t kMostKept = 8;  // of 1,024 ranks one may have a million edges
  if (!known.expected) {
    if (expected_++ % kMostKept == 0)
      for (auto& [key, made] : made_) made.expected.reset();
    known.expected = expected_of(*tree(comm), *note(comm, plan), *known.blueprint, took_ns);
  }
  return *known.expected;
}

const Program* Plans::program(uint32_t comm, uint64_t plan, bool in_place, int rank) {
  const int at = position(comm, rank);
  Made* const known = at < 0 ? nullptr : made(comm, plan, in_place);
  if (!known) return nullptr;
  const auto found = known->programs.find(at);
  if (found != known->programs.end()) return &found->second;
  return &known->programs.emplace(at, known->blueprint->program(at)).first->second;
}

int Plans::position(uint32_t comm, int rank) {
  const TierTree* const tree = this->tree(comm);
  if (!tree) return -1;
  const auto [positions, added] = positions_.try_emplace(comm);
  if (added) {
    const std::vector<int>& members = job_.communicators.at(comm);
    for (size_t i = 0; i < members.size(); i++)
      positions->second[members[i]] = tree->position_of_rank[i];
  }
  const auto found = positions->second.find(rank);
  return found == positions->second.end() ? -1 : found->second;
}

int Plans::rank_at(uint32_t comm, int position) {
  const TierTree* const tree = this->tree(comm);
  if (!tree || position < 0 || position >= tree->ranks()) return -1;
  const auto rank = static_cast<size_t>(tree->rank_of_position[static_cast<size_t>(position)]);
  return job_.communicators.at(comm)[rank];
}

std::string Plans::call_name(uint32_t comm, uint64_t plan) {
  const PlanNote* const noted = note(comm, plan);
  if (!noted) return "a call";
  const Request& request = noted->request;
  if (request.collective == Collective::barrier) return "barrier";
  uint64_t elements = request.count;
  for (const uint64_t count : request.counts) elements += count;
  std::string text =
      fmt::format("{} of {} {}", name(request.collective),
                  format_size(elements * type_bytes(request.type)), name(request.type));
  if (request.reduces()) text += fmt::format(" {}", name(request.op));
  return text;
}

std::string Plans::tier_name(uint32_t comm, uint8_t tier) {
  const TierTree* const tree = this->tree(comm);
  if (tree && tier < tree->tiers.size()) return tree->tiers[tier].name;
  return fmt::format("tier {}", tier);
}

}  // namespace sennit::diagnose
