#include "api/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "api/communicator.hpp"
#include "api/probe.hpp"
#include "base/descriptors.hpp"
#include "base/json_bytes.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "plan/cores.hpp"
#include "plan/message_cost.hpp"
#include "plan/shared_cores.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::byte>;

Json::binary_t to_binary(const Bytes& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return Json::binary_t(std::vector<uint8_t>(data, data + bytes.size()));
}

Bytes to_bytes(const Json::binary_t& binary) {
  const auto* data = reinterpret_cast<const std::byte*>(binary.data());
  return {data, data + binary.size()};
}

// For the engine, the transports themselves and a look at the machine; connections come on top.
constexpr size_t kLeastDescriptors = 16;
constexpr uint32_t kSplitNumbersEnd = 0x70000000;

bool asked_for(std::string_view transport) {
  const std::string list = "," + option_text("SENNIT_TRANSPORTS") + ",";
  return list.find("," + std::string(transport) + ",") != std::string::npos;
}
bool allowed(std::string_view transport) {
  return option_text("SENNIT_TRANSPORTS").empty() || asked_for(transport);
}

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

}  // namespace

Result<std::shared_ptr<Context>> Context::start(BootstrapOptions bootstrap,
                                                const std::string& fabric_file,
                                                const std::string& algorithm) {
  SENNIT_RETURN_IF_ERROR(check_options());
  SENNIT_RETURN_IF_ERROR(check_transport_names());
  if (bootstrap.size < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size)
    return invalid(
        fmt::format("rank {} of {}: expected 0 <= rank < size", bootstrap.rank, bootstrap.size));
  std::shared_ptr<Context> context(new Context);
  context->arrival_timeout_ms_ = bootstrap.arrival_timeout_ms;
  Result<std::unique_ptr<Control>> control =
      Control::start(bootstrap, context->control_callbacks());
  if (!control) return control.status();
  context->control_ = *std::move(control);
  SENNIT_RETURN_IF_ERROR(context->connect(fabric_file, algorithm));
  if (context->probe_ != "0" && context->size() > 1) SENNIT_RETURN_IF_ERROR(probe_fabric(context));
  return context;
}

Context::~Context() {
  if (control_) control_->leave();
  // Until they have stopped, the engine's helper may call into the control plane, and the control
  // thread into the engine.
  if (engine_) engine_->stop_helper();
  control_.reset();
  engine_.reset();
}

Status Context::connect(const std::string& fabric_file, const std::string& algorithm) {
  SENNIT_RETURN_IF_ERROR(agree_on_options(algorithm));
  SENNIT_RETURN_IF_ERROR(exchange_addresses());
  return agree_on_fabric(fabric_file);
}

// Rank 0's options hold for all: ranks that planned under different ones would run different
// schedules.
Status Context::agree_on_options(const std::string& algorithm) {
  const std::string wanted = algorithm.empty() ? option_text("SENNIT_ALGORITHM") : algorithm;
  const Json mine = {{"algorithm", wanted},
                     {"chunk_bytes", option_integer("SENNIT_CHUNK_BYTES")},
                     {"eager_bytes", option_integer("SENNIT_EAGER_BYTES")},
                     {"probe", option_text("SENNIT_PROBE")},
                     {"reproducible", option_flag("SENNIT_REPRODUCIBLE")},
                     {"tune", option_text("SENNIT_TUNE")}};
  const Result<Bytes> agreed = control_->broadcast(rank() == 0 ? pack(mine) : Bytes{});
  if (!agreed) return agreed.status();
  const Json options = unpack(*agreed);
  plan_options_.algorithm = options.value("algorithm", "");
  SENNIT_RETURN_IF_ERROR(check_algorithm(plan_options_.algorithm));
  plan_options_.chunk_bytes = options.value("chunk_bytes", uint64_t{0});
  probe_ = options.value("probe", "0");
  if (probe_ != "0" && probe_ != "1" && probe_ != "again")
    return invalid(fmt::format("SENNIT_PROBE is '{}': expected 0, 1 or again", probe_));
  plan_options_.reproducible = options.value("reproducible", false);
  tune_ = options.value("tune", "0");
  eager_bytes_ = options.value("eager_bytes", uint64_t{8192});
  return {};
}

Status Context::exchange_addresses() {
  // Who shares this host, and on how many cores, matters to how ranks wait, so it is learned before
  // transports are made.
  const CoreSight mine = CoreSight::look();
  Json seen = {{"host", mine.host}, {"machine", mine.machine}, {"cores", mine.cores}};
  if (const size_t left = size() == 1 ? kLeastDescriptors
                                      : reserve_descriptors(64 + 2 * static_cast<size_t>(size()));
      left < kLeastDescriptors)
    seen["error"] = fmt::format("rank {} on host {}: {}", rank(), this_host(),
                                descriptors_lacking("the transports", kLeastDescriptors, left));
  const Result<std::vector<Bytes>> told = control_->all_gather(pack(seen));
  if (!told) return told.status();
  std::vector<CoreSight> sights;
  for (const Bytes& bytes : *told) {
    const Json sight = unpack(bytes);
    if (sight.contains("error"))
      return {SENNIT_OUT_OF_RESOURCES, sight["error"].get<std::string>()};
    sights.push_back({sight.value("host", ""), sight.value("machine", ""),
                      sight.value("cores", std::vector<int>{})});
    host_keys_.push_back(sights.back().host);
  }
  const CoreShare here = share_of_host(sights, mine.host);
  local_ranks_ = here.ranks;
  plan_options_.cost.shared_cores.crowding_permille = crowding_permille(sights);
  one_machine_ = one_machine(sights);

  auto engine = std::make_unique<Engine>(
      here.ranks <= here.cores, static_cast<size_t>(option_integer("SENNIT_IN_FLIGHT_BYTES")),
      static_cast<uint64_t>(option_integer("SENNIT_STALL")) * 1'000'000, engine_callbacks());
  {
    // the control thread may be telling of a failure
    const std::lock_guard guard(communicators_mutex_);
    engine_ = std::move(engine);
  }
  TransportContext context;
  context.rank = rank();
  context.size = size();
  context.job = control_->job();
  context.secret = control_->secret();
  context.sealed = control_->sealed();
  context.host_interface = control_->interface_address();
  context.local_ranks = local_ranks_;
  context.eager_bytes = eager_bytes_;
  std::vector<std::unique_ptr<Transport>> made;
  const Placement place = place_this_process(this_host());
  Json hello = {{"host", place.host},
                {"numa", place.numa},
                {"nic", place.nic},
                {"addresses", Json::object()}};
  std::string reasons;
  for (const TransportFactory& factory : transports()) {
    if (size() == 1 || !allowed(factory.name)) continue;
    context.asked_for = asked_for(factory.name);
    Result<std::unique_ptr<Transport>> transport = factory.make(context);
    if (!transport) {
      log(transport.status().kind() == SENNIT_OUT_OF_RESOURCES ? LogLevel::warn : LogLevel::info,
          "transport {} is not used: {}", factory.name, transport.status().text());
      reasons += fmt::format("\n  {}: {}", factory.name, transport.status().text());
      continue;
    }
    hello["addresses"][std::string(factory.name)] = to_binary((*transport)->address());
    made.push_back(*std::move(transport));
  }
  // The first that carries anything between hosts carries it all.
  for (const auto& transport : made)
    if (const std::optional<WireOverhead> overhead = transport->wire_overhead(one_machine_)) {
      hello["payload_permille"] = overhead->payload_permille;
      hello["message_bytes"] = overhead->message_bytes;
      break;
    }
  // Told to all before anybody gives up: who left without a word would keep the others waiting.
  if (made.empty() && size() > 1)
    hello["error"] =
        "no transport could be started (SENNIT_TRANSPORTS chooses among them):" + reasons;

  const Result<std::vector<Bytes>> hellos = control_->all_gather(pack(hello));
  if (!hellos) return hellos.status();
  std::vector<std::vector<Bytes>> addresses(hellos->size());
  std::map<std::string_view, std::vector<size_t>> open_to_readers;  // ranks with such a transport
  for (size_t r = 0; r < hellos->size(); r++) {
    const Json other = unpack((*hellos)[r]);
    if (other.contains("error"))
      return {SENNIT_OUT_OF_RESOURCES,
              fmt::format("rank {} on host {}: {}", r, other.value("host", "?"),
                          other["error"].get<std::string>())};
    uint64_t& goodput = plan_options_.cost.goodput_permille;
    goodput = std::min(goodput, other.value("payload_permille", goodput));
    uint64_t& message_bytes = plan_options_.cost.message_bytes;
    message_bytes = std::max(message_bytes, other.value("message_bytes", message_bytes));
    for (const TransportFactory& factory : transports())
      if (!factory.keeps_secrets && other.value("addresses", Json::object()).contains(factory.name))
        open_to_readers[factory.name].push_back(r);
    placements_.push_back(
        {other.value("host", ""), other.value("numa", -1), other.value("nic", "")});
    for (const auto& transport : made) {
      const auto& table = other["addresses"];
      const auto found = table.find(std::string(transport->name()));
      addresses[r].push_back(found == table.end() ? Bytes{} : to_bytes(found->get_binary()));
    }
  }
  if (context.sealed)
    for (const auto& [name, ranks] : open_to_readers)
      for (const size_t r : ranks)
        if (host_keys_[r] != host_keys_[ranks[0]])
          return {SENNIT_REFUSED,
                  fmt::format("SENNIT_WIRE=sealed, but {} would carry what ranks {} and {} say to "
                              "each other between hosts, and {} cannot be sealed: set "
                              "SENNIT_TRANSPORTS=shm,tcp on all ranks, or SENNIT_WIRE=plain on a "
                              "network that you trust",
                              name, ranks[0], r, name)};
  engine_->set_transports(std::move(made), std::move(reasons));
  engine_->set_addresses(std::move(addresses));
  if (context.sealed) engine_->answer_while_idle();
  return {};
}

// One rank per host looks inside the host, rank 0 reads what describes the network; rank 0 merges
// and tells all.
Status Context::agree_on_fabric(const std::string& fabric_file) {
  const auto first_here =
      std::find(host_keys_.begin(), host_keys_.end(), host_keys_[static_cast<size_t>(rank())]);
  const bool leader = first_here - host_keys_.begin() == rank();
  const SourceContext context{placements_[static_cast<size_t>(rank())].host,
                              fabric_file.empty() ? option_text("SENNIT_FABRIC") : fabric_file};
  Json inside = Json::object();  // {"fabric": text} or {"error": text}
  const auto note = [](Json& json, const Result<Fabric>& fabric) {
    if (!fabric)
      json["error"] = fabric.status().text();
    else
      json["fabric"] = fabric->to_text();
  };
  if (leader) note(inside, read_sources(context, true));
  const Result<std::vector<Bytes>> all = control_->all_gather(leader ? pack(inside) : Bytes{});
  if (!all) return all.status();

  Result<Fabric> merged{Fabric{}};
  if (rank() == 0) {
    Result<Fabric> network = read_sources(context, false);
    Merger merger(network ? *network : Fabric{});
    for (const Bytes& bytes : *all) {
      if (bytes.empty() || !network) continue;
      const Json host = unpack(bytes);
      if (host.contains("error")) {
        network = invalid(host["error"].get<std::string>());
        continue;
      }
      Result<Fabric> fabric = parse_fabric(host.value("fabric", ""), "what a host told of itself");
      if (fabric)
        merger.add(*fabric, "host");
      else
        network = fabric.status();
    }
    merged = network ? Result<Fabric>(merger.take()) : network;
    measure_messages();
  }
  return agree_on_fabric(merged);
}

// The others wait for rank 0's word, asleep, so nothing disturbs it.
void Context::measure_messages() {
  CostModel& cost = plan_options_.cost;
  if (!cost.shared_cores.crowded() || local_ranks_ == size()) return;
  const uint64_t measured = measure_message_cpu_ns();
  if (measured > 0) cost.shared_cores.message_cpu_ns = measured;
  log(LogLevel::info, "ranks share cores; a message between hosts costs one {} ns", measured);
}

Status Context::agree_on_fabric(const Result<Fabric>& of_rank_0) {
  Json verdict = {{"message_cpu_ns", plan_options_.cost.shared_cores.message_cpu_ns}};
  if (!of_rank_0)
    verdict["error"] = of_rank_0.status().text();
  else
    verdict["fabric"] = of_rank_0->to_text();
  if (of_rank_0 && tune_ != "again") {
    const Result<Tuning> known = Tuning::read(tuning_path(of_rank_0->fingerprint()));
    if (known)
      verdict["tuning"] = known->empty() ? "" : known->to_text();
    else
      verdict["error"] = known.status().text();
  }
  const Result<Bytes> agreed = control_->broadcast(rank() == 0 ? pack(verdict) : Bytes{});
  if (!agreed) return agreed.status();
  const Json decision = unpack(*agreed);
  if (decision.contains("error")) return invalid(decision["error"].get<std::string>());
  Result<Fabric> fabric = parse_fabric(decision["fabric"].get<std::string>(), "the job's fabric");
  if (!fabric) return fabric.status();
  fabric_ = *std::move(fabric);
  Result<Tuning> tuning = Tuning::parse(decision.value("tuning", ""), "the job's tuning");
  if (!tuning) return tuning.status();
  tuning_ = *std::move(tuning);
  plan_options_.cost.shared_cores.message_cpu_ns =
      decision.value("message_cpu_ns", plan_options_.cost.shared_cores.message_cpu_ns);
  if (one_machine_) within_one_machine(&plan_options_.cost);
  return {};
}

bool Context::may_tune() const {
  return plan_options_.algorithm.empty() && plan_options_.chunk_bytes == 0 &&
         !plan_options_.reproducible;
}

// Measures between the first ranks of all hosts and merges what comes of it.
Status Context::probe_fabric(const std::shared_ptr<Context>& context) {
  ProbeRequest request;
  std::set<std::string> seen, names;
  for (size_t r = 0; r < context->host_keys_.size(); r++) {
    if (!seen.insert(context->host_keys_[r]).second) continue;
    request.rank_of_host.push_back(static_cast<int>(r));
    request.names.push_back(context->placements_[r].host);
    if (!names.insert(request.names.back()).second)
      return invalid(
          fmt::format("SENNIT_PROBE: two hosts are called '{}'; give them names of their own",
                      request.names.back()));
  }
  if (request.names.size() < 2) return {};
  request.one_pair_at_a_time = context->plan_options_.cost.shared_cores.crowded();
  request.again = context->probe_ == "again";
  Result<Fabric> probed = run_probe(context, request, context->fabric_);
  if (!probed) return probed.status();
  if (context->rank() == 0) *probed = merge(context->fabric_, *probed, "probe");
  return context->agree_on_fabric(probed);
}

// kWholeJob is 1. From 2 on the numbers go round the ranks, so that two ranks never hand out the
// same one; from kSplitNumbersEnd on they are for others than splits.
uint32_t Context::draw_communicator_number() {
  const uint64_t number = 2 +
                          static_cast<uint64_t>(numbers_drawn_++) * static_cast<uint64_t>(size()) +
                          static_cast<uint64_t>(rank());
  return number < kSplitNumbersEnd ? static_cast<uint32_t>(number) : 0;
}

void Context::add(Communicator* communicator) {
  const uint32_t comm = communicator->id();
  const std::lock_guard guard(communicators_mutex_);
  communicators_[comm] = communicator;
  if (!dead_.empty()) communicator->peers_failed(dead_, death_);
  for (const BrokenLink& link : broken_links_)
    if (communicator->has(link.a) && communicator->has(link.b)) communicator->fail(link.status);
  for (const EarlyFailure& failure : early_failures_)
    if (failure.comm == comm && communicator->has(failure.member))
      communicator->fail(failure.status);
  if (comm == kWholeJob) made(0);
}

void Context::remove(Communicator* communicator) {
  const uint32_t comm = communicator->id();
  const std::lock_guard guard(communicators_mutex_);
  communicators_.erase(comm);
  // Peers may still send, or return credit, on what this rank has left: that goes when no
  // communicator can be on its way to this rank.
  engine_->forget([&](uint32_t other) {
    return makings_.empty() ? !communicators_.contains(other) : other == comm;
  });
}

Context::Making::Making(Context& context)
    : context_(context), number_([&context] {
        const std::lock_guard guard(context.communicators_mutex_);
        context.makings_.insert(context.next_making_);
        return context.next_making_++;
      }()) {}

Context::Making::~Making() {
  const std::lock_guard guard(context_.communicators_mutex_);
  context_.made(number_);
}

void Context::made(uint64_t making) {
  makings_.erase(making);
  std::erase_if(early_failures_, [&](const EarlyFailure& failure) {
    return makings_.empty() || failure.last_making < *makings_.begin();
  });
}

void Context::peers_failed(const std::vector<int>& failed, const Status& status) {
  Engine* engine = nullptr;
  {
    const std::lock_guard guard(communicators_mutex_);
    dead_ = failed, death_ = status;  // all so far
    for (auto& [id, communicator] : communicators_) communicator->peers_failed(failed, status);
    engine = engine_.get();
  }
  for (const int peer : failed)
    if (engine && peer != rank()) engine->fail_peer(peer, status);
}

void Context::link_failed(int a, int b, const Status& status) {
  const std::lock_guard guard(communicators_mutex_);
  broken_links_.push_back({a, b, status});
  for (auto& [id, communicator] : communicators_)
    if (communicator->has(a) && communicator->has(b)) communicator->fail(status);
}

// A communicator that this rank does not have can come to it only out of a split that it is in:
// nobody else has made it before this rank took part in that.
void Context::communicator_failed(uint32_t comm, int member, const Status& status) {
  const std::lock_guard guard(communicators_mutex_);
  if (const auto found = communicators_.find(comm); found != communicators_.end()) {
    if (found->second->has(member)) found->second->fail(status);
  } else if (!makings_.empty()) {
    early_failures_.push_back({comm, member, status, *makings_.rbegin()});
  }
}

Control::Callbacks Context::control_callbacks() {
  Control::Callbacks callbacks;
  callbacks.peers_failed = [this](const std::vector<int>& failed, const Status& status) {
    peers_failed(failed, status);
  };
  callbacks.communicator_failed = [this](uint32_t comm, int member, const Status& status) {
    communicator_failed(comm, member, status);
  };
  callbacks.link_failed = [this](int a, int b, const Status& status) { link_failed(a, b, status); };
  callbacks.describe = [this](uint32_t comm, uint32_t seq, CallDescriptor* out) {
    const std::lock_guard guard(communicators_mutex_);
    const auto found = communicators_.find(comm);
    return found != communicators_.end() && found->second->describe(seq, out);
  };
  callbacks.members = [this](uint32_t comm) {
    const std::lock_guard guard(communicators_mutex_);
    const auto found = communicators_.find(comm);
    return found == communicators_.end() ? std::vector<int>{} : found->second->members();
  };
  return callbacks;
}

CallDescriptor Context::describe(const Execution& execution) {
  CallDescriptor descriptor;
  descriptor.comm = execution.comm();
  descriptor.seq = execution.seq();
  descriptor.signature = execution.prepared().signature;
  descriptor.text = execution.prepared().description;
  descriptor.stalled_ms = static_cast<int64_t>((now_ns() - execution.last_progress_ns) / 1'000'000);
  return descriptor;
}

Engine::Callbacks Context::engine_callbacks() {
  Engine::Callbacks callbacks;
  callbacks.suspect = [this](int peer, const Status& what) {
    control_->report_suspect(peer, what.text());
  };
  callbacks.stalled = [this](Execution& execution) {
    if (execution.collective_call()) return control_->report_stall(describe(execution));
    // Nobody else need be in a send or a receive, so there is nothing to compare, only the time.
    const auto waited_ms = static_cast<int64_t>(execution.stalled_ns / 1'000'000);
    if (waited_ms < arrival_timeout_ms_) return;
    engine_->failed_here(
        execution.comm(),
        {SENNIT_TIMED_OUT,
         fmt::format("rank {} has waited {} ms in {} on communicator {}: there is no matching call",
                     rank(), waited_ms, execution.prepared().description, execution.comm())});
  };
  callbacks.failed_here = [this](uint32_t comm, const Status& status) {
    // all take the same one of what ranks report, this rank as well
    if (status.kind() == SENNIT_MISMATCH)
      return control_->fail(comm, status.with_context(fmt::format("rank {}", rank())));
    const std::lock_guard guard(communicators_mutex_);
    const auto found = communicators_.find(comm);
    if (found != communicators_.end()) found->second->fail_and_tell(status);
  };
  callbacks.mismatch = [this](Execution& execution, int peer) {
    control_->report_mismatch(describe(execution), peer);
  };
  return callbacks;
}

}  // namespace sennit
