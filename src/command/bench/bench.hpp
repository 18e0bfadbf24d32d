// bench.hpp: what the files of `sennit bench` share: the options, one measurement, and who does
// what.
//
// One rank: a process under a launcher, or a thread of one (-t, -g). Figures travel over the
// control plane, so that a collective that is wrong cannot hide its own errors.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/control_plane.hpp"
#include "plan/planner.hpp"
#include "schedule/request.hpp"

namespace sennit::bench {

// Where the buffers of a bench come from.
enum class BufferMemory : uint8_t {
  // what is measured: peers read it in place, or not
  sennit,
  registered,
  any,
  device  // a CUDA device's
};

// What was asked for on the command line; sizes in bytes.
struct Options {
  Collective collective = Collective::all_reduce;
  uint64_t min_bytes = 0, max_bytes = 0;
  uint64_t step_bytes = 0;  // used where factor is 0
  double factor = 0;
  int iterations = 20, warm_up = 5, check = 1;
  std::vector<DataType> types;
  std::vector<Op> ops;
  int root = 0;  // user's rank; -1: each in turn
  bool blocking = true;
  int graph_launches = 0;  // of a graph of all iterations; 0: there is none
  int threads = 1;         // ranks per process
  int ranks = 0;           // local processes to start; 0: as launched
  BufferMemory memory = BufferMemory::sennit;
  std::string split, mesh, dimension;   // command/bench/groups.hpp
  std::string split_named = "--split";  // or the variable of nccl-tests that it comes from
  std::string fabric, algorithm, json;
};

// What commas part, also where that is nothing.
std::vector<std::string> list_of(const std::string& text);

// The sizes of a run, in bytes, ascending.
std::vector<uint64_t> sizes(const Options& options);

// One size, type, op and root. Buffers hold `count` elements per block, `blocks` of them or one.
struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  Op op = Op::sum;
  int root = 0;  // user's rank
  int rank = 0, ranks = 1;
  // elements per block: per rank where the collective has blocks, else the vector
  uint64_t count = 0;
  uint64_t send_elements() const;
  uint64_t recv_elements() const;
  uint64_t bytes() const;  // as nccl-tests counts: the larger of the two sides
};
Case make_case(const Options& options, DataType type, Op op, int root, int rank, int ranks,
               uint64_t bytes);
bool has_blocks(Collective collective);  // a block per rank on at least one side
bool is_rooted(Collective collective);
bool is_reduction(Collective collective);

// ---- known inputs and the independent reference (command/bench/check.cpp) ----
// Every input element is a function of (rank, index, seed). Sums are exact in every type, averages
// rounded once; moved data is compared bit by bit.
void fill_input(const Case& c, uint64_t seed, void* send);
struct Checked {
  uint64_t wrong = 0;
  std::string first;  // the first wrong element, for people
};
Checked check_output(const Case& c, uint64_t seed, const void* recv);
Checked check_input(const Case& c, uint64_t seed, const void* send);
// The scalar of premul_sum on this rank, as an element of the type.
void premul_scalar(DataType type, int rank, void* scalar);

// ---- one rank's run (command/bench/run.cpp) ----
struct Times {  // of the slowest rank, over the iterations
  double median_us = 0, min_us = 0, mean_us = 0, max_us = 0;
  std::optional<uint64_t> wrong;
};
struct Measurement {
  Case what;
  std::string algorithm;
  int groups = 1;  // that did it at once; `what`, algorithm and prediction are those of rank 0's
  std::optional<double> predicted_us, bound_us;
  std::string binding_tier;  // empty: unknown
  Times out_of_place;
  std::optional<Times> in_place;
};
int exit_status(const Status& status);

// ---- the screen and the JSON file (command/bench/report.cpp) ----
class Report {
 public:
  virtual ~Report() = default;
  // ranks: "8 ranks", "8 ranks in 2 groups of 4"
  virtual void begin(const std::string& ranks, const TierTree& tree, const CostModel& cost) = 0;
  virtual void add(const Measurement& measurement) = 0;
  // `footprint`: what rank 0 cost: start-up, messages, connections, memory.
  virtual void end(const std::string& footprint) = 0;
  // Whether the JSON could be written; the table is main()'s to look after.
  virtual Status json_status() const = 0;
};
// Opens options.json. Where JSON takes standard output, the table goes to standard error.
Result<std::unique_ptr<Report>> open_report(const Options& options);
double bus_factor(Collective collective, int ranks);

// Rank 0 reports. Returns the exit status: 1 also where elements are wrong.
int run_rank(const Options& options, BootstrapOptions bootstrap, Report* report);

// ---- local processes (command/bench/launch.cpp) ----
// Starts this very command `processes` times with torchrun's variables and a fresh secret, and
// waits. When one fails the rest get a few seconds to say why. Returns the exit status. `command`
// is for messages. stop_by_themselves: on SIGINT or SIGTERM, each of which is passed on, they end
// when they are ready.
int run_local_processes(const char* command, int processes, char** argv,
                        bool stop_by_themselves = false);
// Under a launcher: `process` with what it says of this one. Else with `ranks` (0 or 1: none) local
// processes of this command, which come here again, or alone.
int run_as_launched(const char* command, int ranks, char** argv,
                    const std::function<int(const BootstrapOptions&)>& process);

}  // namespace sennit::bench
