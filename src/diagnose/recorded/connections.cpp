// connections.cpp: see diagnose/recorded/connections.hpp.
#include "diagnose/recorded/connections.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "diagnose/edges.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kPercent = 100;
// Full queues in front of a link that carries what it can lose some segments too. Less than this is
// nothing; more than the second, and more than twice what is sent again elsewhere, is loss.
constexpr double kNothing = 0.001, kLoss = 0.005, kTimesOthers = 2;
// Of the time in which there was something to send, and of how much of that at the least.
constexpr double kLimited = 0.2;
constexpr uint64_t kLeastBusyUs = 100'000;
// So much of one connection, and so many segments, are worth a word whatever is to blame.
constexpr double kMuch = 0.01;
constexpr uint64_t kMany = 10;

// What some connections sent lately.
struct Sent {
  uint64_t segments = 0, again = 0;
  size_t connections = 0, with_again = 0;
  double share() const {
    return segments > 0 ? static_cast<double>(again) / static_cast<double>(segments) : 0;
  }
};

Sent sent_over(const std::vector<Connection>& connections) {
  Sent sum;
  for (const Connection& one : connections) {
    const ConnectionCounters lately = one.record.lately();
    sum.segments += lately.segments;
    sum.again += lately.segments_again;
    sum.connections += lately.segments > 0;
    sum.with_again += lately.segments_again > 0;
  }
  return sum;
}

std::string host_of(const JobRecording& job, int rank) {
  if (const RankRecording* const recording = job.find(rank)) return recording->host;
  if (index(rank) < job.placements.size()) return job.placements[index(rank)].host;
  return fmt::format("rank {}", rank);
}

std::string way(const JobRecording& job, const Connection& one) {
  return host_of(job, one.from) + " -> " + host_of(job, one.to);
}

std::string percent(double share) { return fmt::format("{:.2g}%", kPercent * share); }

std::string counted(size_t count) {
  return fmt::format("{} connection{}", count, count == 1 ? "" : "s");
}

std::string sent_again(const Sent& crossing, const Sent& others, const std::string& where) {
  std::string text =
      fmt::format("the kernel: {} of segments sent again on {} of {} {}", percent(crossing.share()),
                  crossing.with_again, counted(crossing.connections), where);
  const bool loss = crossing.share() >= kLoss && crossing.share() > kTimesOthers * others.share();
  if (loss) text += " (loss)";
  if (others.connections > 0)
    text += fmt::format("; {} on the {} others", percent(others.share()), others.connections);
  return text;
}

// What kept a connection from sending for a part of the time, and what that says.
struct Limit {
  uint64_t ConnectionCounters::*limited_us;
  std::string_view by, means;
};

// The worst connection, and how many there are like it.
void say_limit(const JobRecording& job, const std::vector<Connection>& crossing, const Limit& limit,
               std::vector<std::string>* said) {
  const Connection* worst = nullptr;
  double most = 0;
  size_t count = 0;
  for (const Connection& one : crossing) {
    const ConnectionCounters lately = one.record.lately();
    if (lately.busy_us < kLeastBusyUs) continue;
    const double share =
        static_cast<double>(lately.*limit.limited_us) / static_cast<double>(lately.busy_us);
    if (share < kLimited) continue;
    count++;
    if (share <= most) continue;
    most = share;
    worst = &one;
  }
  if (!worst) return;
  said->push_back(fmt::format("the kernel: limited by {} for {:.0f}% of the time on {}{} ({})",
                              limit.by, kPercent * std::min(most, 1.0), way(job, *worst),
                              count > 1 ? fmt::format(" and {} more", count - 1) : "",
                              limit.means));
}

// Rates are measured, so three digits of them are enough.
std::string rate_text(uint64_t bytes_per_s) {
  constexpr double kBitsPerByte = 8, kMega = 1e6, kGiga = 1e9;
  const double bits = static_cast<double>(bytes_per_s) * kBitsPerByte;
  return bits < kGiga ? fmt::format("{:.3g}Mbit/s", bits / kMega)
                      : fmt::format("{:.3g}Gbit/s", bits / kGiga);
}

std::string ms_text(uint32_t us) {
  constexpr double kUsPerMs = 1000;
  return fmt::format("{:.3g} ms", us / kUsPerMs);
}

// The least and the most of what some connections had.
struct Extent {
  uint64_t least = std::numeric_limits<uint64_t>::max(), most = 0;
  void add(uint64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

std::string rates_text(const std::string& what, const Extent& rates) {
  if (rate_text(rates.least) == rate_text(rates.most)) return what + rate_text(rates.most);
  return fmt::format("{}{} to {} a connection", what, rate_text(rates.least),
                     rate_text(rates.most));
}

// The kernel's delivery rate is that of a burst where the application sends in bursts, and then
// says nothing of the way. What was sent over the time in which there was something to send does.
void say_rates(const std::vector<Connection>& crossing, std::vector<std::string>* said) {
  constexpr uint64_t kUsPerS = 1'000'000;
  Extent busy, delivery, rtt;
  for (const Connection& one : crossing) {
    const ConnectionStatistics& latest = one.record.latest;
    const ConnectionCounters lately = one.record.lately();
    if (latest.least_rtt_us > 0) {
      rtt.add(latest.least_rtt_us);
      rtt.add(latest.smoothed_rtt_us);
    }
    if (lately.busy_us < kLeastBusyUs || lately.bytes < kLeastEdgeBytes) continue;
    busy.add(
        scaled(lately.bytes - std::min(lately.bytes, lately.bytes_again), kUsPerS, lately.busy_us));
    if (latest.application_limited == 0) delivery.add(latest.delivered_bytes_per_s);
  }
  std::vector<std::string> parts;
  if (busy.most > 0) parts.push_back(rates_text("while there was something to send ", busy));
  if (delivery.most > 0) parts.push_back(rates_text("delivery rate ", delivery));
  if (rtt.most > 0)
    parts.push_back(fmt::format("least round trip {}, up to {} under load", ms_text(rtt.least),
                                ms_text(rtt.most)));
  if (!parts.empty()) said->push_back(fmt::format("the kernel: {}", fmt::join(parts, "; ")));
}

// Nothing where on none of the connections much was sent again.
std::optional<std::string> much_sent_again(const JobRecording& job,
                                           const std::vector<Connection>& connections,
                                           const std::string& where) {
  size_t bad = 0;
  const Connection* worst = nullptr;
  double most = 0;
  for (const Connection& one : connections) {
    const Sent its = sent_over({one});
    if (its.share() < kMuch || its.again < kMany) continue;
    bad++;
    if (its.share() <= most) continue;
    most = its.share();
    worst = &one;
  }
  if (!worst) return std::nullopt;
  const Sent sent = sent_over(connections);
  return fmt::format(
      "the kernel: {} of segments sent again on {} of {} {}; {} and more on {}, "
      "most on {}: {}",
      percent(sent.share()), sent.with_again, counted(sent.connections), where, percent(kMuch), bad,
      way(job, *worst), percent(most));
}

std::string said_clean(const Sent& sent, const Sent& others, const std::string& where) {
  if (sent.again == 0)
    return fmt::format("loss: no segments were sent again on {} {}, of {}",
                       counted(sent.connections), where, sent.segments);
  std::string text = fmt::format("loss: no more than {} of segments were sent again on {} {}",
                                 percent(sent.share()), counted(sent.connections), where);
  if (others.connections > 0) text += fmt::format(", {} on the others", percent(others.share()));
  return text;
}

}  // namespace

std::vector<Connection> connections_of(const JobRecording& job) {
  std::vector<Connection> all;
  for (const RankRecording& rank : job.ranks)
    for (const Note& note : rank.notes)
      if (const auto* const table = std::get_if<ConnectionsNote>(&note))
        for (const ConnectionRecord& record : table->records)
          if (record.latest.peer < job.size) all.push_back({rank.rank, record.latest.peer, record});
  return all;
}

KernelView kernel_view(const JobRecording& job, const std::vector<Connection>& connections,
                       const std::function<bool(const Connection&)>& crosses,
                       const std::string& where) {
  constexpr Limit kReceiver{&ConnectionCounters::receiver_limited_us, "the receiver's window",
                            "the receiver is slow, not the way"};
  constexpr Limit kBuffer{&ConnectionCounters::buffer_limited_us, "the sender's own buffer",
                          "SENNIT_TCP_BUFFER_BYTES, net.ipv4.tcp_wmem"};
  std::vector<Connection> crossing, others;
  for (const Connection& one : connections) (crosses(one) ? crossing : others).push_back(one);
  const Sent sent = sent_over(crossing);
  KernelView view;
  if (sent.connections == 0) return view;
  const Sent elsewhere = sent_over(others);
  if (sent.share() >= kNothing)
    view.evidence.push_back(sent_again(sent, elsewhere, where));
  else
    view.ruled_out.push_back(said_clean(sent, elsewhere, where));
  // Whoever reads that this link is slow has to know of another one that loses more.
  if (elsewhere.share() > kTimesOthers * sent.share())
    if (const auto much = much_sent_again(job, others, "elsewhere")) view.evidence.push_back(*much);
  say_limit(job, crossing, kReceiver, &view.evidence);
  say_limit(job, crossing, kBuffer, &view.evidence);
  say_rates(crossing, &view.evidence);
  return view;
}

KernelView kernel_view_of_all(const JobRecording& job, const std::vector<Connection>& connections) {
  const Sent sent = sent_over(connections);
  KernelView view;
  if (sent.connections == 0) return view;
  const std::string where = "between hosts";
  if (const auto much = much_sent_again(job, connections, where))
    view.evidence.push_back(*much);
  else if (sent.share() < kNothing)
    view.ruled_out.push_back(said_clean(sent, {}, where));
  return view;
}

}  // namespace sennit::diagnose
