// log.hpp: what a run says of itself: a line a step on the screen, the same as JSON lines, and at
// the end one self-contained HTML page with the curves.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace sennit::trainer {

// What one step came to. Of times, those of the slowest rank. MFU: the operations of
// flops_per_token (6 a parameter, and causal attention) over what the machine could have done in
// that time: measured by matrix products of the run's type, or on paper.
struct StepRecord {
  int64_t step = 0;
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double seconds = 0, tokens_per_s = 0;
  double comm_s = 0, exposed_s = 0, data_wait_s = 0;
  bool overlap = true;
  double sent_bytes = 0;  // of the rank that handed most to the communication library
  std::optional<double> mfu_measured, mfu_nominal, held_out, tokens_per_joule;
  // `measure_overlap`: the same step's computing where nothing is sent
  std::optional<double> alone_s;
  std::string to_json() const;
  static std::optional<StepRecord> from_json(const std::string& line);  // nothing: no such record
  std::string line() const;
  // What no overlap can go below: computing, or communication, whichever is longer.
  double bound_s() const { return std::max(computing_s(), comm_s); }
  // Of the communication that fits behind computing, the share that was behind it; nothing: there
  // was hardly any.
  std::optional<double> hidden() const;

 private:
  double computing_s() const { return std::max(0.0, seconds - exposed_s - data_wait_s); }
};

// Steps with overlap, without it, and without any transfer in one run (`measure_overlap`), held
// against each other by their durations: what the collectives cost the processor counts as not
// hidden here.
struct OverlapFigures {
  double with_s = 0, without_s = 0;  // medians of a step
  // of a step where nothing is sent; what sending adds to it
  double computing_s = 0, transfers_s = 0;
  double bound_s() const { return std::max(computing_s, transfers_s); }
  std::optional<double> hidden() const;  // nothing where hardly anything was there to hide
  std::string text() const;
  // Nothing: no steps of both kinds. The first four, and each first of its kind in a row, do not
  // count: transfers of the step before go on in it.
  static std::optional<OverlapFigures> of(const std::vector<StepRecord>& records);
};

// Rank 0's records of a run and its file of them. A line that cannot be written ends the file, not
// the run. One thread.
class TrainLog {
 public:
  // Opens report_dir/steps.jsonl; after a resume its lines up to the step `done` stay, and are in
  // records(); those of later steps go, which will be done again. Errors: a folder that cannot be
  // written, or that another run's log is in.
  static Result<TrainLog> open(const std::string& folder, int64_t done);
  TrainLog(TrainLog&& other) noexcept;
  TrainLog& operator=(TrainLog&& other) noexcept;
  ~TrainLog();
  void add(const StepRecord& record, bool on_screen);
  const std::vector<StepRecord>& records() const { return records_; }
  // Facts: name and value, for the page's head; sample: text.
  Status write_page(const std::vector<std::pair<std::string, std::string>>& facts,
                    const std::string& sample) const;

 private:
  TrainLog() = default;
  std::string folder_;
  int lock_ = -1;
  std::FILE* lines_ = nullptr;
  std::vector<StepRecord> records_;
};

// The page itself: pure.
std::string train_page(const std::vector<StepRecord>& records,
                       const std::vector<std::pair<std::string, std::string>>& facts,
                       const std::string& sample);

}  // namespace sennit::trainer
