// compare.hpp: `sennit emulate compare` and `report`: libraries measured in turns on one
// emulated tree, and what is made of the figures.
//
// The record of a comparison is JSON lines: the first says what was emulated, where and when; each
// of the others is what a library's benchmark printed, with "library", "order" and "round" added,
// and a peer's "setting".
#pragma once

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "command/emulate/run.hpp"
#include "schedule/request.hpp"

namespace sennit::emulate {

// What is measured is named by library and hostfile: Open MPI is also run with the ranks where
// sennit would put them.
inline constexpr const char* kRecommended = "openmpi, sennit's order";
// Nothing was declared: no fabric file, and the job measured the network at its start.
inline constexpr const char* kProbed = "sennit, probed";
inline constexpr const char* kSimulated = "sennit, simulated";

// The shapers let a burst pass, so times of smaller messages say nothing about a bound that counts
// bytes on links.
inline constexpr uint64_t kShapedBytes = 1'000'000;
inline constexpr int kMostRounds = 1000;

// What was asked for on the command line.
struct CompareOptions {
  std::vector<std::string> libraries = {"sennit", "openmpi", "gloo", "mpich", "openmpi5"};
  std::vector<std::string> orders = {"fabric"};
  std::vector<std::string> collectives = {"all_reduce"};
  std::vector<std::string> sizes = {"8:64K:8", "16000000"};  // FIRST:LAST:FACTOR or one size
  int rounds = 7;
  int iterations = 0;        // 0: by size
  bool one_setting = false;  // of each peer: its first
  bool recommended = false;
  bool probed = false;  // in orders other than the fabric's, for sizes that have a bound
  std::string json;     // file for the record
  std::string command;  // as typed, for the record
  RunOptions run;
};

// The figures of one library at one point, by one of its settings; of sennit there is one, without
// a name.
struct Series {
  std::string setting;
  std::vector<double> time_us;  // by round, ascending rounds
  double median_us() const;
};
struct Point {  // collective, order and size
  std::string collective, order;
  uint64_t bytes = 0;
  std::optional<double> bound_us;
  std::string binding_tier;
  bool simulated = false;
  // in the order in which they were first seen, each by its quickest setting
  std::vector<std::pair<std::string, Series>> libraries;
  std::map<std::string, std::vector<Series>> settings;  // all, by library
  const Series* find(const std::string& library) const;
  // The quickest peer on the same hosts in the same order; empty: none.
  std::string best_peer() const;
  // Whether times can be held against the bound.
  bool bounded() const { return bound_us && (simulated || bytes >= kShapedBytes); }
};

// A record as it is read, or as it grows.
class Comparison {
 public:
  nlohmann::json about;  // the record's first line
  std::vector<Point> points;

  void add(const nlohmann::json& line);
  static Result<Comparison> read(const std::string& file);
  std::string table() const;
};
// Median of the round-by-round ratios time / time_of_other; rounds that only one has are left out.
std::optional<double> ratio(const Series& series, const Series& other);
double bus_factor(const std::string& collective, double ranks);  // as in nccl-tests
// The library, and the setting where it has several.
std::string with_setting(const std::string& library, const std::string& setting);
std::string readable_time(double us);
std::string readable_size(uint64_t bytes);

// Measures and prints as results come in. Returns the exit status.
Result<int> compare(const Instance& instance, const CompareOptions& options);
// For a machine that cannot emulate, and why it cannot: the same points with sennit's own schedules
// simulated, in the same table and record. Peers have no schedules to simulate. Returns the exit
// status.
Result<int> compare_simulated(const Tree& tree, const CompareOptions& options,
                              const std::string& why);

// What both share.
struct SizeRange {
  std::string first, last;
  double factor = 2;
  uint64_t first_bytes = 0, last_bytes = 0;
};
// and checks the collectives
Result<std::vector<SizeRange>> parse_ranges(const CompareOptions& options);
Status check_orders(const Tree& tree, const CompareOptions& options);
inline constexpr int kUnwritten = 1;  // the exit status then
// False, and said, where not all of the record could be written. True where there is none.
bool finish_record(std::ofstream* record, const CompareOptions& options);
Result<Request> make_request(const std::string& collective, uint64_t bytes, const TierTree& tree);
nlohmann::json about(const Tree& tree, const CompareOptions& options);  // the record's first line

// One self-contained page. An error where the record's first line lacks what a page shows.
Result<std::string> report_page(const Comparison& comparison);

}  // namespace sennit::emulate
