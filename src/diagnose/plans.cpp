// plans.cpp: see diagnose/plans.hpp.
#include "diagnose/plans.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "topology/fabric/units.hpp"

namespace sennit {

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

const PlanNote* Plans::note(uint32_t comm, uint64_t plan) const {
  const auto found = job_.plans.find({comm, plan});
  return found == job_.plans.end() ? nullptr : &found->second;
}

const Program* Plans::program(uint32_t comm, uint64_t plan, int rank) {
  const PlanNote* const noted = note(comm, plan);
  const TierTree* const tree = this->tree(comm);
  const int at = position(comm, rank);
  if (!noted || !tree || at < 0) return nullptr;
  const auto known = programs_.find({comm, plan, at});
  if (known != programs_.end()) return &known->second;
  std::unique_ptr<Blueprint>& blueprint = blueprints_[{comm, plan}];
  if (!blueprint) {
    const Algorithm* const algorithm = find_algorithm(noted->algorithm);
    if (!algorithm || !algorithm->applies(*tree, noted->request) ||
        !check_parameters(*algorithm, noted->request.collective, noted->parameters).ok())
      return nullptr;
    blueprint = algorithm->prepare(*tree, noted->request, noted->parameters);
  }
  return &programs_.emplace(std::tuple(comm, plan, at), blueprint->program(at)).first->second;
}

int Plans::position(uint32_t comm, int rank) {
  const TierTree* const tree = this->tree(comm);
  if (!tree) return -1;
  const std::vector<int>& members = job_.communicators.at(comm);
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end()) return -1;
  return tree->position_of_rank[static_cast<size_t>(found - members.begin())];
}

int Plans::rank_at(uint32_t comm, int position) {
  const TierTree* const tree = this->tree(comm);
  if (!tree || position < 0 || position >= tree->ranks()) return -1;
  const auto rank = static_cast<size_t>(tree->rank_of_position[static_cast<size_t>(position)]);
  return job_.communicators.at(comm)[rank];
}

std::string Plans::call_name(uint32_t comm, uint64_t plan) const {
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

}  // namespace sennit
