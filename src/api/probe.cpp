// probe.cpp: see api/probe.hpp.
//
// Rank 0 says over the control plane which flows run next; their ends run them over a communicator
// of their own, whose plans know nothing of the fabric yet, and say what they saw. A rate is that
// of a steady stream: the first part of each round is left out, because shapers let bursts pass and
// congestion control has to find its pace.
#include "api/probe.hpp"

#include <unistd.h>

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/communicator.hpp"
#include "base/cached_file.hpp"
#include "base/json_bytes.hpp"
#include "base/log.hpp"
#include "topology/probe/probe.hpp"

namespace sennit {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kProbeCommunicator = 0x70726f62;  // beyond the numbers of splits
constexpr uint64_t kRoundNs = 800'000'000, kSettleNs = 250'000'000;
constexpr uint64_t kLongRoundNs = 1'500'000'000, kLongSettleNs = 500'000'000;
// the latter with many flows
constexpr size_t kChunkBytes = 64 * 1024, kManyChunkBytes = 16 * 1024;
constexpr size_t kDepth = 8;  // chunks under way per flow
constexpr int kWarmUps = 8, kPings = 100;

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
        50'000'000);
  }
  for (const auto& [flow, stream] : streams)
    if (round.flows[flow].to == self) figures[flow] = stream->bytes_per_s();
  return figures;
}

// ---- cache ----

// What tells this set of hosts, and this network, from others.
std::string self_description(const std::string& name) {
  struct stat net = {};
  stat("/proc/self/ns/net", &net);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}/{}/{}", name, boot, net.st_ino);
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
std::string probed_now() {
  char text[64] = {};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(text, sizeof text, "probe %Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
  return text;
}

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

}  // namespace

Result<Fabric> run_probe(const std::shared_ptr<Context>& context, const ProbeRequest& request,
                         const Fabric& known) {
  Control& control = context->control();
  const auto found =
      std::find(request.rank_of_host.begin(), request.rank_of_host.end(), context->rank());
  const bool takes_part = found != request.rank_of_host.end();
  const std::string own =
      takes_part ? request.names[static_cast<size_t>(found - request.rank_of_host.begin())] : "";
  Result<std::vector<Bytes>> all =
      control.all_gather(takes_part ? pack(self_description(own)) : Bytes{});
  if (!all) return all.status();

  // Rank 0 decides whether there is anything to measure.
  std::string path;
  std::optional<Fabric> result;
  if (context->rank() == 0) {
    std::vector<std::string> descriptions;
    for (const int rank : request.rank_of_host)
      descriptions.push_back(unpack((*all)[static_cast<size_t>(rank)]).get<std::string>());
    path = cache_path(std::move(descriptions));
    if (!request.again) result = read_cache(path);
    if (result)
      log(LogLevel::info, "the fabric was probed before: {} (SENNIT_PROBE=again measures anew)",
          path);
  }
  std::shared_ptr<Communicator> comm;
  if (takes_part) {
    Result<std::shared_ptr<Communicator>> made =
        Communicator::create(context, request.rank_of_host, kProbeCommunicator);
    if (!made) return made.status();
    comm = *std::move(made);
  }
  const uint64_t began = now_ns();
  uint64_t bytes = 0;
  probe::Prober prober(static_cast<int>(request.rank_of_host.size()), request.one_pair_at_a_time);
  for (;;) {
    std::optional<probe::Round> round;
    Json order = Json::object();  // empty: done
    if (context->rank() == 0 && !result && (round = prober.next())) {
      std::vector<int> ends;
      for (const probe::Flow& f : round->flows) ends.insert(ends.end(), {f.from, f.to});
      order = {{"latency", round->latency}, {"long", round->long_run}, {"ends", ends}};
    }
    const Result<Bytes> told = control.broadcast(context->rank() == 0 ? pack(order) : Bytes{});
    if (!told) return told.status();
    order = unpack(*told);
    if (!order.contains("ends")) break;
    round.emplace();
    round->latency = order["latency"].get<bool>();
    round->long_run = order["long"].get<bool>();
    const auto ends = order["ends"].get<std::vector<int>>();
    for (size_t i = 0; i + 1 < ends.size(); i += 2) round->flows.push_back({ends[i], ends[i + 1]});
    Json mine = Json::array();
    if (comm) {
      Result<std::vector<uint64_t>> figures = run_round(*comm, *round);
      if (!figures) return figures.status();
      mine = *figures;
    }
    const Result<std::vector<Bytes>> seen = control.all_gather(comm ? pack(mine) : Bytes{});
    if (!seen) return seen.status();
    if (context->rank() != 0) continue;
    std::vector<uint64_t> figures(round->flows.size(), 0);
    for (const int rank : request.rank_of_host) {
      const auto theirs = unpack((*seen)[static_cast<size_t>(rank)]).get<std::vector<uint64_t>>();
      for (size_t i = 0; i < figures.size() && i < theirs.size(); i++)
        figures[i] = std::max(figures[i], theirs[i]);
    }
    for (size_t i = 0; i < figures.size(); i++)
      log(LogLevel::debug, "probe: {} to {}: {} {}",
          request.names[static_cast<size_t>(round->flows[i].from)],
          request.names[static_cast<size_t>(round->flows[i].to)], figures[i],
          round->latency ? "ns" : "bytes/s");
    if (!round->latency)
      for (const uint64_t rate : figures)
        bytes += rate / 1000 * ((round->long_run ? kLongRoundNs : kRoundNs) / 1'000'000);
    prober.record(figures);
  }
  if (context->rank() != 0) return Fabric{};
  if (!result) {
    const probe::Findings findings = prober.findings();
    log(LogLevel::info, "{}", findings.to_text(request.names));
    const std::string source = probed_now();
    result = probe::to_fabric(findings, request.names, known, source);
    result->notes.push_back(
        fmt::format("{}: {}; it took {:.1f} s and sent {} MB", source, findings.summary(),
                    static_cast<double>(now_ns() - began) / 1e9, (bytes + 999'999) / 1'000'000));
    write_cache(path, *result);
  }
  return *std::move(result);
}

}  // namespace sennit
