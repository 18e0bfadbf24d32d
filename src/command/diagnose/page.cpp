// page.cpp: `sennit diagnose --html`: the verdict and its evidence, the fabric with what is blamed
// marked, and how long each call took. See command/diagnose/report.hpp.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text/page.hpp"
#include "command/diagnose/report.hpp"
#include "command/topo/make_model.hpp"
#include "command/topo/outputs/outputs.hpp"
#include "diagnose/calls.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kNsPerMs = 1e6;

// "out of rack1" -> "rack1".
std::string group_of(const std::string& link) {
  for (const std::string way : {"out of ", "into "})
    if (link.starts_with(way)) return link.substr(way.size());
  return link;
}

// Marks the items of these names, and what they hold of them.
void mark(topo::Item* item, const std::map<std::string, int>& suspects) {
  const auto found = suspects.find(item->name);
  if (found != suspects.end()) item->suspects.push_back(found->second);
  for (topo::Item& child : item->children) mark(&child, suspects);
}

std::string picture(const JobRecording& job, const Verdict& verdict) {
  topo::Reading reading;
  Result<Fabric> fabric = parse_fabric(job.fabric, "the fabric in rank 0's recording");
  if (!fabric) return html_note("no picture: " + fabric.status().text());
  reading.fabric = *fabric;
  Result<topo::Model> model = topo::make_model(*std::move(fabric));
  if (!model) return html_note("no picture of the fabric: " + model.status().text());
  std::map<std::string, int> suspects;
  const auto suspect = [&](const std::string& where, const std::string& what) {
    if (suspects.try_emplace(where, static_cast<int>(model->suspects.size())).second)
      model->suspects.push_back({"blamed", where, what, -1});
  };
  for (const std::string& link : verdict.links) suspect(group_of(link), link);
  for (const int rank : verdict.ranks)
    if (static_cast<size_t>(rank) < job.placements.size())
      suspect(job.placements[static_cast<size_t>(rank)].host, fmt::format("rank {}", rank));
  mark(&model->root, suspects);
  return topo::svg_of(reading, *model, true);
}

std::string list(const std::vector<std::string>& lines) {
  std::string items;
  for (const std::string& line : lines) items += "<li>" + escape(line) + "</li>";
  return items.empty() ? "" : "<ul>" + items + "</ul>";
}

// Calls of one plan by the rank that recorded most.
struct PlanCalls {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ms: when it began, how long it took
  std::vector<std::string> tips;
  double sum = 0;
};

// By how long all of them took, the longest first.
std::vector<PlanCalls> calls_by_plan(const JobRecording& job, int rank, Plans& plans) {
  std::map<std::pair<uint32_t, uint64_t>, PlanCalls> by_plan;
  for (const CallRecord& call : find_calls(job)) {
    if (call.rank != rank || call.point_to_point || call.end_ns == 0) continue;
    PlanCalls& of = by_plan[{call.comm, call.plan}];
    const double took = static_cast<double>(call.end_ns - call.begin_ns) / kNsPerMs;
    if (of.name.empty()) of.name = plans.call_name(call.comm, call.plan);
    of.points.emplace_back(static_cast<double>(call.begin_ns) / kNsPerMs, took);
    of.tips.push_back(fmt::format("call {} of {}, {}: {:.2f} ms", call.seq,
                                  job.comm_name(call.comm), of.name, took));
    of.sum += took;
  }
  std::vector<PlanCalls> all;
  for (auto& [key, of] : by_plan) all.push_back(std::move(of));
  std::stable_sort(all.begin(), all.end(),
                   [](const PlanCalls& a, const PlanCalls& b) { return a.sum > b.sum; });
  return all;
}

// A line for each of the plans that took most, and a dot for each call.
std::string timeline(const JobRecording& job, Plans& plans) {
  constexpr const char* kStyles[] = {"blue", "orange", "green", "violet"};
  const auto most = std::max_element(job.ranks.begin(), job.ranks.end(), [](auto& a, auto& b) {
    return a.events.size() < b.events.size();
  });
  if (most == job.ranks.end()) return "";
  std::vector<PlanCalls> all = calls_by_plan(job, most->rank, plans);
  const size_t others = all.size() - std::min(all.size(), std::size(kStyles));
  all.resize(all.size() - others);
  double slowest = 0, first = 0, last = 0;
  size_t calls = 0;
  for (const PlanCalls& of : all)
    for (const auto& [begin, took] : of.points) {
      first = calls == 0 ? begin : std::min(first, begin);
      last = std::max(last, begin);
      slowest = std::max(slowest, took);
      calls++;
    }
  if (calls < 2) return "";
  LineChart chart;
  const double span = std::max(last - first, 1.0);
  chart.x = {0, span, false, {{0, "0"}, {span, fmt::format("{:.0f} ms", span)}}};
  chart.y = {0, slowest, false, {{0, "0"}, {slowest, fmt::format("{:.2f} ms", slowest)}}};
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); i++) {
    for (auto& [begin, took] : all[i].points) begin -= first;
    names.push_back(fmt::format("{}: {}", kStyles[i], all[i].name));
    chart.lines.push_back({all[i].name, kStyles[i], std::move(all[i].points), all[i].tips});
  }
  if (others > 0) names.push_back(fmt::format("those of {} more plans are left out", others));
  constexpr double kWidth = 1000, kHeight = 300;
  return svg_picture(kWidth, kHeight, chart.draw()) +
         html_note(fmt::format("How long each call of rank {} took, by when it began. {}.",
                               most->rank, fmt::join(names, "; ")));
}

std::string ranks_table(const JobRecording& job, const Verdict& verdict) {
  std::vector<std::vector<std::string>> cells;
  for (const RankRecording& rank : job.ranks) {
    const bool blamed =
        std::find(verdict.ranks.begin(), verdict.ranks.end(), rank.rank) != verdict.ranks.end();
    const char* const state = rank.copied                        ? "copied"
                              : rank.process == 'T'              ? "stopped"
                              : rank.state == RankState::running ? "running"
                              : rank.state == RankState::ended   ? "ended"
                                                                 : "gone";
    cells.push_back({std::to_string(rank.rank), rank.host, std::to_string(rank.pid), state,
                     std::to_string(rank.recorded), blamed ? "blamed" : ""});
  }
  return html_table({"rank", "host", "process", "state", "events", ""}, cells);
}

}  // namespace

std::string verdict_page(const JobRecording& job, const Verdict& verdict, Plans& plans) {
  std::vector<std::string> lines = reasons(verdict);
  if (!verdict.next.empty()) lines.push_back("next: " + verdict.next);
  if (!plans.why_none().empty()) lines.push_back("not all could be looked at: " + plans.why_none());
  std::string body = html_section("Why", list(lines));
  if (!job.fabric.empty()) body += html_section("The fabric", picture(job, verdict));
  if (const std::string chart = timeline(job, plans); !chart.empty())
    body += html_section("Calls", chart);
  body += html_section("Ranks", ranks_table(job, verdict));
  return html_page(
      headline(verdict),
      fmt::format("job {:016x}, {} of {} ranks recorded", job.job, job.ranks.size(), job.size),
      body, topo::picture_page_style());
}

}  // namespace sennit::diagnose
