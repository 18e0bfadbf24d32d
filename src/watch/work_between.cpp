// work_between.cpp: see watch/work_between.hpp.
#include "watch/work_between.hpp"

#include <algorithm>

namespace sennit::watch {
namespace {

// Between two looks that are farther apart the process was stopped: it asked for nothing.
constexpr uint64_t kLongestNs = 200'000'000;

}  // namespace

void WorkBetween::look(uint64_t now_ns, uint64_t cpu_ns, bool ready) {
  looks_.push_back({now_ns, cpu_ns, ready});
  if (looks_.size() > kMostLooks) looks_.pop_front();
}

// By the looks that lie in it.
void WorkBetween::in_none(uint64_t begin_ns, uint64_t end_ns) {
  while (!looks_.empty() && looks_.front().at_ns < begin_ns) looks_.pop_front();
  for (std::optional<Look> last; !looks_.empty() && looks_.front().at_ns <= end_ns;) {
    const Look look = looks_.front();
    looks_.pop_front();
    if (last) {
      const uint64_t between_ns = look.at_ns - last->at_ns, used_ns = look.cpu_ns - last->cpu_ns;
      const bool ready = last->ready && look.ready;
      if (between_ns <= kLongestNs) {
        in_none_ns_ += static_cast<double>(between_ns);
        asked_ns_ += static_cast<double>(ready ? std::max(used_ns, between_ns) : used_ns);
      }
    }
    last = look;
  }
}

std::optional<double> WorkBetween::cores() {
  constexpr double kLeastNs = 50e6, kKept = 0.7;
  std::optional<double> cores;
  if (in_none_ns_ >= kLeastNs) cores = asked_ns_ / in_none_ns_;
  in_none_ns_ *= kKept;
  asked_ns_ *= kKept;
  return cores;
}

}  // namespace sennit::watch
