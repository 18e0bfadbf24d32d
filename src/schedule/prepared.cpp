// prepared.cpp: see schedule/prepared.hpp.
#include "schedule/prepared.hpp"

#include <unordered_map>

namespace sennit {
namespace {

// FNV-1a over the bytes of numbers, the lowest byte first.
class Fnv {
 public:
  void add(uint64_t value) {
    for (size_t i = 0; i < sizeof value; i++)
      hash_ = (hash_ ^ ((value >> (8 * i)) & 0xff)) * kPrime;
  }
  uint64_t value() const { return hash_; }

 private:
  static constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325ull;
  static constexpr uint64_t kPrime = 0x100000001b3ull;
  uint64_t hash_ = kOffsetBasis;
};

}  // namespace

uint64_t signature_of(const Request& request, uint64_t plan_hash) {
  Fnv fnv;
  fnv.add(static_cast<uint64_t>(request.collective));
  fnv.add(static_cast<uint64_t>(request.type));
  fnv.add(static_cast<uint64_t>(request.op));
  fnv.add(static_cast<uint64_t>(request.root));
  fnv.add(request.count);
  fnv.add(request.vector_variant);
  for (const uint64_t c : request.counts) fnv.add(c);
  fnv.add(plan_hash);
  return fnv.value();
}

std::shared_ptr<Prepared> prepare(const Request& request, Plan plan, Program program) {
  auto prepared = std::make_shared<Prepared>();
  Prepared& p = *prepared;
  p.request = request;
  p.signature = signature_of(request, plan.hash);
  p.plan = std::move(plan);
  p.program = std::move(program);

  const size_t steps = p.program.steps.size();
  p.initial_deps.resize(steps);
  p.first_dependent.assign(steps + 1, 0);
  p.peer_slot.assign(steps, 0);
  p.slot_readers.assign(p.program.slots.size(), 0);
  p.slot_filler.assign(p.program.slots.size(), -1);
  for (const Step& step : p.program.steps)
    for (const uint32_t dep : p.program.deps_of(step)) p.first_dependent[dep + 1]++;
  for (size_t i = 0; i < steps; i++) p.first_dependent[i + 1] += p.first_dependent[i];
  p.dependents.resize(p.program.deps.size());
  std::vector<uint32_t> next(p.first_dependent.begin(), p.first_dependent.end() - 1);
  std::unordered_map<int32_t, uint32_t> slot_of_peer;
  for (uint32_t i = 0; i < steps; i++) {
    const Step& step = p.program.steps[i];
    const auto deps = p.program.deps_of(step);
    p.initial_deps[i] = static_cast<uint32_t>(deps.size());
    if (deps.empty()) p.ready_at_start.push_back(i);
    for (const uint32_t dep : deps) p.dependents[next[dep]++] = i;
    if (step.kind == StepKind::send) {
      const auto [found, added] =
          slot_of_peer.try_emplace(step.peer, static_cast<uint32_t>(p.peers.size()));
      if (added) p.peers.push_back(step.peer);
      p.peer_slot[i] = found->second;
    }
    for (const Operand& source : p.program.sources_of(step))
      if (source.buffer == Buffer::slot) p.slot_readers[source.slot]++;
    if (step.kind == StepKind::recv && step.target.buffer == Buffer::slot &&
        p.program.slots[step.target.slot].may_expose)
      p.slot_filler[step.target.slot] = static_cast<int32_t>(i);
  }
  return prepared;
}

}  // namespace sennit
