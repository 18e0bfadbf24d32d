// probe.cpp: see api/probe.hpp.
//
// Rank 0 says over the control plane which flows run next; their ends run them over a communicator
// of their own, whose plans know nothing of the fabric yet, and say what they saw. A rate is that
// of a steady stream: the first part of each round is left out, because shapers let bursts pass and
// congestion control has to find its pace.
#include "api/probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/core.h>

#include "api/communicator.hpp"
#include "base/bytes.hpp"
#include "base/log.hpp"
#include "base/net/network_identity.hpp"
#include "base/process/cached_file.hpp"
#include "base/text/date.hpp"
#include "topology/probe/probe.hpp"

namespace sennit {
namespace {

constexpr uint32_t kProbeCommunicator = 0x70726f62;  // beyond the numbers of splits
// How long a round of rates takes, and what of its beginning is left out.
constexpr uint64_t kRoundNs = 800'000'000;
constexpr uint64_t kSettleNs = 250'000'000;
// The same with many flows.
constexpr uint64_t kLongRoundNs = 1'500'000'000;
constexpr uint64_t kLongSettleNs = 500'000'000;
constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kManyChunkBytes = 16 * 1024;  // with many flows
constexpr size_t kDepth = 8;                   // chunks under way per flow
constexpr int kWarmUps = 8;                    // round trips before those that count
constexpr int kPings = 100;
// How long a rank sleeps before it looks at its flows again by itself, although nothing has ended.
constexpr uint64_t kLookNs = 50'000'000;

Call message(int peer, void* data, size_t bytes, bool receiving) {
  Call call;
  call.collective = Collective::send_recv;
  call.send = receiving ? nullptr : data;
  call.recv = receiving ? data : nullptr;
  call.count = bytes;
  call.root = peer;
  call.receiving = receiving;
  return call;
}

// Shortest round trip to `peer`, or 0 at the end that answers.
Result<uint64_t> ping(Communicator& comm, int peer, bool asking) {
  char byte = 0;
  uint64_t shortest = ~uint64_t{0};
  for (int i = 0; i < kWarmUps + kPings; i++) {
    const uint64_t begin = now_ns();
    SENNIT_RETURN_IF_ERROR(comm.run(message(peer, &byte, 1, !asking)));
    SENNIT_RETURN_IF_ERROR(comm.run(message(peer, &byte, 1, asking)));
    if (i >= kWarmUps) shortest = std::min(shortest, now_ns() - begin);
  }
  return asking ? shortest : 0;
}

// One end of a stream. The sender marks its last kDepth chunks: that many receives were posted at
// most when the first of them came, and the receiver posts what is missing.
class Stream {
 public:
  Stream(Communicator& comm, int peer, bool receiving, bool long_run)
      : comm_(comm),
        peer_(peer),
        receiving_(receiving),
        round_ns_(long_run ? kLongRoundNs : kRoundNs),
        settle_ns_(long_run ? kLongSettleNs : kSettleNs),
        chunk_bytes_(long_run ? kManyChunkBytes : kChunkBytes) {
    buffers_.assign(kDepth, std::vector<char>(chunk_bytes_, 0));
  }

  // Moves on what can move. False: nothing could.
  Result<bool> poll(uint64_t since_begin_ns) {
    bool moved = false;
    while (!works_.empty() && works_.front()->done()) {
      SENNIT_RETURN_IF_ERROR(works_.front()->finish());
      works_.pop_front();
      if (receiving_) received(since_begin_ns);
      done_++;
      moved = true;
    }
    while (works_.size() < kDepth && posted_ < last_) {
      std::vector<char>& buffer = buffers_[posted_ % kDepth];
      if (!receiving_) {
        buffer[0] = since_begin_ns >= round_ns_ ? 1 : 0;
        if (buffer[0]) last_ = std::min(last_, posted_ + kDepth);
      }
      Result<std::unique_ptr<Work>> work =
          comm_.prepare(message(peer_, buffer.data(), chunk_bytes_, receiving_));
      if (!work) return work.status();
      (*work)->start(true);
      works_.push_back(*std::move(work));
      posted_++;
      moved = true;
    }
    return moved;
  }
  bool front_done() const { return !works_.empty() && works_.front()->done(); }
  bool over() const { return works_.empty() && posted_ == last_; }
  uint64_t bytes_per_s() const {
    return end_ns_ > settle_ns_ ? bytes_ * 1'000'000'000 / (end_ns_ - settle_ns_) : 0;
  }

 private:
  void received(uint64_t since_begin_ns) {
    if (buffers_[done_ % kDepth][0]) {
      last_ = std::min(last_, done_ + kDepth);
      end_ns_ = std::min(end_ns_, since_begin_ns);  // the sender began before this host did
    } else if (since_begin_ns >= settle_ns_ && since_begin_ns < end_ns_) {
      bytes_ += chunk_bytes_;
    }
  }

  Communicator& comm_;
  const int peer_;
  const bool receiving_;
  const uint64_t round_ns_, settle_ns_;
  const size_t chunk_bytes_;
  std::vector<std::vector<char>> buffers_;  // in turn
  std::deque<std::unique_ptr<Work>> works_;
  size_t posted_ = 0, done_ = 0;
  size_t last_ = ~size_t{0};  // how many chunks there are in all, once known
  // What came in the same time for all flows: their sum is what a link that they share carried.
  // (From a flow's first chunk to its last would count each flow's good moments only.)
  uint64_t end_ns_ = round_ns_, bytes_ = 0;
};

// Runs this host's part of a round. Figures by flow, 0 where another host has them.
Result<std::vector<uint64_t>> run_round(Communicator& comm, const probe::Round& round) {
  std::vector<uint64_t> figures(round.flows.size(), 0);
  const int self = comm.rank();
  if (round.latency) {
    for (size_t i = 0; i < round.flows.size(); i++) {
      const probe::Flow& f = round.flows[i];
      if (f.from != self && f.to != self) continue;
      const Result<uint64_t> trip = ping(comm, f.from == self ? f.to : f.from, f.from == self);
      if (!trip) return trip.status();
      figures[i] = *trip;
    }
    return figures;
  }
  std::vector<std::pair<size_t, std::unique_ptr<Stream>>> streams;
  for (size_t i = 0; i < round.flows.size(); i++) {
    const probe::Flow& f = round.flows[i];
    if (f.from == self)
      streams.emplace_back(i, std::make_unique<Stream>(comm, f.to, false, round.long_run));
    if (f.to == self)
      streams.emplace_back(i, std::make_unique<Stream>(comm, f.from, true, round.long_run));
  }
  const uint64_t begin = now_ns();
  for (;;) {
    bool moved = false, over = true;
    for (auto& [flow, stream] : streams) {
      const Result<bool> result = stream->poll(now_ns() - begin);
      if (!result) return result.status();
      moved |= *result;
      over &= stream->over();
    }
    if (over) break;
    if (moved) continue;
    comm.context().engine().wait(
        [&] {
          return std::any_of(streams.begin(), streams.end(),
                             [](const auto& s) { return s.second->front_done(); });
        },
        kLookNs);
  }
  for (const auto& [flow, stream] : streams)
    if (round.flows[flow].to == self) figures[flow] = stream->bytes_per_s();
  return figures;
}

// ---- cache ----

// What tells this set of hosts, and this network, from others.
std::string self_description(const std::string& name) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}/{}/{}", name, boot, network_identity());
}

std::string cache_path(std::vector<std::string> descriptions) {
  std::sort(descriptions.begin(), descriptions.end());
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const std::string& d : descriptions)
    for (const char c : d + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return cached_file(fmt::format("probe-{:016x}", hash));
}

std::optional<Fabric> read_cache(const std::string& path) {
  std::ifstream file(path);
  if (path.empty() || !file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  Result<Fabric> fabric = parse_fabric(text.str(), path);
  if (fabric) return *std::move(fabric);
  log(LogLevel::warn, "{}; probing again", fabric.status().text());
  return std::nullopt;
}

// Stands behind every figure: who measured, and when.
std::string probed_now() { return "probe " + utc_minute(std::time(nullptr)); }

// Whole or not at all: other jobs may read it.
void write_cache(const std::string& path, const Fabric& fabric) {
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  std::ofstream file(temporary);
  file << fabric.to_text();
  file.close();
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) {
    log(LogLevel::info, "{}: cannot keep the probe's result there", path);
    std::filesystem::remove(temporary, error);
  }
}

// ---- what rank 0 and the others tell each other ----

// Empty: there is no further round.
Bytes encode(const std::optional<probe::Round>& round) {
  ByteWriter out;
  if (!round) return out.take();
  out.flag(round->latency).flag(round->long_run);
  out.u32(static_cast<uint32_t>(round->flows.size()));
  for (const probe::Flow& flow : round->flows) out.rank(flow.from).rank(flow.to);
  return out.take();
}

Result<std::optional<probe::Round>> decode_round(const Bytes& bytes, int hosts) {
  if (bytes.empty()) return std::optional<probe::Round>();
  ByteReader in(bytes);
  probe::Round round;
  round.latency = in.flag();
  round.long_run = in.flag();
  round.flows.resize(in.count(2 * sizeof(uint32_t)));
  for (probe::Flow& flow : round.flows) {
    flow.from = in.rank_below(hosts);
    flow.to = in.rank_below(hosts);
  }
  SENNIT_RETURN_IF_ERROR(in.finish("a round of the probe"));
  return std::optional<probe::Round>(std::move(round));
}

// By flow.
Bytes encode(const std::vector<uint64_t>& figures) {
  ByteWriter out;
  for (const uint64_t figure : figures) out.u64(figure);
  return out.take();
}

Result<std::vector<uint64_t>> decode_figures(const Bytes& bytes) {
  ByteReader in(bytes);
  std::vector<uint64_t> figures(bytes.size() / sizeof(uint64_t));
  for (uint64_t& figure : figures) figure = in.u64();
  SENNIT_RETURN_IF_ERROR(in.finish("what a host measured"));
  return figures;
}

// ---- the probe of one rank ----

class Probe {
 public:
  Probe(const std::shared_ptr<Context>& context, const ProbeRequest& request)
      : context_(context),
        request_(request),
        prober_(static_cast<int>(request.rank_of_host.size()), request.one_pair_at_a_time) {}

  Result<Fabric> run(const Fabric& known);

 private:
  bool decides() const { return context_->rank() == 0; }
  Status look_into_cache();
  Status join();
  Status measure();
  Result<std::optional<probe::Round>> next_round();
  Result<std::vector<uint64_t>> figures_of(const probe::Round& round);
  void record(const probe::Round& round, const std::vector<uint64_t>& figures);
  Fabric conclude(const Fabric& known);

  const std::shared_ptr<Context>& context_;
  const ProbeRequest& request_;
  std::shared_ptr<Communicator> hosts_;  // of one rank a host; null on the others
  // Rank 0's.
  std::string cache_path_;
  std::optional<Fabric> cached_;
  probe::Prober prober_;
  uint64_t began_ns_ = 0;
  uint64_t bytes_ = 0;
};

Result<Fabric> Probe::run(const Fabric& known) {
  SENNIT_RETURN_IF_ERROR(look_into_cache());
  SENNIT_RETURN_IF_ERROR(join());
  began_ns_ = now_ns();
  SENNIT_RETURN_IF_ERROR(measure());
  if (!decides()) return Fabric{};
  return cached_ ? *std::move(cached_) : conclude(known);
}

// Every host tells what it is; rank 0 decides whether there is anything to measure.
Status Probe::look_into_cache() {
  const auto found = std::ranges::find(request_.rank_of_host, context_->rank());
  Bytes mine;
  if (found != request_.rank_of_host.end()) {
    const auto host = static_cast<size_t>(found - request_.rank_of_host.begin());
    mine = ByteWriter().text(self_description(request_.names[host])).take();
  }
  const Result<std::vector<Bytes>> all = context_->control().all_gather(mine);
  if (!all) return all.status();
  if (!decides()) return {};
  std::vector<std::string> descriptions;
  for (const int rank : request_.rank_of_host) {
    ByteReader in((*all)[static_cast<size_t>(rank)]);
    descriptions.push_back(in.text());
    SENNIT_RETURN_IF_ERROR(in.finish("what a host says that it is"));
  }
  cache_path_ = cache_path(std::move(descriptions));
  if (!request_.again) cached_ = read_cache(cache_path_);
  if (cached_)
    log(LogLevel::info, "the fabric was probed before: {} (SENNIT_PROBE=again measures anew)",
        cache_path_);
  return {};
}

Status Probe::join() {
  if (std::ranges::find(request_.rank_of_host, context_->rank()) == request_.rank_of_host.end())
    return {};
  Result<std::shared_ptr<Communicator>> made =
      Communicator::create(context_, request_.rank_of_host, kProbeCommunicator);
  if (!made) return made.status();
  hosts_ = *std::move(made);
  return {};
}

// Round after round, until rank 0 has no more.
Status Probe::measure() {
  for (;;) {
    const Result<std::optional<probe::Round>> round = next_round();
    if (!round) return round.status();
    if (!*round) return {};
    const Result<std::vector<uint64_t>> figures = figures_of(**round);
    if (!figures) return figures.status();
    if (decides()) record(**round, *figures);
  }
}

Result<std::optional<probe::Round>> Probe::next_round() {
  Bytes order;
  if (decides() && !cached_) order = encode(prober_.next());
  const Result<Bytes> told = context_->control().broadcast(order);
  if (!told) return told.status();
  return decode_round(*told, static_cast<int>(request_.rank_of_host.size()));
}

// Runs this host's part; on rank 0 what all hosts saw, by flow.
Result<std::vector<uint64_t>> Probe::figures_of(const probe::Round& round) {
  Bytes mine;
  if (hosts_) {
    const Result<std::vector<uint64_t>> seen = run_round(*hosts_, round);
    if (!seen) return seen.status();
    mine = encode(*seen);
  }
  const Result<std::vector<Bytes>> all = context_->control().all_gather(mine);
  if (!all) return all.status();
  std::vector<uint64_t> figures(round.flows.size(), 0);
  if (!decides()) return figures;
  for (const int rank : request_.rank_of_host) {
    const Result<std::vector<uint64_t>> theirs = decode_figures((*all)[static_cast<size_t>(rank)]);
    if (!theirs) return theirs.status();
    for (size_t i = 0; i < figures.size() && i < theirs->size(); i++)
      figures[i] = std::max(figures[i], (*theirs)[i]);
  }
  return figures;
}

void Probe::record(const probe::Round& round, const std::vector<uint64_t>& figures) {
  const auto name = [&](int host) { return request_.names[static_cast<size_t>(host)]; };
  for (size_t i = 0; i < figures.size(); i++)
    log(LogLevel::debug, "probe: {} to {}: {} {}", name(round.flows[i].from),
        name(round.flows[i].to), figures[i], round.latency ? "ns" : "bytes/s");
  const uint64_t round_ms = (round.long_run ? kLongRoundNs : kRoundNs) / 1'000'000;
  if (!round.latency)
    for (const uint64_t rate : figures) bytes_ += rate / 1000 * round_ms;
  prober_.record(figures);
}

Fabric Probe::conclude(const Fabric& known) {
  const probe::Findings findings = prober_.findings();
  log(LogLevel::info, "{}", findings.to_text(request_.names));
  const std::string source = probed_now();
  Fabric result = probe::to_fabric(findings, request_.names, known, source);
  result.notes.push_back(
      fmt::format("{}: {}; it took {:.1f} s and sent {} MB", source, findings.summary(),
                  static_cast<double>(now_ns() - began_ns_) / 1e9, (bytes_ + 999'999) / 1'000'000));
  write_cache(cache_path_, result);
  return result;
}

}  // namespace

Result<Fabric> run_probe(const std::shared_ptr<Context>& context, const ProbeRequest& request,
                         const Fabric& known) {
  return Probe(context, request).run(known);
}

}  // namespace sennit
