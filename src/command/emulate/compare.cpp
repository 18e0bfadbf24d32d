// `sennit emulate compare`: libraries in turns on one tree, one process after the other, so that
// what changes on this machine while it runs changes for all of them alike.
//
// In every round, for every order, collective and range of sizes, each library runs once, a peer
// once by each of its settings; figures are medians over the rounds, of a peer those of the setting
// by which it is quickest at that size, ratios medians of the ratios round by round.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/core.h>

#include "base/options.hpp"
#include "base/text/date.hpp"
#include "base/text/json.hpp"
#include "command/emulate/compare.hpp"
#include "command/emulate/state.hpp"
#include "plan/planner.hpp"
#include "schedule/request.hpp"

namespace sennit::emulate {
namespace {

using nlohmann::json;

constexpr double kMostSeconds = 600;  // of a library at one collective; then it is ended
// A setting that twice takes so much longer than the peer's best at every size is not tried again.
constexpr double kHopeless = 2;

Result<SizeRange> parse_range(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  if (parts.empty() || parts.size() > 3)
    return invalid(fmt::format("--sizes {}: expected SIZE or FIRST:LAST:FACTOR", text));
  SizeRange range;
  range.first = parts[0];
  range.last = parts.size() > 1 ? parts[1] : parts[0];
  if (parts.size() > 2) {
    const char* const end = parts[2].data() + parts[2].size();
    const auto [rest, error] = std::from_chars(parts[2].data(), end, range.factor);
    if (error != std::errc() || rest != end || std::isinf(range.factor)) range.factor = 0;
  }
  const Result<uint64_t> first = parse_bytes(range.first), last = parse_bytes(range.last);
  if (!first) return first.status().with_context("--sizes");
  if (!last) return last.status().with_context("--sizes");
  if (*first > *last || !(range.factor > 1))
    return invalid(
        fmt::format("--sizes {}: expected FIRST not above LAST and FACTOR above 1", text));
  range.first_bytes = *first;
  range.last_bytes = *last;
  return range;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

// Null: sennit.
const Peer* peer_of(const std::string& library) {
  return find_peer(library == kRecommended ? "openmpi" : library);
}

class Measuring {
 public:
  Measuring(const Instance& instance, const CompareOptions& options, const ScratchFolder& scratch)
      : instance_(instance),
        options_(options),
        folder_(scratch.path()),
        errors_(folder_ + "/errors") {}

  Result<int> run(const std::vector<SizeRange>& ranges) {
    comparison_.about = about(instance_.tree, options_);
    if (!options_.json.empty()) {
      record_.open(options_.json);
      record_ << json_to_text(comparison_.about) << '\n' << std::flush;
      if (!record_) return invalid(fmt::format("--json {}: cannot write it", options_.json));
    }
    for (int round = 0; round < options_.rounds && !interrupted_; round++)
      for (const std::string& order : options_.orders)
        for (const std::string& collective : options_.collectives)
          for (const SizeRange& range : ranges)
            if (!interrupted_) SENNIT_RETURN_IF_ERROR(turn(round, order, collective, range));
    fmt::print("\n{}", comparison_.table());
    const bool whole = finish_record(&record_, options_);
    if (interrupted_) return interrupted_;
    return whole ? worst_ : std::max(worst_, kUnwritten);
  }

 private:
  // A library by one of its settings; null: it has none, as sennit.
  struct Turn {
    std::string library;
    const PeerSetting* setting = nullptr;

    std::string name() const { return with_setting(library, setting ? setting->name : ""); }
  };

  // Every library once, by each of its settings.
  Status turn(int round, const std::string& order, const std::string& collective,
              const SizeRange& range) {
    std::vector<std::string> libraries = options_.libraries;
    if (options_.probed && order != "fabric" && range.first_bytes >= kShapedBytes) {
      const auto after = std::find(libraries.begin(), libraries.end(), "sennit");
      libraries.insert(after == libraries.end() ? after : after + 1, kProbed);
    }
    if (options_.recommended && order != "fabric") libraries.emplace_back(kRecommended);
    std::map<uint64_t, std::string> news;
    for (const Turn& what : turns_of(libraries, order, collective, range)) {
      std::string output;
      const Result<int> status = run_library(what, order, collective, range, &output);
      if (!status) return status.status();
      for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
        if (*status == 128 + signal) interrupted_ = *status;
      if (interrupted_) return {};
      if (*status != 0) {
        complain(what, order, collective, *status);
        failed_.insert(key_of(what, order, collective, range));
      }
      SENNIT_RETURN_IF_ERROR(take(output, what, order, round, &news));
    }
    for (const auto& [bytes, text] : news)
      fmt::print("round {}, {} order, {} of {}:{}\n", round + 1, order, collective,
                 readable_size(bytes), text);
    std::fflush(stdout);
    return {};
  }

  static std::string key_of(const Turn& what, const std::string& order,
                            const std::string& collective, const SizeRange& range) {
    return fmt::format("{} {} {} {}", what.name(), order, collective, range.first_bytes);
  }

  // Whose turns come, those left out whose setting failed, or is hopeless by what was measured so
  // far.
  std::vector<Turn> turns_of(const std::vector<std::string>& libraries, const std::string& order,
                             const std::string& collective, const SizeRange& range) const {
    std::vector<Turn> turns;
    for (const std::string& library : libraries) {
      const Peer* peer = peer_of(library);
      if (!peer) {
        turns.push_back({.library = library});
        continue;
      }
      for (const PeerSetting& setting : peer->settings) {
        if (options_.one_setting && &setting != &peer->settings.front()) continue;
        if (setting.all_reduce && collective != "all_reduce") continue;
        const Turn what{.library = library, .setting = &setting};
        const bool failed = failed_.contains(key_of(what, order, collective, range));
        if (!failed && hopeful(library, setting, order, collective, range)) turns.push_back(what);
      }
    }
    return turns;
  }

  // Until it was measured twice, and both times took too long at every size: a single turn may have
  // been disturbed.
  bool hopeful(const std::string& library, const PeerSetting& setting, const std::string& order,
               const std::string& collective, const SizeRange& range) const {
    // What is printed is rounded down to whole blocks of all ranks.
    const uint64_t rounding = sizeof(float) * instance_.tree.hosts.size() *
                              static_cast<uint64_t>(options_.run.ranks_per_host);
    bool measured = false;
    for (const Point& point : comparison_.points) {
      const auto all = point.settings.find(library);
      if (point.order != order || point.collective != collective || all == point.settings.end() ||
          point.bytes + rounding <= range.first_bytes || point.bytes > range.last_bytes)
        continue;
      const double best = point.find(library)->median_us();
      for (const Series& series : all->second) {
        if (series.setting != setting.name) continue;
        std::vector<double> known;
        for (const double us : series.time_us)
          if (std::isfinite(us)) known.push_back(us);
        if (known.size() < 2) return true;
        measured = true;
        if (std::ranges::min(known) <= kHopeless * best) return true;
      }
    }
    return !measured;
  }

  Result<int> run_library(const Turn& what, const std::string& order, const std::string& collective,
                          const SizeRange& range, std::string* output) {
    const std::string& library = what.library;
    const bool small = range.last_bytes <= (1 << 20);
    const int iterations = options_.iterations > 0 ? options_.iterations : small ? 50 : 3;
    RunOptions run = options_.run;
    run.order = order;
    run.recommended = library == kRecommended;
    run.launch.capture = output;
    run.launch.errors_file = errors_;
    run.launch.timeout_s = kMostSeconds;
    std::ofstream(errors_, std::ios::trunc).close();
    run.command = {collective,
                   "-b",
                   range.first,
                   "-e",
                   range.last,
                   "-f",
                   fmt::format("{}", range.factor),
                   "-n",
                   std::to_string(iterations),
                   "-w",
                   small ? "10" : "1",
                   "-c",
                   "0"};
    if (library == kProbed) {  // the first run measures, the others find it in the cache
      run.no_fabric = true;
      run.probe_cache = folder_;
    }
    if (library == "sennit" || library == kProbed) {
      run.command.insert(run.command.begin(), {own_program(), "bench"});
      run.command.insert(run.command.end(), {"--json", "-"});
    } else {
      run.peer = peer_of(library)->name;
      run.setting = what.setting->name;
    }
    return run_on(instance_, run);
  }

  Status take(const std::string& output, const Turn& what, const std::string& order, int round,
              std::map<uint64_t, std::string>* news) {
    std::stringstream lines(output);
    for (std::string text; std::getline(lines, text);) {
      json line = parse_json(text);
      if (!line.is_object() || !line.contains("bytes")) continue;
      line["library"] = what.library;
      if (what.setting) line["setting"] = what.setting->name;
      line["order"] = order;
      line["round"] = round;
      SENNIT_RETURN_IF_ERROR(add_bound(&line, order));
      if (record_.is_open()) record_ << json_to_text(line) << '\n' << std::flush;
      comparison_.add(line);
      if (line["time_us"].is_number())
        (*news)[line["bytes"]] +=
            fmt::format("  {} {}", what.name(), readable_time(line["time_us"]));
    }
    return {};
  }

  // Peers do not know it, and sennit only where it was told the rates; it is the same for all.
  Status add_bound(json* line, const std::string& order) {
    auto& tree = trees_[order];
    if (!tree) {
      RunOptions run = options_.run;
      run.order = order;
      const Result<std::vector<int>> hosts = hosts_of_ranks(instance_.tree, run);
      if (!hosts) return hosts.status();
      Result<TierTree> made = tier_tree(instance_.tree, *hosts);
      if (!made) return made.status();
      tree = std::make_unique<TierTree>(std::move(*made));
    }
    const Result<Request> request = make_request((*line)["collective"], (*line)["bytes"], *tree);
    if (!request) return request.status();
    const Bound bound = lower_bound(*request, *tree);
    (*line)["bound_us"] = bound.known ? json(static_cast<double>(bound.time_ns) / 1e3) : json();
    (*line)["binding_tier"] = bound.known && bound.binding_tier >= 0
                                  ? json(tree->tiers[static_cast<size_t>(bound.binding_tier)].name)
                                  : json();
    return {};
  }

  // A peer that works by its first setting is measured, whatever becomes of the others.
  void complain(const Turn& what, const std::string& order, const std::string& collective,
                int status) {
    const Peer* peer = peer_of(what.library);
    if (!peer || what.setting == &peer->settings.front()) worst_ = 1;
    std::ifstream file(errors_);
    std::string said((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (said.size() > 2000) said = "..." + said.substr(said.size() - 2000);
    fmt::print(stderr, "sennit emulate: {}, {} order, {} ended with status {}:\n{}\n", what.name(),
               order, collective, status, said);
  }

  const Instance& instance_;
  const CompareOptions& options_;
  const std::string folder_, errors_;
  Comparison comparison_;
  std::map<std::string, std::unique_ptr<TierTree>> trees_;  // by order
  std::ofstream record_;
  std::set<std::string> failed_;  // key_of()
  int interrupted_ = 0;
  int worst_ = 0;
};

}  // namespace

Result<std::vector<SizeRange>> parse_ranges(const CompareOptions& options) {
  std::vector<SizeRange> ranges;
  for (const std::string& text : options.sizes) {
    const Result<SizeRange> range = parse_range(text);
    if (!range) return range.status();
    ranges.push_back(*range);
  }
  for (const std::string& collective : options.collectives)
    if (const Result<Collective> parsed = parse_collective(collective); !parsed)
      return parsed.status();
  return ranges;
}

Status check_orders(const Tree& tree, const CompareOptions& options) {
  for (const std::string& order : options.orders)
    SENNIT_RETURN_IF_ERROR(place_ranks(tree, options.run.ranks_per_host, order).status());
  return {};
}

bool finish_record(std::ofstream* record, const CompareOptions& options) {
  if (!record->is_open() || record->flush()) return true;
  fmt::print(stderr, "sennit emulate: --json {}: cannot write all of it\n", options.json);
  return false;
}

Result<Request> make_request(const std::string& collective, uint64_t bytes, const TierTree& tree) {
  const Result<Collective> parsed = parse_collective(collective);
  if (!parsed) return parsed.status();
  Request request;
  request.collective = *parsed;
  const bool whole = *parsed == Collective::all_reduce || *parsed == Collective::broadcast ||
                     *parsed == Collective::reduce;
  request.count = bytes / 4 / (whole ? 1 : static_cast<uint64_t>(tree.ranks()));
  request.root = tree.position_of_rank[0];
  return request;
}

json about(const Tree& tree, const CompareOptions& options) {
  utsname system{};
  uname(&system);
  double load[1] = {0};
  if (getloadavg(load, 1) != 1) load[0] = 0;
  const std::string date = utc_minute(std::time(nullptr));
  json hosts = json::array(), racks = json::array(), pods = json::array();
  for (const Host& host : tree.hosts)
    hosts.push_back(
        {{"name", host.name}, {"rack", host.rack}, {"bits_per_s", host.nic_bits_per_s}});
  const auto add = [](json* list, const std::vector<Switch>& switches) {
    for (const Switch& s : switches)
      list->push_back({{"name", s.name}, {"pod", s.pod}, {"bits_per_s", s.uplink_bits_per_s}});
  };
  add(&racks, tree.racks);
  add(&pods, tree.pods);
  json places = json::object();
  for (const std::string& order : options.orders) {
    RunOptions run = options.run;
    run.order = order;
    if (const Result<std::vector<int>> placed = hosts_of_ranks(tree, run)) places[order] = *placed;
  }
  json record = {
      {"about", describe(tree)},
      {"hosts", hosts},
      {"racks", racks},
      {"pods", pods},
      {"orders", options.orders},
      {"places", places},
      {"ranks_per_host", options.run.ranks_per_host},
      {"rounds", options.rounds},
      {"date", date},
      {"command", options.command},
      {"machine", fmt::format("{}, {} cores, Linux {}, load {:.1f} when it began", processor(),
                              sysconf(_SC_NPROCESSORS_ONLN), system.release, load[0])},
      {"sennit", sennit_version()}};
  for (const Peer& peer : peers())
    if (const std::string version = peer_version(peer); !version.empty())
      record[peer.name] = version;
  return record;
}

namespace {

// Peers that are not installed; what it returns says which and how to get them.
Result<std::string> leave_out_missing(std::vector<std::string>* libraries) {
  std::string text;
  std::vector<std::string> left;
  for (const std::string& library : *libraries) {
    const Result<std::string> program = library == "sennit" ? library : peer_program(library);
    if (program)
      left.push_back(library);
    else if (program.status().kind() != SENNIT_NOT_FOUND)
      return program.status().with_context("--libraries");
    else
      text += fmt::format("LEFT OUT: {}: {}\n", library, program.status().text());
  }
  if (left.empty()) return Status(SENNIT_NOT_FOUND, "--libraries: none is left\n" + text);
  *libraries = left;
  return text;
}

}  // namespace

Result<int> compare(const Instance& instance, const CompareOptions& given) {
  if (instance.tree.rails > 1)
    return invalid(fmt::format(
        "'{}' has {} rails, and other libraries are told of one NIC a host; compare them "
        "on a tree without --rails, or measure sennit alone with `sennit emulate run -- "
        "sennit bench`",
        instance.name, instance.tree.rails));
  const Result<std::vector<SizeRange>> ranges = parse_ranges(given);
  if (!ranges) return ranges.status();
  SENNIT_RETURN_IF_ERROR(check_orders(instance.tree, given));
  CompareOptions options = given;
  Result<std::string> left_out = leave_out_missing(&options.libraries);
  if (!left_out) return left_out.status();
  if (const Result<std::string> program = peer_program("openmpi");
      options.recommended && !program) {
    options.recommended = false;
    *left_out += fmt::format("LEFT OUT: {}: {}\n", kRecommended, program.status().text());
  }
  SENNIT_RETURN_IF_ERROR(join_owner(instance));
  const Result<ScratchFolder> scratch = ScratchFolder::make();
  if (!scratch) return scratch.status();
  fmt::print("emulated: {}\n{}", describe(instance.tree), *left_out);
  std::fflush(stdout);
  Result<int> status = Measuring(instance, options, *scratch).run(*ranges);
  fmt::print("{}", *left_out);  // again, since nobody scrolls back
  return status;
}

}  // namespace sennit::emulate
