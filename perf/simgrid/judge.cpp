// judge.cpp: sennit's simulator beside SimGrid: every algorithm and collective on eleven fabrics of
// 8 to 512 hosts; a table with the ratio of the times, and the worst and the median by fabric.
//
// simgrid_judge [--sizes 1M,32M,1G] [--fabrics 1,2] [--collectives NAME,...] [--algorithms
// NAME,...] [--limit SECONDS] [--ranks MOST]. A cell whose replay needs more processor time than
// the limit is judged with at most 96 ranks, spread evenly over the same fabric, or with 48, 24,
// ... of them, and marked so: every cell has a verdict, and the last lines say how many have one
// "in part". Exit status: 0; 1 where a ratio is off by more than 5%, a replay failed, a cell took
// too long even with the fewest ranks or there was none to judge; 2 for an option that is off.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/options.hpp"
#include "collectives/algorithm.hpp"
#include "command/command_line.hpp"
#include "perf/simgrid/cases.hpp"
#include "plan/planner.hpp"

namespace sennit::judge {
namespace {

constexpr double kWanted = 0.05;

struct Wishes {
  std::vector<std::string> sizes = {"1M", "32M", "1G"}, collectives, algorithms;
  std::vector<int> fabrics;
  uint32_t limit_s = 60;
  int ranks = 1 << 20;  // at most
};

constexpr int kPart = 96;  // ranks, at most, of a cell that takes too long with all
constexpr int kLeast = 8;  // ranks of the smallest part, at least

struct Tally {
  std::vector<double> ratios;
  int in_part = 0, too_long = 0, off = 0;
  int fewest = 1 << 20;  // ranks of any cell in part
  double worst = 1;
  std::string where;
};

bool wanted(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

double deviation(double ratio) { return std::abs(ratio - 1); }

enum class Outcome { judged, too_long, failed };

Outcome cell(const Ground& ground, Collective collective, const Algorithm& algorithm,
             uint64_t bytes, const Wishes& wishes, Tally* tally) {
  const Request request = make_request(ground, collective, bytes);
  if (!algorithm.applies(ground.tree, request)) return Outcome::judged;
  ReplayOptions options;
  options.limit_s = wishes.limit_s;
  const Result<Verdict> verdict = judge(ground, request, algorithm.name(), options);
  const std::string where = ground.every == 1
                                ? ground.name
                                : fmt::format("{} ({} ranks)", ground.name, ground.tree.ranks());
  const std::string what = fmt::format("{:48} {:14} {:24} {:>8} MiB", where, name(collective),
                                       algorithm.name(), bytes / 1'048'576);
  if (!verdict) {
    fmt::print("{} {}\n", what, verdict.status().text());
    return verdict.status().kind() == SENNIT_TIMED_OUT ? Outcome::too_long : Outcome::failed;
  }
  const double ratio = verdict->ratio();
  if (deviation(ratio) >= deviation(tally->worst)) {
    tally->worst = ratio;
    tally->where =
        fmt::format("{} {} of {} MiB", algorithm.name(), name(collective), bytes / 1'048'576);
  }
  tally->ratios.push_back(ratio);
  if (ground.every > 1) {
    tally->in_part++;
    tally->fewest = std::min(tally->fewest, ground.tree.ranks());
  }
  const bool off = !(deviation(ratio) <= kWanted);  // also of what is no number
  tally->off += off;
  fmt::print("{} {:>12.3f} {:>12.3f} {:7.4f}{} {:>10} {:>9} {:6.2f} {:6.2f}\n", what,
             verdict->sennit_s * 1e3, verdict->simgrid_s * 1e3, verdict->ratio(), off ? "*" : " ",
             verdict->messages, verdict->parameters.chunks, verdict->simulate_s, verdict->replay_s);
  return Outcome::judged;
}

// A larger message takes as long to replay as a smaller one, or longer: sizes after one that took
// too long are not tried with as many ranks. `grounds`: the same fabric with ever fewer ranks.
bool row(const std::vector<Ground>& grounds, Collective collective, const Algorithm& algorithm,
         const std::vector<uint64_t>& sizes, const Wishes& wishes, Tally* tally) {
  size_t ground = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    Outcome outcome = Outcome::too_long;
    while (true) {
      outcome = cell(grounds[ground], collective, algorithm, sizes[i], wishes, tally);
      std::fflush(stdout);
      if (outcome != Outcome::too_long || ground + 1 == grounds.size()) break;
      ground++;
    }
    if (outcome == Outcome::failed) return false;
    tally->too_long += outcome == Outcome::too_long;
  }
  return true;
}

bool judge_fabric(const std::vector<Ground>& grounds, const std::vector<uint64_t>& sizes,
                  const Wishes& wishes, Tally* all, std::string* summary) {
  const Ground& ground = grounds.front();
  Tally tally;
  bool good = true;
  for (int c = 0; c < kCollectives; c++) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::send_recv || !wanted(wishes.collectives, name(collective)))
      continue;
    std::vector<uint64_t> of_this = sizes;
    if (collective == Collective::barrier) of_this.resize(1);
    for (const Algorithm* algorithm : algorithms())
      if (wanted(wishes.algorithms, algorithm->name()))
        good = row(grounds, collective, *algorithm, of_this, wishes, &tally) && good;
  }
  std::string ratios = "       -        -";
  if (!tally.ratios.empty()) {
    std::sort(tally.ratios.begin(), tally.ratios.end());
    ratios = fmt::format("{:8.4f} {:8.4f}  {}", tally.ratios[tally.ratios.size() / 2], tally.worst,
                         tally.where);
  }
  *summary +=
      fmt::format("{:38} {:>5} {:>6} {:>7} {:>9} {:>4} {}\n", ground.name, ground.tree.ranks(),
                  tally.ratios.size(), tally.in_part, tally.too_long, tally.off, ratios);
  all->ratios.insert(all->ratios.end(), tally.ratios.begin(), tally.ratios.end());
  all->in_part += tally.in_part;
  all->too_long += tally.too_long;
  all->fewest = std::min(all->fewest, tally.fewest);
  return good && tally.off == 0 && tally.too_long == 0;
}

// With `most` ranks at most; then 96, 48, ... of them.
Result<std::vector<Ground>> make_grounds(const FabricCase& which, int most) {
  std::vector<Ground> grounds;
  Result<Ground> whole = make_ground(which);
  if (!whole) return whole.status();
  const int ranks = whole->tree.ranks();
  for (int part = most; part >= kLeast; part = std::min(part / 2, kPart)) {
    const int every = std::max(1, (ranks + part - 1) / part);
    if (!grounds.empty() && grounds.back().every == every) continue;
    if (every == 1) {
      grounds.push_back(*whole);
      continue;
    }
    Result<Ground> fewer = make_ground(which, every);
    if (!fewer) return fewer.status();
    grounds.push_back(*std::move(fewer));
  }
  return grounds;
}

int run(const Wishes& wishes, const std::vector<uint64_t>& sizes) {
  fmt::print("{:48} {:14} {:24} {:>12} {:>12} {:>12} {:>8} {:>10} {:>9} {:>6} {:>6}\n", "fabric",
             "collective", "algorithm", "size", "sennit ms", "SimGrid ms", "ratio", "messages",
             "chunks", "cpu s", "cpu s");
  std::string summary;
  Tally all;
  bool good = true;
  int number = 0;
  for (const FabricCase& which : fabric_cases()) {
    number++;
    if (!wishes.fabrics.empty() &&
        std::find(wishes.fabrics.begin(), wishes.fabrics.end(), number) == wishes.fabrics.end())
      continue;
    const Result<std::vector<Ground>> grounds = make_grounds(which, wishes.ranks);
    if (!grounds) {
      fmt::print(stderr, "simgrid_judge: {}: {}\n", which.name, grounds.status().text());
      return 3;
    }
    good = judge_fabric(*grounds, sizes, wishes, &all, &summary) && good;
  }
  fmt::print("\n{:38} {:>5} {:>6} {:>7} {:>9} {:>4} {:>8} {:>8}\n{}", "fabric", "ranks", "cells",
             "in part", "too long", ">5%", "median", "worst", summary);
  fmt::print("\n{} cells judged: {} with all ranks, {} in part{}; {}\n", all.ratios.size(),
             all.ratios.size() - static_cast<size_t>(all.in_part), all.in_part,
             all.in_part > 0
                 ? fmt::format(" (marked with their ranks, {} at least, spread over the fabric)",
                               all.fewest)
                 : "",
             all.too_long > 0
                 ? fmt::format("{} NOT JUDGED: they took too long; raise --limit", all.too_long)
                 : "none left out");
  if (all.ratios.empty())
    fmt::print("NOTHING JUDGED: no algorithm that was asked for does a collective that was\n");
  return good && !all.ratios.empty() ? 0 : 1;
}

// What is off is said.
Status check(const Wishes& wishes, std::vector<uint64_t>* sizes) {
  for (const std::string& size : wishes.sizes) {
    const Result<uint64_t> bytes = parse_bytes(size);
    if (!bytes || *bytes < 1'048'576)
      return invalid(fmt::format("--sizes {}: expected 1M or more", size));
    sizes->push_back(*bytes);
  }
  for (const std::string& collective : wishes.collectives)
    SENNIT_RETURN_IF_ERROR(parse_collective(collective).status());
  for (const std::string& algorithm : wishes.algorithms)
    SENNIT_RETURN_IF_ERROR(check_algorithm(algorithm));
  const int all = static_cast<int>(fabric_cases().size());
  for (const int fabric : wishes.fabrics)
    if (fabric < 1 || fabric > all)
      return invalid(fmt::format("--fabrics {}: expected 1 to {}", fabric, all));
  return {};
}

}  // namespace
}  // namespace sennit::judge

int main(int argc, char** argv) {
  sennit::CommandLine line("sennit's simulator beside SimGrid, on the same schedules and fabrics",
                           "simgrid_judge");
  const sennit::Command app = line.itself();
  sennit::judge::Wishes wishes;
  app.option("--sizes", wishes.sizes, "of the larger buffer; 1M or more").separated_by_commas();
  app.option("--collectives", wishes.collectives, "default: all").separated_by_commas();
  app.option("--algorithms", wishes.algorithms, "default: all").separated_by_commas();
  app.option("--fabrics", wishes.fabrics, "by number, from 1; default: all").separated_by_commas();
  app.option("--ranks", wishes.ranks, "at most so many, spread over the fabric; default: all")
      .within(sennit::judge::kLeast, 1 << 20);
  app.option("--limit", wishes.limit_s, "seconds of processor time for one replay")
      .within(1, 1 << 20)
      .show_default();
  app.action([&] {
    std::vector<uint64_t> sizes;
    if (const sennit::Status status = sennit::judge::check(wishes, &sizes); !status.ok()) {
      fmt::print(stderr, "simgrid_judge: {}\n", status.text());
      return 2;
    }
    return sennit::judge::run(wishes, sizes);
  });
  return line.run(std::vector<const char*>(argv, argv + argc));
}
