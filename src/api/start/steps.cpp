// steps.cpp: see api/start/steps.hpp.
#include "api/start/steps.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/descriptors.hpp"
#include "plan/message_cost.hpp"
#include "topology/source.hpp"
#include "watch/watch.hpp"

namespace sennit {
namespace {

// For the engine, the transports themselves and a look at the machine; connections come on top.
constexpr size_t kLeastDescriptors = 16;
// What is asked for: that and some more, and a connection each way to every rank.
constexpr size_t kDescriptorsBesidesPeers = 64;
constexpr size_t kDescriptorsPerPeer = 2;

bool asked_for(std::string_view transport) {
  const std::string list = "," + option_text("SENNIT_TRANSPORTS") + ",";
  return list.find("," + std::string(transport) + ",") != std::string::npos;
}

bool allowed(std::string_view transport) {
  return option_text("SENNIT_TRANSPORTS").empty() || asked_for(transport);
}

// Empty where there are enough; else what to do.
std::string reserve_for_peers(const Control& control) {
  if (control.size() == 1) return "";
  const size_t left = reserve_descriptors(
      kDescriptorsBesidesPeers + kDescriptorsPerPeer * static_cast<size_t>(control.size()));
  if (left >= kLeastDescriptors) return "";
  return fmt::format("rank {} on host {}: {}", control.rank(), this_host(),
                     descriptors_lacking("the transports", kLeastDescriptors, left));
}

TransportContext context_for_transports(const Control& control, const HostSharing& hosts,
                                        const JobOptions& options) {
  TransportContext context;
  context.rank = control.rank();
  context.size = control.size();
  context.job = control.job();
  context.secret = control.secret();
  context.sealed = control.sealed();
  context.host_interface = control.interface_address();
  context.local_ranks = hosts.here.ranks;
  context.speaker = hosts.speaker_for(control.rank());
  context.eager_bytes = options.eager_bytes;
  return context;
}

// Starts what this build has and SENNIT_TRANSPORTS allows. `missing` gets a line for each that does
// not start.
std::vector<std::unique_ptr<Transport>> make_transports(TransportContext context,
                                                        std::string* missing) {
  std::vector<std::unique_ptr<Transport>> made;
  if (context.size == 1) return made;
  for (const TransportFactory& factory : transports()) {
    if (!allowed(factory.name)) continue;
    context.asked_for = asked_for(factory.name);
    Result<std::unique_ptr<Transport>> transport = factory.make(context);
    if (transport) {
      made.push_back(*std::move(transport));
      continue;
    }
    const Status& why = transport.status();
    log(why.kind() == SENNIT_OUT_OF_RESOURCES ? LogLevel::warn : LogLevel::info,
        "transport {} is not used: {}", factory.name, why.text());
    *missing += fmt::format("\n  {}: {}", factory.name, why.text());
  }
  return made;
}

TransportOffer offer_of(const std::vector<std::unique_ptr<Transport>>& made, bool one_machine) {
  TransportOffer offer;
  offer.placement = place_this_process(this_host());
  for (const auto& transport : made)
    offer.addresses.emplace(transport->name(), transport->address());
  // The first that carries anything between hosts carries it all.
  for (const auto& transport : made) {
    const std::optional<WireOverhead> overhead = transport->wire_overhead(one_machine);
    if (!overhead) continue;
    offer.payload_permille = overhead->payload_permille;
    offer.message_bytes = overhead->message_bytes;
    offer.rdma = overhead->rdma;
    break;
  }
  return offer;
}

std::vector<std::string_view> transports_open_to_readers() {
  std::vector<std::string_view> names;
  for (const TransportFactory& factory : transports())
    if (!factory.keeps_secrets) names.push_back(factory.name);
  return names;
}

// On rank 0, where ranks share cores. The others wait for its word, asleep, so nothing disturbs it.
void measure_messages(CostModel* cost) {
  if (!cost->shared_cores.crowded()) return;
  const uint64_t measured = measure_message_cpu_ns();
  if (measured > 0) cost->shared_cores.message_cpu_ns = measured;
  log(LogLevel::info, "ranks share cores; a message between hosts costs one {} ns", measured);
}

}  // namespace

Status check_transport_names() {
  std::vector<std::string_view> names;
  for (const TransportFactory& factory : transports()) names.push_back(factory.name);
  std::stringstream list(option_text("SENNIT_TRANSPORTS"));
  for (std::string name; std::getline(list, name, ',');)
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      return invalid(fmt::format("SENNIT_TRANSPORTS: this build has no transport '{}'; it has {}",
                                 name, fmt::join(names, ", ")));
  return {};
}

Status check_environment() {
  SENNIT_RETURN_IF_ERROR(check_options());
  SENNIT_RETURN_IF_ERROR(check_transport_names());
  return watch::digest_period().status();
}

Result<JobOptions> agree_on_options(Control& control, const JobSettings& settings) {
  Bytes mine;
  if (control.rank() == 0) mine = JobOptions::from_environment(settings).encode();
  const Result<Bytes> agreed = control.broadcast(mine);
  if (!agreed) return agreed.status();
  Result<JobOptions> options = JobOptions::decode(*agreed);
  if (options) SENNIT_RETURN_IF_ERROR(options->check());
  return options;
}

Result<HostSharing> agree_on_hosts(Control& control) {
  const Whereabouts mine{CoreSight::look(), reserve_for_peers(control)};
  const Result<std::vector<Bytes>> told = control.all_gather(mine.encode());
  if (!told) return told.status();
  const Result<std::vector<Whereabouts>> all = decode_all<Whereabouts>(*told);
  if (!all) return all.status();
  return share_hosts(*all, control.rank());
}

Result<ConnectedTransports> start_transports(Control& control, const HostSharing& hosts,
                                             const JobOptions& options, CostModel* cost) {
  const TransportContext context = context_for_transports(control, hosts, options);
  ConnectedTransports connected;
  connected.transports = make_transports(context, &connected.missing);
  TransportOffer mine = offer_of(connected.transports, hosts.one_machine);
  if (connected.transports.empty() && context.size > 1)
    mine.error =
        "no transport could be started (SENNIT_TRANSPORTS chooses among them):" + connected.missing;

  const Result<std::vector<Bytes>> told = control.all_gather(mine.encode());
  if (!told) return told.status();
  const Result<std::vector<TransportOffer>> offers = decode_all<TransportOffer>(*told);
  if (!offers) return offers.status();
  SENNIT_RETURN_IF_ERROR(check_offers(*offers));
  if (context.sealed)
    SENNIT_RETURN_IF_ERROR(check_sealed(*offers, hosts, transports_open_to_readers()));
  set_wire_cost(*offers, cost);
  cost->eager_bytes = options.eager_bytes;
  std::vector<std::string_view> names;
  for (const auto& transport : connected.transports) names.push_back(transport->name());
  connected.addresses = addresses_of(*offers, names);
  for (const TransportOffer& offer : *offers) connected.placements.push_back(offer.placement);
  return connected;
}

Result<AgreedFabric> agree_on_fabric(Control& control, const HostSharing& hosts,
                                     const JobOptions& options, const std::string& host,
                                     const std::string& file, CostModel* cost) {
  const SourceContext context{host, file.empty() ? option_text("SENNIT_FABRIC") : file};
  Bytes inside;
  if (hosts.speaks_for_host(control.rank()))
    inside = HostFabric(read_sources(context, true)).encode();
  const Result<std::vector<Bytes>> of_hosts = control.all_gather(inside);
  if (!of_hosts) return of_hosts.status();
  Result<Fabric> merged{Fabric{}};
  if (control.rank() == 0) {
    merged = merge_fabrics(read_sources(context, false), *of_hosts);
    if (hosts.here.ranks != control.size()) measure_messages(cost);
  }
  return tell_fabric(control, merged, options, cost);
}

Result<AgreedFabric> tell_fabric(Control& control, const Result<Fabric>& of_rank_0,
                                 const JobOptions& options, CostModel* cost) {
  FabricVerdict mine;
  mine.message_cpu_ns = cost->shared_cores.message_cpu_ns;
  if (!of_rank_0)
    mine.error = of_rank_0.status().text();
  else
    mine.fabric = of_rank_0->to_text();
  if (of_rank_0 && options.tune != "again" && control.rank() == 0) {
    const Result<Tuning> known = Tuning::read(tuning_path(of_rank_0->fingerprint()));
    if (!known)
      mine.error = known.status().text();
    else if (!known->empty())
      mine.tuning = known->to_text();
  }
  const Result<Bytes> agreed = control.broadcast(control.rank() == 0 ? mine.encode() : Bytes{});
  if (!agreed) return agreed.status();
  const Result<FabricVerdict> verdict = FabricVerdict::decode(*agreed);
  if (!verdict) return verdict.status();
  if (!verdict->error.empty()) return invalid(verdict->error);
  Result<Fabric> fabric = parse_fabric(verdict->fabric, "the job's fabric");
  if (!fabric) return fabric.status();
  Result<Tuning> tuning = Tuning::parse(verdict->tuning, "the job's tuning");
  if (!tuning) return tuning.status();
  cost->shared_cores.message_cpu_ns = verdict->message_cpu_ns;
  return AgreedFabric{*std::move(fabric), *std::move(tuning)};
}

}  // namespace sennit
