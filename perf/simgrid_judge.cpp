// simgrid_judge.cpp: sennit's simulator beside SimGrid: every algorithm and collective on ten fabrics of 8 to
// 512 hosts; a table with the ratio of the times, and the worst and the median by fabric.
//
// simgrid_judge [--sizes 1M,32M,1G] [--fabrics 1,2] [--collectives NAME,...] [--algorithms NAME,...]
// [--limit SECONDS]. Cells whose replay needs more processor time than the limit are counted and named, not
// left out in silence. Exit status: 0, or 1 where a ratio is off by more than 5%.
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

struct Tally {
  std::vector<double> ratios;
  int too_long = 0, off = 0;
  std::string worst;
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
  const std::string what = fmt::format("{:38} {:14} {:24} {:>8} MiB", ground.name, name(collective),
                                       algorithm.name(), bytes / 1'048'576);
  if (!verdict) {
    fmt::print("{} {}\n", what, verdict.status().text());
    return verdict.status().kind() == SENNIT_TIMED_OUT ? Outcome::too_long : Outcome::failed;
  }
  if (tally->ratios.empty() ||
      deviation(verdict->ratio()) >
          deviation(*std::max_element(tally->ratios.begin(), tally->ratios.end(),
                                      [](double a, double b) { return deviation(a) < deviation(b); })))
    tally->worst = fmt::format("{} {} of {} MiB", algorithm.name(), name(collective), bytes / 1'048'576);
  tally->ratios.push_back(verdict->ratio());
  const bool off = deviation(verdict->ratio()) > kWanted;
  tally->off += off;
  fmt::print("{} {:>12.3f} {:>12.3f} {:7.4f}{} {:>10} {:>9} {:6.2f} {:6.2f}\n", what, verdict->sennit_s * 1e3,
             verdict->simgrid_s * 1e3, verdict->ratio(), off ? "*" : " ", verdict->messages,
             verdict->parameters.chunks, verdict->simulate_s, verdict->replay_s);
  return Outcome::judged;
}

// A larger message takes as long to replay as a smaller one, or longer: sizes after one that took too long
// are counted with it.
bool row(const Ground& ground, Collective collective, const Algorithm& algorithm,
         const std::vector<uint64_t>& sizes, const Wishes& wishes, Tally* tally) {
  for (size_t i = 0; i < sizes.size(); i++) {
    const Outcome outcome = cell(ground, collective, algorithm, sizes[i], wishes, tally);
    std::fflush(stdout);
    if (outcome == Outcome::failed) return false;
    if (outcome == Outcome::too_long) {
      tally->too_long += static_cast<int>(sizes.size() - i);
      return true;
    }
  }
  return true;
}

int run(const Wishes& wishes) {
  std::vector<uint64_t> sizes;
  for (const std::string& size : wishes.sizes) {
    const Result<uint64_t> bytes = parse_bytes(size);
    if (!bytes || *bytes < 1'048'576) {
      fmt::print(stderr, "simgrid_judge: --sizes {}: expected 1M or more\n", size);
      return 2;
    }
    sizes.push_back(*bytes);
  }
  fmt::print("{:38} {:14} {:24} {:>12} {:>12} {:>12} {:>8} {:>10} {:>9} {:>6} {:>6}\n", "fabric",
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
    Tally tally;
    for (int c = 0; c < kCollectives; c++) {
      const auto collective = static_cast<Collective>(c);
      if (collective == Collective::send_recv || !wanted(wishes.collectives, name(collective))) continue;
      std::vector<uint64_t> of_this = sizes;
      if (collective == Collective::barrier) of_this.resize(1);
      for (const Algorithm* algorithm : algorithms())
        if (wanted(wishes.algorithms, algorithm->name()))
          good = row(*ground, collective, *algorithm, of_this, wishes, &tally) && good;
    }
    good = good && tally.off == 0;
    if (tally.ratios.empty()) continue;
    const auto farther = [](double a, double b) { return deviation(a) < deviation(b); };
    std::sort(tally.ratios.begin(), tally.ratios.end(), farther);
    const double worst = tally.ratios.back();
    std::sort(tally.ratios.begin(), tally.ratios.end());
    summary += fmt::format("{:38} {:>5} {:>6} {:>9} {:>4} {:8.4f} {:8.4f}  {}\n", ground->name,
                           ground->tree.ranks(), tally.ratios.size(), tally.too_long, tally.off,
                           tally.ratios[tally.ratios.size() / 2], worst, tally.worst);
  }
  fmt::print("\n{:38} {:>5} {:>6} {:>9} {:>4} {:>8} {:>8}\n{}", "fabric", "hosts", "cells", "too long", ">5%",
             "median", "worst", summary);
  return good ? 0 : 1;
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
  return sennit::judge::run(wishes);
}
