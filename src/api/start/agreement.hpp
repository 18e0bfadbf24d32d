// agreement.hpp: what ranks tell each other while a job starts, as messages, and what every one of
// them works out from all of it.
//
// A message has encode() and decode(); one that is malformed is an internal error. All else here is
// pure, so that from the same messages all ranks come to the same: api/start/steps.hpp sends them.
// Cost: linear in the messages.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "cost/cost_model.hpp"
#include "plan/cores.hpp"
#include "plan/groups/share.hpp"
#include "plan/planner.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit {

using Bytes = std::vector<std::byte>;

// What the caller may choose for a job; the environment is the same for all of a process.
struct JobSettings {
  std::string fabric, algorithm, concurrency;
  int64_t arrival_timeout_ms = 0;
  bool operator==(const JobSettings&) const = default;
};

// Rank 0's options, which hold for all: ranks that planned under different ones would run different
// schedules.
struct JobOptions {
  std::string algorithm;
  uint64_t chunk_bytes = 0;
  uint64_t eager_bytes = 0;
  bool reproducible = false;
  std::string probe;  // SENNIT_PROBE
  std::string tune;   // SENNIT_TUNE
  std::string concurrency_text = "siblings";
  Concurrency concurrency;  // what check() understood of it

  // What the caller chose, where that is not empty, before the environment.
  static JobOptions from_environment(const JobSettings& settings);
  Status check();
  PlanOptions plan_options() const;
  // Whether what was measured may decide: nobody forced a plan or the order of sums.
  bool may_tune() const { return algorithm.empty() && chunk_bytes == 0 && !reproducible; }
  Bytes encode() const;
  static Result<JobOptions> decode(std::span<const std::byte> bytes);
};

// Of each rank, before it makes anything.
struct Whereabouts {
  CoreSight sight;
  std::string error;  // not empty: why this rank cannot go on, and so nobody can

  Bytes encode() const;
  static Result<Whereabouts> decode(std::span<const std::byte> bytes);
};

// Who shares a host with whom, and how many cores there are for how many ranks.
struct HostSharing {
  std::vector<std::string> host_of_rank;  // equal: probably the same host
  CoreShare here;                         // of one rank's own host
  CoreShare machine;                      // of the machine that it is on
  uint64_t crowding_permille = 1000;      // see plan/cores.hpp
  bool one_machine = false;               // all ranks run under one kernel

  // Whether no rank of this machine waits for a core that another one has.
  bool core_each() const { return machine.ranks <= machine.cores; }
  // The lowest rank on the host of `rank`, which speaks for it.
  int speaker_for(int rank) const;
  bool speaks_for_host(int rank) const { return speaker_for(rank) == rank; }
  // The ranks that do, ascending.
  std::vector<int> speakers() const;
};
// As `rank` sees it. Errors: the first that a rank told.
Result<HostSharing> share_hosts(const std::vector<Whereabouts>& all, int rank);

// What one rank's transports offer to the others.
struct TransportOffer {
  Placement placement;
  std::map<std::string, Bytes, std::less<>> addresses;  // by transport
  uint64_t payload_permille = 1000;  // of a rate between hosts, what headers leave
  uint64_t message_bytes = 0;        // that a message adds there
  bool rdma = false;                 // goes between hosts without the kernel
  std::string error;                 // not empty: it has no transport, and why

  Bytes encode() const;
  static Result<TransportOffer> decode(std::span<const std::byte> bytes);
};
// SENNIT_OUT_OF_RESOURCES where a rank could start no transport.
Status check_offers(const std::vector<TransportOffer>& offers);
// With the wire sealed: none of `open_to_readers`, the transports that cannot be sealed, may carry
// what goes between hosts.
Status check_sealed(const std::vector<TransportOffer>& offers, const HostSharing& hosts,
                    std::span<const std::string_view> open_to_readers);
// What headers cost between hosts: that of the rank where it is most; and over RDMA, if all have
// it, what a message does.
void set_wire_cost(const std::vector<TransportOffer>& offers, CostModel* cost);
// By rank, then by transport of `names`; empty where a rank lacks that transport.
std::vector<std::vector<Bytes>> addresses_of(const std::vector<TransportOffer>& offers,
                                             std::span<const std::string_view> names);

// A fabric that a host's speaker read, or why it could not.
struct HostFabric {
  std::string fabric;  // its text form
  std::string error;

  explicit HostFabric(const Result<Fabric>& read);
  HostFabric() = default;
  Bytes encode() const;
  static Result<HostFabric> decode(std::span<const std::byte> bytes);
};
// What describes the network, and below it what the hosts told of their insides; ranks that do not
// speak for a host told nothing, and are empty. Errors: the network's, else the first host's.
Result<Fabric> merge_fabrics(Result<Fabric> network, const std::vector<Bytes>& of_hosts);

// Rank 0's last word at the start: what all plan with.
struct FabricVerdict {
  std::string fabric;
  std::string tuning;  // the tuning table for that fabric; may be empty
  uint64_t message_cpu_ns = 0;
  std::string error;  // not empty: the job does not start

  Bytes encode() const;
  static Result<FabricVerdict> decode(std::span<const std::byte> bytes);
};

// Decodes one message of each rank.
template <typename Message>
Result<std::vector<Message>> decode_all(const std::vector<Bytes>& all) {
  std::vector<Message> messages;
  messages.reserve(all.size());
  for (const Bytes& bytes : all) {
    Result<Message> message = Message::decode(bytes);
    if (!message) return message.status();
    messages.push_back(*std::move(message));
  }
  return messages;
}

}  // namespace sennit
