// simgrid_judge.cpp: sennit's simulator beside SimGrid: every algorithm and collective on eleven fabrics of 8
// to 512 hosts; a table with the ratio of the times, and the worst and the median by fabric.
//
// simgrid_judge [--sizes 1M,32M,1G] [--fabrics 1,2] [--collectives NAME,...] [--algorithms NAME,...]
// [--limit SECONDS]. A cell whose replay needs more processor time than the limit is judged with about 96
// ranks, spread evenly over the same fabric, and marked so; one that takes too long even then is counted and
// named. Exit status: 0; 1 where a ratio is off by more than 5% or a replay failed; 2 for
// an option that is off.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "algorithm.hpp"
#include "options.hpp"
#include "simgrid_cases.hpp"

namespace sennit::judge {
namespace {

constexpr double kWanted = 0.05;

struct Wishes {
  std::vector<std::string> sizes = {"1M", "32M", "1G"}, collectives, algorithms;
  std::vector<int> fabrics;
  uint32_t limit_s = 60;
};

constexpr int kPart = 96;  // ranks, at most, of a cell that takes too long with all

struct Tally {
  std::vector<double> ratios;
  int in_part = 0, too_long = 0, off = 0;
  double worst = 1;
  std::string where;
};

bool wanted(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

double deviation(double ratio) { return std::abs(ratio - 1); }

enum class Outcome { judged, too_long, failed };

Outcome cell(const Ground& ground, Collective collective, const Algorithm& algorithm, uint64_t bytes,
             const Wishes& wishes, Tally* tally) {
  const Request request = make_request(ground, collective, bytes);
  if (!algorithm.applies(ground.tree, request)) return Outcome::judged;
  ReplayOptions options;
  options.limit_s = wishes.limit_s;
  const Result<Verdict> verdict = judge(ground, request, algorithm.name(), options);
  const std::string where =
      ground.every == 1 ? ground.name : fmt::format("{} ({} ranks)", ground.name, ground.tree.ranks());
  const std::string what = fmt::format("{:48} {:14} {:24} {:>8} MiB", where, name(collective),
                                       algorithm.name(), bytes / 1'048'576);
  if (!verdict) {
    fmt::print("{} {}\n", what, verdict.status().text());
    return verdict.status().kind() == SENNIT_TIMED_OUT ? Outcome::too_long : Outcome::failed;
  }
  const double ratio = verdict->ratio();
  if (deviation(ratio) >= deviation(tally->worst)) {
    tally->worst = ratio;
    tally->where = fmt::format("{} {} of {} MiB", algorithm.name(), name(collective), bytes / 1'048'576);
  }
  tally->ratios.push_back(ratio);
  tally->in_part += ground.every > 1;
  const bool off = deviation(ratio) > kWanted;
  tally->off += off;
  fmt::print("{} {:>12.3f} {:>12.3f} {:7.4f}{} {:>10} {:>9} {:6.2f} {:6.2f}\n", what, verdict->sennit_s * 1e3,
             verdict->simgrid_s * 1e3, verdict->ratio(), off ? "*" : " ", verdict->messages,
             verdict->parameters.chunks, verdict->simulate_s, verdict->replay_s);
  return Outcome::judged;
}

// A larger message takes as long to replay as a smaller one, or longer: sizes after one that took too long
// are not tried with all ranks.
bool row(const Ground& all, const Ground& part, Collective collective, const Algorithm& algorithm,
         const std::vector<uint64_t>& sizes, const Wishes& wishes, Tally* tally) {
  const Ground* ground = &all;
  for (size_t i = 0; i < sizes.size(); i++) {
    const Outcome outcome = cell(*ground, collective, algorithm, sizes[i], wishes, tally);
    std::fflush(stdout);
    if (outcome == Outcome::failed) return false;
    if (outcome != Outcome::too_long) continue;
    if (ground == &part || part.every == 1) {
      tally->too_long += static_cast<int>(sizes.size() - i);
      return true;
    }
    ground = &part;
    i--;  // again
  }
  return true;
}

bool judge_fabric(const Ground& ground, const Ground& part, const std::vector<uint64_t>& sizes,
                  const Wishes& wishes, std::string* summary) {
  Tally tally;
  bool good = true;
  for (int c = 0; c < kCollectives; c++) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::send_recv || !wanted(wishes.collectives, name(collective))) continue;
    std::vector<uint64_t> of_this = sizes;
    if (collective == Collective::barrier) of_this.resize(1);
    for (const Algorithm* algorithm : algorithms())
      if (wanted(wishes.algorithms, algorithm->name()))
        good = row(ground, part, collective, *algorithm, of_this, wishes, &tally) && good;
  }
  std::string ratios = "       -        -";
  if (!tally.ratios.empty()) {
    std::sort(tally.ratios.begin(), tally.ratios.end());
    ratios =
        fmt::format("{:8.4f} {:8.4f}  {}", tally.ratios[tally.ratios.size() / 2], tally.worst, tally.where);
  }
  *summary += fmt::format("{:38} {:>5} {:>6} {:>7} {:>9} {:>4} {}\n", ground.name, ground.tree.ranks(),
                          tally.ratios.size(), tally.in_part, tally.too_long, tally.off, ratios);
  return good && tally.off == 0;
}

int run(const Wishes& wishes, const std::vector<uint64_t>& sizes) {
  fmt::print("{:48} {:14} {:24} {:>12} {:>12} {:>12} {:>8} {:>10} {:>9} {:>6} {:>6}\n", "fabric",
             "collective", "algorithm", "size", "sennit ms", "SimGrid ms", "ratio", "messages", "chunks",
             "cpu s", "cpu s");
  std::string summary;
  bool good = true;
  int number = 0;
  for (const FabricCase& which : fabric_cases()) {
    number++;
    if (!wishes.fabrics.empty() &&
        std::find(wishes.fabrics.begin(), wishes.fabrics.end(), number) == wishes.fabrics.end())
      continue;
    const Result<Ground> ground = make_ground(which);
    if (!ground) {
      fmt::print(stderr, "simgrid_judge: {}: {}\n", which.name, ground.status().text());
      return 3;
    }
    const Result<Ground> part = make_ground(which, (ground->tree.ranks() + kPart - 1) / kPart);
    if (!part) {
      fmt::print(stderr, "simgrid_judge: {}: {}\n", which.name, part.status().text());
      return 3;
    }
    good = judge_fabric(*ground, *part, sizes, wishes, &summary) && good;
  }
  fmt::print("\n{:38} {:>5} {:>6} {:>7} {:>9} {:>4} {:>8} {:>8}\n{}", "fabric", "ranks", "cells", "in part",
             "too long", ">5%", "median", "worst", summary);
  return good ? 0 : 1;
}

// What is off is said.
Status check(const Wishes& wishes, std::vector<uint64_t>* sizes) {
  for (const std::string& size : wishes.sizes) {
    const Result<uint64_t> bytes = parse_bytes(size);
    if (!bytes || *bytes < 1'048'576) return invalid(fmt::format("--sizes {}: expected 1M or more", size));
    sizes->push_back(*bytes);
  }
  for (const std::string& collective : wishes.collectives)
    SENNIT_RETURN_IF_ERROR(parse_collective(collective).status());
  for (const std::string& algorithm : wishes.algorithms) SENNIT_RETURN_IF_ERROR(check_algorithm(algorithm));
  const int all = static_cast<int>(fabric_cases().size());
  for (const int fabric : wishes.fabrics)
    if (fabric < 1 || fabric > all)
      return invalid(fmt::format("--fabrics {}: expected 1 to {}", fabric, all));
  return {};
}

}  // namespace
}  // namespace sennit::judge

int main(int argc, char** argv) {
  CLI::App app{"sennit's simulator beside SimGrid, on the same schedules and fabrics"};
  sennit::judge::Wishes wishes;
  app.add_option("--sizes", wishes.sizes, "of the larger buffer; 1M or more")->delimiter(',');
  app.add_option("--collectives", wishes.collectives, "default: all")->delimiter(',');
  app.add_option("--algorithms", wishes.algorithms, "default: all")->delimiter(',');
  app.add_option("--fabrics", wishes.fabrics, "by number, from 1; default: all")->delimiter(',');
  app.add_option("--limit", wishes.limit_s, "of processor time, for one replay")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::vector<uint64_t> sizes;
  if (const sennit::Status status = sennit::judge::check(wishes, &sizes); !status.ok()) {
    fmt::print(stderr, "simgrid_judge: {}\n", status.text());
    return 2;
  }
  return sennit::judge::run(wishes, sizes);
}
