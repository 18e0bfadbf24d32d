// planning.cpp: see api/call/planning.hpp.
#include "api/call/planning.hpp"

#include <limits>
#include <utility>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "cost/rates.hpp"

namespace sennit {
namespace {

// Recordings, and what judges a job by them, know calls by their plans' hashes, and what these
// should take. On a device that is not what it is on the host.
constexpr uint64_t kOnDevice = 0x9e3779b97f4a7c15;

}  // namespace

Planning::Planning(TierTree tree, const PlanOptions& options, bool may_tune, Tuning tuning)
    : tree_(std::move(tree)),
      planned_(tree_),
      fingerprint_(tree_.fingerprint()),
      options_(options),
      may_tune_(may_tune),
      tuning_(std::move(tuning)) {}

Result<Plan> Planning::plan(const Request& request, Memory memory, bool every_chunk) const {
  if (memory == Memory::device && !request.reduces()) return moved_on_device(request);
  Result<Plan> plan = by_model(request, every_chunk);
  const Tuned* const tuned = may_tune_ ? measured(request) : nullptr;
  if (plan && tuned) apply(*tuned, request, tree_, &*plan);
  return plan && memory == Memory::device ? summed_on_device(request, *std::move(plan)) : plan;
}

Result<Plan> Planning::plan_by_model(const Request& request, Memory memory) const {
  if (memory == Memory::device && !request.reduces()) return moved_on_device(request);
  Result<Plan> plan = by_model(request, false);
  return plan && memory == Memory::device ? summed_on_device(request, *std::move(plan)) : plan;
}

// `in_place` is a matter of each rank's own; the plan must be the same everywhere.
Request Planning::shared(Request request) {
  request.in_place = false;
  return request;
}

PlanOptions Planning::options_for(const Request& request) const {
  PlanOptions options = options_;
  const Algorithm* forced = options.algorithm.empty() ? nullptr : find_algorithm(options.algorithm);
  if (forced && !forced->applies(planned_, request)) options.algorithm.clear();
  if (!options.reproducible) tuning_.calibrate(tree_, &options.cost);
  return options;
}

Result<Plan> Planning::by_model(const Request& request, bool every_chunk) const {
  const Request all = shared(request);
  PlanOptions options = options_for(all);
  options.every_chunk = every_chunk;
  return make_plan(all, planned_, options);
}

PlanOptions Planning::options_on_device(const Request& request) const {
  PlanOptions options = options_for(request);
  options.cost = device_memory_cost(std::move(options.cost));
  return options;
}

Result<Plan> Planning::moved_on_device(const Request& request) const {
  const Request all = shared(request);
  Result<Plan> plan = make_plan(all, planned_, options_on_device(all));
  if (plan) plan->hash = mix(plan->hash, kOnDevice);
  return plan;
}

// A sum has the bits that it has on the host, so it is made as there.
Plan Planning::summed_on_device(const Request& request, Plan on_host) const {
  const Request all = shared(request);
  on_host.predicted_ns =
      predicted_ns(all, planned_, options_on_device(all), on_host.algorithm, on_host.parameters);
  on_host.hash = mix(on_host.hash, kOnDevice);
  return on_host;
}

Result<std::shared_ptr<const Prepared>> Planning::prepare(const Request& request, Memory memory,
                                                          const Plan* given, int position) {
  Result<Plan> plan = given ? *given : this->plan(request, memory);
  if (!plan) return plan.status();
  const Algorithm* const algorithm = find_algorithm(plan->algorithm);
  SENNIT_CHECK(algorithm != nullptr);
  SENNIT_RETURN_IF_ERROR(asked_for_.check(planned_, request, *plan));
  Program program = algorithm->prepare(planned_, request, plan->parameters)->program(position);
  std::shared_ptr<Prepared> prepared =
      sennit::prepare(request, *std::move(plan), std::move(program));
  prepared->description = describe_request(request, tree_);
  prepared->fabric_version = version_->number;
  return std::shared_ptr<const Prepared>(std::move(prepared));
}

std::shared_ptr<const Prepared> Planning::prepare_message(const Request& request, bool receiving,
                                                          int position) const {
  ProgramBuilder builder;
  const Range whole{0, 0, kUnits};
  // Where the source is not known yet, any will do: the execution is told later.
  const int peer =
      request.root == SENNIT_ANY_SOURCE ? (position + 1) % tree_.ranks() : request.root;
  const int tier = tree_.crossing_tier(position, peer);
  if (receiving)
    builder.recv(peer, builder.output({&whole, 1}), tier, true);
  else
    builder.send(peer, builder.input({&whole, 1}), tier, true);
  Plan direct;
  direct.algorithm = "point to point";
  std::shared_ptr<Prepared> prepared =
      sennit::prepare(request, std::move(direct), builder.finish());
  // Both ends have the other as root; the signature must not tell them apart.
  Request shared = request;
  shared.root = 0;
  prepared->signature = signature_of(shared, 0);
  prepared->description = describe_message(request, receiving, tree_);
  return prepared;
}

void Planning::use(FabricVersionPointer version) {
  version_ = std::move(version);
  planned_ = slowed(tree_, version_->slow);
}

Tuning Planning::learn(const Request& request, const Plan& winner, double measured_us) {
  Tuning found;
  if (measured_us < std::numeric_limits<double>::infinity())
    found.set(fingerprint_, request, tree_.ranks(),
              {winner.algorithm, winner.parameters, winner.predicted_ns,
               static_cast<uint64_t>(measured_us * 1e3)});
  tuning_.merge(found);
  return found;
}

}  // namespace sennit
