// work_between.cpp: see watch/work_between.hpp.
#include "watch/work_between.hpp"

namespace sennit::watch {

void WorkBetween::look(uint64_t now_ns, uint64_t cpu_ns) {
  looks_.push_back({now_ns, cpu_ns});
  if (looks_.size() > kMostLooks) looks_.pop_front();
}

// By the first and the last look that lie in it.
void WorkBetween::in_none(uint64_t begin_ns, uint64_t end_ns) {
  while (!looks_.empty() && looks_.front().at_ns < begin_ns) looks_.pop_front();
  if (looks_.empty()) return;
  const Look first = looks_.front();
  Look last = first;
  while (!looks_.empty() && looks_.front().at_ns <= end_ns) {
    last = looks_.front();
    looks_.pop_front();
  }
  in_none_ns_ += static_cast<double>(last.at_ns - first.at_ns);
  used_ns_ += static_cast<double>(last.cpu_ns - first.cpu_ns);
}

std::optional<double> WorkBetween::cores() {
  constexpr double kLeastNs = 50e6, kKept = 0.7;
  std::optional<double> cores;
  if (in_none_ns_ >= kLeastNs) cores = used_ns_ / in_none_ns_;
  in_none_ns_ *= kKept;
  used_ns_ *= kKept;
  return cores;
}

}  // namespace sennit::watch
