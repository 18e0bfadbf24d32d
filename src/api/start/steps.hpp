// steps.hpp: the steps of a job's start that all ranks take together, in this order: options,
// hosts, transports, the fabric. Each is an exchange over the control plane of what
// api/start/agreement.hpp describes, and blocks until all ranks have come to it. A rank that cannot
// go on says so before it gives up: who left without a word would keep the others waiting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/start/agreement.hpp"
#include "control/control_plane.hpp"
#include "plan/tuning/table.hpp"
#include "transports/transport.hpp"

namespace sennit {

// An error where SENNIT_TRANSPORTS names one that this build has not. Local.
Status check_transport_names();
// What this process sees to be wrong with its environment by itself, before anybody hears of it.
Status check_environment();

// Rank 0's options, for all ranks. `settings`: this rank's caller's, before the environment; they
// count on rank 0. Errors: options that make no sense, or the control plane's.
Result<JobOptions> agree_on_options(Control& control, const JobSettings& settings);

// Who shares this host, and on how many cores, matters to how ranks wait, so this comes before
// transports are made. Also makes room for the descriptors that connections will take.
Result<HostSharing> agree_on_hosts(Control& control);

// This rank's transports, and what all ranks told of theirs. Started, but connected to nobody yet.
struct ConnectedTransports {
  std::vector<std::unique_ptr<Transport>> transports;  // that this rank could start
  std::string missing;                                 // what the others said, for errors
  std::vector<std::vector<Bytes>> addresses;           // by rank, then by transport
  std::vector<Placement> placements;                   // by rank
};
// Sets in `cost` what headers cost, and which messages ask for their receives.
Result<ConnectedTransports> start_transports(Control& control, const HostSharing& hosts,
                                             const JobOptions& options, CostModel* cost);

// What all ranks plan with, equal on all of them.
struct AgreedFabric {
  Fabric fabric;
  Tuning tuning;  // the tuning table for it
};
// One rank per host looks inside the host; rank 0 reads what describes the network, merges,
// measures what a message costs where ranks share cores, and tells all. `file`: the caller's,
// before SENNIT_FABRIC; may be empty. `host`: this rank's. `cost`: all take over what rank 0
// measured.
Result<AgreedFabric> agree_on_fabric(Control& control, const HostSharing& hosts,
                                     const JobOptions& options, const std::string& host,
                                     const std::string& file, CostModel* cost);
// The last part of that, also for a fabric that became known later: rank 0's, which counts on rank
// 0 only, goes to all, with the tuning table for it and rank 0's cost of a message.
Result<AgreedFabric> tell_fabric(Control& control, const Result<Fabric>& of_rank_0,
                                 const JobOptions& options, CostModel* cost);

}  // namespace sennit
