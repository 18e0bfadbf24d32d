// registry.cpp: the list of transports. Each transport's file adds itself with
// SENNIT_TRANSPORT_ENTRY before main() runs; afterwards the list does not change, so it needs no
// lock. Where SENNIT_FAULTS is set, what a factory makes is wrapped (transports/faulty.hpp).
#include <algorithm>

#include "base/options.hpp"
#include "transports/faulty.hpp"
#include "transports/transport.hpp"

namespace sennit {
namespace {

std::vector<TransportFactory>& registered() {
  static std::vector<TransportFactory> list;
  return list;
}

using Made = Result<std::unique_ptr<Transport>>;

Made with_faults(Made made, const TransportContext& context) {
  const std::string text = option_text("SENNIT_FAULTS");
  if (text.empty() || !made) return made;
  const Result<FaultPlan> plan = parse_faults(text);
  if (!plan) return plan.status();
  if (plan->rank >= 0 && plan->rank != context.rank) return made;
  if (!plan->transport.empty() && plan->transport != (*made)->name()) return made;
  return make_faulty(std::move(*made), *plan);
}

}  // namespace

std::span<const TransportFactory> transports() { return registered(); }

TransportEntry::TransportEntry(TransportFactory factory) {
  std::vector<TransportFactory>& list = registered();
  const auto place = std::find_if(list.begin(), list.end(), [&](const TransportFactory& other) {
    return other.priority < factory.priority ||
           (other.priority == factory.priority && other.name > factory.name);
  });
  factory.make = [make = std::move(factory.make)](const TransportContext& context) {
    return with_faults(make(context), context);
  };
  list.insert(place, std::move(factory));
}

}  // namespace sennit
