// context.cpp: see api/context.hpp.
#include "api/context.hpp"

#include <chrono>
#include <set>

#include <fmt/core.h>

#include "api/probe.hpp"
#include "api/start/steps.hpp"
#include "base/net/socket.hpp"
#include "base/options.hpp"
#include "diagnose/dump.hpp"
#include "plan/shared_cores.hpp"
#include "record/notes.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// kWholeJob is 1. From here on the numbers go round the ranks, so that two ranks never hand out the
// same one; from kSplitNumbersEnd on they are for others than splits.
constexpr uint64_t kSplitNumbersBegin = kWholeJob + 1;
constexpr uint64_t kSplitNumbersEnd = 0x70000000;

constexpr uint64_t kNsPerMs = 1'000'000;

CallDescriptor describe(const Execution& execution) {
  CallDescriptor descriptor;
  descriptor.comm = execution.comm();
  descriptor.seq = execution.seq();
  descriptor.signature = execution.prepared().signature;
  descriptor.text = execution.prepared().description;
  descriptor.stalled_ms = static_cast<int64_t>((now_ns() - execution.last_progress_ns) / kNsPerMs);
  return descriptor;
}

// What this process sees to be wrong by itself, before anybody hears of it. Returns how often the
// job is watched.
Result<std::chrono::nanoseconds> checked_start(const BootstrapOptions& bootstrap) {
  SENNIT_RETURN_IF_ERROR(check_environment());
  if (bootstrap.size < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size)
    return invalid(
        fmt::format("rank {} of {}: expected 0 <= rank < size", bootstrap.rank, bootstrap.size));
  return watch::digest_period();
}

}  // namespace

Context::Context(const BootstrapOptions& bootstrap)
    : arrival_timeout_ms_(bootstrap.arrival_timeout_ms), registry_(bootstrap.rank) {}

Result<std::shared_ptr<Context>> Context::start(const BootstrapOptions& bootstrap,
                                                const JobSettings& settings, SharedJob* shared) {
  const Result<std::chrono::nanoseconds> watched_every = checked_start(bootstrap);
  if (!watched_every) {
    close_socket(bootstrap.root_listener_fd);  // or others would wait there
    return watched_every.status();
  }
  if (!option_text("SENNIT_DUMP").empty()) diagnose::count_dump_signals();
  std::shared_ptr<Context> context(new Context(bootstrap));
  Result<std::unique_ptr<Control>> control =
      Control::start(bootstrap, context->control_callbacks());
  if (!control) return control.status();
  context->control_ = *std::move(control);
  if (const SharedJob* const with = context->control_->shared()) {
    *shared = *with;
    return std::shared_ptr<Context>();
  }
  Status made = context->connect(settings);
  if (made.ok() && context->options_.probe != "0" && context->size() > 1)
    made = probe_fabric(context);
  if (bootstrap.interruption.wanted()) {
    made = Interruption::status();
    // For those that have all they need from this rank, and would wait for it in their first call.
    context->control_->fail(kWholeJob, made.with_context(fmt::format("rank {}", bootstrap.rank)));
  }
  if (!made.ok()) return made;
  context->begin_watching(*watched_every);
  return context;
}

Context::~Context() {
  watch_.stop();
  if (replanner_) replanner_->end();
  if (control_) control_->leave();
  // Until they have stopped, the engine's helper may call into the control plane, and the control
  // thread into the engine.
  if (engine_) engine_->stop_helper();
  control_.reset();
  if (engine_) engine_->recording().end(registry_.well());
  engine_.reset();
}

Status Context::connect(const JobSettings& settings) {
  Result<JobOptions> options = agree_on_options(*control_, settings);
  if (!options) return options.status();
  options_ = *std::move(options);
  plan_options_ = options_.plan_options();
  CostModel* const cost = &plan_options_.cost;

  Result<HostSharing> hosts = agree_on_hosts(*control_);
  if (!hosts) return hosts.status();
  hosts_ = *std::move(hosts);
  cost->shared_cores.crowding_permille = hosts_.crowding_permille;
  make_engine();

  Result<ConnectedTransports> connected = start_transports(*control_, hosts_, options_, cost);
  if (!connected) return connected.status();
  placements_ = std::move(connected->placements);
  for (const std::unique_ptr<Transport>& transport : connected->transports)
    transports_.push_back(transport.get());
  engine_->set_transports(std::move(connected->transports), std::move(connected->missing));
  engine_->set_addresses(std::move(connected->addresses));
  if (control_->sealed()) engine_->answer_while_idle();

  Result<AgreedFabric> agreed =
      agree_on_fabric(*control_, hosts_, options_, placement(rank()).host, settings.fabric, cost);
  if (!agreed) return agreed.status();
  use(*std::move(agreed));
  return {};
}

void Context::make_engine() {
  const RecordingOwner owner{control_->job(), rank(), size(), this_host()};
  engine_ = std::make_unique<Engine>(
      hosts_.core_each(), static_cast<size_t>(option_integer("SENNIT_IN_FLIGHT_BYTES")),
      static_cast<uint64_t>(option_integer("SENNIT_STALL")) * kNsPerMs, engine_callbacks(),
      Recording::open(owner, option_text("SENNIT_TRACE"),
                      static_cast<size_t>(option_integer("SENNIT_TRACE_EVENTS"))));
  registry_.set_engine(engine_.get());
  replanning_.set_up(control_.get(), engine_.get());
}

void Context::use(AgreedFabric agreed) {
  fabric_ = std::move(agreed.fabric);
  tuning_ = std::move(agreed.tuning);
  if (rank() == 0) engine_->recording().note(encode(FabricNote{fabric_.to_text(), placements_}));
  if (hosts_.one_machine) within_one_machine(&plan_options_.cost);
}

// What there is to watch is in the recording; where it has no file, others may still tell.
void Context::begin_watching(std::chrono::nanoseconds period) {
  if (period.count() == 0 || size() == 1) return;
  if (option_flag("SENNIT_REPLAN") && !plan_options_.reproducible && !tunes()) {
    replanner_ = std::make_unique<Replanner>(
        fabric_, placements_, plan_options_,
        Replanner::Proposals{
            [this](std::vector<SlowBoundary> slow) { replanning_.propose(std::move(slow)); },
            [this] { return replanning_.proposed(); }});
    watch_.listen([this](const watch::LiveVerdict& verdict) { replanner_->heard(verdict); });
  }
  watch_.start({control_.get(), &engine_->recording(), rank(), fabric_.to_text(), placements_,
                period, std::chrono::milliseconds(option_integer("SENNIT_STALL")),
                option_text("SENNIT_DUMP"), [this] { return connections(); }});
}

std::vector<ConnectionStatistics> Context::connections() const {
  std::vector<ConnectionStatistics> all;
  for (const Transport* const transport : transports_) {
    const std::vector<ConnectionStatistics> its = transport->connections();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}

// Measures between the first ranks of all hosts and merges what comes of it.
Status Context::probe_fabric(const std::shared_ptr<Context>& context) {
  ProbeRequest request;
  std::set<std::string> names;
  for (const int speaker : context->hosts_.speakers()) {
    request.rank_of_host.push_back(speaker);
    request.names.push_back(context->placement(speaker).host);
    if (!names.insert(request.names.back()).second)
      return invalid(
          fmt::format("SENNIT_PROBE: two hosts are called '{}'; give them names of their own",
                      request.names.back()));
  }
  if (request.names.size() < 2) return {};
  request.one_pair_at_a_time = context->plan_options_.cost.shared_cores.crowded();
  request.again = context->options_.probe == "again";
  Result<Fabric> probed = run_probe(context, request, context->fabric_);
  if (!probed) return probed.status();
  if (context->rank() == 0) *probed = merge(context->fabric_, *probed, "probe");
  Result<AgreedFabric> agreed =
      tell_fabric(*context->control_, probed, context->options_, &context->plan_options_.cost);
  if (!agreed) return agreed.status();
  context->use(*std::move(agreed));
  return {};
}

uint32_t Context::draw_communicator_number() {
  const uint64_t number = kSplitNumbersBegin +
                          static_cast<uint64_t>(numbers_drawn_++) * static_cast<uint64_t>(size()) +
                          static_cast<uint64_t>(rank());
  return number < kSplitNumbersEnd ? static_cast<uint32_t>(number) : 0;
}

// ---- what control plane and engine tell ----

Control::Callbacks Context::control_callbacks() {
  Control::Callbacks callbacks;
  callbacks.peers_failed = [this](const std::vector<int>& failed, const Status& status) {
    registry_.peers_failed(failed, status);
  };
  callbacks.communicator_failed = [this](uint32_t comm, int member, const Status& status) {
    registry_.communicator_failed(comm, member, status);
  };
  callbacks.link_failed = [this](int a, int b, const Status& status) {
    registry_.link_failed(a, b, status);
  };
  callbacks.describe = [this](uint32_t comm, uint32_t seq, CallDescriptor* out) {
    return registry_.describe(comm, seq, out);
  };
  callbacks.stall_reported = [this] { watch_.stall_reported(); };
  callbacks.members = [this](uint32_t comm) { return registry_.members(comm); };
  callbacks.told = [this](int rank, uint8_t topic, const std::vector<std::byte>& blob) {
    if (!replanning_.told(rank, topic, blob)) watch_.told(rank, topic, blob);
  };
  callbacks.announced = [this](uint8_t topic, const std::vector<std::byte>& blob) {
    replanning_.announced(topic, blob);
    watch_.announced(topic, blob);
  };
  callbacks.may_be_lost = [this] {
    replanning_.may_be_lost();
    watch_.may_be_lost();
  };
  return callbacks;
}

Engine::Callbacks Context::engine_callbacks() {
  Engine::Callbacks callbacks;
  callbacks.suspect = [this](int peer, const Status& what) {
    control_->report_suspect(peer, what.text());
  };
  callbacks.stalled = [this](Execution& execution) { stalled(execution); };
  callbacks.failed_here = [this](uint32_t comm, const Status& status) {
    // all take the same one of what ranks report, this rank as well
    if (status.kind() == SENNIT_MISMATCH)
      return control_->fail(comm, status.with_context(fmt::format("rank {}", rank())));
    registry_.failed_here(comm, status);
  };
  callbacks.mismatch = [this](Execution& execution, int peer) {
    control_->report_mismatch(describe(execution), peer);
  };
  return callbacks;
}

void Context::stalled(Execution& execution) {
  // Other ranks may not have come to launch the graph, as with any stream: that is no error.
  if (execution.in_graph())
    return watch_.message_stalls(std::chrono::nanoseconds(execution.stalled_ns));
  if (execution.collective_call()) return control_->report_stall(describe(execution));
  // Nobody else need be in a send or a receive, so there is nothing to compare, only the time; and
  // where it is on a device not even that, since the peer's stream may come to its call late.
  const auto waited_ms = static_cast<int64_t>(execution.stalled_ns / kNsPerMs);
  watch_.message_stalls(std::chrono::nanoseconds(execution.stalled_ns));
  if (execution.on_device()) return;
  if (waited_ms < arrival_timeout_ms_) {
    CallDescriptor message;
    message.comm = execution.comm();
    message.text = text_of_message(execution);
    message.stalled_ms = waited_ms;
    message.peer = execution.peer();
    if (message.peer >= 0) control_->report_stall(message);
    return;
  }
  engine_->assert_locked();
  engine_->failed_here(execution.comm(), unanswered(execution, waited_ms));
}

std::string Context::text_of_message(const Execution& execution) {
  const uint32_t comm = without_channel(execution.comm());
  // Of a group that is made the description has the tag already.
  const std::string tag = comm == execution.comm() ? fmt::format(", tag {},", execution.tag()) : "";
  return fmt::format("{}{} on communicator {}", execution.prepared().description, tag, comm);
}

Status Context::unanswered(const Execution& execution, int64_t waited_ms) const {
  return {SENNIT_TIMED_OUT,
          fmt::format("rank {} has waited {} ms in {}: no matching call has completed it", rank(),
                      waited_ms, text_of_message(execution))};
}

void Context::expire(const Execution& execution, int64_t waited_ms) {
  const MutexLock lock(engine_->mutex());
  if (execution.done()) return;
  if (execution.collective_call())
    control_->expire(describe(execution), waited_ms);
  else
    control_->fail(execution.comm(), unanswered(execution, waited_ms));
}

}  // namespace sennit
