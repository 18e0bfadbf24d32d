// report.cpp: the table of `sennit bench`, with nccl-tests' columns and four of its own, and
// one JSON object a line. algbw = bytes / time; busbw = algbw * bus_factor. of_bound = bound /
// time: 1 is as fast as any schedule can be. null, or "-" in the table, is unknown.
#include <cmath>
#include <cstdio>
#include <cstring>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/bench/bench.hpp"
#include "cost/rates.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::bench {
namespace {

struct Rates {
  double algbw = 0, busbw = 0;  // GB/s
};
Rates rates(const Case& c, double time_us) {
  if (time_us <= 0) return {};
  const double algbw = static_cast<double>(c.bytes()) / time_us / 1e3;
  return {algbw, algbw * bus_factor(c.collective, c.ranks)};
}

std::optional<double> of_bound(const Measurement& m, const Times& times) {
  if (!m.bound_us || times.median_us <= 0) return std::nullopt;
  return *m.bound_us / times.median_us;
}

// nccl-tests' manner: fewer digits the larger the number.
std::string time_text(double us) {
  return fmt::format("{:>8.{}f}", us, us >= 10000 ? 0 : (us >= 100 ? 1 : 2));
}

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

class TableAndJson : public Report {
 public:
  TableAndJson(const Options& options, FILE* json)
      : options_(options), json_(json), table_(json == stdout ? stderr : stdout) {}
  ~TableAndJson() override {
    if (json_ && json_ != stdout) std::fclose(json_);
  }

  void begin(const std::string& ranks, const TierTree& tree, const CostModel& cost) override {
    fmt::print(
        table_, "# sennit {} {}: {}, sizes {} to {} bytes, {} iterations after {} to warm up, {}\n",
        sennit_version(), name(options_.collective), ranks, options_.min_bytes, options_.max_bytes,
        options_.iterations, options_.warm_up, options_.check > 0 ? "checked" : "not checked");
    if (options_.graph_launches > 0)
      fmt::print(table_, "# the iterations are a CUDA graph, which is launched {} times\n",
                 options_.graph_launches);
    std::string tiers;
    std::vector<int> groups(tree.tiers.size(), 0);
    for (const Group& g : tree.groups) groups[g.tier]++;
    for (size_t t = tree.tiers.size(); t-- > 0;)
      tiers += fmt::format("{}{} {}", tiers.empty() ? "" : ", ", groups[t], tree.tiers[t].name);
    fmt::print(table_, "# tiers: {}; times are medians of the slowest rank; -: unknown\n", tiers);
    const LatencySource source = latency_source(tree, 0, cost);
    if (source == LatencySource::rdma || source == LatencySource::sockets)
      fmt::print(table_, "# predicted with {} of latency between hosts, ASSUMED of {}\n",
                 format_time(planning_latency_ns(tree, 0, cost)),
                 source == LatencySource::rdma ? "RDMA" : "sockets");
    fmt::print(table_, "#\n");
    fmt::print(table_, "#{:>74}{:>37}\n", "out-of-place", "in-place");
    fmt::print(
        table_,
        "#{:>13} {:>13} {:>11} {:>10} {:>5} {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6} {:>9} "
        "{:>8} {:>8} {}\n",
        "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
        "algbw", "busbw", "#wrong", "bound", "of_bound", "tier", "algorithm");
    fmt::print(table_,
               "#{:>13} {:>13} {:>11} {:>10} {:>5} {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6} "
               "{:>9}\n",
               "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
               "(GB/s)", "", "(us)");
    std::fflush(table_);
  }

  void add(const Measurement& m) override {
    const Case& c = m.what;
    std::string line = fmt::format(" {:>13} {:>13} {:>11} {:>10} {:>5}", c.bytes(), c.count,
                                   name(c.type), is_reduction(c.collective) ? name(c.op) : "none",
                                   is_rooted(c.collective) ? c.root : -1);
    line += times_text(c, &m.out_of_place) + times_text(c, m.in_place ? &*m.in_place : nullptr);
    const std::optional<double> part = of_bound(m, m.out_of_place);
    line += fmt::format(" {:>9} {:>8} {:>8} {}", m.bound_us ? time_text(*m.bound_us) : "-",
                        part ? fmt::format("{:.3f}", *part) : "-",
                        m.binding_tier.empty() ? "-" : m.binding_tier, m.algorithm);
    fmt::print(table_, "{}\n", line);
    std::fflush(table_);
    if (json_) add_json(m);
    busbw_sum_ += rates(c, m.out_of_place.median_us).busbw;
    busbw_count_++;
    if (m.in_place) {
      busbw_sum_ += rates(c, m.in_place->median_us).busbw;
      busbw_count_++;
    }
  }

  void end(const std::string& footprint) override {
    fmt::print(table_, "# Out of bounds values : {} {}\n", wrong_,
               wrong_ == 0 ? (options_.check > 0 ? "OK" : "(not checked)") : "FAILED");
    fmt::print(table_, "# Avg bus bandwidth    : {:.6g}\n",
               busbw_count_ > 0 ? busbw_sum_ / busbw_count_ : 0.0);
    fmt::print(table_, "# rank 0: {}\n", footprint);
    std::fflush(table_);
  }

  Status json_status() const override { return json_status_; }

 private:
  std::string times_text(const Case& c, const Times* times) {
    if (!times) return fmt::format(" {:>8} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
    const Rates r = rates(c, times->median_us);
    wrong_ += times->wrong.value_or(0);
    return fmt::format(" {} {:>7.{}f} {:>7.{}f} {:>6}", time_text(times->median_us), r.algbw,
                       digits(r.algbw), r.busbw, digits(r.busbw),
                       times->wrong ? std::to_string(*times->wrong) : "N/A");
  }
  static int digits(double gbytes_per_s) { return gbytes_per_s < 1 ? 4 : 2; }

  static nlohmann::json figures(const Measurement& m, const Times& times) {
    const Rates r = rates(m.what, times.median_us);
    return {{"time_us", times.median_us},
            {"min_us", times.min_us},
            {"mean_us", times.mean_us},
            {"max_us", times.max_us},
            {"algbw_gbytes_per_s", r.algbw},
            {"busbw_gbytes_per_s", r.busbw},
            {"of_bound", or_null(of_bound(m, times))},
            {"wrong", or_null(times.wrong)}};
  }

  void add_json(const Measurement& m) {
    const Case& c = m.what;
    nlohmann::json line = figures(m, m.out_of_place);
    line["collective"] = name(c.collective);
    line["bytes"] = c.bytes();
    line["count"] = c.count;
    line["dtype"] = name(c.type);
    line["op"] = is_reduction(c.collective) ? nlohmann::json(name(c.op)) : nlohmann::json();
    line["root"] = is_rooted(c.collective) ? nlohmann::json(c.root) : nlohmann::json();
    line["ranks"] = c.ranks;
    line["groups"] = m.groups;
    line["algorithm"] = m.algorithm;
    line["bound_us"] = or_null(m.bound_us);
    line["binding_tier"] =
        m.binding_tier.empty() ? nlohmann::json() : nlohmann::json(m.binding_tier);
    line["predicted_us"] = or_null(m.predicted_us);
    line["iterations"] = options_.iterations;
    line["graph_launches"] = options_.graph_launches;
    line["in_place"] = m.in_place ? figures(m, *m.in_place) : nlohmann::json();
    const std::string text = json_to_text(line) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), json_) == text.size() && std::fflush(json_) == 0)
      return;
    const int error = errno;
    if (json_status_.ok())
      json_status_ = {SENNIT_INTERNAL, fmt::format("--json {}: cannot be written: {}",
                                                   options_.json, std::strerror(error))};
  }

  const Options& options_;
  FILE* const json_;
  FILE* const table_;
  Status json_status_;  // the first error
  uint64_t wrong_ = 0;
  double busbw_sum_ = 0;
  int busbw_count_ = 0;
};

}  // namespace

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == Collective::all_reduce) return 2 * others;
  return has_blocks(collective) ? others : 1;
}

Result<std::unique_ptr<Report>> open_report(const Options& options) {
  FILE* json = nullptr;
  if (options.json == "-") json = stdout;
  if (!options.json.empty() && !json) json = std::fopen(options.json.c_str(), "w");
  if (!options.json.empty() && !json)
    return invalid(fmt::format("--json {}: {}", options.json, std::strerror(errno)));
  return std::unique_ptr<Report>(std::make_unique<TableAndJson>(options, json));
}

}  // namespace sennit::bench
