// `sennit topo --probe`: inside a job, measures the fabric between its hosts. Every rank runs the
// command; rank 0 shows what came of it, the others take part and say nothing.
#include <stdlib.h>

#include <set>
#include <string>

#include <fmt/core.h>

#include "api/context.hpp"
#include "api/start/launch.hpp"
#include "base/options.hpp"
#include "command/topo/read/read.hpp"

namespace sennit::topo {
namespace {

size_t hosts_of(const Context& context) {
  std::set<std::string> names;
  for (int rank = 0; rank < context.size(); rank++) names.insert(context.placement(rank).host);
  return names.size();
}

}  // namespace

Result<std::optional<Reading>> read_job() {
  Result<Launch> launch = launch_from_environment();
  if (!launch)
    return invalid(fmt::format(
        "--probe measures between the hosts of a job: start `sennit topo --probe` on all of "
        "them, one process a host "
        "or more, with mpirun, srun, torchrun or `sennit emulate run`; {}",
        launch.status().text()));
  // 1 takes what the cache has; without the option, or with one that is off, nothing is measured.
  if (option_text("SENNIT_PROBE") == "0") setenv("SENNIT_PROBE", "again", 1);
  BootstrapOptions bootstrap = launch->bootstrap;
  bootstrap.arrival_timeout_ms = option_integer("SENNIT_ARRIVAL_TIMEOUT");
  bootstrap.heartbeat_timeout_ms = option_integer("SENNIT_HEARTBEAT_TIMEOUT");
  bootstrap.stall_ms = option_integer("SENNIT_STALL");
  const int rank = bootstrap.rank;
  const Result<std::shared_ptr<Context>> context = Context::start(std::move(bootstrap), {});
  if (!context) return context.status();
  if (rank != 0) return std::optional<Reading>();
  if (hosts_of(**context) < 2)
    return invalid(fmt::format(
        "--probe measures between hosts, and all {} ranks of this job are on one, {}: start "
        "it on two hosts or more",
        (*context)->size(), (*context)->placement(0).host));
  Reading reading;
  reading.fabric = (*context)->fabric();
  reading.file = option_text("SENNIT_FABRIC");
  reading.sources.push_back({"probe", 100, true, ""});
  return std::optional<Reading>(std::move(reading));
}

}  // namespace sennit::topo
