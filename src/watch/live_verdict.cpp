// live_verdict.cpp: see watch/live_verdict.hpp.
#include "watch/live_verdict.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/text/json.hpp"

namespace sennit::watch {

bool is_blamed(const LiveVerdict& verdict, const diagnose::DirectedGroup& link) {
  return std::any_of(verdict.suspects.begin(), verdict.suspects.end(), [&](const auto& suspect) {
    return suspect.group == link.group && (verdict.both_ways || suspect.egress == link.egress);
  });
}

namespace {

constexpr uint8_t kHangVersion = 1;

const char* name(VerdictAbout about) {
  constexpr const char* kNames[] = {"slow_link", "late_rank", "hang", "starved_rank"};
  return kNames[static_cast<size_t>(about)];
}

void write(ByteWriter& out, const std::vector<int>& ranks) {
  out.u32(static_cast<uint32_t>(ranks.size()));
  for (const int rank : ranks) out.rank(rank);
}

std::vector<int> read_ranks(ByteReader& in, int size) {
  std::vector<int> ranks(in.count(sizeof(uint32_t)));
  for (int& rank : ranks) rank = in.rank_below(size);
  return ranks;
}

}  // namespace

VerdictNote note_of(const LiveVerdict& verdict) {
  const auto first = std::min_element(verdict.members.begin(), verdict.members.end());
  return {verdict.when_ns,  verdict.withdrawn, verdict.about,
          verdict.sentence, verdict.links,     verdict.ranks,
          verdict.factor,   verdict.cost,      verdict.confidence,
          verdict.tier,     verdict.comm,      first == verdict.members.end() ? -1 : *first};
}

std::vector<std::byte> encode_hang(const LiveVerdict& verdict) {
  const LiveHang& hang = *verdict.hang;
  ByteWriter out;
  out.u8(kHangVersion).flag(verdict.withdrawn).u64(verdict.when_ns).u32(verdict.comm);
  out.u64(verdict.plan).text(verdict.sentence).text(hang.cause).text(hang.call).u32(hang.seq);
  write(out, verdict.ranks);
  write(out, hang.waiting);
  out.text(hang.tier).flag(hang.where.has_value());
  if (hang.where)
    out.rank(hang.where->peer).u32(hang.where->chunk).u32(hang.where->step).u32(hang.where->tag);
  return out.take();
}

Result<LiveVerdict> decode_hang(std::span<const std::byte> bytes, int size) {
  ByteReader in(bytes);
  LiveVerdict verdict;
  verdict.about = VerdictAbout::hang;
  verdict.confidence = 1;
  LiveHang& hang = verdict.hang.emplace();
  if (in.u8() != kHangVersion) in.fail();
  verdict.withdrawn = in.flag();
  verdict.when_ns = in.u64();
  verdict.comm = in.u32();
  verdict.plan = in.u64();
  verdict.sentence = in.text();
  hang.cause = in.text();
  hang.call = in.text();
  hang.seq = in.u32();
  verdict.ranks = read_ranks(in, size);
  hang.waiting = read_ranks(in, size);
  hang.tier = in.text();
  if (in.flag()) {
    diagnose::OpenStep& where = hang.where.emplace();
    where.peer = in.rank();
    where.chunk = in.u32();
    where.step = in.u32();
    where.tag = in.u32();
  }
  SENNIT_RETURN_IF_ERROR(in.finish("a verdict on a hang"));
  return verdict;
}

std::string json_of(const LiveVerdict& verdict) {
  constexpr double kNsPerS = 1e9;
  nlohmann::ordered_json json = {
      {"verdict", name(verdict.about)}, {"withdrawn", verdict.withdrawn},
      {"sentence", verdict.sentence},   {"time_s", static_cast<double>(verdict.when_ns) / kNsPerS},
      {"communicator", verdict.comm},   {"blamed_links", verdict.links},
      {"blamed_ranks", verdict.ranks},  {"factor", verdict.factor},
      {"cost", verdict.cost},           {"confidence", verdict.confidence},
  };
  if (verdict.since_ns > 0) json["since_s"] = static_cast<double>(verdict.since_ns) / kNsPerS;
  if (!verdict.next.empty()) json["next"] = verdict.next;
  if (verdict.plan != 0) json["plan"] = fmt::format("{:016x}", verdict.plan);
  if (verdict.late_ns > 0) json["late_s"] = verdict.late_ns / kNsPerS;
  if (verdict.cores) json["cores"] = *verdict.cores;
  if (const auto& hang = verdict.hang) {
    json["cause"] = hang->cause;
    json["call"] = hang->call;
    json["number"] = hang->seq;
    json["waiting_ranks"] = hang->waiting;
    if (hang->where)
      json["where"] = {{"step", hang->where->step},
                       {"chunk", hang->where->chunk},
                       {"peer", hang->where->peer},
                       {"tag", hang->where->tag},
                       {"tier", hang->tier}};
  }
  return json_to_text(json, -1);
}

}  // namespace sennit::watch
