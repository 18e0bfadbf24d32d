// log.cpp: see trainer/run/report/log.hpp.
#include "trainer/run/report/log.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "base/median.hpp"
#include "base/text/json.hpp"
#include "trainer/base/files.hpp"

namespace sennit::trainer {

std::string StepRecord::to_json() const {
  nlohmann::ordered_json json = {{"step", step},
                                 {"loss", loss},
                                 {"grad_norm", gradient_norm},
                                 {"lr", learning_rate},
                                 {"tokens_per_s", tokens_per_s},
                                 {"comm_ms", comm_s * 1e3},
                                 {"exposed_ms", exposed_s * 1e3},
                                 {"bound_ms", bound_s() * 1e3},
                                 {"overlap", overlap},
                                 {"data_wait_ms", data_wait_s * 1e3},
                                 {"sent_bytes", sent_bytes},
                                 {"ms", seconds * 1e3}};
  if (hidden()) json["hidden"] = *hidden();
  if (mfu_measured) json["mfu"] = *mfu_measured;
  if (mfu_nominal) json["mfu_nominal"] = *mfu_nominal;
  if (tokens_per_joule) json["tokens_per_joule"] = *tokens_per_joule;
  if (held_out) json["held_out"] = *held_out;
  if (alone_s) json["alone_ms"] = *alone_s * 1e3;
  return json_to_text(json);
}

std::string StepRecord::line() const {
  std::string text =
      fmt::format("step {:>5}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:.0f} tokens/s", step,
                  loss, gradient_norm, learning_rate, tokens_per_s);
  if (mfu_measured) text += fmt::format("  MFU {:.1f}%", 100 * *mfu_measured);
  if (mfu_nominal) text += fmt::format(" ({:.1f}% nominal)", 100 * *mfu_nominal);
  if (tokens_per_joule) text += fmt::format("  {:.1f} tokens/J", *tokens_per_joule);
  text += fmt::format("  comm {:.1f} exposed {:.1f}", comm_s * 1e3, exposed_s * 1e3);
  if (hidden()) text += fmt::format(" hidden {:.0f}%", 100 * *hidden());
  text += fmt::format(" data_wait {:.1f} of {:.1f} ms", data_wait_s * 1e3, seconds * 1e3);
  if (held_out) text += fmt::format("  held out {:.4f}", *held_out);
  return text;
}

std::optional<StepRecord> StepRecord::from_json(const std::string& line) {
  const nlohmann::json json = parse_json(line);
  if (!json.is_object()) return {};
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
  };
  if (!number("step") || !number("loss")) return {};
  StepRecord record;
  record.step = static_cast<int64_t>(*number("step"));
  record.loss = *number("loss");
  record.gradient_norm = number("grad_norm").value_or(0);
  record.learning_rate = number("lr").value_or(0);
  record.tokens_per_s = number("tokens_per_s").value_or(0);
  record.comm_s = number("comm_ms").value_or(0) / 1e3;
  record.exposed_s = number("exposed_ms").value_or(0) / 1e3;
  record.overlap = json.value("overlap", nlohmann::json(true)) != false;
  record.data_wait_s = number("data_wait_ms").value_or(0) / 1e3;
  record.sent_bytes = number("sent_bytes").value_or(0);
  record.seconds = number("ms").value_or(0) / 1e3;
  record.mfu_measured = number("mfu");
  record.mfu_nominal = number("mfu_nominal");
  record.tokens_per_joule = number("tokens_per_joule");
  record.held_out = number("held_out");
  if (number("alone_ms")) record.alone_s = *number("alone_ms") / 1e3;
  return record;
}

std::optional<double> StepRecord::hidden() const {
  const double possible = std::min(comm_s, computing_s());
  // hardly anything to hide, or to hide it behind
  if (!overlap || possible <= 0.05 * seconds) return {};
  return std::clamp(std::min(comm_s - exposed_s, possible) / possible, 0.0, 1.0);
}

std::optional<OverlapFigures> OverlapFigures::of(const std::vector<StepRecord>& records) {
  std::vector<double> with, without, alone;
  for (size_t i = 4; i < records.size(); i++) {
    if (records[i].alone_s) alone.push_back(*records[i].alone_s);
    if (records[i].overlap != records[i - 1].overlap) continue;
    (records[i].overlap ? with : without).push_back(records[i].seconds - records[i].data_wait_s);
  }
  if (with.empty() || without.empty() || alone.empty()) return {};
  OverlapFigures figures;
  figures.with_s = median(with);
  figures.without_s = median(without);
  figures.computing_s = median(alone);
  figures.transfers_s = std::max(0.0, figures.without_s - figures.computing_s);
  return figures;
}

std::optional<double> OverlapFigures::hidden() const {
  const double possible = without_s - bound_s();
  if (possible <= 0.02 * without_s) return {};
  return (without_s - with_s) / possible;
}

std::string OverlapFigures::text() const {
  return fmt::format(
      "a step without overlap {:.0f} ms: {:.0f} computing, {:.0f} communicating; with it {:.0f} "
      "ms, of a "
      "bound of {:.0f}: {}",
      without_s * 1e3, computing_s * 1e3, transfers_s * 1e3, with_s * 1e3, bound_s() * 1e3,
      hidden() ? fmt::format("{:.0f}% of what can be hidden is", 100 * *hidden())
               : "hardly anything to hide");
}

Result<TrainLog> TrainLog::open(const std::string& folder, int64_t done) {
  TrainLog log;
  log.folder_ = folder;
  if (folder.empty()) return log;
  SENNIT_RETURN_IF_ERROR(make_folders(folder));
  // The folder's own, since the file is replaced. On a file system without such locks there is
  // none.
  log.lock_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (::flock(log.lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return invalid(fmt::format(
        "{}: another run reports there: wait for its end, or name another --report-dir", folder));
  const std::string file = folder + "/steps.jsonl";
  std::string kept;
  if (done > 0) {
    std::ifstream before(file);
    for (std::string line; std::getline(before, line);)
      if (const std::optional<StepRecord> record = StepRecord::from_json(line);
          record && record->step <= done) {
        log.records_.push_back(*record);
        kept += line + "\n";
      }
  }
  // Beside it and renamed: on a full disk the lines from before stay.
  SENNIT_RETURN_IF_ERROR(write_file_durably(file, kept));
  log.lines_ = std::fopen(file.c_str(), "a");
  if (!log.lines_) return file_error(file, "written");
  return log;
}

TrainLog::TrainLog(TrainLog&& other) noexcept
    : folder_(std::move(other.folder_)),
      lock_(std::exchange(other.lock_, -1)),
      lines_(std::exchange(other.lines_, nullptr)),
      records_(std::move(other.records_)) {}

TrainLog& TrainLog::operator=(TrainLog&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(lock_, other.lock_);
  std::swap(lines_, other.lines_);
  std::swap(records_, other.records_);
  return *this;
}

TrainLog::~TrainLog() {
  if (lines_) std::fclose(lines_);
  if (lock_ >= 0) ::close(lock_);
}

void TrainLog::add(const StepRecord& record, bool on_screen) {
  records_.push_back(record);
  if (lines_) {
    const std::string line = record.to_json() + "\n";
    if (std::fputs(line.c_str(), lines_) < 0 || std::fflush(lines_) != 0) {
      log(LogLevel::warn, "{}; the run goes on without step lines",
          file_error(folder_ + "/steps.jsonl", "written").text());
      std::fclose(std::exchange(lines_, nullptr));
    }
  }
  if (!on_screen) return;
  fmt::print("{}\n", record.line());
  std::fflush(stdout);
}

Status TrainLog::write_page(const std::vector<std::pair<std::string, std::string>>& facts,
                            const std::string& sample) const {
  if (folder_.empty()) return {};
  return write_file_durably(folder_ + "/report.html", train_page(records_, facts, sample));
}

}  // namespace sennit::trainer
