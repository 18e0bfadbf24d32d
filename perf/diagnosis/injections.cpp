// injections.cpp: how often the diagnosis names what is wrong, where the truth is known: faults of
// every kind and severity, injected into simulated calls on random trees, with noise on every time.
//
// usage: injections [--trials N] [--least-ranks N] [--most-ranks N] [--noise PART]
//                   [--edge-noise PART] [--seed N] [--equal] [--only KIND] [--severity S]
//                   [--wrong] [--calls N] [--recordings]
//
// Of a third of the trees every uplink is two or four cables, to which the messages between two
// ranks are hashed, and a slow uplink may be one slow cable. There, and on half of the others, the
// recording begins when all was still well.
//
// A fault *matters* where it makes the call 5% slower. Of those that matter: `named`, the truth is
// among the suspects; `first`, and it is the first of them; `alike`, and it is that, or is crossed
// by the same messages as the first, so that nobody could tell; `alone`, and nothing else is;
// `wrong`, only others are suspected; `missed`, nobody is. Of those that do not matter nothing but
// `wrong` counts. Precision is named / (named + wrong), recall named / all that matter. Of two
// links at once, one named is enough.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/index.hpp"
#include "base/mutex.hpp"
#include "command/command_line.hpp"
#include "diagnose/links.hpp"
#include "diagnose/recorded/simulated.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "perf/diagnosis/spread.hpp"
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
  tier,
  two
};
constexpr Kind kKinds[] = {Kind::none,   Kind::uneven,   Kind::late_rank,      Kind::nic_out,
                           Kind::nic_in, Kind::nic_both, Kind::uplink_one_way, Kind::uplink_both,
                           Kind::tier,   Kind::two};
constexpr const char* kNames[] = {"nothing", "uneven work", "late rank",       "NIC, out",
                                  "NIC, in", "NIC, both",   "uplink, one way", "uplink, both",
                                  "tier",    "two links"};
constexpr int kTimesNone = std::size(kSeverities);
constexpr int kManyRanks = 64;

struct Options {
  int trials = 20;
  int least_ranks = 16, most_ranks = 64;
  double noise = 0.05, edge_noise = 0.2;
  uint64_t seed = 1;
  bool equal = false;   // racks of one size, and uplinks of one cable
  std::string only;     // this kind
  double severity = 0;  // this one; 0: all
  bool tell_wrong = false;
  int calls = 100;  // with the fault, and where the recording begins before it, without
  bool recordings = false;
};

struct Tally {
  int trials = 0, matter = 0, named = 0, first = 0, alike = 0, alone = 0, wrong = 0, missed = 0;
  std::vector<double> judged_s;  // processor time of each verdict
  Spread spread;                 // of what was observed where nothing was wrong
  void add(const Tally& other) {
    trials += other.trials;
    matter += other.matter;
    named += other.named;
    first += other.first;
    alike += other.alike;
    alone += other.alone;
    wrong += other.wrong;
    missed += other.missed;
    judged_s.insert(judged_s.end(), other.judged_s.begin(), other.judged_s.end());
    spread.add(other.spread);
  }
};

struct Trial {
  SimulatedJob job;
  std::vector<std::string> links;  // the truth
  std::vector<int> ranks;
};

// So that as many trees have 16 to 32 ranks as have 32 to 64.
int pick_ranks(std::mt19937_64& random, const Options& options) {
  std::uniform_real_distribution<double> logarithm(std::log(options.least_ranks),
                                                   std::log(options.most_ranks));
  return static_cast<int>(std::lround(std::exp(logarithm(random))));
}

// Of this thread, whatever else the cores do.
double own_cpu_s() {
  struct timespec time {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// racks of equal or unequal sizes, any oversubscription, calls of any of the large collectives.
SimulatedJob random_job(std::mt19937_64& random, const Options& options) {
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  std::string racks;
  const bool equal = pick(0, 1) == 0 || options.equal;
  const int ranks = pick_ranks(random, options);
  const bool many = ranks > kManyRanks;
  const int least = many ? 16 : 2, most = many ? 32 : std::max(4, ranks / 4);
  const int each = many && options.equal ? least << pick(0, 1) : pick(std::max(3, least), most);
  for (int so_far = 0, count = 0; so_far < ranks || count < 2; count++) {
    const int size = std::min(equal ? each : pick(least, most), many ? ranks - so_far : ranks);
    racks += fmt::format("{}{}", racks.empty() ? "" : ",", size);
    so_far += size;
  }
  const int cables = options.equal || pick(0, 2) > 0 ? 1 : 2 << pick(0, 1);
  SimulatedJob job;
  job.fabric = *synthetic_fabric(fmt::format("racks={};nic=400Mbit/s;oversubscription={};cables={}",
                                             racks, pick(2, 7), cables));
  if (cables > 1) job.cable_hash = random() | 1;
  if (cables > 1 || pick(0, 1) == 0) job.well_calls = index(options.calls);
  job.calls = index(options.calls);
  job.placements = ranks_on_all_hosts(job.fabric, 1);
  constexpr Collective kTried[] = {Collective::all_reduce, Collective::all_gather,
                                   Collective::reduce_scatter};
  job.request.collective = kTried[pick(0, 2)];
  job.request.count = (4u << 20) >> pick(0, 3);
  if (many) job.request.count *= 8;  // so that edges carry something
  const TierTree tree = *contract(job.fabric, job.placements);
  if (job.request.collective != Collective::all_reduce)
    job.request.count /= static_cast<uint64_t>(tree.ranks());
  job.plan = *make_plan(job.request, tree, {});
  // So that a simulation takes a moment. What happens is simulated more exactly than the diagnosis
  // simulates.
  const uint32_t most_chunks = many ? 2 : 16;
  constexpr int kFewRanks = 32;
  const uint64_t parts = many ? 2048 : 8192;
  job.plan.parameters.chunks = std::min(job.plan.parameters.chunks, most_chunks);
  if (ranks > kFewRanks) job.grain_ns = job.plan.predicted_ns / parts;
  job.noise = options.noise;
  job.edge_noise = options.edge_noise;
  job.seed = random();
  return job;
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

// One of its cables, where it has several, or all of it.
void slow_uplink(Trial* trial, const TierTree& tree, int group, bool out, double factor,
                 std::mt19937_64& random) {
  const uint32_t cables = trial->job.cable_hash != 0 ? tree.groups[index(group)].cables : 1;
  const uint32_t cable = std::uniform_int_distribution<uint32_t>(0, 2 * cables - 1)(random);
  if (cables == 1 || cable >= cables) return slow_down(trial, tree, group, out, !out, factor);
  trial->job.slow_cables.push_back({group, out, cable, factor});
  trial->links.push_back(link_name(tree, {group, out}, false));
}

// `took`: ns, of a call without it.
void inject(Trial* trial, Kind kind, double severity, double took, std::mt19937_64& random) {
  const TierTree tree = *contract(trial->job.fabric, trial->job.placements);
  const auto one_of = [&](const std::vector<int>& from) {
    return from[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random)];
  };
  const std::vector<int> hosts = groups_of(tree, true), racks = groups_of(tree, false);
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
      slow_uplink(trial, tree, one_of(racks), out, severity, random);
      break;
    case Kind::uplink_both:
      slow_down(trial, tree, one_of(racks), true, true, severity);
      break;
    case Kind::tier:
      for (const int rack : racks) slow_down(trial, tree, rack, true, true, severity);
      break;
    case Kind::two: {
      const int first = one_of(hosts), second = one_of(racks);
      slow_down(trial, tree, first, out, !out, severity);
      slow_down(trial, tree, second, out, !out, severity);
      break;
    }
  }
}

// A slow link in both directions is named by either, where only that one counts.
bool is_truth(const Trial& trial, const std::string& link) {
  return std::any_of(trial.links.begin(), trial.links.end(), [&](const std::string& truth) {
    return link == truth || link == "out of " + truth || link == "into " + truth ||
           truth == "out of " + link || truth == "into " + link;
  });
}

bool names_truth(const Trial& trial, const Verdict& verdict) {
  if (!trial.ranks.empty()) return verdict.ranks == trial.ranks;
  return std::any_of(verdict.links.begin(), verdict.links.end(),
                     [&](const std::string& link) { return is_truth(trial, link); });
}

// Which edges of the call cross a link of that name.
std::vector<size_t> crossing(const TierTree& tree, const ObservedPlan& observed,
                             const std::string& name) {
  std::vector<size_t> edges;
  const std::vector<EdgeTime>& all = *observed.edges.front();
  for (size_t e = 0; e < all.size(); e++)
    for (const DirectedGroup& link : way_of(tree, all[e].from, all[e].to))
      if (link_name(tree, link, false) == name || link_name(tree, link, true) == name) {
        edges.push_back(e);
        break;
      }
  return edges;
}

bool first_is_like_truth(const Trial& trial, const ObservedPlan& observed, const Verdict& verdict) {
  const TierTree tree = *contract(trial.job.fabric, trial.job.placements);
  const std::vector<size_t> of_first = crossing(tree, observed, verdict.links.front());
  return std::any_of(trial.links.begin(), trial.links.end(), [&](const std::string& link) {
    return crossing(tree, observed, link) == of_first;
  });
}

std::string described(const Trial& trial) {
  const SimulatedJob& job = trial.job;
  std::string text = fmt::format(
      "{} of {}, {} ranks, {} in {} chunks:", sennit::name(job.request.collective),
      job.request.count, job.placements.size(), job.plan.algorithm, job.plan.parameters.chunks);
  for (const std::string& link : trial.links) text += " " + link;
  for (const int rank : trial.ranks) text += fmt::format(" rank {}", rank);
  return text;
}

// Whom the diagnosis of the trial blames, held against the truth. A job's own uneven work may be
// told of ranks, but never blamed on a link.
void hold(const Trial& trial, Kind kind, double slowdown, const ObservedPlan& observed,
          const Verdict& verdict, bool tell_wrong, Tally* tally) {
  const bool matters =
      kind != Kind::none && kind != Kind::uneven && slowdown >= kMatters * (1 - 1e-9);
  const bool accused =
      kind == Kind::uneven ? !verdict.links.empty() : verdict.kind != VerdictKind::well;
  const bool right = kind != Kind::uneven && names_truth(trial, verdict);
  const bool first = right && (!trial.ranks.empty() || is_truth(trial, verdict.links.front()));
  tally->trials++;
  tally->matter += matters;
  if (right && matters) {
    tally->named++;
    tally->first += first;
    tally->alike += first || first_is_like_truth(trial, observed, verdict);
    tally->alone += verdict.links.size() <= trial.links.size();
  }
  tally->wrong += accused && !right;
  tally->missed += !accused && matters;
  if (tell_wrong && ((accused && !right) || (matters && !first)))
    fmt::print("  {} slower by {:.2f}: {}\n", described(trial), slowdown,
               verdict.sentence.empty() ? "nothing seen" : verdict.sentence);
}

void run(Kind kind, double severity, uint64_t seed, const Options& options, Tally* tally) {
  std::mt19937_64 random(seed);
  Trial trial{random_job(random, options), {}, {}};
  const SimulatedCall well = *simulated_call(trial.job);
  const auto well_ns = static_cast<double>(well.time_ns);
  inject(&trial, kind, severity, well_ns, random);
  SimulatedCall call = well;
  double slowdown = 1;
  if (!trial.links.empty()) {
    call = *simulated_call(trial.job);
    slowdown = static_cast<double>(call.time_ns) / well_ns;
  }
  // What all wait for the last to come.
  for (const auto& [rank, late_ns] : trial.job.late)
    slowdown = std::max(slowdown, 1 + static_cast<double>(late_ns) / well_ns);
  trial.job.records_messages = options.recordings;
  const JobRecording recording = recording_of(trial.job, call, well);
  const ObservedPlan observed = observed_of(trial.job, call, well);
  if (kind == Kind::none) tally->spread = spread_of(observed);
  Plans plans(recording);
  JudgeOptions judging;
  judging.least_factor = kMatters;
  if (!options.recordings) judging.observed = &observed;
  const double begin_s = own_cpu_s();
  const Verdict verdict = judge(recording, plans, judging);
  tally->judged_s.push_back(own_cpu_s() - begin_s);
  hold(trial, kind, slowdown, observed, verdict, options.tell_wrong, tally);
}

std::string part(int some, int all) {
  return all == 0 ? "-" : fmt::format("{:.3f}", static_cast<double>(some) / all);
}

int measure(const Options& options) {
  fmt::print(
      "seed {}, {} trials of each, {} to {} ranks, noise {} of messages and calls, {} of edges\n\n",
      options.seed, options.trials, options.least_ranks, options.most_ranks, options.noise,
      options.edge_noise);
  fmt::print(
      "| fault | slower by | trials | matter | named | first | alike | alone | wrong | missed | "
      "precision "
      "| recall | verdict, longest |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  Spread spread;
  for (const Kind kind : kKinds) {
    if (!options.only.empty() && options.only != kNames[static_cast<size_t>(kind)]) continue;
    for (const double severity : kSeverities) {
      if (kind == Kind::none && severity != kSeverities[0]) continue;
      if (kind != Kind::none && options.severity > 0 && severity != options.severity) continue;
      // Of what has no severity as many as of the others together.
      const int trials = options.trials * (kind == Kind::none ? kTimesNone : 1);
      Tally sum;
      Mutex mutex;
      std::atomic<int> next = 0;
      const auto work = [&] {
        for (int trial; (trial = next++) < trials;) {
          Tally tally;
          const auto number = static_cast<uint64_t>(kind) * 1'000'000'000 +
                              static_cast<uint64_t>(severity * 100) * 1'000'000 +
                              static_cast<uint64_t>(trial);
          run(kind, severity, options.seed * 0x9e3779b97f4a7c15 + number, options, &tally);
          const MutexLock lock(mutex);
          sum.add(tally);
        }
      };
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
        threads.emplace_back(work);
      for (std::thread& thread : threads) thread.join();
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} s |\n",
                 kNames[static_cast<size_t>(kind)],
                 kind == Kind::none ? "-" : fmt::format("{:g}", severity), sum.trials, sum.matter,
                 sum.named, sum.first, sum.alike, sum.alone, sum.wrong, sum.missed,
                 part(sum.named, sum.named + sum.wrong), part(sum.named, sum.matter),
                 *std::max_element(sum.judged_s.begin(), sum.judged_s.end()));
      if (kind == Kind::none) spread = std::move(sum.spread);
      std::fflush(stdout);
    }
  }
  if (!spread.calls.empty())
    fmt::print(
        "\nHow far times are from the usual ones where nothing is wrong, as of real jobs by "
        "noise.py:\n\n{}"
        "| simulated | calls | {} |\n| | edges | {} |\n",
        kSpreadHead, spread_text(spread.calls), spread_text(spread.edges));
  return 0;
}

// What would measure nothing, and looks as if it had, is said.
Status check(const Options& options) {
  if (!options.only.empty() &&
      std::find(std::begin(kNames), std::end(kNames), options.only) == std::end(kNames))
    return invalid(
        fmt::format("--only {}: expected one of {}", options.only, fmt::join(kNames, "; ")));
  if (options.severity != 0 && std::find(std::begin(kSeverities), std::end(kSeverities),
                                         options.severity) == std::end(kSeverities))
    return invalid(fmt::format("--severity {}: expected one of {}", options.severity,
                               fmt::join(kSeverities, ", ")));
  if (options.least_ranks > options.most_ranks)
    return invalid(fmt::format("--least-ranks {}: is more than --most-ranks {}",
                               options.least_ranks, options.most_ranks));
  return {};
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
  command
      .option("--noise", options.noise,
              "deviation of the logarithm of every message's and of every call's time")
      .show_default()
      .share_within(0, 1);
  command
      .option("--edge-noise", options.edge_noise,
              "the same of what each edge takes in each call, as noise.py shows it of real jobs")
      .show_default()
      .share_within(0, 1);
  command.flag("--equal", options.equal, "racks of one size alone");
  command.option("--only", options.only, "this kind of fault alone");
  command.option("--severity", options.severity, "1.05, 1.1, 1.25, 1.5 or 2 alone");
  command.flag("--wrong", options.tell_wrong,
               "what was wrong, missed or not named first, a line each");
  command.option("--calls", options.calls, "recorded with the fault, and as many before it")
      .show_default()
      .within(4, 1000);
  command.flag(
      "--recordings", options.recordings,
      "each rank's events are recorded and joined, else the simulator's messages are taken");
  command.option("--seed", options.seed, "of all that is random").show_default();
  command.action([&] {
    const sennit::Status status = sennit::diagnose::check(options);
    if (status.ok()) return sennit::diagnose::measure(options);
    fmt::print(stderr, "injections: {}\n", status.text());
    return 2;
  });
  return line.run({argv, argv + argc});
}
