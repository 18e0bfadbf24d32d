// `sennit job --gpu list`: the table of accelerators, and where each figure comes from.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "command/forecast/job.hpp"
#include "forecast/hardware.hpp"

namespace sennit::forecast {
namespace {

// The sources met so far, numbered.
class Sources {
 public:
  std::string mark(const Figure& figure) {
    for (size_t i = 0; i < names_.size(); i++)
      if (names_[i] == figure.source) return fmt::format("[{}]", i + 1);
    names_.emplace_back(figure.source);
    return fmt::format("[{}]", names_.size());
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < names_.size(); i++)
      text += fmt::format("{:>5} {}\n", fmt::format("[{}]", i + 1), names_[i]);
    return text;
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace

std::string accelerators_text() {
  Sources sources;
  const auto cell = [&](const Figure& figure, double unit, const char* precision) {
    if (!figure.known()) return fmt::format("{:>8} {:<4}", "-", "");
    return fmt::format("{:>8} {:<4}", fmt::format(fmt::runtime(precision), figure.value / unit),
                       sources.mark(figure));
  };
  const std::pair<const char*, Figure Accelerator::*> types[] = {
      {"fp32", &Accelerator::fp32}, {"tf32", &Accelerator::tf32}, {"bf16", &Accelerator::bf16},
      {"fp16", &Accelerator::fp16}, {"fp8", &Accelerator::fp8},   {"int8", &Accelerator::int8}};
  std::string text = fmt::format("{:<8}", "TFLOP/s");
  for (const auto& type : types) text += fmt::format(" {:>8} {:<4}", type.first, "");
  text += "\n";
  for (const Accelerator& a : accelerators()) {
    text += fmt::format("{:<8}", a.name);
    for (const auto& type : types) text += " " + cell(a.*type.second, 1e12, "{:.5g}");
    text += "\n";
  }
  text += fmt::format(
      "\n{:<8} {:>8} {:<4} {:>8} {:<4} {:>8} {:<4} {:>8} {:<4} {:>8} {:<4} {:>8} {:<4}\n", "",
      "memory", "GB", "memory", "GB/s", "links", "GB/s", "NIC", "GB/s", "chip", "W", "server", "W");
  for (const Accelerator& a : accelerators()) {
    text += fmt::format(
        "{:<8} {} {} {} {} {} {}  {}\n", a.name, cell(a.memory_bytes, 1e9, "{:.4g}"),
        cell(a.memory_bytes_per_s, 1e9, "{:.5g}"), cell(a.scale_up_bytes_per_s, 1e9, "{:.4g}"),
        cell(a.nic_bytes_per_s, 1e9, "{:.4g}"), cell(a.watts, 1, "{:.5g}"),
        cell(a.server_watts, 1, "{:.5g}"), a.full_name);
  }
  text +=
      "\nPeaks are dense; links and NICs are one direction; server: an accelerator's share of its "
      "usual server. - is what does not exist, or is not printed.\n";
  return text + sources.text();
}

}  // namespace sennit::forecast
