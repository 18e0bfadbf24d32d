// asked_for.cpp: see plan/asked_for.hpp.
#include "plan/asked_for.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/index.hpp"
#include "collectives/algorithm.hpp"
#include "verify/verify.hpp"

namespace sennit {
namespace {

constexpr size_t kKept = 256;  // verdicts

// The same of another number of ranks: the root and the blocks at the same part of the way through
// all.
Request for_ranks(Request request, int ranks, int smaller) {
  const auto at = [&](int position) {
    return static_cast<int>(int64_t{position} * ranks / smaller);
  };
  request.root = static_cast<int>(int64_t{request.root} * smaller / ranks);
  if (request.counts.empty()) return request;
  std::vector<uint64_t> counts;
  for (int position = 0; position < smaller; position++)
    counts.push_back(request.counts[index(at(position))]);
  request.counts = std::move(counts);
  return request;
}

Status verify_on(const TierTree& tree, Request request, const Plan& plan) {
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  SENNIT_CHECK(algorithm != nullptr);
  if (!algorithm->applies(tree, request)) return {};  // a smaller tree may be too small for it
  for (const bool in_place : {false, true}) {
    request.in_place = in_place;
    const Verdict verdict =
        verify(tree, request, *algorithm->prepare(tree, request, plan.parameters));
    if (!verdict.correct) return invalid(verdict.error);
    if (request.collective == Collective::barrier) break;
  }
  return {};
}

}  // namespace

TierTree smaller_tree(const TierTree& tree, int ranks) {
  std::vector<int> widest(tree.tiers.size(), 0);  // by tier
  for (const Group& group : tree.groups)
    widest[group.tier] = std::max(widest[group.tier], group.children);
  std::erase_if(widest, [](int fanout) { return fanout < 2; });
  std::reverse(widest.begin(), widest.end());
  const auto cut_down = [&](int most) {
    std::vector<int> fanouts;
    for (const int fanout : widest) fanouts.push_back(std::min(fanout, most));
    return fanouts;
  };
  const auto fits = [&](int most) {
    int64_t product = 1;
    for (const int fanout : cut_down(most))
      product = std::min<int64_t>(product * fanout, int64_t{1} << 32);
    return product <= ranks;
  };
  int most = ranks;
  while (most > 2 && !fits(most)) most--;
  std::vector<int> fanouts = cut_down(most);
  while (fanouts.size() > 1 && !fits(most)) {
    widest.pop_back();
    fanouts = cut_down(most);
  }
  return TierTree::uniform(fanouts);
}

Status verify_plan(const TierTree& tree, const Request& request, const Plan& plan) {
  if (tree.ranks() <= kVerifiedRanks) return verify_on(tree, request, plan);
  const TierTree smaller = smaller_tree(tree, kVerifiedRanks);
  return verify_on(smaller, for_ranks(request, tree.ranks(), smaller.ranks()), plan);
}

Status AskedFor::check(const TierTree& tree, const Request& request, const Plan& plan) {
  if (!plan.asked_for || tree.ranks() < 2) return {};
  Request shape = request;
  shape.in_place = false;
  shape.type = DataType::uint8;
  shape.op = Op::sum;
  shape.count = 1;
  Parameters parameters = plan.parameters;
  parameters.chunks = 1;
  for (const Verdict& known : verdicts_)
    if (known.algorithm == plan.algorithm && known.parameters == parameters &&
        known.request == shape)
      return known.status;
  Status status = verify_plan(tree, shape, plan);
  if (!status.ok())
    status = invalid(fmt::format(
        "{}: {}, {}, as an option or the tuning file asks for, would not do it: {}",
        name(request.collective), plan.algorithm, plan.parameters.to_text(), status.text()));
  verdicts_.push_front({std::move(shape), plan.algorithm, std::move(parameters), status});
  if (verdicts_.size() > kKept) verdicts_.pop_back();
  return status;
}

}  // namespace sennit
