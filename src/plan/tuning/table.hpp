// table.hpp: what was fastest when it was measured, on which fabric: the tuning table and its text
// form.
//
// An entry holds for one tier tree (by fingerprint), one collective and one class of sizes:
// payloads from a power of two to the next. The text has a line per entry:
//   tree 00c0ffee00c0ffee all_reduce 1048576 tiered chunks 8 radices 4,2 whole 0 predicted_ns 1500000
//   measured_ns 1400000
// where 1048576 is the class's least payload in bytes, and one for the cost model of a tree that
// was calibrated (plan/tuning/calibration.hpp), its tiers' figures from the ranks outwards:
//   cost 00c0ffee00c0ffee post_ns 2000 message_cpu_ns 5000 latency_ns 30000
//   shared_memory_post_ns 150 reduce_bytes_per_s 8000000000 latency_permille 1000,1100
//   goodput_permille 1000,960 burst_ns 0,300000 [rdma]
// with `rdma` where messages went over it when that was fitted. A tree has a line for each of both
// ways, and the one is used over which messages go again.
// Rank 0 reads the file and tells it to all ranks at the start, so that all choose alike; the file
// is replaced as a whole. Value type; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "plan/planner.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What was fastest for requests like one that was tried.
struct Tuned {
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0, measured_ns = 0;
};

// All lines of a tuning file. A value.
class Tuning {
 public:
  // Null where nothing was measured for the like of this request.
  const Tuned* find(uint64_t tree, const Request& request, int ranks) const;
  void set(uint64_t tree, const Request& request, int ranks, Tuned tuned);
  // The calibrated model's constants over those of `cost`; nothing where the tree was not
  // calibrated over the way of `cost`.
  void calibrate(const TierTree& tree, CostModel* cost) const;
  // In place of what was fitted over the same way.
  void set_cost(uint64_t tree, CostModel cost) {
    costs_[{tree, cost.way == Way::rdma}] = std::move(cost);
  }
  void merge(const Tuning& newer);
  bool empty() const { return entries_.empty() && costs_.empty(); }
  size_t size() const { return entries_.size(); }  // without the cost models

  std::string to_text() const;
  // `file` is for messages: file, line, column and what was expected.
  static Result<Tuning> parse(std::string_view text, std::string_view file);

  // A file that does not exist is an empty table.
  static Result<Tuning> read(const std::string& path);
  // Adds this table to the file at `path`, whole or not at all; other jobs may do so at the same
  // time.
  Status add_to(const std::string& path) const;

 private:
  using Key = std::tuple<uint64_t, Collective, uint64_t>;  // tree, collective, least payload
  static Key key(uint64_t tree, const Request& request, int ranks);
  std::map<Key, Tuned> entries_;
  std::map<std::pair<uint64_t, bool>, CostModel> costs_;  // by tree, and whether over RDMA
};

// SENNIT_TUNING, or tuning-FINGERPRINT in the user's cache; empty where there is neither.
std::string tuning_path(uint64_t fabric_fingerprint);

// Makes what was measured the plan's choice; nothing happens where it does not apply to the
// request.
void apply(const Tuned& tuned, const Request& request, const TierTree& tree, Plan* plan);

}  // namespace sennit
