// sentences.cpp: see diagnose/sentences.hpp.
#include "diagnose/sentences.hpp"

#include <set>

#include <fmt/format.h>

#include "base/index.hpp"
#include "base/rank_ranges.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kPercent = 100, kNsPerMs = 1e6;

}  // namespace

std::vector<std::string> link_names(const TierTree& tree, const SlowLink& slow) {
  std::vector<std::string> names;
  for (const DirectedGroup& link : slow.suspects)
    names.push_back(link_name(tree, link, slow.both_ways));
  return names;
}

std::string suspects_name(const TierTree& tree, const SlowLink& slow) {
  if (slow.tier >= 0) return fmt::format("every {}'s link", tree.tiers[index(slow.tier)].name);
  return fmt::format("{}", fmt::join(link_names(tree, slow), " or "));
}

std::string slow_link_sentence(const TierTree& tree, const SlowLink& slow, const std::string& since,
                               const std::string& call) {
  const std::string names = suspects_name(tree, slow);
  std::string text = slow.factor > 0
                         ? fmt::format("{}: {:.0f}% of its capacity", names, kPercent / slow.factor)
                         : names + ": slower than its like";
  if (!since.empty()) text += " since " + since;
  if (slow.cost > 0) text += fmt::format("; costs {:.0f}% of {}", kPercent * slow.cost, call);
  if (slow.suspects.size() > 1 && slow.tier < 0) text += "; the traffic does not tell them apart";
  return text + fmt::format("; confidence {:.2f}", slow.confidence);
}

std::string late_ranks_sentence(const std::vector<int>& ranks, double late_ns, double cost,
                                int latest, std::optional<double> cores) {
  // Who uses less waits, and who uses more computes, or asks again and again.
  constexpr double kWaits = 0.2, kComputes = 0.7;
  const bool one = ranks.size() == 1;
  std::string meanwhile;
  if (cores)
    meanwhile = fmt::format("; meanwhile {} asks for {:.2f} cores{}",
                            one ? "it" : fmt::format("rank {}, the latest,", latest), *cores,
                            *cores < kWaits      ? ": it waits, as for input, a lock or a device"
                            : *cores > kComputes ? ": it computes"
                                                 : "");
  return fmt::format(
             "{} {} late by {:.1f} ms a call: what {} between calls takes longer than the others' "
             "work; costs {:.0f}% of the time",
             name_ranks(std::set<int>(ranks.begin(), ranks.end())), one ? "comes" : "come",
             late_ns / kNsPerMs, one ? "it does" : "they do", kPercent * cost) +
         meanwhile;
}

std::string starved_ranks_sentence(const std::vector<int>& ranks, double part) {
  const bool one = ranks.size() == 1;
  return fmt::format(
      "{} {} no core for {:.0f}% of the time, while the others wait: {}",
      name_ranks(std::set<int>(ranks.begin(), ranks.end())), one ? "gets" : "get", kPercent * part,
      one ? "its process is stopped again and again, or short of its cgroup's share"
          : "their processes are stopped again and again, or short of their cgroups' share");
}

std::string next_step(VerdictAbout about, bool on_the_way, std::string host, std::string pid) {
  if (host.empty()) host = "its host";
  if (pid.empty()) pid = "PID";
  switch (about) {
    case VerdictAbout::link:
      return "sennit topo --check, the ports' error counters; drain, or have the next job plan "
             "around it (sennit diagnose --fabric)";
    case VerdictAbout::late_ranks:
      return fmt::format(
          "look at that rank's work and input on {}: py-spy top --pid {}, nvidia-smi", host, pid);
    case VerdictAbout::starved_ranks:
      return fmt::format("look at {}: ps -o stat,psr,args -p {}, its cgroup's cpu.stat, pidstat -u",
                         host, pid);
    case VerdictAbout::hang:
      if (on_the_way) return "look at the way between them: sennit topo --check, ip -s link";
      return fmt::format(
          "look at that process on {0}: gdb -p {1}, py-spy dump --pid {1}, the host's dmesg", host,
          pid);
  }
  return "";
}

}  // namespace sennit::diagnose
