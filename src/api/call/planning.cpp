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
  return planned(request, memory, every_chunk, may_tune_ ? measured(request) : nullptr);
}

Result<Plan> Planning::plan_by_model(const Request& request, Memory memory) const {
  return planned(request, memory, false, nullptr);
}

Result<Plan> Planning::planned(const Request& request, Memory memory, bool every_chunk,
                               const Tuned* tuned) const {
  Request shared = request;
  shared.in_place = false;  // a matter of each rank's own; the plan must be the same everywhere
  PlanOptions options = options_;
  options.every_chunk = every_chunk;
  const Algorithm* forced = options.algorithm.empty() ? nullptr : find_algorithm(options.algorithm);
  if (forced && !forced->applies(planned_, shared)) options.algorithm.clear();
  if (!options.reproducible) tuning_.calibrate(tree_, &options.cost);
  PlanOptions on_device = options;
  on_device.cost = device_memory_cost(options.cost);
  // A sum has the bits that it has on the host, so it is made as there.
  const bool as_on_host = memory == Memory::host || request.reduces();
  Result<Plan> plan = make_plan(shared, planned_, as_on_host ? options : on_device);
  if (!plan) return plan;
  if (as_on_host && tuned) apply(*tuned, request, tree_, &*plan);
  if (memory == Memory::host) return plan;
  if (as_on_host)
    plan->predicted_ns =
        predicted_ns(shared, planned_, on_device, plan->algorithm, plan->parameters);
  plan->hash = mix(plan->hash, kOnDevice);
  return plan;
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
  asked_for_ = {};  // its verdicts are of one tree
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
