// planner.cpp: compares every algorithm's settings by predicted time and keeps the best.
//
// A message is cut into chunks that pass through the tiers one behind the other, so
//   time = latency + posting + (sum of the tiers' times + fill) / chunks + (1 - 1/chunks) * (largest of
//   them),
// where the tiers' times are together no more than the busiest way's, if the algorithm says it, and
// fill is what a whole message takes longer hop after hop, the reductions count as one more tier,
// and posting as often as there are chunks. Where rates are unknown it counts once: on a network
// slower than assumed it hides behind the wire, while too few chunks cost up to a whole tier's
// time. Tiers' times are over the goodput; where the fabric declares bursts, or they were
// calibrated (plan/tuning/calibration.hpp), what is left behind the burst, and the busiest tier's
// whole time is the least (predict_ns). Integers only, ties go to the earlier candidate (algorithms
// by name, candidates as listed, fewer chunks), so all ranks choose the same. Cost: one estimate
// per candidate.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/algorithm.hpp"
#include "cost/rates.hpp"
#include "plan/planner.hpp"

namespace sennit {
namespace {

using Wide = unsigned __int128;

constexpr uint32_t kMaxChunks = 64;
constexpr uint64_t kMinChunkBytes = 128 * 1024;
constexpr uint64_t kHostChunkBytes = 32 << 20;  // within one host: bounds scratch, no more
constexpr uint64_t kMinSliceBytes = 1024;  // of one block, where a message has one block per rank

bool has_blocks(const Request& request) {
  switch (request.collective) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return true;
    default:
      return false;
  }
}

uint64_t message_bytes(const Request& request, int ranks) {
  const double bytes = payload_bytes(request, ranks);
  return bytes >= 9e18 ? uint64_t{9'000'000'000'000'000'000} : static_cast<uint64_t>(bytes);
}

// Chunk counts worth comparing.
std::vector<uint32_t> chunk_counts(const Algorithm& algorithm, const Request& request,
                                   const TierTree& tree, const PlanOptions& options) {
  const int ranks = tree.ranks();
  const uint64_t bytes = message_bytes(request, ranks);
  if (!algorithm.pipelines()) return {1};
  if (options.chunk_bytes != 0) {
    const uint64_t chunks = bytes / options.chunk_bytes + (bytes % options.chunk_bytes != 0);
    return {static_cast<uint32_t>(std::clamp<uint64_t>(chunks, 1, kMostChunks))};
  }
  // Where everybody sends to everybody within one host, the cores that reduce are those that copy:
  // chunks overlap nothing, they only cost.
  const bool symmetric = request.collective == Collective::all_reduce ||
                         request.collective == Collective::all_gather ||
                         request.collective == Collective::reduce_scatter;
  if (symmetric && within_one_host(tree))
    return {static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kHostChunkBytes, 1, kMostChunks))};
  std::vector<uint32_t> counts{1};
  const uint64_t smallest = std::max(
      kMinChunkBytes, has_blocks(request) ? kMinSliceBytes * static_cast<uint64_t>(ranks) : 0);
  for (uint32_t c = 2; c <= kMaxChunks && bytes / c >= smallest; c *= 2) counts.push_back(c);
  return counts;
}

uint64_t saturated(Wide ns) { return ns > ~uint64_t{0} ? ~uint64_t{0} : static_cast<uint64_t>(ns); }

// A message takes most of its time where it is sent, up to the receiver's socket or adapter.
constexpr uint64_t kReceivedAsPosted = 2;
uint64_t posts_ns(const Estimate& estimate, uint64_t post_ns) {
  return std::max(estimate.messages * post_ns, estimate.received * post_ns / kReceivedAsPosted);
}

// What a chunk's messages cost: the busiest rank's one after the other, or all together on the
// cores that ranks share, whichever is more.
uint64_t posting_ns(const Estimate& estimate, const TierTree& tree, const CostModel& cost) {
  if (within_one_host(tree)) return posts_ns(estimate, cost.shared_memory_post_ns);
  const uint64_t busiest = posts_ns(estimate, cost.post_ns);
  if (cost.crowding_permille <= 1000) return busiest;
  const auto ranks = static_cast<uint64_t>(tree.ranks());
  const uint64_t all = estimate.all_messages ? estimate.all_messages : estimate.messages * ranks;
  return std::max(
      busiest, saturated(Wide{all} * cost.message_cpu_ns * cost.crowding_permille / 1000 / ranks));
}

// Of two loads that run at the same time, this part of the lesser is not hidden behind the greater:
// messages of one call queue behind those of another.
constexpr uint64_t kUnhidden = 8;

// Where data goes one way, its root may be done before the others are, and in use as in `sennit
// tune` something follows in which all ranks meet: at the least a barrier, two messages for each
// rank. Known of ranks that share cores.
uint64_t meeting_ns(const Request& request, const CostModel& cost) {
  if (!has_root(request.collective) || cost.crowding_permille <= 1000) return 0;
  return saturated(Wide{2} * cost.message_cpu_ns * cost.crowding_permille / 1000);
}

// One call as it takes its turn among calls in a row. A burst passes at once, so messages do not
// wait for the wire hop after hop; but what has passed must be earned again at the rate, so no call
// takes less than its busiest boundary does at its rate, but for what is earned between the calls.
uint64_t predict_ns(const Estimate& estimate, uint32_t chunks, uint64_t posting_ns,
                    uint64_t between_ns, const std::vector<TierCost>& tiers, const CostModel& cost,
                    bool rates_known) {
  const uint64_t reduction =
      saturated(Wide{estimate.reduce_bytes} * 1'000'000'000 / cost.reduce_bytes_per_s);
  Wide sum = 0, all = 0, waiting = 0;
  uint64_t largest = 0, busiest = 0;
  for (size_t tier = 0; tier < estimate.tier_ns.size(); tier++) {
    const uint64_t ns = estimate.tier_ns[tier], goodput = tiers[tier].goodput_permille;
    const uint64_t waits = ns <= tiers[tier].burst_ns ? 0 : ns - tiers[tier].burst_ns;
    const uint64_t waits_ns = saturated(Wide{waits} * 1000 / goodput);
    busiest = std::max(busiest, saturated(Wide{ns} * 1000 / goodput));
    largest = std::max(largest, waits_ns);
    sum += waits_ns;
    all += ns;
    waiting += waits;
  }
  if (estimate.way_ns > 0 && estimate.way_ns < all)
    sum = std::max(Wide{largest}, sum * estimate.way_ns / all);
  sum += reduction;
  largest = std::max(largest, reduction);
  sum += all == waiting ? Wide{estimate.fill_ns} : Wide{estimate.fill_ns} * waiting / all;
  const uint64_t alone =
      saturated(Wide{estimate.latency_ns} + Wide{posting_ns} * (rates_known ? chunks : 1) +
                sum / chunks + largest - largest / chunks);
  if (all == waiting) return alone;
  busiest -= std::min(busiest, between_ns);
  const Wide unhidden =
      Wide{std::min(alone, busiest)} * ((all - waiting) * 1000 / all) / 1000 / kUnhidden;
  return saturated(Wide{std::max(alone, busiest)} + unhidden);
}

std::string known_names() {
  std::vector<std::string_view> names;
  for (const Algorithm* a : algorithms()) names.push_back(a->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string names_that_apply(const TierTree& tree, const Request& request) {
  std::vector<std::string_view> names;
  for (const Algorithm* a : algorithms())
    if (a->applies(tree, request)) names.push_back(a->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

// Without in_place: ranks may differ in that, it changes no message.
uint64_t plan_hash(const Request& request, const TierTree& tree, const Plan& plan) {
  uint64_t hash = mix(0x73656e6e6974ull, tree.fingerprint());
  for (const uint64_t x :
       {static_cast<uint64_t>(request.collective), static_cast<uint64_t>(request.type),
        static_cast<uint64_t>(request.op), static_cast<uint64_t>(request.root), request.count,
        static_cast<uint64_t>(request.vector_variant), uint64_t{request.counts.size()}})
    hash = mix(hash, x);
  for (const uint64_t c : request.counts) hash = mix(hash, c);
  for (const char c : plan.algorithm) hash = mix(hash, static_cast<unsigned char>(c));
  hash = mix(mix(hash, plan.parameters.chunks), plan.parameters.whole_stages);
  for (const uint16_t r : plan.parameters.radices) hash = mix(hash, r);
  return hash;
}

// Between two ranks there is nothing to choose.
void plan_point_to_point(const Request& request, const TierTree& tree, const CostModel& cost,
                         Plan& plan) {
  uint64_t rate = cost.nic_bytes_per_s;
  for (size_t g = 1; g < tree.groups.size(); g++)
    if (tree.groups[g].egress.known()) rate = std::min(rate, tree.groups[g].egress.bytes_per_s);
  plan.algorithm = "direct";
  plan.predicted_ns = saturated(Wide{planning_latency_ns(tree, 0, cost)} + cost.post_ns +
                                Wide{message_bytes(request, 2)} * 1'000'000'000 / rate);
  plan.candidates.push_back({plan.algorithm, plan.parameters, plan.predicted_ns, "", 0});
}

// Whether every sum's order follows from the tree alone. Tiered with one direct stage per tier adds
// a group's children in their order, whole or split; a ring begins each block at a fixed rank; a
// chain has one order.
bool fixes_order(const Request& request, const Algorithm& algorithm, const Parameters& parameters) {
  switch (request.collective) {
    case Collective::all_reduce:
      return algorithm.name() == "tiered" && parameters.radices.empty();
    case Collective::reduce_scatter:
      return algorithm.name() == "ring";
    case Collective::reduce:
      return algorithm.name() == "chain";
    default:
      return true;
  }
}

}  // namespace

Status check_algorithm(const std::string& name) {
  if (name.empty() || find_algorithm(name)) return {};
  return {SENNIT_NOT_FOUND,
          fmt::format("there is no algorithm '{}': SENNIT_ALGORITHM may be one of {}", name,
                      known_names())};
}

Result<Plan> make_plan(const Request& request, const TierTree& tree, const PlanOptions& options) {
  SENNIT_RETURN_IF_ERROR(check_size(request, tree.ranks()));
  Plan plan;
  plan.asked_for = !options.algorithm.empty() || options.chunk_bytes != 0;
  plan.bound = lower_bound(request, tree);
  if (request.collective == Collective::send_recv) {
    plan_point_to_point(request, tree, options.cost, plan);
    plan.hash = plan_hash(request, tree, plan);
    return plan;
  }
  if (!options.algorithm.empty()) {
    const Algorithm* forced = find_algorithm(options.algorithm);
    if (!forced) return check_algorithm(options.algorithm);
    if (!forced->applies(tree, request))
      return Status(
          SENNIT_UNSUPPORTED,
          fmt::format("algorithm '{}' cannot do this {}: SENNIT_ALGORITHM may be one of {}",
                      options.algorithm, name(request.collective),
                      names_that_apply(tree, request)));
  }
  const bool rates_known = tree.capacities_known() || within_one_host(tree);
  const std::vector<TierCost> tiers = tier_costs(tree, options.cost);
  const uint64_t between = meeting_ns(request, options.cost);
  for (const Algorithm* algorithm : algorithms()) {
    if (!options.algorithm.empty() && !options.reproducible &&
        algorithm->name() != options.algorithm)
      continue;
    if (!algorithm->applies(tree, request)) continue;
    const std::vector<uint32_t> counts = chunk_counts(*algorithm, request, tree, options);
    for (const Parameters& parameters : algorithm->candidates(tree, request)) {
      if (options.reproducible && !fixes_order(request, *algorithm, parameters)) continue;
      const Estimate estimate = algorithm->estimate(tree, request, parameters, options.cost);
      const uint64_t posting = posting_ns(estimate, tree, options.cost);
      Candidate best{std::string(algorithm->name()), parameters, ~uint64_t{0}, "", 0};
      for (const uint32_t chunks : counts) {
        const uint64_t ns =
            predict_ns(estimate, chunks, posting, between, tiers, options.cost, rates_known);
        if (ns >= best.predicted_ns) continue;
        best.predicted_ns = ns;
        best.parameters.chunks = chunks;
      }
      plan.candidates.push_back(std::move(best));
    }
  }
  if (plan.candidates.empty())
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("no algorithm can do this {}", name(request.collective)));
  std::stable_sort(
      plan.candidates.begin(), plan.candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.predicted_ns < b.predicted_ns; });
  const Candidate& best = plan.candidates.front();
  for (size_t i = 1; i < plan.candidates.size(); i++) {
    Candidate& c = plan.candidates[i];
    const Wide percent = Wide{c.predicted_ns} * 100 / std::max<uint64_t>(1, best.predicted_ns);
    c.rejected = percent <= 100 ? std::string("no faster")
                                : fmt::format("{}.{:02} times the choice",
                                              static_cast<uint64_t>(percent / 100),
                                              static_cast<uint64_t>(percent % 100));
  }
  choose(request, tree, 0, &plan);
  return plan;
}

void choose(const Request& request, const TierTree& tree, size_t choice, Plan* plan) {
  const Candidate& candidate = plan->candidates[choice];
  plan->algorithm = candidate.algorithm;
  plan->parameters = candidate.parameters;
  plan->predicted_ns = candidate.predicted_ns;
  plan->hash = plan_hash(request, tree, *plan);
}

uint64_t predicted_ns(const Request& request, const TierTree& tree, const PlanOptions& options,
                      std::string_view algorithm, const Parameters& parameters) {
  const Algorithm* found = find_algorithm(algorithm);
  SENNIT_CHECK(found && found->applies(tree, request));
  const Estimate estimate = found->estimate(tree, request, parameters, options.cost);
  return predict_ns(estimate, parameters.chunks, posting_ns(estimate, tree, options.cost),
                    meeting_ns(request, options.cost), tier_costs(tree, options.cost), options.cost,
                    tree.capacities_known() || within_one_host(tree));
}

}  // namespace sennit
