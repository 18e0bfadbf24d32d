// agreement.cpp: see api/start/agreement.hpp.
#include "api/start/agreement.hpp"

#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/options.hpp"
#include "cost/rates.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// Reads one message with `read`; an error where that did not fit the bytes.
template <typename Message, typename Read>
Result<Message> decoded(std::span<const std::byte> bytes, std::string_view what, Read&& read) {
  ByteReader in(bytes);
  Message message;
  read(in, message);
  SENNIT_RETURN_IF_ERROR(in.finish(what));
  return message;
}

}  // namespace

// ---- options ----

JobOptions JobOptions::from_environment(const JobSettings& settings) {
  JobOptions options;
  options.algorithm =
      settings.algorithm.empty() ? option_text("SENNIT_ALGORITHM") : settings.algorithm;
  options.concurrency_text =
      settings.concurrency.empty() ? option_text("SENNIT_CONCURRENCY") : settings.concurrency;
  options.chunk_bytes = static_cast<uint64_t>(option_integer("SENNIT_CHUNK_BYTES"));
  options.eager_bytes = static_cast<uint64_t>(option_integer("SENNIT_EAGER_BYTES"));
  options.reproducible = option_flag("SENNIT_REPRODUCIBLE");
  options.probe = option_text("SENNIT_PROBE");
  options.tune = option_text("SENNIT_TUNE");
  return options;
}

Status JobOptions::check() {
  SENNIT_RETURN_IF_ERROR(check_algorithm(algorithm));
  const Result<Concurrency> understood = parse_concurrency(concurrency_text);
  if (!understood) return understood.status().with_context("SENNIT_CONCURRENCY");
  concurrency = *understood;
  return {};
}

PlanOptions JobOptions::plan_options() const {
  PlanOptions options;
  options.algorithm = algorithm;
  options.chunk_bytes = chunk_bytes;
  options.reproducible = reproducible;
  return options;
}

Bytes JobOptions::encode() const {
  ByteWriter out;
  out.text(algorithm).u64(chunk_bytes).u64(eager_bytes).flag(reproducible).text(probe).text(tune);
  out.text(concurrency_text);
  return out.take();
}

Result<JobOptions> JobOptions::decode(std::span<const std::byte> bytes) {
  return decoded<JobOptions>(bytes, "rank 0's options", [](ByteReader& in, JobOptions& options) {
    options.algorithm = in.text();
    options.chunk_bytes = in.u64();
    options.eager_bytes = in.u64();
    options.reproducible = in.flag();
    options.probe = in.text();
    options.tune = in.text();
    options.concurrency_text = in.text();
  });
}

// ---- hosts ----

Bytes Whereabouts::encode() const {
  ByteWriter out;
  out.text(sight.host).text(sight.machine).u32(static_cast<uint32_t>(sight.cores.size()));
  for (const int core : sight.cores) out.u32(static_cast<uint32_t>(core));
  out.text(error);
  return out.take();
}

Result<Whereabouts> Whereabouts::decode(std::span<const std::byte> bytes) {
  return decoded<Whereabouts>(bytes, "what a rank says of its host",
                              [](ByteReader& in, Whereabouts& told) {
                                told.sight.host = in.text();
                                told.sight.machine = in.text();
                                told.sight.cores.resize(in.count(sizeof(uint32_t)));
                                for (int& core : told.sight.cores)
                                  core = static_cast<int>(in.u32());
                                told.error = in.text();
                              });
}

int HostSharing::speaker_for(int rank) const {
  const auto& host = host_of_rank[static_cast<size_t>(rank)];
  return static_cast<int>(std::ranges::find(host_of_rank, host) - host_of_rank.begin());
}

std::vector<int> HostSharing::speakers() const {
  std::vector<int> ranks;
  std::set<std::string_view> seen;
  for (size_t r = 0; r < host_of_rank.size(); r++)
    if (seen.insert(host_of_rank[r]).second) ranks.push_back(static_cast<int>(r));
  return ranks;
}

Result<HostSharing> share_hosts(const std::vector<Whereabouts>& all, int rank) {
  HostSharing sharing;
  std::vector<CoreSight> sights;
  for (const Whereabouts& told : all) {
    if (!told.error.empty()) return Status{SENNIT_OUT_OF_RESOURCES, told.error};
    sights.push_back(told.sight);
    sharing.host_of_rank.push_back(told.sight.host);
  }
  const CoreSight& here = sights[static_cast<size_t>(rank)];
  sharing.here = share_of_host(sights, here.host);
  sharing.machine = share_of_machine(sights, here);
  sharing.crowding_permille = crowding_permille(sights);
  sharing.one_machine = one_machine(sights);
  return sharing;
}

// ---- transports ----

Bytes TransportOffer::encode() const {
  ByteWriter out;
  out.text(placement.host).u32(static_cast<uint32_t>(placement.numa)).text(placement.nic);
  out.u32(static_cast<uint32_t>(addresses.size()));
  for (const auto& [transport, address] : addresses) out.text(transport).blob(address);
  out.u64(payload_permille).u64(message_bytes).flag(rdma).text(error);
  return out.take();
}

Result<TransportOffer> TransportOffer::decode(std::span<const std::byte> bytes) {
  return decoded<TransportOffer>(
      bytes, "what a rank says of its transports", [](ByteReader& in, TransportOffer& offer) {
        offer.placement.host = in.text();
        offer.placement.numa = static_cast<int>(in.u32());
        offer.placement.nic = in.text();
        constexpr size_t kTwoLengths = 2 * sizeof(uint32_t);
        for (uint32_t left = in.count(kTwoLengths); left > 0 && in.ok(); left--) {
          const std::string transport = in.text();
          const std::span<const std::byte> address = in.blob();
          offer.addresses[transport].assign(address.begin(), address.end());
        }
        offer.payload_permille = in.u64();
        offer.message_bytes = in.u64();
        offer.rdma = in.flag();
        offer.error = in.text();
      });
}

Status check_offers(const std::vector<TransportOffer>& offers) {
  for (size_t r = 0; r < offers.size(); r++)
    if (!offers[r].error.empty())
      return {SENNIT_OUT_OF_RESOURCES,
              fmt::format("rank {} on host {}: {}", r, offers[r].placement.host, offers[r].error)};
  return {};
}

Status check_sealed(const std::vector<TransportOffer>& offers, const HostSharing& hosts,
                    std::span<const std::string_view> open_to_readers) {
  for (const std::string_view name : open_to_readers) {
    size_t first = offers.size();
    for (size_t r = 0; r < offers.size(); r++) {
      if (!offers[r].addresses.contains(name)) continue;
      if (first == offers.size()) first = r;
      if (hosts.host_of_rank[r] == hosts.host_of_rank[first]) continue;
      return {SENNIT_REFUSED,
              fmt::format("SENNIT_WIRE=sealed, but {} would carry what ranks {} and {} say to each "
                          "other between hosts, and {} cannot be sealed: set "
                          "SENNIT_TRANSPORTS=shm,tcp on all ranks, or SENNIT_WIRE=plain on a "
                          "network that you trust",
                          name, first, r, name)};
    }
  }
  return {};
}

void set_wire_cost(const std::vector<TransportOffer>& offers, CostModel* cost) {
  const bool rdma =
      std::ranges::all_of(offers, [](const TransportOffer& offer) { return offer.rdma; });
  cost->way = rdma ? Way::rdma : Way::sockets;
  if (rdma) cost->post_ns = kRdmaPostNs;
  for (const TransportOffer& offer : offers) {
    cost->goodput_permille = std::min(cost->goodput_permille, offer.payload_permille);
    cost->message_bytes = std::max(cost->message_bytes, offer.message_bytes);
  }
}

std::vector<std::vector<Bytes>> addresses_of(const std::vector<TransportOffer>& offers,
                                             std::span<const std::string_view> names) {
  std::vector<std::vector<Bytes>> addresses(offers.size());
  for (size_t r = 0; r < offers.size(); r++)
    for (const std::string_view name : names) {
      const auto found = offers[r].addresses.find(name);
      addresses[r].push_back(found == offers[r].addresses.end() ? Bytes{} : found->second);
    }
  return addresses;
}

// ---- fabric ----

HostFabric::HostFabric(const Result<Fabric>& read) {
  if (read)
    fabric = read->to_text();
  else
    error = read.status().text();
}

Bytes HostFabric::encode() const {
  ByteWriter out;
  out.text(fabric).text(error);
  return out.take();
}

Result<HostFabric> HostFabric::decode(std::span<const std::byte> bytes) {
  return decoded<HostFabric>(bytes, "what a host says of its inside",
                             [](ByteReader& in, HostFabric& host) {
                               host.fabric = in.text();
                               host.error = in.text();
                             });
}

Result<Fabric> merge_fabrics(Result<Fabric> network, const std::vector<Bytes>& of_hosts) {
  if (!network) return network;
  Merger merger(*network);
  for (const Bytes& bytes : of_hosts) {
    if (bytes.empty()) continue;
    const Result<HostFabric> host = HostFabric::decode(bytes);
    if (!host) return host.status();
    if (!host->error.empty()) return invalid(host->error);
    const Result<Fabric> fabric = parse_fabric(host->fabric, "what a host told of itself");
    if (!fabric) return fabric.status();
    merger.add(*fabric, "host");
  }
  return merger.take();
}

Bytes FabricVerdict::encode() const {
  ByteWriter out;
  out.text(fabric).text(tuning).u64(message_cpu_ns).text(error);
  return out.take();
}

Result<FabricVerdict> FabricVerdict::decode(std::span<const std::byte> bytes) {
  return decoded<FabricVerdict>(bytes, "rank 0's fabric",
                                [](ByteReader& in, FabricVerdict& verdict) {
                                  verdict.fabric = in.text();
                                  verdict.tuning = in.text();
                                  verdict.message_cpu_ns = in.u64();
                                  verdict.error = in.text();
                                });
}

}  // namespace sennit
