// injections.cpp: how often the diagnosis names what is wrong, where the truth is known: faults of
// every kind and severity, injected into simulated calls on random trees, with noise on every time.
//
// usage: injections [--trials N] [--least-ranks N] [--most-ranks N] [--noise PART] [--seed N]
//
// A fault *matters* where it makes the call 5% slower. Of those that matter: `named`, the truth is
// among the suspects; `alone`, and nothing else is; `wrong`, others are suspected; `missed`, nobody
// is. Of those that do not matter nothing but `wrong` counts. Precision is named / (named + wrong),
// recall named / all that matter.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/mutex.hpp"
#include "command/command_line.hpp"
#include "diagnose/links.hpp"
#include "diagnose/recorded/simulated.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "plan/planner.hpp"
#include "topology/source.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kMatters = 1.05;
constexpr double kSeverities[] = {1.05, 1.1, 1.25, 1.5, 2.0};

enum class Kind {
  none,
  uneven,
  late_rank,
  nic_out,
  nic_in,
  nic_both,
  uplink_one_way,
  uplink_both,
  tier
};
constexpr Kind kKinds[] = {Kind::none,           Kind::uneven,      Kind::late_rank,
                           Kind::nic_out,        Kind::nic_in,      Kind::nic_both,
                           Kind::uplink_one_way, Kind::uplink_both, Kind::tier};
constexpr const char* kNames[] = {"nothing",         "uneven work",  "late rank",
                                  "NIC, out",        "NIC, in",      "NIC, both",
                                  "uplink, one way", "uplink, both", "tier"};

struct Options {
  int trials = 20;
  int least_ranks = 16, most_ranks = 24;
  double noise = 0.05;
  uint64_t seed = 1;
};

struct Tally {
  int trials = 0, matter = 0, named = 0, alone = 0, wrong = 0, missed = 0;
};

struct Trial {
  SimulatedJob job;
  std::vector<std::string> links;  // the truth
  std::vector<int> ranks;
};

// racks of equal or unequal sizes, any oversubscription, calls of any of the large collectives.
SimulatedJob random_job(std::mt19937_64& random, const Options& options) {
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  std::string racks;
  const bool equal = pick(0, 1) == 0;
  const int each = pick(3, 6), most = pick(options.least_ranks, options.most_ranks);
  for (int ranks = 0, count = 0; ranks < most || count < 2; count++) {
    const int size = equal ? each : pick(2, 6);
    racks += fmt::format("{}{}", racks.empty() ? "" : ",", size);
    ranks += size;
  }
  SimulatedJob job;
  job.fabric = *synthetic_fabric(
      fmt::format("racks={};nic=400Mbit/s;oversubscription={}", racks, pick(2, 7)));
  job.placements = ranks_on_all_hosts(job.fabric, 1);
  constexpr Collective kTried[] = {Collective::all_reduce, Collective::all_gather,
                                   Collective::reduce_scatter};
  job.request.collective = kTried[pick(0, 2)];
  job.request.count = (4u << 20) >> pick(0, 3);
  const TierTree tree = *contract(job.fabric, job.placements);
  if (job.request.collective != Collective::all_reduce)
    job.request.count /= static_cast<uint64_t>(tree.ranks());
  job.plan = *make_plan(job.request, tree, {});
  constexpr uint32_t kMostChunks = 16;  // so that a simulation takes a moment
  job.plan.parameters.chunks = std::min(job.plan.parameters.chunks, kMostChunks);
  job.noise = options.noise;
  job.seed = random();
  return job;
}

double time_of(const SimulatedJob& job) {
  SimulatedJob once = job;
  once.calls = 1;
  once.noise = 0;
  const JobRecording recording = *simulated_recording(once);
  const std::vector<TraceEvent>& events = recording.ranks[0].events;
  return static_cast<double>(events.back().posted_ns - events.front().posted_ns);
}

// The groups that have switches above them, or the hosts.
std::vector<int> groups_of(const TierTree& tree, bool hosts) {
  std::vector<int> groups;
  for (int g = 1; g < static_cast<int>(tree.groups.size()); g++)
    if (tree.is_leaf(g) == hosts) groups.push_back(g);
  return groups;
}

void slow_down(Trial* trial, const TierTree& tree, int group, bool out, bool in, double factor) {
  if (out) trial->job.slow.push_back({{group, true}, factor});
  if (in) trial->job.slow.push_back({{group, false}, factor});
  if (out && in) trial->links.push_back(link_name(tree, {group, true}, true));
  if (out != in) trial->links.push_back(link_name(tree, {group, out}, false));
}

void inject(Trial* trial, Kind kind, double severity, std::mt19937_64& random) {
  const TierTree tree = *contract(trial->job.fabric, trial->job.placements);
  const auto one_of = [&](const std::vector<int>& from) {
    return from[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random)];
  };
  const std::vector<int> hosts = groups_of(tree, true), racks = groups_of(tree, false);
  const double took = time_of(trial->job);
  const bool out = std::uniform_int_distribution<int>(0, 1)(random) == 0;
  switch (kind) {
    case Kind::none:
      break;
    case Kind::uneven:  // what a job's own work does: everybody is late by something else
      for (int rank = 0; rank < tree.ranks(); rank++)
        trial->job.late.emplace_back(
            rank, static_cast<uint64_t>(took * (severity - 1) *
                                        std::uniform_real_distribution<double>(0, 1)(random)));
      break;
    case Kind::late_rank:
      trial->ranks = {std::uniform_int_distribution<int>(0, tree.ranks() - 1)(random)};
      trial->job.late = {{trial->ranks[0], static_cast<uint64_t>(took * (severity - 1))}};
      break;
    case Kind::nic_out:
    case Kind::nic_in:
    case Kind::nic_both:
      slow_down(trial, tree, one_of(hosts), kind != Kind::nic_in, kind != Kind::nic_out, severity);
      break;
    case Kind::uplink_one_way:
      slow_down(trial, tree, one_of(racks), out, !out, severity);
      break;
    case Kind::uplink_both:
      slow_down(trial, tree, one_of(racks), true, true, severity);
      break;
    case Kind::tier:
      for (const int rack : racks) slow_down(trial, tree, rack, true, true, severity);
      break;
  }
}

// A slow link in both directions is named by either, where only that one counts.
bool names_truth(const Trial& trial, const Verdict& verdict) {
  if (!trial.ranks.empty()) return verdict.ranks == trial.ranks;
  for (const std::string& truth : trial.links)
    for (const std::string& link : verdict.links)
      if (link == truth || link == "out of " + truth || link == "into " + truth ||
          truth == "out of " + link || truth == "into " + link)
        return true;
  return false;
}

void run(Kind kind, double severity, uint64_t seed, const Options& options, Tally* tally) {
  std::mt19937_64 random(seed);
  Trial trial{random_job(random, options), {}, {}};
  const double well = time_of(trial.job);
  inject(&trial, kind, severity, random);
  const double slowdown = time_of(trial.job) / well;
  const bool matters =
      kind != Kind::none && kind != Kind::uneven && slowdown >= kMatters * (1 - 1e-9);
  const JobRecording recording = *simulated_recording(trial.job);
  Plans plans(recording);
  JudgeOptions judging;
  judging.least_factor = kMatters;
  const Verdict verdict = judge(recording, plans, judging);
  tally->trials++;
  tally->matter += matters;
  // A job's own uneven work may be told of ranks, but never blamed on a link.
  const bool accused =
      kind == Kind::uneven ? !verdict.links.empty() : verdict.kind != VerdictKind::well;
  const bool right = kind != Kind::uneven && names_truth(trial, verdict);
  if (right && matters) tally->named++;
  if (right && matters && verdict.links.size() <= trial.links.size()) tally->alone++;
  if (accused && !right) tally->wrong++;
  if (!accused && matters) tally->missed++;
}

std::string part(int some, int all) {
  return all == 0 ? "-" : fmt::format("{:.3f}", static_cast<double>(some) / all);
}

int measure(const Options& options) {
  fmt::print("seed {}, {} trials of each, {} to {} ranks, noise {}\n\n", options.seed,
             options.trials, options.least_ranks, options.most_ranks, options.noise);
  fmt::print(
      "| fault | slower by | trials | matter | named | alone | wrong | missed | precision | "
      "recall |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Kind kind : kKinds) {
    for (const double severity : kSeverities) {
      if (kind == Kind::none && severity != kSeverities[0]) continue;
      Tally sum;
      Mutex mutex;
      std::atomic<int> next = 0;
      const auto work = [&] {
        for (int trial; (trial = next++) < options.trials;) {
          Tally tally;
          const auto number = static_cast<uint64_t>(kind) * 1'000'000'000 +
                              static_cast<uint64_t>(severity * 100) * 1'000'000 +
                              static_cast<uint64_t>(trial);
          run(kind, severity, options.seed * 0x9e3779b97f4a7c15 + number, options, &tally);
          const MutexLock lock(mutex);
          sum.trials += tally.trials;
          sum.matter += tally.matter;
          sum.named += tally.named;
          sum.alone += tally.alone;
          sum.wrong += tally.wrong;
          sum.missed += tally.missed;
        }
      };
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
        threads.emplace_back(work);
      for (std::thread& thread : threads) thread.join();
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                 kNames[static_cast<size_t>(kind)],
                 kind == Kind::none ? "-" : fmt::format("{:g}", severity), sum.trials, sum.matter,
                 sum.named, sum.alone, sum.wrong, sum.missed,
                 part(sum.named, sum.named + sum.wrong), part(sum.named, sum.matter));
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sennit::diagnose

int main(int argc, char** argv) {
  sennit::diagnose::Options options;
  sennit::CommandLine line("how often the diagnosis names what is wrong", "injections");
  const sennit::Command command = line.itself();
  command.option("--trials", options.trials, "of each kind and severity")
      .show_default()
      .within(1, 1'000'000);
  command.option("--least-ranks", options.least_ranks).show_default().within(4, 1024);
  command.option("--most-ranks", options.most_ranks).show_default().within(4, 1024);
  command.option("--noise", options.noise, "deviation of the logarithm of every time")
      .show_default()
      .share_within(0, 1);
  command.option("--seed", options.seed, "of all that is random").show_default();
  command.action([&] { return sennit::diagnose::measure(options); });
  return line.run({argv, argv + argc});
}
