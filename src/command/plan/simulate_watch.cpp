// What `sennit simulate` tells of a run: load by tier and over time, and the trace. See
// command/plan/simulate.hpp.
//
// Load over time takes each message at its mean rate while it moves. The trace is Chrome's JSON:
// open it in Perfetto (ui.perfetto.dev) or chrome://tracing; one process a rank, one thread a peer.
#include "command/plan/simulate.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "base/options.hpp"
#include "base/text/json.hpp"

namespace sennit::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSlices = 60;  // of the time, in load over time

bool holds(const TierTree& tree, int group, int position) {
  const Group& g = tree.groups[index(group)];
  return position >= g.first && position < g.first + g.size;
}
// Over the links of its sender, or those of its receiver, which it passes from `begin_ns` to
// `end_ns`.
void spread(const SimulatedMessage& m, uint64_t begin_ns, uint64_t end_ns, double slice_ns,
            std::vector<double>* slices) {
  const double begin = static_cast<double>(begin_ns),
               end = std::max(begin + 1, static_cast<double>(end_ns));
  const double rate = static_cast<double>(m.bytes) * m.ranks / (end - begin);
  for (auto s = static_cast<size_t>(begin / slice_ns); s < slices->size(); s++) {
    const double from = std::max(begin, static_cast<double>(s) * slice_ns);
    const double to = std::min(end, static_cast<double>(s + 1) * slice_ns);
    if (to <= from) break;
    (*slices)[s] += rate * (to - from);
  }
}

// ▁ to █, one sign a slice.
std::string sparks(const std::vector<double>& load) {
  const char* const signs[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double part : load)
    text +=
        signs[static_cast<size_t>(std::clamp(std::lround(part * 8), part > 0.001 ? 1L : 0L, 8L))];
  return text;
}

double busy_part(const TierLoad& tier, uint64_t time_ns) {
  return time_ns == 0 ? 0 : static_cast<double>(tier.busy_ns) / static_cast<double>(time_ns);
}

// Of a formula's time there are no messages, and of a fluid run no times of theirs.
bool is_watched(const SimulatedTime& simulated, bool fluid) {
  return !fluid && !simulated.closed_form;
}

}  // namespace

std::vector<std::vector<double>> Watch::load(uint64_t time_ns) const {
  std::vector<std::vector<double>> used(tree_.tiers.size(), std::vector<double>(kSlices, 0.0));
  const double slice_ns = static_cast<double>(std::max<uint64_t>(1, time_ns)) / kSlices;
  for (const SimulatedMessage& m : messages_)
    for (int g = tree_.leaf_of_position[index(m.from)]; !holds(tree_, g, m.to);
         g = tree_.groups[index(g)].parent)
      spread(m, m.begin_ns, m.left_ns, slice_ns, &used[tree_.groups[index(g)].tier]);
  for (size_t t = 0; t < used.size(); t++) {
    double capacity = 0;
    for (size_t g = 1; g < tree_.groups.size(); g++)
      if (tree_.groups[g].tier == t) capacity += rate_of(g, true);
    for (double& bytes : used[t]) bytes = capacity > 0 ? bytes / (capacity * slice_ns * 1e-9) : 0;
  }
  return used;
}

std::vector<Watch::LinkLoad> Watch::busiest(uint64_t time_ns, size_t limit) const {
  if (limit == 0) return {};
  const double slice_ns = static_cast<double>(std::max<uint64_t>(1, time_ns)) / kSlices;
  std::vector<LinkLoad> links;  // by group: egress, ingress
  for (size_t g = 0; g < tree_.groups.size(); g++)
    for (const bool egress : {true, false}) links.push_back({static_cast<int>(g), egress, 0, {}});
  const auto carry = [&](int from, int to, size_t side, const SimulatedMessage& m,
                         uint64_t begin_ns, uint64_t end_ns) {
    for (int g = tree_.leaf_of_position[index(from)]; !holds(tree_, g, to);
         g = tree_.groups[index(g)].parent) {
      LinkLoad& link = links[2 * index(g) + side];
      link.bytes += static_cast<double>(m.bytes);
      link.load.resize(kSlices);
      spread(m, begin_ns, end_ns, slice_ns, &link.load);
    }
  };
  // Behind the one before it between the same ranks it waits for its turn on the receiver's links.
  std::map<std::pair<int, int>, uint64_t> passed_ns;
  for (const SimulatedMessage& m : messages_) {
    uint64_t& before_ns = passed_ns[{m.from, m.to}];
    carry(m.from, m.to, 0, m, m.begin_ns, m.left_ns);
    carry(m.to, m.from, 1, m, std::max(m.begin_ns, before_ns), m.passed_ns);
    before_ns = m.passed_ns;
  }
  const auto capacity = [&](const LinkLoad& link) {
    return rate_of(index(link.group), link.egress);
  };
  std::erase_if(links, [](const LinkLoad& link) { return link.bytes == 0; });
  std::stable_sort(links.begin(), links.end(), [&](const LinkLoad& a, const LinkLoad& b) {
    return a.bytes / capacity(a) > b.bytes / capacity(b);
  });
  if (links.size() > limit) links.resize(limit);
  for (LinkLoad& link : links)
    for (double& bytes : link.load) bytes /= capacity(link) * slice_ns * 1e-9;
  return links;
}

std::string Watch::trace() const {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  // Their names, which a file may have chosen, as they stand within JSON's quotes.
  std::vector<std::string> tiers;
  for (const Tier& tier : tree_.tiers) {
    const std::string quoted = json_to_text(Json(tier.name));
    tiers.push_back(quoted.substr(1, quoted.size() - 2));
  }
  std::set<int> named;
  std::set<std::pair<int, int>> ways;
  for (const SimulatedMessage& m : messages_) {
    const int process = m.from + 1, thread = m.to + 1;  // 0 is the idle process of viewers
    if (named.insert(m.from).second)
      text +=
          fmt::format(
              R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"position {}{}"}}}},)",
              process, m.from, m.ranks > 1 ? fmt::format(", for {} ranks", m.ranks) : "") +
          "\n";
    if (ways.insert({m.from, m.to}).second)
      text +=
          fmt::format(
              R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"to position {}, over its {}"}}}},)",
              process, thread, m.to, tiers[m.tier]) +
          "\n";
    text +=
        fmt::format(
            R"({{"name":"to {0} chunk {1}","cat":"{2}","ph":"X","pid":{3},"tid":{8},"ts":{4:.3f},"dur":{5:.3f},)"
            R"("args":{{"bytes":{6},"arrives_us":{7:.3f}}}}},)",
            m.to, m.chunk, tiers[m.tier], process, us(m.begin_ns), us(m.left_ns - m.begin_ns),
            m.bytes, us(m.delivered_ns), thread) +
        "\n";
  }
  if (!messages_.empty()) text.erase(text.size() - 2, 1);  // the last comma
  return text + "]}\n";
}

void Progress::operator()(uint64_t done, uint64_t all) {
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < std::chrono::seconds(1)) return;
  told_ = now;
  fmt::print(stderr, "\rsimulated {} % of {:.2g} messages\033[K",
             100 * done / std::max<uint64_t>(1, all), static_cast<double>(all));
}

void Progress::wipe() {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K");
}

// More would take hours, and a Watch of all of them gigabytes.
constexpr uint64_t kMostMessages = 30'000'000;

SimulateOptions simulate_options(const Problem& problem, const SimulateArguments& arguments) {
  SimulateOptions options;
  options.cost = problem.options.cost;
  options.fluid = arguments.fluid;
  options.symmetry = !arguments.every_rank;
  options.tolerance = arguments.tolerance;
  options.cable_hash = arguments.cable_hash;
  options.in_flight_bytes = static_cast<uint64_t>(option_integer("SENNIT_IN_FLIGHT_BYTES"));
  options.most_messages = kMostMessages;
  options.queues = true;
  if (isatty(STDERR_FILENO)) options.progress = Progress();
  return options;
}

std::string tiers_text(const TierTree& tree, const SimulatedTime& simulated,
                       const std::vector<std::vector<double>>& load, bool fluid) {
  const bool watched = is_watched(simulated, fluid);
  std::string text = fmt::format("{:<10} {:>12} {:>10}{}\n", "tier", "sent out", "busiest",
                                 watched ? "  load over time" : "");
  for (size_t t = 0; t + 1 < tree.tiers.size(); t++)
    if (simulated.tiers[t].busiest_group >= 0)
      text += fmt::format(
          "{:<10} {:>12} {:>10}{}\n", tree.tiers[t].name,
          bytes_text(static_cast<double>(simulated.tiers[t].bytes)),
          fluid || simulated.by_kind
              ? "-"
              : fmt::format("{:.1f}%", 100 * busy_part(simulated.tiers[t], simulated.time_ns)),
          watched ? "  |" + sparks(load[t]) + "|" : "");
  return text;
}

namespace {

std::string link_name(const TierTree& tree, const Watch::LinkLoad& link) {
  const Group& group = tree.groups[index(link.group)];
  const std::string name =
      group.name.empty()
          ? fmt::format("{} of position {}", tree.tiers[group.tier].name, group.first)
          : group.name;
  return fmt::format("{} {}", link.egress ? "out of" : "into", name);
}

double mean_of(const std::vector<double>& load) {
  double sum = 0;
  for (const double part : load) sum += part;
  return load.empty() ? 0 : sum / static_cast<double>(load.size());
}

}  // namespace

std::string links_text(const TierTree& tree, const std::vector<Watch::LinkLoad>& links) {
  std::string text = fmt::format("\n{:<28} {:>12} {:>10}  load over time\n", "busiest links",
                                 "carried", "mean load");
  for (const Watch::LinkLoad& link : links)
    text += fmt::format("{:<28} {:>12} {:>9.1f}%  |{}|\n", link_name(tree, link),
                        bytes_text(link.bytes), 100 * mean_of(link.load), sparks(link.load));
  return text;
}

Json links_json(const TierTree& tree, const std::vector<Watch::LinkLoad>& links) {
  Json all = Json::array();
  for (const Watch::LinkLoad& link : links)
    all.push_back({{"link", link_name(tree, link)},
                   {"tier", tree.tiers[tree.groups[index(link.group)].tier].name},
                   {"bytes", link.bytes},
                   {"mean_load", mean_of(link.load)},
                   {"load", link.load}});
  return all;
}

Json tiers_json(const TierTree& tree, const SimulatedTime& simulated,
                const std::vector<std::vector<double>>& load, bool fluid) {
  Json tiers = Json::array();
  for (size_t t = 0; t + 1 < tree.tiers.size(); t++) {
    const TierLoad& tier = simulated.tiers[t];
    if (tier.busiest_group < 0) continue;
    tiers.push_back({{"tier", tree.tiers[t].name},
                     {"bytes_out", tier.bytes},
                     {"busiest_group", tree.groups[static_cast<size_t>(tier.busiest_group)].name},
                     {"busiest_us", fluid || simulated.by_kind ? Json() : Json(us(tier.busy_ns))},
                     {"load", is_watched(simulated, fluid) ? Json(load[t]) : Json()}});
  }
  return tiers;
}

}  // namespace sennit::plan
