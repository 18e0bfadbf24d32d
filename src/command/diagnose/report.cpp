// report.cpp: see command/diagnose/report.hpp.
#include "command/diagnose/report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/text/date.hpp"
#include "base/text/json.hpp"
#include "diagnose/links.hpp"
#include "diagnose/recorded/connections.hpp"
#include "diagnose/recorded/messages.hpp"
#include "topology/fabric/by_traffic.hpp"

namespace sennit::diagnose {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNsPerS = 1e9, kPercent = 100;

const char* name(RankState state) {
  constexpr const char* kNames[] = {"running", "ended", "gone", "silent"};
  return kNames[static_cast<size_t>(state)];
}

Json hang_json(const Hang& hang, const JobRecording& job, Plans& plans) {
  Json json = {{"cause", name(hang.cause)},
               {"behind", hang.behind},
               {"waiting", hang.waiting},
               {"communicator", job.known_as(hang.comm)},
               {"members", job.members_of(hang.comm)},  // groups of a split share the number
               {"number", hang.seq},
               {"call", plans.call_name(hang.comm, hang.plan)},
               {"quiet_s", static_cast<double>(hang.since_ns) / kNsPerS}};
  if (hang.where)
    json["where"] = {{"step", hang.where->step},
                     {"chunk", hang.where->chunk},
                     {"peer", hang.where->peer},
                     {"tag", hang.where->tag},
                     {"tier", plans.tier_name(hang.comm, hang.where->tier)}};
  return json;
}

// What was counted lately; the round trips and the rate are the latest.
Json connections_json(const JobRecording& job) {
  constexpr double kUsPerS = 1e6, kBitsPerByte = 8;
  Json all = Json::array();
  for (const Connection& one : connections_of(job)) {
    const ConnectionStatistics& latest = one.record.latest;
    const ConnectionCounters lately = one.record.lately();
    all.push_back(
        {{"from", one.from},
         {"to", one.to},
         {"least_round_trip_s", latest.least_rtt_us / kUsPerS},
         {"round_trip_s", latest.smoothed_rtt_us / kUsPerS},
         {"delivery_bit_per_s", static_cast<double>(latest.delivered_bytes_per_s) * kBitsPerByte},
         {"delivery_limited_by_application", latest.application_limited != 0},
         {"segments", lately.segments},
         {"segments_again", lately.segments_again},
         {"bytes", lately.bytes},
         {"bytes_again", lately.bytes_again},
         {"busy_s", static_cast<double>(lately.busy_us) / kUsPerS},
         {"limited_by_receiver_s", static_cast<double>(lately.receiver_limited_us) / kUsPerS},
         {"limited_by_buffer_s", static_cast<double>(lately.buffer_limited_us) / kUsPerS}});
  }
  return all;
}

// A communicator of all ranks, whose tree is that of the whole job. 0: there is none.
uint32_t whole_job(const JobRecording& job) {
  for (const auto& [comm, members] : job.communicators)
    if (static_cast<int>(members.size()) == job.size) return comm;
  return 0;
}

// Of copies, when the last of them was made: they may be of another day.
std::string counted(const JobRecording& job) {
  constexpr uint64_t kNsPerSecond = 1'000'000'000;
  int running = 0, ended = 0, gone = 0, copied = 0;
  uint64_t as_of_ns = 0;
  for (const RankRecording& rank : job.ranks) {
    running += rank.runs();
    ended += rank.state == RankState::ended;
    gone += rank.state == RankState::gone;
    copied += rank.copied;
    if (rank.copied)
      as_of_ns = std::max(as_of_ns, rank.realtime_ns + rank.as_of_ns - rank.monotonic_ns);
  }
  std::string text = fmt::format("job {:016x}: {} of {} ranks recorded, {} running, {} gone",
                                 job.job, job.ranks.size(), job.size, running, gone);
  if (ended > 0) text += fmt::format(", {} ended", ended);
  if (copied > 0)
    text += fmt::format(", {} {} of {}", copied, copied == 1 ? "copy" : "copies",
                        utc_minute(static_cast<int64_t>(as_of_ns / kNsPerSecond)));
  return text;
}

}  // namespace

std::string what_it_carries(const FoundLink& slow) {
  const std::string name = slow.whole_tier ? fmt::format("each of {}", fmt::join(slow.names, ", "))
                                           : fmt::format("{}", fmt::join(slow.names, " or "));
  if (slow.factor <= 0) return name + " is slower than its like; its rate is not known";
  return fmt::format("{} carries {:.0f}% of its capacity", name, kPercent / slow.factor);
}

Result<std::string> fabric_text(const JobRecording& job, const Verdict& verdict, Plans& plans) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  if (!plans.fabric())
    return invalid("the fabric is not known without rank 0's recording" +
                   (plans.why_none().empty() ? "" : ": " + plans.why_none()));
  uint64_t latest_ns = 0;
  for (const RankRecording& rank : job.ranks)
    for (const TraceEvent& event : rank.events)
      latest_ns = std::max(latest_ns, rank.realtime_ns + event.ended_at() - rank.monotonic_ns);
  Fabric fabric = *plans.fabric();
  for (const FoundLink& slow : verdict.slow) {
    const TierTree* const tree = plans.tree(slow.comm ? *slow.comm : whole_job(job));
    const bool told_apart = slow.names.size() == 1 || slow.whole_tier;
    if (slow.factor > 0 && tree && told_apart) {
      Result<Fabric> seen =
          by_traffic(std::move(fabric), *tree, slow_boundaries(slow.names, slow.factor),
                     static_cast<int64_t>(latest_ns) / kNsPerSecond);
      if (!seen) return seen.status();
      fabric = *std::move(seen);
    } else if (fabric.notes.size() < kMaxConflicts) {
      fabric.notes.push_back("by traffic: " + what_it_carries(slow));
    }
  }
  return fabric.to_text();
}

std::string verdict_json(const JobRecording& job, const Verdict& verdict, Plans& plans) {
  const std::map<std::string, ClockOffset> clocks = clock_offsets(job, join_messages(job));
  Json ranks = Json::array();
  for (const RankRecording& rank : job.ranks) {
    const ClockOffset& clock = clocks.at(rank.host);
    const bool known = clock.error_ns != ClockOffset::kUnknown;
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"pid", rank.pid},
                     {"state", name(rank.state)},
                     {"events", rank.recorded},
                     {"clock_ahead_ns", clock.ahead_ns},
                     {"clock_error_ns", known ? Json(clock.error_ns) : Json()}});
  }
  const Json json = {{"job", fmt::format("{:016x}", job.job)},
                     {"verdict", name(verdict.kind)},
                     {"sentence", verdict.sentence},
                     {"blamed_ranks", verdict.ranks},
                     {"blamed_links", verdict.links},
                     {"blamed_cables", verdict.cables},
                     {"factor", verdict.factor},
                     {"cost", verdict.cost},
                     {"confidence", verdict.confidence},
                     {"evidence", verdict.evidence},
                     {"ruled_out", verdict.ruled_out},
                     {"next", verdict.next},
                     {"hang", verdict.hang ? hang_json(*verdict.hang, job, plans) : Json()},
                     {"not_looked_at", plans.why_none()},
                     {"size", job.size},
                     {"missing_ranks", job.missing},
                     {"ranks", ranks},
                     {"connections", connections_json(job)}};
  return json_to_text(json, 2) + "\n";
}

std::string verdict_text(const JobRecording& job, const Verdict& verdict, const Plans& plans) {
  std::string text = headline(verdict);
  text += (verdict.next.empty() ? "" : "; next: " + verdict.next) + "\n";
  for (const std::string& line : reasons(verdict)) text += "  " + line + "\n";
  text += counted(job) + "\n";
  if (!plans.why_none().empty()) text += "not all could be looked at: " + plans.why_none() + "\n";
  return text;
}

}  // namespace sennit::diagnose
